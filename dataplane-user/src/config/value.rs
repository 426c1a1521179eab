//! What one value may be. Each reader turns a TOML value into its type, or says what is wrong, why, and what to write.
//!
//! The first part of a complaint ends a sentence that begins with `key = value`.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml::de::DeValue;

use super::error::Complaint;
use super::nearest::did_you_mean;
use super::units;

/// A value, or what is wrong with it.
pub(super) type Read<T> = Result<T, Complaint>;

/// Durations that a table of 32-bit nanoseconds holds and that make sense for one packet.
pub(super) const UP_TO_A_SECOND: RangeInclusive<u32> = 0..=1_000_000_000;

/// A string.
fn text<'v>(value: &'v DeValue<'_>, example: &str) -> Read<&'v str> {
    value.as_str().ok_or_else(|| {
        Complaint::new(
            format!("is {}, not a string", kind(value)),
            "names, addresses and quantities with a unit are strings",
            format!("write it in quotes, like {example}"),
        )
    })
}

/// The type of `value` with its article.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fractional number",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

/// `true` or `false`.
pub(super) fn flag(value: &DeValue<'_>) -> Read<bool> {
    value.as_bool().ok_or_else(|| {
        Complaint::new(format!("is {}", kind(value)), "the setting is on or off", "write true or false, without quotes")
    })
}

/// A whole number in `range`; `why` says where the limits come from.
pub(super) fn number<T>(range: RangeInclusive<T>, why: &'static str) -> impl Fn(&DeValue<'_>) -> Read<T>
where
    T: Copy + PartialOrd + std::fmt::Display + TryFrom<i128>,
{
    move |value| {
        let todo = || format!("write a whole number from {} to {}", range.start(), range.end());
        let Some(number) = value.as_integer() else {
            return Err(Complaint::new(format!("is {}, not a whole number", kind(value)), why, todo()));
        };
        let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
        number
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| Complaint::new("is out of range", why, todo()))
    }
}

/// A decimal number with at most three decimals, in thousandths.
pub(super) fn milli(range: RangeInclusive<u32>, why: &'static str) -> impl Fn(&DeValue<'_>) -> Read<u32> {
    move |value| {
        let [least, most] = [*range.start(), *range.end()].map(units::show_milli);
        let todo = || format!("write a number from {least} to {most} with at most three decimals");
        let thousandths = match value {
            DeValue::Float(number) => units::milli(number.as_str().trim_start_matches('+')),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .ok()
                .and_then(|number| u64::try_from(number).ok()?.checked_mul(1000))
                .ok_or(units::DecimalError::TooLarge),
            other => return Err(Complaint::new(format!("is {}, not a number", kind(other)), why, todo())),
        };
        let thousandths = thousandths.map_err(|error| Complaint::new(error.to_string(), why, todo()))?;
        let thousandths = u32::try_from(thousandths).ok().filter(|thousandths| range.contains(thousandths));
        thousandths.ok_or_else(|| Complaint::new("is out of range", why, todo()))
    }
}

/// A power of two in `range`.
pub(super) fn power_of_two(range: RangeInclusive<u32>, why: &'static str) -> impl Fn(&DeValue<'_>) -> Read<u32> {
    move |value| {
        let found = number(range.clone(), why)(value)?;
        if found.is_power_of_two() {
            return Ok(found);
        }
        // Not a power of two, so it lies between two that are in the range.
        let above = found.next_power_of_two();
        Err(Complaint::new("is not a power of two", why, format!("write {} or {above}", above / 2)))
    }
}

/// One of a few numbers.
pub(super) fn number_among(choices: &'static [u32], why: &'static str) -> impl Fn(&DeValue<'_>) -> Read<u32> {
    move |value| {
        let found = value.as_integer().and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
        found.filter(|found| choices.contains(found)).ok_or_else(|| {
            let listed: Vec<String> = choices.iter().map(u32::to_string).collect();
            Complaint::new("is not possible", why, format!("write {}", listed.join(" or ")))
        })
    }
}

/// One of a few words, with what it stands for.
pub(super) fn word<T: Copy>(words: Vec<(&'static str, T)>, what: &'static str) -> impl Fn(&DeValue<'_>) -> Read<T> {
    move |value| {
        let listed = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        let found = text(value, &listed)?;
        words.iter().find(|(word, _)| *word == found).map(|(_, meaning)| *meaning).ok_or_else(|| {
            let hint = did_you_mean(found, words.iter().map(|(word, _)| *word));
            Complaint::new(format!("is no {what}{hint}"), format!("there are: {listed}"), "write one of these")
        })
    }
}

/// A duration in `range`, ns.
pub(super) fn duration(range: RangeInclusive<u32>, why: &'static str) -> impl Fn(&DeValue<'_>) -> Read<u32> {
    move |value| {
        let limits =
            [units::show_duration((*range.start()).into()), units::show_duration((*range.end()).into())].join(" to ");
        let todo = || format!("write a number and ns, us, ms or s, like \"100us\"; accepted: {limits}");
        let ns = match value {
            DeValue::Integer(zero) if zero.as_str() == "0" => 0,
            DeValue::Integer(_) | DeValue::Float(_) => {
                return Err(Complaint::new("has no unit", "a bare number could be of any unit", todo()));
            }
            _ => units::duration_ns(text(value, "\"100us\"")?)
                .map_err(|error| Complaint::new(error.to_string(), "a duration is a number and its unit", todo()))?,
        };
        let ns = u32::try_from(ns).ok().filter(|ns| range.contains(ns));
        ns.ok_or_else(|| Complaint::new("is out of range", why, todo()))
    }
}

/// A bandwidth, bit/s, whose time per byte fits 32 bits in Q16.
pub(super) fn bandwidth(value: &DeValue<'_>) -> Read<u64> {
    const RANGE: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
    let todo = "write a number and Mbit/s or Gbit/s, like \"10Gbit/s\"; accepted: 1Mbit/s to 1Tbit/s";
    if matches!(value, DeValue::Integer(_) | DeValue::Float(_)) {
        return Err(Complaint::new("has no unit", "a bare number could be of any unit", todo));
    }
    let bits = units::bandwidth_bits(text(value, "\"10Gbit/s\"")?)
        .map_err(|error| Complaint::new(error.to_string(), "a bandwidth is a number and its unit", todo))?;
    let why = "transmission time is counted in 1/65536 ns per byte, in 32 bits";
    if RANGE.contains(&bits) { Ok(bits) } else { Err(Complaint::new("is out of range", why, todo)) }
}

/// A node's name.
pub(super) fn node_name(value: &DeValue<'_>) -> Read<String> {
    let name = text(value, "\"n1\"")?;
    let Some(what) = super::node_name_problem(name) else {
        return Ok(name.to_owned());
    };
    let why = "a node's name also names the directory of its maps";
    Err(Complaint::new(what, why, "write a letter, then at most 31 of a-z, 0-9 and -, like \"n1\""))
}

/// A network interface's name, by the kernel's own rule
/// (`dev_valid_name`, <https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c>).
pub(super) fn interface_name(value: &DeValue<'_>) -> Read<String> {
    let name = text(value, "\"eth1\"")?;
    let forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    let what = match name.chars().find(|c| forbidden(*c)) {
        Some(c) => format!("holds {c:?}"),
        None if name.is_empty() => "is empty".to_owned(),
        None if name.len() > 15 => format!("has {} bytes", name.len()),
        None if name == "." || name == ".." => "is a directory".to_owned(),
        None => return Ok(name.to_owned()),
    };
    let why = "the kernel allows 1 to 15 bytes without '/', ':' and white space, and not . or ..";
    Err(Complaint::new(format!("{what}; no interface has such a name"), why, "write a name that `ip link` shows"))
}

/// The MAC address of one interface.
pub(super) fn mac(value: &DeValue<'_>) -> Read<[u8; 6]> {
    const EXAMPLE: &str = "\"02:00:00:00:02:01\"";
    let todo = "write the address that `ip link show DEV` shows on the peer behind link/ether";
    let found = text(value, EXAMPLE)?;
    let Some(mac) = octets(found) else {
        return Err(Complaint::new(
            "is not a MAC address",
            "a MAC address is six pairs of hexadecimal digits with colons between them",
            format!("{todo}, like {EXAMPLE}"),
        ));
    };
    if mac == [0; 6] {
        return Err(Complaint::new("is zero", "no interface has the zero address", todo));
    }
    if mac[0] & 1 != 0 {
        return Err(Complaint::new("is a group address", "a packet goes to one peer, not to a group", todo));
    }
    Ok(mac)
}

fn octets(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut pairs = text.split(':');
    for octet in &mut mac {
        let pair = pairs.next()?;
        // `from_str_radix` alone would take "+1" and "1".
        if pair.len() != 2 || !pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        *octet = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(mac)
}

/// A type id that a function may have.
pub(super) fn type_id(value: &DeValue<'_>) -> Read<u16> {
    let id = number(0..=u16::MAX, "ANEP has 16 bits for the type id")(value)?;
    let why = match id {
        0 => "0 is reserved for messages of the network layer itself",
        15 => "15 is the ASP execution environment",
        51 => "51 is Anetd's own control channel",
        _ => return Ok(id),
    };
    Err(Complaint::new("is taken outside of this cluster", why, "write another id, like 0xff02"))
}

/// The name of a segment or of a cluster, by the rule of nodes' names.
pub(super) fn shared_name(value: &DeValue<'_>) -> Read<String> {
    let name = text(value, "\"main\"")?;
    let Some(what) = super::node_name_problem(name) else {
        return Ok(name.to_owned());
    };
    let why = "the nodes of a cluster know each other's names of it";
    Err(Complaint::new(what, why, "write a letter, then at most 31 of a-z, 0-9 and -, like \"main\""))
}

/// The IP address of one interface.
pub(super) fn ip(value: &DeValue<'_>) -> Read<IpAddr> {
    let todo =
        "write the address that `ip address show DEV` shows on the peer, without the prefix, like \"198.18.1.2\"";
    let Ok(ip) = text(value, "\"198.18.1.2\"")?.parse::<IpAddr>() else {
        return Err(Complaint::new("is not an IP address", "the kernel finds the MAC address behind it", todo));
    };
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(Complaint::new("is not the address of one interface", "a packet goes to one peer", todo));
    }
    Ok(ip)
}

/// IP address and port of one member.
pub(super) fn socket_address(value: &DeValue<'_>) -> Read<SocketAddr> {
    const TODO: &str = "write the node's address on the management network and a port, like \"192.0.2.1:7946\"";
    let Ok(address) = text(value, "\"192.0.2.1:7946\"")?.parse::<SocketAddr>() else {
        return Err(Complaint::new("is not an IP address with a port", "members exchange UDP datagrams", TODO));
    };
    let ip = address.ip();
    if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
        let what = "is not the address of one node";
        return Err(Complaint::new(what, "the other members send to this address", TODO));
    }
    Ok(address)
}

/// A path.
pub(super) fn path(value: &DeValue<'_>) -> Read<PathBuf> {
    let path = text(value, "\"/etc/dataplane/cluster.key\"")?;
    if path.is_empty() || path.contains('\0') {
        return Err(Complaint::new("is no path", "no file has such a name", "write the path of the file"));
    }
    Ok(path.into())
}

/// A name of something that is looked up afterwards.
pub(super) fn name(example: &'static str) -> impl Fn(&DeValue<'_>) -> Read<String> {
    move |value| text(value, example).map(str::to_owned)
}

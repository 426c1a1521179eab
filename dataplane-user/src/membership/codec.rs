//! Identities, profiles and SWIM's messages as bytes: big endian, each with its length in front where it varies, nothing taken
//! that is longer than its bound.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut};
use foca::{Header, Member, Message, State};

use super::identity::Identity;
use super::profile::{LinkEnd, MAX_FUNCTIONS, MAX_LINKS, MAX_NAME_BYTES, Profile};

/// Longest [`Identity`], bytes.
const MAX_IDENTITY_BYTES: usize = 8 + 19;
/// Longest message of SWIM without what rides on it, bytes: three identities, an incarnation, a kind, a probe number.
const MAX_HEADER_BYTES: usize = 3 * MAX_IDENTITY_BYTES + 4;

/// Why bytes are not what they should be, or do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// They end too soon.
    Short,
    /// A number has no meaning, or a length is above its bound.
    Meaning(&'static str),
    /// There is no room.
    Room,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the datagram ends too soon"),
            Self::Meaning(what) => write!(f, "{what} without a meaning"),
            Self::Room => f.write_str("the datagram is full"),
        }
    }
}

impl std::error::Error for CodecError {}

impl From<bytes::TryGetError> for CodecError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Short
    }
}

/// SWIM's messages, for `foca`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codec;

impl foca::Codec<Identity> for Codec {
    type Error = CodecError;

    fn encode_header(&mut self, header: &Header<Identity>, mut buf: impl BufMut) -> Result<(), CodecError> {
        if buf.remaining_mut() < MAX_HEADER_BYTES {
            return Err(CodecError::Room);
        }
        put_identity(&mut buf, &header.src);
        buf.put_u16(header.src_incarnation);
        put_identity(&mut buf, &header.dst);
        put_message(&mut buf, &header.message);
        Ok(())
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Identity>, CodecError> {
        Ok(Header {
            src: identity(&mut buf)?,
            src_incarnation: buf.try_get_u16()?,
            dst: identity(&mut buf)?,
            message: message(&mut buf)?,
        })
    }

    fn encode_member(&mut self, member: &Member<Identity>, mut buf: impl BufMut) -> Result<(), CodecError> {
        if buf.remaining_mut() < MAX_IDENTITY_BYTES + 3 {
            return Err(CodecError::Room);
        }
        put_identity(&mut buf, member.id());
        buf.put_u16(member.incarnation());
        buf.put_u8(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        Ok(())
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Member<Identity>, CodecError> {
        let (id, incarnation) = (identity(&mut buf)?, buf.try_get_u16()?);
        let state = match buf.try_get_u8()? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(CodecError::Meaning("a member's state")),
        };
        Ok(Member::new(id, incarnation, state))
    }
}

fn put_message(buf: &mut impl BufMut, message: &Message<Identity>) {
    let (kind, about, probe_number) = match message {
        Message::Ping(number) => (0, None, Some(number)),
        Message::Ack(number) => (1, None, Some(number)),
        Message::PingReq { target, probe_number } => (2, Some(target), Some(probe_number)),
        Message::IndirectPing { origin, probe_number } => (3, Some(origin), Some(probe_number)),
        Message::IndirectAck { target, probe_number } => (4, Some(target), Some(probe_number)),
        Message::ForwardedAck { origin, probe_number } => (5, Some(origin), Some(probe_number)),
        Message::Announce => (6, None, None),
        Message::Feed => (7, None, None),
        Message::Gossip => (8, None, None),
        Message::Broadcast => (9, None, None),
        Message::TurnUndead => (10, None, None),
    };
    buf.put_u8(kind);
    if let Some(about) = about {
        put_identity(buf, about);
    }
    if let Some(number) = probe_number {
        buf.put_u8(*number);
    }
}

fn message(buf: &mut impl Buf) -> Result<Message<Identity>, CodecError> {
    let kind = buf.try_get_u8()?;
    Ok(match kind {
        0 => Message::Ping(buf.try_get_u8()?),
        1 => Message::Ack(buf.try_get_u8()?),
        2 => Message::PingReq { target: identity(buf)?, probe_number: buf.try_get_u8()? },
        3 => Message::IndirectPing { origin: identity(buf)?, probe_number: buf.try_get_u8()? },
        4 => Message::IndirectAck { target: identity(buf)?, probe_number: buf.try_get_u8()? },
        5 => Message::ForwardedAck { origin: identity(buf)?, probe_number: buf.try_get_u8()? },
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        9 => Message::Broadcast,
        10 => Message::TurnUndead,
        _ => return Err(CodecError::Meaning("a message's kind")),
    })
}

/// Writes an identity, at most [`MAX_IDENTITY_BYTES`].
pub(super) fn put_identity(buf: &mut impl BufMut, identity: &Identity) {
    buf.put_u16(identity.node);
    buf.put_u32(identity.epoch);
    buf.put_u16(identity.life);
    put_ip(buf, Some(identity.address.ip()));
    buf.put_u16(identity.address.port());
}

/// Reads an identity.
///
/// # Errors
/// [`CodecError`].
pub(super) fn identity(buf: &mut impl Buf) -> Result<Identity, CodecError> {
    let (node, epoch, life) = (buf.try_get_u16()?, buf.try_get_u32()?, buf.try_get_u16()?);
    let ip = ip(buf)?.ok_or(CodecError::Meaning("a member's address"))?;
    Ok(Identity { node, epoch, life, address: SocketAddr::new(ip, buf.try_get_u16()?) })
}

fn put_ip(buf: &mut impl BufMut, ip: Option<IpAddr>) {
    match ip {
        None => buf.put_u8(0),
        Some(IpAddr::V4(ip)) => {
            buf.put_u8(4);
            buf.put_slice(&ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            buf.put_u8(6);
            buf.put_slice(&ip.octets());
        }
    }
}

fn ip(buf: &mut impl Buf) -> Result<Option<IpAddr>, CodecError> {
    Ok(match buf.try_get_u8()? {
        0 => None,
        4 => Some(Ipv4Addr::from(buf.try_get_u32()?).into()),
        6 => Some(Ipv6Addr::from(buf.try_get_u128()?).into()),
        _ => return Err(CodecError::Meaning("an address family")),
    })
}

/// Writes a profile. What is beyond the bounds of [`Profile`] is left out, so that the others can read it.
pub(super) fn put_profile(buf: &mut impl BufMut, profile: &Profile) {
    buf.put_u32(profile.abi);
    buf.put_u16(profile.workers);
    buf.put_u8(profile.draining.into());
    put_name(buf, &profile.name);
    let links = profile.links.get(..MAX_LINKS).unwrap_or(&profile.links);
    buf.put_u8(links.len() as u8);
    for link in links {
        put_name(buf, &link.segment);
        buf.put_slice(&link.mac);
        put_ip(buf, link.address);
    }
    let functions = profile.functions.get(..MAX_FUNCTIONS).unwrap_or(&profile.functions);
    buf.put_u8(functions.len() as u8);
    for (type_id, hash) in functions {
        buf.put_u16(*type_id);
        buf.put_u32(*hash);
    }
}

/// Reads a profile, which must end where the bytes end.
///
/// # Errors
/// [`CodecError`].
pub(super) fn profile(buf: &mut impl Buf) -> Result<Profile, CodecError> {
    let (abi, workers, flags) = (buf.try_get_u32()?, buf.try_get_u16()?, buf.try_get_u8()?);
    let name = name(buf)?;
    let links = bounded(buf, MAX_LINKS, "a count of links")?;
    let links = (0..links).map(|_| link_end(buf)).collect::<Result<_, _>>()?;
    let functions = bounded(buf, MAX_FUNCTIONS, "a count of functions")?;
    let function = |_| Ok((buf.try_get_u16()?, buf.try_get_u32()?));
    let functions = (0..functions).map(function).collect::<Result<_, CodecError>>()?;
    if buf.has_remaining() || flags > 1 {
        return Err(CodecError::Meaning("the end of a profile"));
    }
    Ok(Profile { name, abi, workers, draining: flags == 1, links, functions })
}

fn link_end(buf: &mut impl Buf) -> Result<LinkEnd, CodecError> {
    let segment = name(buf)?;
    let mut mac = [0; 6];
    buf.try_copy_to_slice(&mut mac)?;
    Ok(LinkEnd { segment, mac, address: ip(buf)? })
}

fn bounded(buf: &mut impl Buf, most: usize, what: &'static str) -> Result<usize, CodecError> {
    let count = usize::from(buf.try_get_u8()?);
    if count > most { Err(CodecError::Meaning(what)) } else { Ok(count) }
}

fn put_name(buf: &mut impl BufMut, name: &str) {
    let name = &name[..name.floor_char_boundary(MAX_NAME_BYTES)];
    buf.put_u8(name.len() as u8);
    buf.put_slice(name.as_bytes());
}

/// A name that can be shown on a terminal as it stands.
fn name(buf: &mut impl Buf) -> Result<String, CodecError> {
    let mut bytes = [0; MAX_NAME_BYTES];
    let bytes = &mut bytes[..bounded(buf, MAX_NAME_BYTES, "the length of a name")?];
    buf.try_copy_to_slice(bytes)?;
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.chars().any(char::is_control) => Ok(name.to_owned()),
        _ => Err(CodecError::Meaning("a name")),
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;

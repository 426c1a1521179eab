//! Section of `demo --transports`: what user-level communication changes.

use anyhow::Result;
use serde_json::Value;

use super::measured::origin;
use super::page::{at, list, number, percent, table, text};
use crate::demo::table::format_ns;

/// The policies over each transport; the first file has a heading.
pub fn transports(value: &Value, is_first: bool) -> Result<String> {
    let mut page =
        if is_first { "\n## What user-level communication changes (cluster)\n".to_owned() } else { String::new() };
    page += &format!("\n### Workload {}, transports in turns\n\n{}\n", text(value, "/setup/pattern")?, origin(value)?);
    page += "`udp` are the kernel's sockets, `xsk` AF_XDP sockets of the worker, `xdp` a redirect in the driver's context.\n\n";
    page += &policies(value)?;
    if is_first {
        page += "\n![mean latency and share forwarded by transport](images/transports.svg)\n";
    }
    page += &costs(value)?;
    page += &answer(value)?;
    for problem in list(value, "/problems")?.iter().filter_map(Value::as_str) {
        page += &format!("\nDoes not add up: {problem}.\n");
    }
    Ok(page)
}

/// Median, least and most of a spread, each with its sign.
fn signed(value: &Value, pointer: &str, unit: &str) -> Result<String> {
    let part = |name: &str| number(value, &format!("{pointer}/{name}"));
    Ok(format!("{:+.1} {unit} ({:+.1} to {:+.1})", part("median")?, part("min")?, part("max")?))
}

fn policies(value: &Value) -> Result<String> {
    let changes = list(value, "/changes")?;
    let mut rows = Vec::new();
    for policy in list(value, "/setup/policies")? {
        for point in list(value, "/points")?.iter().filter(|point| point["policy"] == *policy) {
            let is_of = |change: &&Value| change["policy"] == *policy && change["transport"] == point["transport"];
            let change = changes.iter().find(is_of);
            let against = |pointer: &str, unit: &str| {
                change.map_or_else(|| Ok("-".to_owned()), |change| signed(change, pointer, unit))
            };
            rows.push(vec![
                text(point, "/policy")?.to_owned(),
                text(point, "/transport")?.to_owned(),
                format_ns(number(point, "/mean_ns")?),
                format_ns(number(point, "/p50_ns")?),
                format_ns(number(point, "/p99_ns")?),
                percent(number(point, "/forwarded_share")?),
                at(point, "/lost")?.to_string(),
                against("/mean_percent", "%")?,
                against("/forwarded_points", "points")?,
            ]);
        }
    }
    let base = text(value, "/base")?;
    let (mean, forwarded) = (format!("mean against {base}"), format!("forwarded against {base}"));
    let head = ["policy", "transport", "mean", "p50", "p99", "forwarded", "lost", &mean, &forwarded];
    let note = "\nAgainst: median, least and most of the differences within a round.\n";
    Ok(table(&head, &rows) + note)
}

fn costs(value: &Value) -> Result<String> {
    let mut rows = Vec::new();
    for cost in list(value, "/costs")? {
        let mut row = vec![text(cost, "/transport")?.to_owned()];
        for name in ["send", "receive", "wire", "guard", "total"] {
            row.push(median(cost, name).map_or_else(|| "not measured".to_owned(), format_ns));
        }
        rows.push(row);
    }
    let head = ["transport", "send", "receive", "wire", "guard", "in all"];
    let note = "\nWhat the nodes themselves measured, medians over nodes and runs. *guard*: a packet whose service takes less stays, \
                because sending and receiving it would take as much CPU time; *wire*: half of a \
                packet's way there and back beyond its time there, so where workers send and take results, it has in it how long \
                they are at something else; *in all*: what a packet must save by waiting less elsewhere.\n";
    Ok(format!("\n{}{note}", table(&head, &rows)))
}

/// Median of a cost, ns; `None` when no node had measured it.
fn median(cost: &Value, name: &str) -> Option<f64> {
    cost.pointer(&format!("/{name}_ns/median"))?.as_f64()
}

/// How often something was less, more, or neither in every round.
#[derive(Default)]
struct Signs {
    less: Vec<String>,
    more: Vec<String>,
    unclear: Vec<String>,
}

impl Signs {
    fn of(value: &Value, transport: &str, pointer: &str) -> Result<Self> {
        let mut signs = Self::default();
        for change in list(value, "/changes")?.iter().filter(|change| change["transport"] == transport) {
            let part = |name: &str| number(change, &format!("{pointer}/{name}"));
            let group = match (part("min")?, part("max")?) {
                (_, max) if max < 0.0 => &mut signs.less,
                (min, _) if min > 0.0 => &mut signs.more,
                _ => &mut signs.unclear,
            };
            group.push(format!("{} ({:+.1})", text(change, "/policy")?, part("median")?));
        }
        Ok(signs)
    }

    /// A sentence with a part for each group that is not empty.
    fn sentence(&self, subject: &str, [less, more]: [&str; 2]) -> String {
        let part = |(group, what): (&Vec<String>, &str)| {
            (!group.is_empty()).then(|| format!("{what} in every round under {}", group.join(", ")))
        };
        let mut parts: Vec<_> = [(&self.less, less), (&self.more, more)].into_iter().filter_map(part).collect();
        if !self.unclear.is_empty() {
            parts.push(format!("not the same way in all rounds under {}", self.unclear.join(", ")));
        }
        if parts.is_empty() { String::new() } else { format!("{subject} {}. ", parts.join("; ")) }
    }
}

/// The answer in words, as far as the figures give one.
fn answer(value: &Value) -> Result<String> {
    let base = text(value, "/base")?;
    let costs = list(value, "/costs")?;
    let total_of = |name: &str| costs.iter().find(|cost| cost["transport"] == name).and_then(|it| median(it, "total"));
    let mut page = String::from("\n**What it changes.** ");
    for cost in costs.iter().filter(|cost| cost["transport"] != base) {
        let transport = text(cost, "/transport")?;
        if let (Some(own), Some(kernel)) = (total_of(transport), total_of(base)) {
            let (verb, percent) =
                if own <= kernel { ("less", 1.0 - own / kernel) } else { ("more", own / kernel - 1.0) };
            page += &format!(
                "Over `{transport}` forwarding costs {} instead of {}, {:.0} % {verb}. ",
                format_ns(own),
                format_ns(kernel),
                percent * 100.0
            );
        }
        let latency = Signs::of(value, transport, "/mean_percent")?;
        page += &latency.sentence("The mean latency is (%)", ["shorter", "longer"]);
        let share = Signs::of(value, transport, "/forwarded_points")?;
        page += &share.sentence("The share forwarded is (points)", ["smaller", "larger"]);
    }
    Ok(page.trim_end().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(mean: [f64; 3]) -> Value {
        let spread = |[min, median, max]: [f64; 3]| json!({"min": min, "median": median, "max": max, "count": 3});
        let point = |transport: &str| {
            json!({"transport": transport, "policy": "sooner", "mean_ns": 1e6, "p50_ns": 1, "p99_ns": 2, "lost": 0,
                   "forwarded_share": 0.25})
        };
        let cost = |transport: &str, total: f64| {
            let median = spread([1_000.0; 3]);
            json!({"transport": transport, "send_ns": median, "receive_ns": median, "wire_ns": null, "guard_ns": median,
                   "total_ns": spread([total; 3])})
        };
        json!({
            "command": "demo --transports", "base": "udp", "problems": [],
            "setup": {"pattern": "mixed", "seed": 1, "rounds": 3, "policies": ["sooner"]},
            "host": {"cores": 2, "cpu": "c", "kernel": "k"},
            "points": [point("udp"), point("xdp")],
            "costs": [cost("udp", 40_000.0), cost("xdp", 10_000.0)],
            "changes": [{"transport": "xdp", "policy": "sooner", "mean_percent": spread(mean),
                         "forwarded_points": spread([1.0, 2.0, 3.0])}],
        })
    }

    #[test]
    fn the_answer_follows_from_the_figures() {
        let page = transports(&value([-9.0, -5.0, -1.0]), true).unwrap();
        assert!(page.contains("Over `xdp` forwarding costs 10.0 µs instead of 40.0 µs, 75 % less."), "{page}");
        assert!(page.contains("The mean latency is (%) shorter in every round under sooner (-5.0)."), "{page}");
        assert!(page.contains("The share forwarded is (points) larger in every round under sooner (+2.0)."), "{page}");
        let page = transports(&value([1.0, 5.0, 9.0]), false).unwrap();
        assert!(page.contains("longer in every round under sooner (+5.0)") && !page.contains("## What"), "{page}");
        let page = transports(&value([-1.0, 5.0, 9.0]), false).unwrap();
        assert!(page.contains("not the same way in all rounds under sooner (+5.0)"), "{page}");
    }

    #[test]
    fn what_nobody_has_measured_is_said() {
        let page = transports(&value([0.0; 3]), true).unwrap();
        assert!(page.contains("| xdp | 1.00 µs | 1.00 µs | not measured | 1.00 µs | 10.0 µs |"), "{page}");
    }
}

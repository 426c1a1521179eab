//! Sections of the cluster's files.

use anyhow::Result;
use serde_json::Value;

use super::page::{at, joined, list, number, percent, short, table, text};
use crate::demo::table::format_ns;

/// Machine, command and seed of a measurement.
///
/// # Errors
/// The file lacks one of them.
pub fn origin(value: &Value) -> Result<String> {
    Ok(format!(
        "`{}`, seed {}, {} rounds; {} cores, {}, kernel {}.\n",
        text(value, "/command")?,
        at(value, "/setup/seed")?,
        at(value, "/setup/rounds")?,
        at(value, "/host/cores")?,
        text(value, "/host/cpu")?,
        text(value, "/host/kernel")?
    ))
}

/// The simulator against the cluster.
pub fn validate(value: &Value) -> Result<String> {
    let mut page = format!("\n## The simulator against the cluster\n\n{}\n", origin(value)?);
    let mut rows = Vec::new();
    for policy in list(value, "/policies")? {
        let mut row = vec![text(policy, "/policy")?.to_owned()];
        for figure in ["mean", "p50", "p99"] {
            row.push(format_ns(number(policy, &format!("/cluster/{figure}_ns"))?));
            row.push(format_ns(number(policy, &format!("/simulator/{figure}_ns"))?));
            row.push(format!("{:+.1} %", number(policy, &format!("/{figure}_difference"))?));
        }
        row.push(percent(number(policy, "/cluster/forwarded_share")?));
        row.push(percent(number(policy, "/simulator/forwarded_share")?));
        rows.push(row);
    }
    let head =
        ["policy", "mean, cluster", "simulator", "", "p50, cluster", "simulator", "", "p99, cluster", "simulator", ""];
    let head = [head.as_slice(), &["forwarded, cluster", "simulator"]].concat();
    page += &table(&head, &rows);
    page += &format!(
        "\nMeasured without work: way from the generator to a worker and back {}, waking a worker {}. The file has all costs.\n",
        format_ns(number(value, "/way/path_ns")?),
        format_ns(number(value, "/way/wake_ns")?)
    );
    let (tolerance, beyond) = (number(value, "/tolerance")?, joined(value, "/beyond_tolerance")?);
    page += &match beyond.as_str() {
        "" => format!("\nEvery mean is within {tolerance} % of the cluster's.\n"),
        beyond => format!("\nMeans that differ by more than {tolerance} %: {beyond}.\n"),
    };
    Ok(page)
}

/// The sweep of the share of high computations.
pub fn sweep(value: &Value) -> Result<String> {
    let mut page = format!("\n## Share of high computations (cluster)\n\n{}\n", origin(value)?);
    let savings = list(value, "/savings")?;
    let mut rows = Vec::new();
    for point in list(value, "/points")? {
        let (share, policy) = (at(point, "/share_percent")?, text(point, "/policy")?);
        let saving = savings.iter().find(|saving| saving["share_percent"] == *share && saving["policy"] == policy);
        let saved = |name: &str| {
            let value = saving.and_then(|saving| saving[name].as_f64());
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0} %"))
        };
        rows.push(vec![
            format!("{share} %"),
            policy.to_owned(),
            format_ns(number(point, "/mean_ns")?),
            format_ns(number(point, "/p99_ns")?),
            percent(number(point, "/forwarded_share")?),
            format!("{:.0}", number(point, "/bytes_per_packet")?),
            saved("latency_percent"),
            saved("bytes_percent"),
        ]);
    }
    page +=
        &table(&["high", "policy", "mean", "p99", "forwarded", "bytes a packet", "mean saved", "bytes saved"], &rows);
    page += "\nSaved: against the policy cpu-load at the same share.\n";
    Ok(page)
}

/// A demonstration; the first one has a heading.
pub fn demo(value: &Value, is_first: bool) -> Result<String> {
    let mut page = if is_first { "\n## Policies on the cluster\n".to_owned() } else { String::new() };
    page += &format!("\n### Workload {}\n\n{}\n", text(value, "/setup/pattern")?, origin(value)?);
    let mut rows = Vec::new();
    for name in list(value, "/setup/policies")?.iter().filter_map(Value::as_str) {
        let policy = at(value, "/policies")?.get(name).unwrap_or(&Value::Null);
        rows.push(vec![
            name.to_owned(),
            format_ns(number(policy, "/mean_ns")?),
            format_ns(number(policy, "/p50_ns")?),
            format_ns(number(policy, "/p99_ns")?),
            percent(number(policy, "/forwarded_share")?),
            format!("{} MB", short(number(policy, "/interconnect_bytes")? / 1e6)),
            at(policy, "/lost")?.to_string(),
        ]);
    }
    page += &table(&["policy", "mean", "p50", "p99", "forwarded", "interconnect", "lost"], &rows);
    for problem in list(value, "/problems")?.iter().filter_map(Value::as_str) {
        page += &format!("\nDoes not add up: {problem}.\n");
    }
    Ok(page)
}

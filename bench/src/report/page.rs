//! The page: one section per benchmark that has results.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::bars::{self, Bar};
use super::curves::{self, number};
use super::interconnect;
use super::read::Results;
use crate::peers::Spread;
use crate::sim::matrix::chart::{self, Axis, Line, Scale};

const STYLE: &str = include_str!("../sim/matrix/report.css");
/// What the shared style does not have: the ground of drawings made by [`Svg`].
const MORE_STYLE: &str = "svg [fill=\"#ffffff\"] { fill: var(--ground); }\n";
/// Mark of what comes from the directory that is compared with.
const BEFORE: &str = ", before";
/// Pens of lines from there begin here.
const BEFORE_PEN: usize = 5;

/// Room for the names of contenders, pixels.
const LEGEND: i32 = 280;

/// The page.
///
/// # Errors
/// A plot cannot be drawn, or a file is not what its format says.
pub fn html(now: &Results, before: Option<&Results>) -> Result<String> {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>Benchmarks</title>\n");
    let _ =
        writeln!(page, "<style>\n{STYLE}{MORE_STYLE}</style>\n</head>\n<body>\n<h1>Benchmarks of the dataplane</h1>");
    for machine in now.machines() {
        let _ = writeln!(page, "<p>{}</p>", escape(&machine));
    }
    for machine in before.map(Results::machines).unwrap_or_default() {
        let _ = writeln!(page, "<p class=\"note\">compared with: {}</p>", escape(&machine));
    }
    page.push_str(&throughput(now, before));
    page.push_str(&latency(now, before)?);
    page.push_str(&peers(now, before));
    page.push_str(&interconnect::section(now, before));
    page.push_str(&loss(now, before)?);
    page.push_str(&burst(now, before));
    page.push_str(&soak(now, before)?);
    page.push_str(&scale(now)?);
    page.push_str(&reload(now, before));
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

/// The text where HTML would read marks.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table; the first cell of each row is a name.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let line = |mark: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.map(|cell| format!("<{mark}>{}</{mark}>", escape(cell))).collect::<String>();
        format!("<tr>{cells}</tr>\n")
    };
    let mut text = String::from("<table>\n");
    text.push_str(&line("th", &mut heads.iter().copied()));
    rows.iter().for_each(|row| text.push_str(&line("td", &mut row.iter().map(String::as_str))));
    text + "</table>\n"
}

/// A chart of the lines that have points; nothing when none has.
fn figure(title: &str, x: (&'static str, Scale), y: (&'static str, Scale), lines: Vec<Line>) -> Result<String> {
    let lines: Vec<_> = lines.into_iter().filter(|line| line.points.len() > 1).collect();
    if lines.is_empty() {
        return Ok(String::new());
    }
    let all = || lines.iter().flat_map(|line| &line.points);
    let across = Axis::round(x.0, x.1, all().map(|point| point.0));
    let up = Axis::round(y.0, y.1, all().map(|point| point.1));
    let picture = chart::draw_with_legend(title, (&across, &up), &lines, LEGEND)?;
    let label = escape(&format!("{title}: {} over {}", y.0, x.0));
    Ok(format!("<figure role=\"img\" aria-label=\"{label}\">\n{picture}</figure>\n"))
}

/// Now and, if there is one, before: with what each is marked by and where its pens begin.
pub fn both<'a>(
    now: &'a Results,
    before: Option<&'a Results>,
) -> impl Iterator<Item = (&'a Results, &'static str, usize)> {
    std::iter::once((now, "", 0)).chain(before.map(|before| (before, BEFORE, BEFORE_PEN)))
}

/// A rate in Mpps, or a dash.
fn mpps(value: &Value) -> String {
    value.as_f64().map_or_else(|| "–".to_owned(), |rate| format!("{:.3}", rate / 1e6))
}

fn throughput(now: &Results, before: Option<&Results>) -> String {
    let mut rows = Vec::new();
    let mut bounds = Vec::new();
    for (results, mark, _) in both(now, before) {
        let contenders = results.whole("throughput.json").and_then(|whole| whole["contenders"].as_array());
        for contender in contenders.into_iter().flatten() {
            let name = contender["name"].as_str().unwrap_or("?");
            for found in contender["found"].as_array().into_iter().flatten() {
                let goal = found["goal"]["name"].as_str().unwrap_or("?");
                let cells = ["lower", "upper", "conditional_throughput"].map(|field| mpps(&found[field]));
                rows.push([vec![format!("{name}{mark}"), goal.to_owned()], cells.to_vec()].concat());
                let lower = number(found, "lower") / 1e6;
                let upper = found["upper"].as_f64().map_or(lower, |upper| upper / 1e6);
                let name = format!("{name}, {goal}");
                bounds.push(Bar { name, value: lower, span: (lower, upper), is_before: !mark.is_empty() });
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let note =
        "The lower bound was carried, the upper one was not; conditional: what was forwarded at the lower bound. Mpps.";
    let heads = ["contender", "goal", "lower", "upper", "conditional"];
    format!(
        "<h2>Throughput</h2>\n<p class=\"note\">{note}</p>\n{}{}",
        bars::draw("Throughput bounds, Mpps", &bounds, 3),
        table(&heads, &rows)
    )
}

fn latency(now: &Results, before: Option<&Results>) -> Result<String> {
    let mut lines = Vec::new();
    let mut rows = Vec::new();
    for (results, mark, pen) in both(now, before) {
        lines.extend(curves::latency(results, mark, pen)?);
        let levels = results.whole("latency.json").and_then(|whole| whole["levels"].as_array());
        for level in levels.into_iter().flatten() {
            let counts = &level["counts"];
            rows.push(vec![
                format!("{} % of PDR{mark}", level["percent"]),
                format!("{:.2}", number(level, "rate") / 1e3),
                counts["sent"].to_string(),
                level["lost"].to_string(),
                format!("{:.0}", level["noise"]["others"].as_f64().unwrap_or(0.0) * 100.0),
            ]);
        }
    }
    if rows.is_empty() {
        return Ok(String::new());
    }
    let note =
        "From the scheduled departure. A lost packet has no latency: read each curve with what was lost beside it.";
    let x = ("one packet in so many is slower: 2 = p50, 100 = p99, 1000 = p99.9", Scale::Logarithmic);
    let picture = figure("Latency by share of PDR", x, ("latency, µs", Scale::Logarithmic), lines)?;
    let heads = ["level", "kpps", "sent", "lost", "other programs, %"];
    Ok(format!("<h2>Latency</h2>\n<p class=\"note\">{note}</p>\n{picture}{}", table(&heads, &rows)))
}

fn peers(now: &Results, before: Option<&Results>) -> String {
    let mut rows = Vec::new();
    for (results, mark, _) in both(now, before) {
        let contenders = results.whole("peers.json").and_then(|whole| whole["contenders"].as_array());
        for contender in contenders.into_iter().flatten() {
            let name = contender["name"].as_str().unwrap_or("?");
            let ratio = &contender["ratio"];
            let share =
                |field: &str| ratio[field].as_f64().map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
            let rates = ["min", "median", "max"].map(|field| mpps(&contender["rate"][field]));
            let ratios = ["min", "median", "max"].map(share);
            let reference = contender["reference"].as_str().unwrap_or("–").to_owned();
            rows.push([vec![format!("{name}{mark}")], rates.to_vec(), ratios.to_vec(), vec![reference]].concat());
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["contender", "Mpps min", "median", "max", "ratio min", "median", "max", "to"];
    format!("<h2>Peers</h2>\n{}", table(&heads, &rows))
}

fn loss(now: &Results, before: Option<&Results>) -> Result<String> {
    let mut lines = Vec::new();
    for (results, mark, pen) in both(now, before) {
        lines.extend(curves::loss(results, mark, pen));
    }
    let x = ("offered, Mpps", Scale::Linear);
    let picture = figure("Loss by offered rate", x, ("lost, %", Scale::Linear), lines)?;
    if picture.is_empty() {
        return Ok(picture);
    }
    let note = "RFC 2544 section 26.3: rates fall from the highest until two in a row lose nothing.";
    Ok(format!("<h2>Loss</h2>\n<p class=\"note\">{note}</p>\n{picture}"))
}

fn burst(now: &Results, before: Option<&Results>) -> String {
    let mut rows = Vec::new();
    for (results, mark, _) in both(now, before) {
        for found in results.lines("burst.jsonl").iter().filter(|line| line["longest"].is_array()) {
            let limit = if found["is_limited"] == true { "longest tried" } else { "" };
            rows.push(vec![
                format!("{}{mark}", found["contender"].as_str().unwrap_or("?")),
                format!("{:.0}", number(found, "mean_frames")),
                format!("{:.1}", number(found, "implied_buffer_s") * 1e6),
                found["longest"].as_array().map_or(0, Vec::len).to_string(),
                limit.to_owned(),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["contender", "frames, mean", "buffer, µs", "searches", ""];
    let note = "Longest burst without loss, as close as the generator sends (RFC 2544 section 26.4, RFC 9004).";
    format!("<h2>Bursts</h2>\n<p class=\"note\">{note}</p>\n{}", table(&heads, &rows))
}

fn soak(now: &Results, before: Option<&Results>) -> Result<String> {
    let (mut memory, mut decisions, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (results, mark, pen) in both(now, before) {
        memory.extend(curves::memory(results, mark, pen));
        decisions.extend(curves::decisions(results, mark, pen));
        for verdict in results.lines("soak.jsonl").iter().filter(|line| line["drift"].is_array()) {
            let drift = verdict["drift"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let drift = drift.collect::<Vec<_>>().join("; ");
            let us = |field: &str| format!("{:.1}", number(verdict, field) / 1e3);
            rows.push(vec![
                format!("run{mark}"),
                verdict["sent"].to_string(),
                verdict["lost"].to_string(),
                us("p50_ns"),
                us("p99_ns"),
                us("p999_ns"),
                if drift.is_empty() { "none".to_owned() } else { drift },
            ]);
        }
    }
    let time = ("time, s", Scale::Linear);
    let pictures = [
        figure("Decisions over time", time, ("forwarded, %", Scale::Linear), decisions)?,
        figure("Memory over time", time, ("resident, MiB", Scale::Linear), memory)?,
    ];
    if rows.is_empty() && pictures.iter().all(String::is_empty) {
        return Ok(String::new());
    }
    let heads = ["", "sent", "lost", "p50, µs", "p99, µs", "p99.9, µs", "drift"];
    Ok(format!("<h2>Soak</h2>\n<div class=\"plots\">\n{}</div>\n{}", pictures.concat(), table(&heads, &rows)))
}

fn scale(now: &Results) -> Result<String> {
    let lines = now.lines("scale.jsonl");
    if lines.is_empty() {
        return Ok(String::new());
    }
    let latency = ["mean", "p50", "p99"];
    let curves =
        latency.iter().enumerate().map(|(pen, name)| curves::scale(now, (name, &format!("{name}_ns")), 1e-6, pen));
    let picture =
        figure("Latency by size", ("nodes", Scale::Linear), ("latency, ms", Scale::Logarithmic), curves.collect())?;
    let row = |line: &Value| {
        let busy = line["busy"].as_array().into_iter().flatten().filter_map(Value::as_f64).sum::<f64>();
        vec![
            format!("{} nodes, {}", line["nodes"], line["policy"].as_str().unwrap_or("?")),
            format!("{:.0}", number(line, "rate")),
            line["lost"].to_string(),
            format!("{:.0}", number(line, "forwarded_share") * 100.0),
            format!("{busy:.2}"),
            format!("{:.2}", number(line, "mean_ns") / 1e6),
            format!("{:.2}", number(line, "p99_ns") / 1e6),
        ]
    };
    let rows: Vec<_> = lines.iter().map(row).collect();
    let heads = ["size", "packets/s", "lost", "forwarded, %", "servers busy", "mean, ms", "p99, ms"];
    let note = "All packets arrive at node 1; the load grows with the nodes. Emulated service.";
    Ok(format!("<h2>Scale</h2>\n<p class=\"note\">{note}</p>\n{picture}{}", table(&heads, &rows)))
}

fn reload(now: &Results, before: Option<&Results>) -> String {
    let mut rows = Vec::new();
    for (results, mark, _) in both(now, before) {
        let lines = results.lines("reload.jsonl");
        for way in curves::texts(lines, "way") {
            let of = || lines.iter().filter(|line| line["way"] == way.as_str());
            let Some(blocked) = Spread::of(of().map(|line| number(line, "blocked_s") * 1e3)) else { continue };
            rows.push(vec![
                format!("{way}{mark}"),
                blocked.count.to_string(),
                format!("{:.0}", of().map(|line| number(line, "lost")).sum::<f64>()),
                format!("{:.2}", blocked.min),
                format!("{:.2}", blocked.median),
                format!("{:.2}", blocked.max),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["replaced by", "rounds", "lost", "blocked min, ms", "median", "max"];
    format!(
        "<h2>Reload</h2>\n<p class=\"note\">Effective blocked time: frames lost divided by their rate.</p>\n{}",
        table(&heads, &rows)
    )
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;

//! The numbers of a file as lines of a chart.

use anyhow::Result;
use serde_json::Value;

use super::read::Results;
use crate::sim::matrix::chart::Line;
use crate::traffic::Distribution;

/// Points of a latency curve for each factor of ten.
const POINTS: u32 = 20;

/// A number of a value; 0 where there is none.
pub fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(0.0)
}

/// Lines whose field `key` is `text`, as points.
fn points(lines: &[Value], (key, text): (&str, &str), point: impl Fn(&Value) -> (f64, f64)) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = lines.iter().filter(|line| line[key] == text).map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Different texts of a field, in the order of their first line.
pub fn texts(lines: &[Value], key: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in lines.iter().filter_map(|line| line[key].as_str()) {
        if !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
    }
    texts
}

/// Loss in percent over the offered rate in Mpps, a line for each contender.
pub fn loss(results: &Results, suffix: &str, first_pen: usize) -> Vec<Line> {
    let lines = results.lines("loss.jsonl");
    let line = |(place, contender): (usize, String)| Line {
        points: points(lines, ("contender", &contender), |line| {
            (number(line, "load") / 1e6, number(line, "loss_ratio") * 100.0)
        }),
        name: format!("{contender}{suffix}"),
        pen: first_pen + place,
    };
    texts(lines, "contender").into_iter().enumerate().map(line).collect()
}

/// Latency in µs over "one packet in so many is slower", a line for each level; the name says what was lost.
///
/// # Errors
/// A histogram is not of the format this program knows.
pub fn latency(results: &Results, suffix: &str, first_pen: usize) -> Result<Vec<Line>> {
    let Some(levels) = results.whole("latency.json").and_then(|whole| whole["levels"].as_array()) else {
        return Ok(Vec::new());
    };
    let mut lines = Vec::new();
    for (place, level) in levels.iter().enumerate() {
        let distribution: Distribution = serde_json::from_value(level["latency"].clone())?;
        let (percent, lost) = (level["percent"].as_u64().unwrap_or(0), level["lost"].as_u64().unwrap_or(0));
        let points = percentiles(distribution.count());
        let points = points.map(|one_in| (one_in, distribution.quantile_ns(1.0 - 1.0 / one_in) as f64 / 1e3));
        let name = format!("{percent} %, {lost} lost{suffix}");
        lines.push(Line { name, pen: first_pen + place, points: points.collect() });
    }
    Ok(lines)
}

/// Where a distribution of so many values says something: up to one in a tenth of them.
fn percentiles(count: u64) -> impl Iterator<Item = f64> {
    let most = (count / 10).max(1) as f64;
    (0..).map(|step| 10f64.powf(f64::from(step) / f64::from(POINTS))).take_while(move |one_in| *one_in <= most)
}

/// Samples of a soak run: the lines that have nodes.
pub fn samples(results: &Results) -> Vec<&Value> {
    results.lines("soak.jsonl").iter().filter(|line| line["nodes"].is_array()).collect()
}

/// Resident memory of each node in MiB over the time in s.
pub fn memory(results: &Results, suffix: &str, first_pen: usize) -> Vec<Line> {
    by_node(results, suffix, first_pen, |_, node| Some(number(node, "resident_kib") / 1024.0))
}

/// Share of the packets that each node forwarded between two samples, percent, over the time in s.
pub fn decisions(results: &Results, suffix: &str, first_pen: usize) -> Vec<Line> {
    by_node(results, suffix, first_pen, |before, node| {
        let grown = |name: &str| number(node, name) - before.map_or(0.0, |before| number(before, name));
        let (local, forwarded) = (grown("local"), grown("forwarded"));
        (local + forwarded > 0.0).then(|| forwarded / (local + forwarded) * 100.0)
    })
}

fn by_node(
    results: &Results,
    suffix: &str,
    first_pen: usize,
    value: impl Fn(Option<&Value>, &Value) -> Option<f64>,
) -> Vec<Line> {
    let samples = samples(results);
    let count = samples.first().and_then(|sample| sample["nodes"].as_array()).map_or(0, Vec::len);
    let mut lines = Vec::new();
    for node in 0..count {
        let mut points = Vec::new();
        let mut before = None;
        for sample in &samples {
            let now = &sample["nodes"][node];
            points.extend(value(before, now).map(|value| (number(sample, "elapsed_s"), value)));
            before = Some(now);
        }
        lines.push(Line { name: format!("node {}{suffix}", node + 1), pen: first_pen + node, points });
    }
    lines
}

/// A quantity of a size of cluster, scaled, over the number of nodes.
pub fn scale(results: &Results, (name, field): (&str, &str), factor: f64, pen: usize) -> Line {
    let points = results.lines("scale.jsonl").iter().map(|line| (number(line, "nodes"), number(line, field) * factor));
    Line { name: name.to_owned(), pen, points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_where_few_values_are_left() {
        let points: Vec<_> = percentiles(10_000).collect();
        assert!((points[0] - 1.0).abs() < 1e-9 && (999.0..=1000.1).contains(points.last().unwrap()));
        assert_eq!(percentiles(0).count(), 1);
    }

    #[test]
    fn names_come_once_in_their_order() {
        let lines = ["b", "a", "b"].map(|name| serde_json::json!({"contender": name, "x": 1}));
        assert_eq!(texts(&lines, "contender"), ["b", "a"]);
        assert_eq!(points(&lines, ("contender", "b"), |line| (number(line, "x"), 2.0)), [(1.0, 2.0); 2]);
    }
}

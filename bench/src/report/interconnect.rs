//! The section of `interconnect.json`: what the transports between nodes cost.

use serde_json::Value;

use super::bars::{self, Bar};
use super::curves::number;
use super::page::{both, escape, table};
use super::read::Results;

/// The file.
const FILE: &str = "interconnect.json";
/// Digits behind the point.
const DIGITS: usize = 2;

/// The section; nothing without the file.
pub fn section(now: &Results, before: Option<&Results>) -> String {
    let mut text = String::new();
    for (results, mark, _) in both(now, before) {
        text.push_str(&remarks(results, mark));
    }
    let trips = gather(now, before, "round_trips");
    let floods = gather(now, before, "floods");
    if trips.is_empty() && floods.is_empty() && text.is_empty() {
        return text;
    }
    let note = "Bars end at the median over the rounds, thin lines reach from the least to the most. Ratios are formed round by \
                round. Where generator and node 1 share a CPU, the switch between them is in the round trips of xsk and udp.";
    format!(
        "<h2>Interconnect</h2>\n<p class=\"note\">{note}</p>\n{}{}<div class=\"plots\">\n{}{}</div>\n{}{text}",
        bars::draw("Median round trip, µs", &round_trip_bars(&trips), 1),
        trip_table(&trips),
        bars::draw("One way under overload, Mpps", &flood_bars(&floods, ("rate", 1e-6)), 3),
        bars::draw("CPU time per frame, ns", &flood_bars(&floods, ("cpu_ns", 1.0)), 0),
        flood_table(&floods),
    )
}

/// The rows of a list in the file, of now and of before, with what each is marked by.
fn gather<'a>(now: &'a Results, before: Option<&'a Results>, list: &str) -> Vec<(&'a Value, &'static str)> {
    let rows = |results: &'a Results| results.whole(FILE).and_then(|whole| whole[list].as_array());
    both(now, before)
        .flat_map(|(results, mark, _)| rows(results).into_iter().flatten().map(move |row| (row, mark)))
        .collect()
}

fn text_of<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or("?")
}

/// What a round trip was measured of, without the transport.
fn way(row: &Value) -> String {
    let place = if row["place"] == "here" { "node 1" } else { "node 2" };
    format!("{}, {} bytes at {place}", text_of(row, "waiting"), row["frame_bytes"])
}

fn bar(name: String, (spread, factor): (&Value, f64), mark: &str) -> Bar {
    let of = |field: &str| number(spread, field) * factor;
    Bar { name, value: of("median"), span: (of("min"), of("max")), is_before: !mark.is_empty() }
}

fn round_trip_bars(trips: &[(&Value, &'static str)]) -> Vec<Bar> {
    let bar = |(row, mark): &(&Value, &str)| {
        bar(format!("{}, {}", way(row), text_of(row, "transport")), (&row["p50_us"], 1.0), mark)
    };
    trips.iter().map(bar).collect()
}

fn flood_bars(floods: &[(&Value, &'static str)], (field, factor): (&str, f64)) -> Vec<Bar> {
    floods.iter().map(|(row, mark)| bar(text_of(row, "transport").to_owned(), (&row[field], factor), mark)).collect()
}

/// Median of a spread with its ends, scaled; a dash without one.
fn spread(value: &Value, factor: f64, digits: usize) -> String {
    if !value.is_object() {
        return "–".to_owned();
    }
    let [median, least, most] = ["median", "min", "max"].map(|field| number(value, field) * factor);
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}

fn trip_table(trips: &[(&Value, &'static str)]) -> String {
    if trips.is_empty() {
        return String::new();
    }
    let row = |(row, mark): &(&Value, &str)| {
        vec![
            format!("{}{mark}", way(row)),
            text_of(row, "transport").to_owned(),
            spread(&row["p50_us"], 1.0, 1),
            spread(&row["p99_us"], 1.0, 1),
            spread(&row["p999_us"], 1.0, 1),
            spread(&row["udp_through_this"], 1.0, DIGITS),
            row["lost"].to_string(),
            spread(&row["computed_there"], 100.0, 1),
        ]
    };
    let heads =
        ["round trip", "transport", "p50, µs", "p99, µs", "p99.9, µs", "udp / this", "lost", "went that way, %"];
    table(&heads, &trips.iter().map(row).collect::<Vec<_>>())
}

fn flood_table(floods: &[(&Value, &'static str)]) -> String {
    if floods.is_empty() {
        return String::new();
    }
    let row = |(row, mark): &(&Value, &str)| {
        vec![
            format!("{}{mark}", text_of(row, "transport")),
            spread(&row["rate"], 1e-6, 3),
            spread(&row["rate_to_udp"], 1.0, DIGITS),
            spread(&row["cpu_ns"], 1.0, 0),
            spread(&row["threads_ns"], 1.0, 0),
            spread(&row["cpu_to_udp"], 1.0, DIGITS),
            spread(&row["others"], 100.0, 0),
        ]
    };
    let heads = ["one way", "Mpps", "to udp", "CPU ns/frame", "of it threads", "to udp", "other programs, %"];
    table(&heads, &floods.iter().map(row).collect::<Vec<_>>())
}

/// Goals, failed turns, and whether there were rounds enough.
fn remarks(results: &Results, mark: &str) -> String {
    let Some(whole) = results.whole(FILE) else { return String::new() };
    let mut lines = Vec::new();
    if whole["enough_rounds"] == false {
        lines.push("fewer than 5 rounds: this proves nothing".to_owned());
    }
    for goal in whole["goals"].as_array().into_iter().flatten() {
        let verdict = if goal["met"] == true { "met" } else { "missed" };
        let (wanted, found) = (number(goal, "wanted"), number(goal, "found"));
        lines.push(format!("goal: {} {wanted:.2}: found {found:.2}, {verdict}", text_of(goal, "name")));
    }
    let failures = whole["failures"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.extend(failures.map(|failure| format!("failed: {failure}")));
    lines.iter().map(|line| format!("<p class=\"note\">{}{mark}</p>\n", escape(line))).collect()
}

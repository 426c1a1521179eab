//! The records as `matrix.csv` and `matrix.json`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::statistics::Estimate;
use super::Matrix;
use super::cells::{Cell, redirect_us};
use super::race::Record;
use super::summary::{Overall, Rivals, Standing, Standings};

/// Format of `matrix.json`.
const SCHEMA: &str = "dataplane.matrix/1";

/// Columns of `matrix.csv`.
const COLUMNS: [&str; 28] = [
    "cell",
    "group",
    "workload",
    "ingress",
    "nodes",
    "workers",
    "speeds",
    "load",
    "report_us",
    "redirect_cpu_us",
    "redirect_wire_us",
    "packets",
    "policy",
    "runs",
    "mean_us",
    "mean_us_half_width",
    "p50_us",
    "p99_us",
    "p999_us",
    "ratio",
    "ratio_half_width",
    "forwarded",
    "reordered",
    "utilisation_max",
    "lost",
    "ordered_mean_us",
    "interconnect_bytes_per_packet",
    "messages_per_packet",
];

/// One line a cell and policy; times in µs, shares from 0 to 1. What a bound does not have is empty.
pub fn csv(matrix: &Matrix) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for record in &matrix.records {
        let cell = &matrix.plan.cells[record.cell];
        let fields: Vec<String> = cell_fields(cell).into_iter().chain(record_fields(record)).collect();
        let fields = fields.iter().map(|field| quoted(field)).collect::<Vec<_>>();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

/// A field, in quotes where it needs them (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

fn cell_fields(cell: &Cell) -> [String; 12] {
    let scenario = &cell.scenario;
    let (cpu_us, wire_us) = redirect_us(&scenario.forwarding);
    [
        cell.name(),
        cell.group.name().to_owned(),
        scenario.workload.name().to_owned(),
        scenario.ingress.to_string(),
        scenario.nodes.to_string(),
        scenario.workers.to_string(),
        scenario.speeds().iter().map(f64::to_string).collect::<Vec<_>>().join(" "),
        scenario.load.to_string(),
        (scenario.reports.interval_ns as f64 / 1000.0).to_string(),
        cpu_us.to_string(),
        wire_us.to_string(),
        scenario.packets.to_string(),
    ]
}

fn record_fields(record: &Record) -> Vec<String> {
    let us = |ns: f64| format!("{:.3}", ns / 1000.0);
    let number = |value: f64| if value.is_finite() { format!("{value:.4}") } else { String::new() };
    let (row, rest) = (&record.row, record.row.rest);
    let time = |pick: fn(&super::super::comparison::Rest) -> Estimate| {
        rest.map_or_else(String::new, |rest| us(pick(&rest).mean))
    };
    let share =
        |pick: fn(&super::super::comparison::Rest) -> f64| rest.map_or_else(String::new, |rest| number(pick(&rest)));
    vec![
        record.runner.name(),
        record.means_ns.len().to_string(),
        us(row.mean_ns.mean),
        number(row.mean_ns.half_width / 1000.0),
        time(|rest| rest.p50_ns),
        us(record.p99_ns.mean),
        time(|rest| rest.p999_ns),
        number(row.ratio.mean),
        number(row.ratio.half_width),
        share(|rest| rest.forwarded),
        share(|rest| rest.reordered),
        share(|rest| rest.busiest),
        share(|rest| rest.lost),
        time(|rest| rest.ordered_mean_ns),
        share(|rest| rest.interconnect_bytes),
        share(|rest| rest.messages),
    ]
}

/// Everything: the command, the cells with their whole definition, the records, the summary.
pub fn json(matrix: &Matrix) -> Value {
    let plan = &matrix.plan;
    let cells: Vec<Value> = plan
        .cells
        .iter()
        .map(|cell| {
            json!({
                "name": cell.name(),
                "group": cell.group.name(),
                "scenario": cell.scenario.json(),
                "options": cell.scenario.options().join(" "),
            })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "command": matrix.command,
        "version": env!("CARGO_PKG_VERSION"),
        "seeds": plan.seeds,
        "tuning": tuning(matrix),
        "policies": plan.contenders.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "cells_left_out": plan.left_out,
        "cells": cells,
        "records": matrix.records.iter().map(|record| record_json(matrix, record)).collect::<Vec<_>>(),
        "summary": {
            "overall": matrix.summary.overall.iter().map(|overall| overall_json(matrix, overall)).collect::<Vec<_>>(),
            "sooner": matrix.summary.standings.iter().map(|standings| standings_json(matrix, standings)).collect::<Vec<_>>(),
        },
    })
}

/// The settings of the policies by name, but for the order of service, which the contender says.
fn tuning(matrix: &Matrix) -> Value {
    let mut tuning = matrix.plan.tuning;
    let settings = dataplane_common::tuning::Tuning::ALL.iter().filter(|setting| setting.name != "discipline");
    settings.filter_map(|setting| Some((setting.name.to_owned(), json!(*tuning.get_mut(setting.name)?)))).collect()
}

fn record_json(matrix: &Matrix, record: &Record) -> Value {
    let mut value = record.row.json();
    value["cell"] = json!(matrix.plan.cells[record.cell].name());
    value["mean_ns_by_seed"] = json!(record.means_ns);
    value["p99_ns"] = estimate(record.p99_ns);
    if let Some(contender) = record.contender() {
        value["service"] = json!(if contender.shortest_first { "shortest" } else { "fifo" });
        value["pulls"] = json!(contender.is_pulling());
    }
    value
}

/// JSON knows no infinity: the half-width of a single run is null.
fn estimate(estimate: Estimate) -> Value {
    json!({ "mean": estimate.mean, "half_width": estimate.half_width })
}

fn overall_json(matrix: &Matrix, overall: &Overall) -> Value {
    json!({
        "policy": overall.name,
        "ratio_arithmetic_mean": overall.mean,
        "ratio_geometric_mean": overall.geometric,
        "ratio_worst": overall.worst.0,
        "worst_cell": matrix.plan.cells.get(overall.worst.1).map(Cell::name),
        "share_of_cells_within_5_percent_of_best": overall.among.map(|among| among.near_best),
        "cells_lowest": overall.among.map(|among| among.lowest),
        "forwarded_mean": overall.forwarded,
    })
}

fn standings_json(matrix: &Matrix, standings: &Standings) -> Value {
    let cell = |standing: &Standing| {
        json!({
            "cell": matrix.plan.cells[standing.cell].name(),
            "best_rival": standing.rival,
            "mean_over_rival": estimate(standing.ratio),
            "may_be_chance": standing.is_uncertain(),
        })
    };
    json!({
        "policy": standings.subject.to_string(),
        "rivals": standings.rivals.name(),
        "cells": standings.cells.len(),
        "cells_lowest": standings.cells.len() - standings.lost().count(),
        "not_lowest": standings.lost().map(cell).collect::<Vec<_>>(),
    })
}

/// The summary as lines for a terminal: all contenders, and the cells in which one that decides at arrival is below `sooner`.
pub fn text(matrix: &Matrix) -> String {
    let mut text = format!(
        "{:<18} {:>10} {:>10} {:>10} {:>8} {:>10} {:>8}\n",
        "policy", "mean ratio", "geometric", "worst", "lowest", "near best", "fwd %"
    );
    for overall in &matrix.summary.overall {
        let Overall { name, mean, geometric, worst, among, forwarded } = overall;
        let lowest = among.map_or_else(|| "-".to_owned(), |among| among.lowest.to_string());
        let near = among.map_or_else(|| "-".to_owned(), |among| format!("{:.0} %", among.near_best * 100.0));
        let (worst, forwarded) = (worst.0, forwarded * 100.0);
        let _ = writeln!(
            text,
            "{name:<18} {mean:>10.3} {geometric:>10.3} {worst:>10.2} {lowest:>8} {near:>10} {forwarded:>8.1}"
        );
    }
    for standings in &matrix.summary.standings {
        let (cells, lost) = (standings.cells.len(), standings.lost().count());
        let (subject, rivals) = (standings.subject, standings.rivals.title());
        let _ = writeln!(text, "\n{subject}: lowest in {} of {cells} cells, {rivals}", cells - lost);
        for standing in standings.lost().filter(|_| standings.rivals == Rivals::Pushing) {
            let name = matrix.plan.cells[standing.cell].name();
            let chance = if standing.is_uncertain() { ", may be chance" } else { "" };
            let more = (standing.ratio.mean - 1.0) * 100.0;
            let _ = writeln!(text, "  {name}: {more:.1} % above {}{chance}", standing.rival);
        }
    }
    text
}

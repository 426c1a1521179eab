//! `report.html`: one file without anything from elsewhere, for light and dark screens.

use std::fmt::Write as _;

use anyhow::Result;
use dataplane_common::policy::PolicyKind;

use super::Matrix;
use super::cells::{Cell, Group, redirect_us};
use super::chart::{self, Axis, Line, Scale};
use super::heat;
use super::race::Record;
use super::summary::{Overall, Standings};
use crate::sim::scenario::{Reports, Scenario};
use crate::sim::{Ingress, Workload};

const STYLE: &str = include_str!("report.css");

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn html(matrix: &Matrix) -> Result<String> {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>Matrix of policies</title>\n");
    let _ = writeln!(page, "<style>\n{STYLE}</style>\n</head>\n<body>");
    page.push_str(&head(matrix));
    page.push_str(&overall(matrix));
    matrix.summary.standings.iter().for_each(|standings| page.push_str(&lost(matrix, standings)));
    page.push_str("<h2>Over one factor</h2>\n");
    for shortest_first in [false, true] {
        page.push_str(&plots(matrix, shortest_first)?);
    }
    page.push_str(&maps(matrix)?);
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn head(matrix: &Matrix) -> String {
    let plan = &matrix.plan;
    let seeds = plan.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let (least, most) = plan
        .cells
        .iter()
        .fold((u64::MAX, 0), |(least, most), cell| (least.min(cell.scenario.packets), most.max(cell.scenario.packets)));
    let left_out = match plan.left_out {
        0 => String::new(),
        count => format!(" {count} cells were left out: no policy can carry their load."),
    };
    format!(
        "<h1>Placement policies over a matrix of clusters</h1>\n\
         <p>{} cells, {} policies and bounds, seeds {seeds}; {least} to {most} packets a run, the first tenth not measured. \
         Every policy sees the same packets. Times are simulated. dataplane-bench {}.{left_out}</p>\n<pre>{}</pre>\n",
        plan.cells.len(),
        plan.runners().len(),
        env!("CARGO_PKG_VERSION"),
        escape(&matrix.command)
    )
}

fn overall(matrix: &Matrix) -> String {
    let mut text = String::from(
        "<h2>Over all cells</h2>\n<p class=\"note\">Ratio: mean latency over that of one central queue for all workers that serves \
         in order of arrival and moves packets for nothing, on the same packets. It can be below 1 with shortest-first service \
         (+spt), which that queue does not have. “oracle” redirects with every load known at every moment. “Near the best”: within 5 % \
         of the lowest mean of all policies with the same order of service. A policy that a cell overloads has a ratio that \
         grows with the length of the run: it says “too much”, not how much.</p>\n<table>\n<tr><th>policy</th><th>mean ratio</th>\
         <th>geometric mean</th><th>worst</th><th class=\"text\">in cell</th><th>lowest in</th><th>near the best</th><th>forwarded</th></tr>\n",
    );
    for overall in &matrix.summary.overall {
        let Overall { name, mean, geometric, worst, among, forwarded } = overall;
        let class = if name.starts_with(PolicyKind::Sooner.name()) { " class=\"subject\"" } else { "" };
        let cell = matrix.plan.cells.get(worst.1).map(Cell::name).unwrap_or_default();
        let lowest = among.map_or_else(|| "–".to_owned(), |among| among.lowest.to_string());
        let near = among.map_or_else(|| "–".to_owned(), |among| format!("{:.0} %", among.near_best * 100.0));
        let _ = writeln!(
            text,
            "<tr{class}><td>{name}</td><td>{mean:.3}</td><td>{geometric:.3}</td><td>{:.2}</td><td class=\"text\">{}</td>\
             <td>{lowest}</td><td>{near}</td><td>{:.1} %</td></tr>",
            worst.0,
            escape(&cell),
            forwarded * 100.0
        );
    }
    text + "</table>\n"
}

/// The cells in which a variant of `sooner` is not the lowest.
fn lost(matrix: &Matrix, standings: &Standings) -> String {
    let (cells, lost) = (standings.cells.len(), standings.lost().count());
    let mut text = format!(
        "<h2>{}: lowest in {} of {cells} cells, {}</h2>\n",
        standings.subject,
        cells - lost,
        standings.rivals.title()
    );
    if lost == 0 {
        return text;
    }
    text.push_str(
        "<table>\n<tr><th>not lowest in</th><th class=\"text\">lowest</th><th>above it</th><th>± 95 %</th></tr>\n",
    );
    for standing in standings.lost() {
        let width = standing.ratio.half_width * 100.0;
        let width = if width.is_finite() { format!("{width:.1} %") } else { "–".to_owned() };
        let chance = if standing.is_uncertain() { " (may be chance)" } else { "" };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td class=\"text\">{}</td><td>{:.1} %{chance}</td><td>{width}</td></tr>",
            escape(&matrix.plan.cells[standing.cell].name()),
            standing.rival,
            (standing.ratio.mean - 1.0) * 100.0
        );
    }
    text + "</table>\n"
}

/// Cells that differ in one factor.
struct Sweep {
    title: &'static str,
    /// What all cells have besides the factor.
    base: Scenario,
    /// The factor's level in a cell.
    level: fn(&Scenario) -> f64,
    /// Gives the second scenario the first one's level.
    copy: fn(&Scenario, &mut Scenario),
    label: &'static str,
    scale: Scale,
}

fn sweeps() -> [Sweep; 4] {
    let base = Scenario::default;
    [
        Sweep {
            title: "bi90, uniform, 8 nodes",
            base: Scenario { workload: Workload::Bi90, ..base() },
            level: |cell| cell.load,
            copy: |from, to| to.load = from.load,
            label: "load, share of capacity",
            scale: Scale::Linear,
        },
        Sweep {
            title: "low-high, uniform, load 0.8",
            base: base(),
            level: |cell| cell.nodes as f64,
            copy: |from, to| to.nodes = from.nodes,
            label: "nodes",
            scale: Scale::Logarithmic,
        },
        Sweep {
            title: "low-high, uniform, 16 nodes",
            base: Scenario { nodes: 16, ..base() },
            level: |cell| cell.reports.interval_ns as f64 / 1000.0,
            copy: |from, to| to.reports = Reports { interval_ns: from.reports.interval_ns, ..to.reports },
            label: "report interval, µs",
            scale: Scale::Logarithmic,
        },
        Sweep {
            title: "low-high, bursts, load 0.6",
            base: Scenario { ingress: Ingress::Bursts, load: 0.6, ..base() },
            level: |cell| redirect_us(&cell.forwarding).0,
            copy: |from, to| {
                to.forwarding = from.forwarding;
                to.reports.delay_ns = from.reports.delay_ns;
            },
            label: "CPU time of a redirect at each end, µs",
            scale: Scale::Logarithmic,
        },
    ]
}

impl Sweep {
    /// The cells by rising level.
    fn cells(&self, matrix: &Matrix) -> Vec<(f64, usize)> {
        let is_of = |scenario: &Scenario| {
            let mut same = Scenario { packets: scenario.packets, warm_up: scenario.warm_up, ..self.base.clone() };
            (self.copy)(scenario, &mut same);
            same == *scenario
        };
        let cells = matrix.plan.cells.iter().enumerate().filter(|(_, cell)| is_of(&cell.scenario));
        let mut cells: Vec<_> = cells.map(|(index, cell)| ((self.level)(&cell.scenario), index)).collect();
        cells.sort_by(|one, other| one.0.total_cmp(&other.0));
        cells
    }
}

/// A quantity of a record: its name with the unit, its scale, its value.
type Quantity = (&'static str, Scale, fn(&Record) -> Option<f64>);

const MEAN: Quantity = ("mean latency, µs", Scale::Logarithmic, |record| Some(record.row.mean_ns.mean / 1000.0));
const RATIO: Quantity = ("mean latency / central queue's", Scale::Logarithmic, |record| Some(record.row.ratio.mean));
const FORWARDED: Quantity =
    ("forwarded packets, %", Scale::Linear, |record| record.row.rest.map(|rest| rest.forwarded * 100.0));

/// The charts of the contenders with one order of service.
fn plots(matrix: &Matrix, shortest_first: bool) -> Result<String> {
    if !matrix.plan.contenders.iter().any(|contender| contender.shortest_first == shortest_first) {
        return Ok(String::new());
    }
    let heading = if shortest_first { "Nodes serve the shortest first" } else { "Nodes serve in order of arrival" };
    let mut text = format!("<h3>{heading}</h3>\n<div class=\"plots\">\n");
    for (index, sweep) in sweeps().iter().enumerate() {
        let cells = sweep.cells(matrix);
        // A line needs two points.
        if cells.len() < 2 {
            continue;
        }
        let quantities: &[Quantity] = if index == 0 { &[MEAN, RATIO, FORWARDED] } else { &[RATIO] };
        for quantity in quantities {
            text.push_str(&plot(matrix, (sweep, &cells), *quantity, shortest_first)?);
        }
    }
    Ok(text + "</div>\n")
}

/// A chart shows ratios up to this many times the smallest: beyond, a policy is overloaded, and the others lie flat.
const MOST: f64 = 20.0;

fn plot(
    matrix: &Matrix,
    (sweep, cells): (&Sweep, &[(f64, usize)]),
    (name, scale, value): Quantity,
    shortest_first: bool,
) -> Result<String> {
    let mut lines: Vec<Line> = Vec::new();
    for (place, runner) in matrix.plan.runners().iter().enumerate() {
        let Some(pen) = pen(matrix, place, shortest_first) else {
            continue;
        };
        let point = |(level, cell): &(f64, usize)| Some((*level, value(&matrix.row(*cell)[place])?));
        lines.push(Line { name: runner.name(), pen, points: cells.iter().filter_map(point).collect() });
    }
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    if scale == Scale::Logarithmic {
        let most = values().fold(f64::INFINITY, f64::min) * MOST;
        lines.iter_mut().for_each(|line| line.points.retain(|point| point.1 <= most));
    }
    let x = Axis { label: sweep.label, scale: sweep.scale, marks: cells.iter().map(|cell| cell.0).collect() };
    let y = Axis::round(name, scale, lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    let picture = chart::draw(sweep.title, (&x, &y), &lines)?;
    let label = escape(&format!("{name} over {}; {}", sweep.label, sweep.title));
    Ok(format!("<figure role=\"img\" aria-label=\"{label}\">\n{picture}</figure>\n"))
}

/// The pen of a runner in the charts of one order of service; `None` when it is not drawn there.
///
/// A policy has the same pen in both, `sooner` the first one.
fn pen(matrix: &Matrix, place: usize, shortest_first: bool) -> Option<usize> {
    let runners = matrix.plan.runners();
    let contender = runners[place].contender()?;
    if contender.shortest_first != shortest_first || contender.pulls {
        return None;
    }
    let mut policies: Vec<PolicyKind> = vec![PolicyKind::Sooner];
    for contender in &matrix.plan.contenders {
        if !policies.contains(&contender.policy) {
            policies.push(contender.policy);
        }
    }
    policies.iter().position(|policy| *policy == contender.policy)
}

/// The heat maps, group by group.
fn maps(matrix: &Matrix) -> Result<String> {
    let mut text = String::from(
        "<h2>Every cell</h2>\n<p class=\"note\">Mean latency over the central queue's. A frame marks the lowest of its order of service. \
         Redirect: CPU time at each end / time on the wire.</p>\n",
    );
    for group in Group::ALL {
        let Some(picture) = heat::draw(matrix, group)? else {
            continue;
        };
        let open = if group == Group::Pairs { "" } else { " open" };
        let title = group.title();
        let _ = writeln!(
            text,
            "<details{open}><summary>{title}</summary>\n<figure role=\"img\" aria-label=\"{title}: ratios by cell and policy\">\n\
             {picture}</figure>\n</details>"
        );
    }
    Ok(text)
}

//! Experiments as text, JSON and Markdown. Nothing in any of them depends on when or where they were made.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::{Evidence, Finding, Table};
use super::{Effort, Experiment};

/// An experiment that was run.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Which.
    pub experiment: Experiment,
    /// What it gave.
    pub evidence: Evidence,
}

impl Effort {
    /// The command that makes the figures of an experiment again.
    pub fn command(&self, name: &str) -> String {
        let quick = if self.is_quick { " --quick" } else { "" };
        let first = self.seeds.first().copied().unwrap_or_default();
        format!("dataplane-sim reproduce {name} --seeds {} --first-seed {first}{quick}", self.seeds.len())
    }
}

impl Reproduction {
    /// For people at a terminal.
    pub fn text(&self, effort: &Effort) -> String {
        let Experiment { id, name, systems, title, assumptions, .. } = self.experiment;
        let mut text = format!("\n{id} {name}: {title}\n{}\n", systems.join("; "));
        text += "assumptions:\n";
        for assumption in assumptions {
            let _ = writeln!(text, "  - {assumption}");
        }
        for table in &self.evidence.tables {
            let _ = write!(text, "\n{}\n{}", table.title, grid(table));
        }
        for finding in &self.evidence.findings {
            let _ = writeln!(text, "\n{}", finding.what);
            for (label, value) in lines(finding) {
                let _ = writeln!(text, "  {label:<10} {value}");
            }
        }
        let _ = writeln!(text, "\nmade by: {}", effort.command(name));
        text
    }

    fn json(&self, effort: &Effort) -> Value {
        let Experiment { id, name, systems, title, assumptions, .. } = self.experiment;
        json!({
            "experiment": id,
            "name": name,
            "systems": systems,
            "title": title,
            "assumptions": assumptions,
            "command": effort.command(name),
            "findings": self.evidence.findings.iter().map(Finding::json).collect::<Vec<_>>(),
            "tables": self.evidence.tables.iter().map(Table::json).collect::<Vec<_>>(),
        })
    }

    fn markdown(&self, effort: &Effort) -> String {
        let Experiment { id, name, systems, title, assumptions, .. } = self.experiment;
        let mut text = format!("\n## {id} {name}\n\n{}: {title}. `{}`\n\n", systems.join("; "), effort.command(name));
        for assumption in assumptions {
            let _ = writeln!(text, "- {assumption}");
        }
        text += "\n| measured | published | ours | mark | verdict |\n|---|---|---|---|---|\n";
        for finding in &self.evidence.findings {
            let Finding { what, published, .. } = finding;
            let (says, source) = (published.says, published.source);
            let cells = [
                (*what).to_owned(),
                format!("{says} ({source})"),
                finding.ours_text(),
                mark(finding),
                verdict(finding),
            ];
            let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "/")).join(" | "));
        }
        for finding in self.evidence.findings.iter().filter(|finding| !finding.differs.is_empty()) {
            let _ = writeln!(text, "\n*{}*: {}", finding.what, finding.differs);
        }
        for table in &self.evidence.tables {
            let rule = vec!["---"; table.columns.len()].join("|");
            let _ = writeln!(text, "\n{}:\n\n| {} |\n|{rule}|", table.title, table.columns.join(" | "));
            for row in &table.rows {
                let _ = writeln!(text, "| {} |", row.join(" | "));
            }
        }
        text
    }
}

/// What a finding says, line by line.
fn lines(finding: &Finding) -> Vec<(&'static str, String)> {
    let published = &finding.published;
    let mut lines = vec![
        ("published", format!("{} ({})", published.says, published.source)),
        ("ours", finding.ours_text()),
        ("mark", mark(finding)),
        ("verdict", finding.verdict().to_owned()),
    ];
    if !finding.differs.is_empty() {
        lines.push(("differs", finding.differs.to_owned()));
    }
    lines
}

fn mark(finding: &Finding) -> String {
    finding.size.map_or_else(
        || format!("{}, for the direction", finding.direction.words(finding.unit)),
        |size| size.words(finding.unit),
    )
}

fn verdict(finding: &Finding) -> String {
    finding.verdict().replace("MISSES", "**misses**")
}

/// A table for a terminal: the first column to the left, all others to the right.
fn grid(table: &Table) -> String {
    let mut widths: Vec<usize> = table.columns.iter().map(|column| column.chars().count()).collect();
    for row in &table.rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&table.columns).chain(&table.rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(index, (cell, width))| {
            if index == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// All of them as JSON: the same runs and seeds give the same bytes.
pub fn to_json(all: &[Reproduction], effort: &Effort) -> Value {
    json!({
        "seeds": effort.seeds,
        "quick": effort.is_quick,
        "experiments": all.iter().map(|reproduction| reproduction.json(effort)).collect::<Vec<_>>(),
    })
}

/// All of them as Markdown.
pub fn markdown(all: &[Reproduction], effort: &Effort) -> String {
    let mut text = String::from(
        "# The published experiments\n\n\
         No full paper behind these systems was at hand. A verdict says whether the published *effect* appears under the \
         assumptions stated with it, never that a paper is reproduced. Points chosen because they land near a published \
         figure are calibration, not evidence, and say so.\n",
    );
    let findings = all.iter().flat_map(|reproduction| &reproduction.evidence.findings);
    let (total, agreeing) = findings.fold((0, 0), |(total, agreeing), finding| {
        let agrees = finding.agrees_in_direction() && finding.agrees_in_size() != Some(false);
        (total + 1, agreeing + usize::from(agrees))
    });
    let seeds = effort.seeds.len();
    let length = if effort.is_quick { ", each a fifth of its length" } else { "" };
    let _ = writeln!(text, "\n{agreeing} of {total} figures meet their mark; {seeds} runs each{length}.");
    for reproduction in all {
        text += &reproduction.markdown(effort);
    }
    text
}

//! The matrix: policies and bounds over workloads, ingress, nodes, report intervals, redirect costs and loads.
//!
//! | module | concern |
//! |---|---|
//! | [`cells`] | the cells, quick and full |
//! | [`contender`] | a policy with an order of service |
//! | [`race`] | what is run; the records |
//! | [`summary`] | contenders over all cells, and where `sooner` is not the lowest |
//! | [`files`] | `matrix.csv`, `matrix.json` |
//! | [`report`], [`chart`], [`heat`] | `report.html` and its plots |
//!
//! Every file is a function of the plan alone: the same cells, contenders and seeds give the same bytes, whatever the
//! number of simulations at a time.

pub mod cells;
pub mod chart;
pub mod contender;
pub mod files;
pub mod heat;
pub mod race;
pub mod report;
pub mod summary;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub use self::cells::{Cell, Group};
pub use self::contender::Contender;
pub use self::race::{Bound, Plan, Record, Runner};
pub use self::summary::Summary;

/// A matrix that has run.
#[derive(Debug)]
pub struct Matrix {
    /// What was run.
    pub plan: Plan,
    /// The command that gives the same files.
    pub command: String,
    /// Cell by cell, each in the order of [`Plan::runners`].
    pub records: Vec<Record>,
    /// What they say together.
    pub summary: Summary,
}

impl Matrix {
    /// Runs `plan`, `jobs` simulations at a time, and calls `done` after each.
    ///
    /// # Errors
    /// A cell is impossible.
    pub fn run(plan: Plan, command: String, jobs: usize, done: &(dyn Fn() + Sync)) -> Result<Self> {
        let records = plan.run(jobs, done)?;
        let summary = Summary::of(&plan, &records);
        Ok(Self { plan, command, records, summary })
    }

    /// The records of a cell, in the order of [`Plan::runners`].
    pub fn row(&self, cell: usize) -> &[Record] {
        let width = self.plan.runners().len();
        self.records.get(cell * width..(cell + 1) * width).unwrap_or_default()
    }

    /// Writes `matrix.csv`, `matrix.json` and `report.html` into `directory`, which is made if need be.
    ///
    /// # Errors
    /// The directory or a file cannot be written, or a plot cannot be drawn.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make the directory {}", directory.display()))?;
        let json = serde_json::to_string_pretty(&files::json(self))? + "\n";
        for (name, text) in
            [("matrix.csv", files::csv(self)), ("matrix.json", json), ("report.html", report::html(self)?)]
        {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! What the records of a matrix say together: each contender over all cells, and in which cells `sooner` is not the lowest.

use dataplane_common::policy::PolicyKind;

use super::super::statistics::Estimate;
use super::contender::Contender;
use super::race::{Plan, Record, Runner};

/// A mean at most this many times that of the best is as good.
const NEAR: f64 = 1.05;
/// The policy that the summary asks about.
const SUBJECT: PolicyKind = PolicyKind::Sooner;

/// A runner over all cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// Name.
    pub name: String,
    /// Arithmetic mean over the cells of the ratio of mean latency to that of the central queue.
    pub mean: f64,
    /// Geometric mean of it.
    pub geometric: f64,
    /// Largest ratio, and the cell.
    pub worst: (f64, usize),
    /// Among the contenders with the same order of service; a bound is not among them.
    pub among: Option<Among>,
    /// Mean over the cells of the share of packets that went to another node.
    pub forwarded: f64,
}

/// A contender among those with the same order of service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Among {
    /// Cells in which no other one has a lower mean.
    pub lowest: usize,
    /// Share of the cells in which its mean is within 5 % of the lowest.
    pub near_best: f64,
}

/// Whom `sooner` is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rivals {
    /// Policies that decide at arrival only.
    Pushing,
    /// Those whose idle nodes ask for work, too.
    All,
}

impl Rivals {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Pushing, Self::All];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pushing => "pushing",
            Self::All => "all",
        }
    }

    /// Words for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pushing => "among policies that decide at arrival",
            Self::All => "those whose idle nodes ask for work included",
        }
    }

    /// What can run nowhere but in the simulator is a reference, no rival.
    fn has(self, contender: &Contender) -> bool {
        let homes = contender.policy.homes();
        let is_real = homes.has_worker() || homes.has_xdp();
        is_real && contender.policy != SUBJECT && (self == Self::All || !contender.is_pulling())
    }
}

/// How a variant of `sooner` compares with the best of its rivals in one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The cell.
    pub cell: usize,
    /// The rival of lowest mean.
    pub rival: String,
    /// Mean latency over the rival's, seed by seed; below 1 = lower.
    pub ratio: Estimate,
}

impl Standing {
    /// Whether no rival has a lower mean.
    pub fn is_lowest(&self) -> bool {
        self.ratio.mean <= 1.0
    }

    /// Whether the difference could be chance: the 95 % interval of the ratio contains 1.
    pub fn is_uncertain(&self) -> bool {
        (self.ratio.mean - 1.0).abs() <= self.ratio.half_width
    }
}

/// A variant of `sooner` against rivals with the same order of service, cell by cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Standings {
    /// The variant.
    pub subject: Contender,
    /// Its rivals.
    pub rivals: Rivals,
    /// One for each cell.
    pub cells: Vec<Standing>,
}

impl Standings {
    /// Cells in which a rival has a lower mean.
    pub fn lost(&self) -> impl Iterator<Item = &Standing> {
        self.cells.iter().filter(|standing| !standing.is_lowest())
    }
}

/// The summary of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Each bound and contender, in the order of the records.
    pub overall: Vec<Overall>,
    /// Each variant of `sooner` against each choice of rivals that there are.
    pub standings: Vec<Standings>,
}

impl Summary {
    /// Sums up the records of `plan`.
    pub fn of(plan: &Plan, records: &[Record]) -> Self {
        let runners = plan.runners();
        let rows: Vec<&[Record]> = records.chunks(runners.len()).collect();
        let overall = runners.iter().enumerate().map(|(place, runner)| overall(&rows, place, runner)).collect();
        let subjects = plan.contenders.iter().filter(|contender| contender.policy == SUBJECT);
        let standings = subjects.flat_map(|subject| Rivals::ALL.map(|rivals| standings(&rows, *subject, rivals)));
        Self { overall, standings: standings.filter(|standings| !standings.cells.is_empty()).collect() }
    }
}

/// The contenders of a cell that serve in the order in which `own` does: what they do differently is to place packets.
fn alike<'a>(row: &'a [Record], own: &Contender) -> impl Iterator<Item = (&'a Record, &'a Contender)> {
    let shortest_first = own.shortest_first;
    let contenders = row.iter().filter_map(|record| Some((record, record.contender()?)));
    contenders.filter(move |(_, contender)| contender.shortest_first == shortest_first)
}

/// The lowest mean latency in a cell of the contenders that serve in the order in which `own` does, ns.
pub fn lowest_ns(row: &[Record], own: &Contender) -> f64 {
    alike(row, own).map(|(record, _)| record.row.mean_ns.mean).fold(f64::INFINITY, f64::min)
}

fn overall(rows: &[&[Record]], place: usize, runner: &Runner) -> Overall {
    let cells = rows.len().max(1) as f64;
    let of = |row: &[Record]| row[place].row.ratio.mean;
    let worst = rows.iter().enumerate().map(|(cell, row)| (of(row), cell));
    let among = |own: &Contender| {
        let within =
            |factor: f64| rows.iter().filter(|row| row[place].row.mean_ns.mean <= lowest_ns(row, own) * factor).count();
        Among { lowest: within(1.0), near_best: within(NEAR) as f64 / cells }
    };
    let forwarded = rows.iter().filter_map(|row| row[place].row.rest).map(|rest| rest.forwarded);
    Overall {
        name: runner.name(),
        mean: rows.iter().map(|row| of(row)).sum::<f64>() / cells,
        geometric: (rows.iter().map(|row| of(row).ln()).sum::<f64>() / cells).exp(),
        worst: worst.fold((0.0, 0), |worst, next| if next.0 > worst.0 { next } else { worst }),
        among: runner.contender().map(among),
        // A sum of nothing is −0.
        forwarded: forwarded.sum::<f64>().abs() / cells,
    }
}

fn standings(rows: &[&[Record]], subject: Contender, rivals: Rivals) -> Standings {
    let standing = |(cell, row): (usize, &&[Record])| {
        let own = row.iter().find(|record| record.contender() == Some(&subject))?;
        let (rival, _) = alike(row, &subject)
            .filter(|(_, contender)| rivals.has(contender))
            .min_by(|(one, _), (other, _)| one.row.mean_ns.mean.total_cmp(&other.row.mean_ns.mean))?;
        let pairs = own.means_ns.iter().zip(&rival.means_ns);
        let ratio = Estimate::of(pairs.map(|(own, rival)| own / rival));
        Some(Standing { cell, rival: rival.runner.name(), ratio })
    };
    Standings { subject, rivals, cells: rows.iter().enumerate().filter_map(standing).collect() }
}

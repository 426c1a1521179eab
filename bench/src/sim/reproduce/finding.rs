//! What an experiment finds: the published figure, ours, and whether the two agree.

use serde_json::{Value, json};

use super::super::statistics::Estimate;

/// A condition on a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
    /// Between these, both included.
    Within(f64, f64),
}

impl Bound {
    /// Whether `value` meets it. Not a number meets nothing.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Above(least) => value > least,
            Self::Below(most) => value < most,
            Self::Within(least, most) => (least..=most).contains(&value),
        }
    }

    /// In words, for a figure in `unit`.
    pub fn words(self, unit: &str) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {} {unit}", plain(least)),
            Self::AtMost(most) => format!("at most {} {unit}", plain(most)),
            Self::Above(least) => format!("above {} {unit}", plain(least)),
            Self::Below(most) => format!("below {} {unit}", plain(most)),
            Self::Within(least, most) => format!("{} to {} {unit}", plain(least), plain(most)),
        }
        .trim_end()
        .to_owned()
    }
}

/// A number with at most three decimals, none of them an idle zero.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a source says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// In words.
    pub says: &'static str,
    /// The figure, in the unit of the finding; `None` where the source gives none.
    pub figure: Option<f64>,
    /// Where it says so.
    pub source: &'static str,
}

/// The source of what is nowhere published but follows from it.
pub const OURS: &str = "this project";

impl Published {
    /// Nothing is published; `says` is what is to be expected all the same.
    pub const fn nothing(says: &'static str) -> Self {
        Self { says, figure: None, source: OURS }
    }
}

/// One figure of ours beside the published one.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What was measured, in words.
    pub what: &'static str,
    /// What the source says.
    pub published: Published,
    /// Ours: the mean over the seeds, and its 95 % confidence interval.
    pub ours: Estimate,
    /// Unit of both figures; empty for plain numbers.
    pub unit: &'static str,
    /// What makes the direction of the effect the published one.
    pub direction: Bound,
    /// What makes its size the published one: the pass mark of the experiment.
    pub size: Option<Bound>,
    /// Why the two figures differ, as far as known; empty when there is nothing to say.
    pub differs: &'static str,
}

impl Finding {
    /// Whether the effect has the published direction.
    pub fn agrees_in_direction(&self) -> bool {
        self.direction.holds(self.ours.mean)
    }

    /// Whether it has the published size; `None` when there is no mark to judge by.
    pub fn agrees_in_size(&self) -> Option<bool> {
        self.size.map(|size| size.holds(self.ours.mean))
    }

    /// The verdict in words.
    pub fn verdict(&self) -> &'static str {
        let Published { figure, source, .. } = self.published;
        match (self.agrees_in_direction(), self.agrees_in_size()) {
            (true, None | Some(true)) if source == OURS => {
                "as expected under the stated assumptions; nothing is published"
            }
            _ if source == OURS => "MISSES what was expected; nothing is published",
            (true, Some(true)) if figure.is_some() => "reproduces the published effect under the stated assumptions",
            (true, Some(true)) => {
                "reproduces the published direction under the stated assumptions; meets this project's mark, as no size is \
                 published"
            }
            (true, None) => "reproduces the published direction under the stated assumptions; no size to compare",
            (true, Some(false)) if figure.is_some() => "MISSES the size: the direction is the published one",
            (true, Some(false)) => {
                "MISSES this project's mark: the direction is the published one, no size is published"
            }
            (false, Some(true)) => "MISSES the direction: only the size is within the mark",
            (false, _) => "MISSES: the published effect does not appear",
        }
    }

    /// Ours with its interval and unit.
    pub fn ours_text(&self) -> String {
        let unit = self.unit;
        let space = if unit.is_empty() { "" } else { " " };
        let Estimate { mean, half_width } = self.ours;
        let decimals = decimals(mean);
        if half_width.is_finite() {
            format!("{mean:.decimals$} ± {half_width:.decimals$}{space}{unit}")
        } else {
            format!("{mean:.decimals$}{space}{unit}")
        }
    }

    /// The finding as JSON.
    pub fn json(&self) -> Value {
        json!({
            "what": self.what,
            "unit": self.unit,
            "published": {
                "says": self.published.says,
                "figure": self.published.figure,
                "source": self.published.source,
            },
            // JSON knows no infinity: the interval of a single run is null.
            "ours": { "mean": self.ours.mean, "half_width": self.ours.half_width },
            "direction_mark": self.direction.words(self.unit),
            "size_mark": self.size.map(|size| size.words(self.unit)),
            "direction_agrees": self.agrees_in_direction(),
            "size_agrees": self.agrees_in_size(),
            "verdict": self.verdict(),
            "differs_because": self.differs,
        })
    }
}

/// Decimals that show about three digits.
pub fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    }
}

/// A table of supporting figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: &'static str,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Cells, row by row; every row has as many as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: &'static str, columns: &[&str]) -> Self {
        Self { title, columns: columns.iter().map(|column| (*column).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as JSON.
    pub fn json(&self) -> Value {
        json!({ "title": self.title, "columns": self.columns, "rows": self.rows })
    }
}

/// What an experiment gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Figures with verdicts, at least one.
    pub findings: Vec<Finding>,
    /// What they were taken from.
    pub tables: Vec<Table>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(mean: f64) -> Finding {
        Finding {
            what: "mean latency saved",
            published: Published { says: "up to 42 %", figure: Some(42.0), source: "a thesis" },
            ours: Estimate { mean, half_width: f64::INFINITY },
            unit: "%",
            direction: Bound::Above(0.0),
            size: Some(Bound::AtLeast(35.0)),
            differs: "",
        }
    }

    #[test]
    fn a_verdict_says_what_is_missed() {
        assert!(finding(40.0).verdict().starts_with("reproduces"));
        assert!(finding(20.0).verdict().starts_with("MISSES the size"));
        assert!(finding(-3.0).verdict().starts_with("MISSES:"));
        assert!(finding(f64::NAN).verdict().starts_with("MISSES:"), "a missing figure is no success");
        let unmarked = Finding { size: None, ..finding(1.0) };
        assert_eq!(unmarked.agrees_in_size(), None);
        assert!(unmarked.verdict().contains("no size to compare"));
        let expected = Finding { published: Published::nothing("42 % by a rule of thumb"), ..finding(40.0) };
        assert!(expected.verdict().starts_with("as expected"), "what nobody published is not reproduced");
        let published = Published { figure: None, ..finding(0.0).published };
        assert!(Finding { published, ..finding(40.0) }.verdict().contains("this project's mark"));
    }

    #[test]
    fn bounds_hold_at_their_ends_or_not() {
        assert!(Bound::AtLeast(1.0).holds(1.0) && Bound::AtMost(1.0).holds(1.0) && Bound::Within(0.0, 1.0).holds(1.0));
        assert!(!Bound::Above(1.0).holds(1.0) && !Bound::Below(1.0).holds(1.0));
        assert_eq!(Bound::Within(1.0, 2.0).words("%"), "1 to 2 %");
        assert_eq!(Bound::AtMost(0.5).words(""), "at most 0.5");
    }

    #[test]
    fn a_single_run_has_no_interval_as_text_and_json() {
        assert_eq!(finding(41.26).ours_text(), "41.3 %");
        assert!(finding(41.0).json()["ours"]["half_width"].is_null());
        let several = Finding { ours: Estimate::of([1.0, 2.0]), ..finding(0.0) };
        assert_eq!(several.ours_text(), "1.50 ± 6.35 %");
    }
}

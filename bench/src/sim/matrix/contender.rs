//! What competes in a cell: a policy, the order in which nodes serve, and whether idle workers ask for work.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, Result, ensure};
use dataplane_common::policy::{Needs, PolicyKind};
use dataplane_common::tuning::{FIFO, SHORTEST, Tuning};

use super::super::scenario::{Pull, Scenario};

/// Suffix of a contender whose nodes serve the shortest packet first.
const SHORTEST_FIRST: &str = "spt";
/// Suffix of a contender whose idle workers ask for work although its policy does not live on that.
const PULLS: &str = "pull";

/// A policy and how its nodes serve; written `policy`, `policy+spt`, `policy+pull` or `policy+spt+pull`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The policy.
    pub policy: PolicyKind,
    /// Whether nodes serve the packet of shortest estimated processing time first, with ageing; else in order of arrival.
    pub shortest_first: bool,
    /// Whether idle workers ask for work whatever the policy.
    pub pulls: bool,
}

impl Contender {
    /// The contender of this name.
    ///
    /// # Errors
    /// There is no such policy or suffix.
    pub fn from_name(name: &str) -> Result<Self> {
        let mut parts = name.split('+');
        let policy = parts.next().unwrap_or_default();
        let policy = PolicyKind::from_name(policy).with_context(|| {
            let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("no policy {policy}; there are {}", names.join(", "))
        })?;
        let mut contender = Self { policy, shortest_first: false, pulls: false };
        for suffix in parts {
            let is_known = suffix == SHORTEST_FIRST || suffix == PULLS;
            ensure!(is_known, "{name}: no suffix +{suffix}; there are +{SHORTEST_FIRST} and +{PULLS}");
            contender.shortest_first |= suffix == SHORTEST_FIRST;
            contender.pulls |= suffix == PULLS;
        }
        Ok(contender)
    }

    /// Whether packets move because idle nodes ask for them.
    pub fn is_pulling(&self) -> bool {
        self.pulls || self.policy.needs().has(Needs::PULL)
    }

    /// `scenario` as this contender runs it.
    pub fn scenario(&self, scenario: &Scenario) -> Scenario {
        Scenario { pull: if self.pulls { Pull::Always } else { scenario.pull }, ..scenario.clone() }
    }

    /// `tuning` as this contender runs with.
    pub fn tuning(&self, tuning: &Tuning) -> Tuning {
        Tuning { discipline: if self.shortest_first { SHORTEST } else { FIFO }, ..*tuning }
    }
}

impl Display for Contender {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(self.policy.name())?;
        for (is_set, suffix) in [(self.shortest_first, SHORTEST_FIRST), (self.pulls, PULLS)] {
            if is_set {
                write!(out, "+{suffix}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for name in ["sooner", "c3+spt", "lsq+pull", "sooner+spt+pull"] {
            assert_eq!(Contender::from_name(name).unwrap().to_string(), name);
        }
        let pulling = |name| Contender::from_name(name).unwrap().is_pulling();
        assert!(pulling("steal") && pulling("local+pull") && !pulling("sooner+spt"));
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_exist() {
        let error = |name| Contender::from_name(name).unwrap_err().to_string();
        assert!(error("soon").contains("sooner"));
        assert_eq!(error("c3+lifo"), "c3+lifo: no suffix +lifo; there are +spt and +pull");
    }
}

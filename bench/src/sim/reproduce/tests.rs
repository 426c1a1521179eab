//! The experiments in quick form: the direction of every published effect, and the same bytes from the same seeds.

use super::output::{Reproduction, markdown, to_json};
use super::*;

fn quick() -> Effort {
    Effort { seeds: vec![1], is_quick: true }
}

fn reproduce(name: &str, effort: &Effort) -> Reproduction {
    let experiment = EXPERIMENTS.iter().find(|experiment| experiment.name == name).unwrap();
    Reproduction { experiment: *experiment, evidence: (experiment.run)(effort).unwrap() }
}

/// Every finding has the published direction and every table is whole.
fn assert_directions(name: &str) {
    let Reproduction { evidence, .. } = reproduce(name, &quick());
    assert!(!evidence.findings.is_empty());
    for finding in &evidence.findings {
        assert!(finding.agrees_in_direction(), "{name}: {}: {}", finding.what, finding.ours_text());
    }
    for table in &evidence.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {}", table.title);
    }
}

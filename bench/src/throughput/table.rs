//! The results of the searches for people.

use std::fmt::Write as _;

use super::Outcome;

/// One line per contender and goal.
pub fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", outcome.environment.line());
    let _ = writeln!(
        text,
        "frames of {} bytes, generator {}: {:.3} Mpps on this path, all dropped",
        outcome.frame_bytes,
        outcome.generator,
        outcome.generator_ceiling / 1e6
    );
    for goal in &outcome.goals {
        let _ = writeln!(
            text,
            "{}: loss up to {} % in trials of {} s, {} s of them, {} % of which may lose more; bounds {} % apart",
            goal.name,
            goal.loss_ratio * 100.0,
            goal.final_trial_s,
            goal.duration_sum_s,
            goal.exceed_ratio * 100.0,
            goal.width * 100.0
        );
    }
    let width = outcome.contenders.iter().map(|contender| contender.name.chars().count()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{:width$}  {:8}  {:>10}  {:>10}  {:>11}  trials   (Mpps)",
        "contender", "goal", "lower", "upper", "conditional"
    );
    for contender in &outcome.contenders {
        if let Some(failure) = &contender.failure {
            let _ = writeln!(text, "{:width$}  did not run: {failure}", contender.name);
        }
        for found in &contender.found {
            let bound = |load: Option<u64>| load.map_or_else(|| "none".to_owned(), |load| mpps(load as f64));
            let conditional = found.conditional_throughput.map_or_else(|| "none".to_owned(), mpps);
            let note = match (found.is_reached, found.upper) {
                (false, _) => "  (time was up)",
                (true, None) => "  (the generator is the limit)",
                _ => "",
            };
            let _ = writeln!(
                text,
                "{:width$}  {:8}  {:>10}  {:>10}  {conditional:>11}  {:>6}{note}",
                contender.name,
                found.goal.name,
                bound(found.lower),
                bound(found.upper),
                contender.trials
            );
        }
    }
    text
}

fn mpps(rate: f64) -> String {
    format!("{:.3}", rate / 1e6)
}

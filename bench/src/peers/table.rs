//! The comparison for people.

use std::fmt::Write as _;

use super::outcome::{Outcome, Spread};

/// The table, with what belongs to it in front and the goals behind it.
pub fn text(outcome: &Outcome) -> String {
    let mut text = heading(outcome);
    let width = outcome.contenders.iter().map(|contender| contender.name.chars().count()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "{:width$}  {:>23}  {:>20}  {:22}  {:>6}  {:>6}  counted at",
        "contender", "Mpps min/median/max", "ratio min/med/max", "to", "others", "stolen"
    );
    for contender in &outcome.contenders {
        let Some(rate) = contender.rate else { continue };
        let ratio = contender.ratio.map_or_else(|| "-".to_owned(), |ratio| spread(ratio, 1.0));
        let percent = |share: Option<Spread>| share.map_or(0.0, |share| share.median) * 100.0;
        let (others, stolen) = (percent(contender.others), percent(contender.stolen));
        let _ = writeln!(
            text,
            "{:width$}  {:>23}  {ratio:>20}  {:22}  {others:>4.0} %  {stolen:>4.0} %  {}",
            contender.name,
            spread(rate, 1e6),
            contender.reference,
            contender.counted_at.name(),
        );
    }
    for contender in outcome.contenders.iter().filter(|contender| !contender.failures.is_empty()) {
        let (failed, first) = (contender.failures.len(), &contender.failures[0]);
        let how = if contender.rate.is_none() { "did not run".to_owned() } else { format!("failed {failed} times") };
        let _ = writeln!(text, "{} {how}: {first}", contender.name);
    }
    text.push_str(&goals(outcome));
    text
}

fn heading(outcome: &Outcome) -> String {
    let mut text = format!("{}\n{}; {}\n", outcome.environment.line(), outcome.path, outcome.mode);
    let _ = writeln!(
        text,
        "frames of {} bytes, generator {} on CPU {} (XDP runs there, too), tested threads on CPU {}; {} rounds of {} s",
        outcome.frame_bytes,
        outcome.generator,
        outcome.generator_cpu,
        outcome.tested_cpu,
        outcome.rounds,
        outcome.window_s
    );
    if let Some(ceiling) = outcome.generator_ceiling {
        let _ = writeln!(text, "generator's ceiling on this path, all dropped: {} Mpps", spread(ceiling, 1e6));
    }
    for absent in &outcome.absent_generators {
        let _ = writeln!(text, "generator {} is not there: {}", absent.name, absent.reason);
    }
    if !outcome.enough_rounds {
        text.push_str("too few rounds: the ratios prove nothing\n");
    }
    text.push('\n');
    text
}

fn goals(outcome: &Outcome) -> String {
    let mut text = String::from("\n");
    for goal in &outcome.goals {
        let verdict = match goal.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        };
        let ratio = goal.ratio.map_or_else(|| "-".to_owned(), |ratio| spread(ratio, 1.0));
        let _ = writeln!(text, "{verdict:12}  {ratio:>20}  wanted {:.2}  {}", goal.wanted, goal.what);
    }
    text
}

fn spread(spread: Spread, unit: f64) -> String {
    format!("{:.3}/{:.3}/{:.3}", spread.min / unit, spread.median / unit, spread.max / unit)
}

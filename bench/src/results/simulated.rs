//! Sections of the simulator's files.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use super::page::{at, joined, list, number, percent, short, table, text};

/// The matrix: every policy over all cells, and the cells in which `sooner` is not the lowest.
pub fn matrix(value: &Value) -> Result<String> {
    let mut page = format!(
        "\n## Policies over the matrix (simulated)\n\n`{}`, seeds {}, {} cells. The ratio is that of the mean latency to that of a \
         central queue on the same packets.\n\n",
        text(value, "/command")?,
        joined(value, "/seeds")?,
        list(value, "/cells")?.len()
    );
    let mut rows = Vec::new();
    for overall in list(value, "/summary/overall")? {
        let count = at(overall, "/cells_lowest")?.as_u64().map_or_else(|| "-".to_owned(), |cells| cells.to_string());
        let near =
            at(overall, "/share_of_cells_within_5_percent_of_best")?.as_f64().map_or_else(|| "-".to_owned(), percent);
        rows.push(vec![
            text(overall, "/policy")?.to_owned(),
            short(number(overall, "/ratio_arithmetic_mean")?),
            short(number(overall, "/ratio_geometric_mean")?),
            short(number(overall, "/ratio_worst")?),
            count,
            near,
            percent(number(overall, "/forwarded_mean")?),
        ]);
    }
    page += &table(
        &["policy", "mean ratio", "geometric", "worst", "cells lowest", "within 5 % of best", "forwarded"],
        &rows,
    );
    for standings in list(value, "/summary/sooner")? {
        page += &standing(standings)?;
    }
    Ok(page)
}

/// A variant of `sooner` against its rivals.
fn standing(value: &Value) -> Result<String> {
    let rivals = match text(value, "/rivals")? {
        "pushing" => "policies that decide at arrival",
        _ => "all policies, those whose idle nodes ask for work included",
    };
    let mut page = format!(
        "\n`{}` has the lowest mean in {} of {} cells, against {rivals}.\n",
        text(value, "/policy")?,
        at(value, "/cells_lowest")?,
        at(value, "/cells")?
    );
    let mut rows = Vec::new();
    for lost in list(value, "/not_lowest")? {
        let chance = if at(lost, "/may_be_chance")?.as_bool() == Some(true) { "may be chance" } else { "" };
        let above = (number(lost, "/mean_over_rival/mean")? - 1.0) * 100.0;
        rows.push(vec![
            text(lost, "/cell")?.to_owned(),
            text(lost, "/best_rival")?.to_owned(),
            format!("{above:.1} %"),
            chance.to_owned(),
        ]);
    }
    if !rows.is_empty() {
        page += &format!("\n{}", table(&["cell where it is not", "lowest", "above it by", ""], &rows));
    }
    Ok(page)
}

/// The published experiments: a line for each figure, then what is assumed.
pub fn reproduce(value: &Value) -> Result<String> {
    let mut page = format!(
        "\n## The published experiments (simulated)\n\nSeeds {}{}. A verdict says whether the published effect appears under the \
         stated assumptions, never that a paper is reproduced.\n\n",
        joined(value, "/seeds")?,
        if at(value, "/quick")?.as_bool() == Some(true) { ", runs of a fifth of their length" } else { "" }
    );
    let (mut rows, mut notes) = (Vec::new(), String::new());
    for experiment in list(value, "/experiments")? {
        let id = text(experiment, "/experiment")?;
        for finding in list(experiment, "/findings")? {
            let unit = text(finding, "/unit")?;
            let half_width = at(finding, "/ours/half_width")?.as_f64();
            let interval = half_width.map_or_else(String::new, |half| format!(" ± {}", short(half)));
            let ours = format!("{}{interval} {unit}", short(number(finding, "/ours/mean").unwrap_or(f64::NAN)));
            rows.push(vec![
                id.to_owned(),
                text(finding, "/what")?.to_owned(),
                format!("{} ({})", text(finding, "/published/says")?, text(finding, "/published/source")?),
                ours.trim_end().to_owned(),
                text(finding, "/verdict")?.replace("MISSES", "**misses**"),
            ]);
        }
        notes += &assumptions(experiment).with_context(|| id.to_owned())?;
    }
    let met = rows.iter().filter(|row| row.last().is_some_and(|verdict| !verdict.contains("misses"))).count();
    page += &format!("{met} of {} figures meet their mark.\n\n", rows.len());
    page += &table(&["", "measured", "published", "ours", "verdict"], &rows);
    page += "\n### What these experiments assume\n";
    Ok(page + &notes)
}

fn assumptions(experiment: &Value) -> Result<String> {
    let mut page = format!(
        "\n**{} {}**: {}. `{}`\n\n",
        text(experiment, "/experiment")?,
        text(experiment, "/name")?,
        text(experiment, "/title")?,
        text(experiment, "/command")?
    );
    for assumption in list(experiment, "/assumptions")? {
        let _ = writeln!(page, "- {}", assumption.as_str().context("an assumption is no text")?);
    }
    Ok(page)
}

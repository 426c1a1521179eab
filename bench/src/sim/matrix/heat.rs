//! A table of ratios as a heat map: a row a cell, a column a bound or contender.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Matrix;
use super::cells::{Group, redirect_us};
use super::chart::{FONT, INK, PALE};
use super::race::Record;
use super::summary::lowest_ns;
use crate::sim::scenario::{Estimates, Scenario};

/// Ratios and their colours; between two, the logarithm of the ratio decides.
const SCALE: [(f64, RGBColor); 6] = [
    (0.4, RGBColor(0x22, 0x5e, 0xa8)),
    (1.0, RGBColor(0xa1, 0xda, 0xb4)),
    (1.8, RGBColor(0xff, 0xff, 0xcc)),
    (3.0, RGBColor(0xfe, 0xb2, 0x4c)),
    (6.0, RGBColor(0xf0, 0x3b, 0x20)),
    (20.0, RGBColor(0x80, 0x00, 0x26)),
];

/// Measures of the table, pixels: height of a row and of the head, width of a column of ratios.
const ROW: i32 = 20;
const HEAD: i32 = 128;
const COLUMN: i32 = 46;
/// Heads and widths of the columns that describe the cell.
const FACTORS: [(&str, i32); 6] =
    [("workload", 72), ("ingress", 72), ("nodes", 50), ("load", 44), ("report µs", 76), ("redirect µs", 88)];
/// Width of a letter of what further describes a cell, on average.
const LETTER: i32 = 7;

/// Draws the cells of a group; `None` when it has none.
///
/// # Errors
/// The drawing library refuses.
pub fn draw(matrix: &Matrix, group: Group) -> Result<Option<String>> {
    let of_group = |cell: &usize| matrix.plan.cells[*cell].group == group;
    let cells: Vec<usize> = (0..matrix.plan.cells.len()).filter(of_group).collect();
    if cells.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    draw_into(&mut text, matrix, &cells)
        .map_err(|error| anyhow!("cannot draw the table {}: {error}", group.title()))?;
    Ok(Some(text))
}

fn draw_into(text: &mut String, matrix: &Matrix, cells: &[usize]) -> Result<(), Box<dyn std::error::Error>> {
    let described: Vec<_> = cells.iter().map(|cell| factors(&matrix.plan.cells[*cell].scenario)).collect();
    let longest = described.iter().map(|(_, more)| more.chars().count()).max().unwrap_or(0);
    let left = FACTORS.iter().map(|(_, width)| width).sum::<i32>() + LETTER * longest as i32 + 8;
    let runners = matrix.plan.runners();
    let size = (left + COLUMN * runners.len() as i32 + 8, HEAD + ROW * cells.len() as i32 + 8);
    let root = SVGBackend::with_string(text, (size.0 as u32, size.1 as u32)).into_drawing_area();
    let write = |text: String, place: (i32, i32), color: &RGBColor, anchor: HPos, bold: bool| {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let style = (FONT, 14).into_font().style(style).color(color).pos(Pos::new(anchor, VPos::Center));
        root.draw(&Text::new(text, place, style))
    };
    let mut x = 0;
    for (name, width) in FACTORS {
        write(name.to_owned(), (x + 4, HEAD - 12), &INK, HPos::Left, true)?;
        x += width;
    }
    for (column, runner) in (0..).zip(&runners) {
        let font = (FONT, 14).into_font().transform(FontTransform::Rotate270);
        let style = font.color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(runner.name(), (left + COLUMN * column + COLUMN / 2, HEAD - 6), style))?;
    }
    for ((line, cell), (factors, more)) in (0..).zip(cells).zip(described) {
        let top = HEAD + ROW * line;
        let mut x = 0;
        for (text, (_, width)) in factors.into_iter().zip(FACTORS) {
            write(text, (x + 4, top + ROW / 2), &PALE, HPos::Left, false)?;
            x += width;
        }
        write(more, (x + 4, top + ROW / 2), &PALE, HPos::Left, false)?;
        let records = matrix.row(*cell);
        for (column, record) in (0..).zip(records) {
            let x = left + COLUMN * column;
            let (ground, ink) = colors(record.row.ratio.mean);
            root.draw(&Rectangle::new([(x, top), (x + COLUMN - 1, top + ROW - 1)], ground.filled()))?;
            let is_lowest = is_lowest(record, records);
            if is_lowest {
                root.draw(&Rectangle::new([(x + 1, top + 1), (x + COLUMN - 2, top + ROW - 2)], ink.stroke_width(2)))?;
            }
            write(ratio_text(record.row.ratio.mean), (x + COLUMN / 2, top + ROW / 2), &ink, HPos::Center, is_lowest)?;
        }
    }
    root.present()?;
    Ok(())
}

/// The factors of a cell as the table shows them, and what else there is to say about it.
fn factors(scenario: &Scenario) -> ([String; 6], String) {
    let (cpu_us, wire_us) = redirect_us(&scenario.forwarding);
    let mut more = Vec::new();
    if !scenario.speeds_milli.is_empty() {
        more.push(format!("speeds {}", scenario.speeds().iter().map(f64::to_string).collect::<Vec<_>>().join(" ")));
    }
    if scenario.workers > 1 {
        more.push(format!("{} workers", scenario.workers));
    }
    if scenario.estimates != Estimates::Exact {
        more.push(format!("estimates {}", scenario.estimates));
    }
    if scenario.reports.loss > 0.0 {
        more.push(format!("{} % of reports lost", scenario.reports.loss * 100.0));
    }
    more.extend(scenario.failures.iter().map(|failure| format!("fail {failure} ms")));
    let factors = [
        scenario.workload.name().to_owned(),
        scenario.ingress.to_string(),
        scenario.nodes.to_string(),
        scenario.load.to_string(),
        (scenario.reports.interval_ns as f64 / 1000.0).to_string(),
        format!("{cpu_us} / {wire_us}"),
    ];
    (factors, more.join(", "))
}

/// Whether a contender has the lowest mean of those with its order of service.
fn is_lowest(record: &Record, row: &[Record]) -> bool {
    record.contender().is_some_and(|own| record.row.mean_ns.mean <= lowest_ns(row, own))
}

/// A ratio with as many digits as have room.
fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 9.995 => format!("{ratio:.2}"),
        ratio if ratio < 99.95 => format!("{ratio:.1}"),
        ratio if ratio < 9_999.5 => format!("{ratio:.0}"),
        _ => ">9999".to_owned(),
    }
}

/// Colours of the ground and of the text on it.
fn colors(ratio: f64) -> (RGBColor, RGBColor) {
    let ground = ground(ratio);
    let RGBColor(red, green, blue) = ground;
    // Relative luminance by ITU-R BT.709, without linearisation: only dark or light is asked.
    let luminance = 0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue);
    (ground, if luminance > 125.0 { RGBColor(0x11, 0x11, 0x11) } else { RGBColor(0xfa, 0xfa, 0xfa) })
}

fn ground(ratio: f64) -> RGBColor {
    for pair in SCALE.windows(2) {
        let [(low, from), (high, to)] = [pair[0], pair[1]];
        if ratio < high {
            let part = ((ratio / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
            let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as u8;
            return RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2));
        }
    }
    SCALE[SCALE.len() - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_through_the_scale() {
        assert_eq!((ground(0.1), ground(1.0), ground(1e6)), (SCALE[0].1, SCALE[1].1, SCALE[5].1));
        assert_eq!(colors(1.8).1, RGBColor(0x11, 0x11, 0x11));
        assert_eq!(colors(50.0).1, RGBColor(0xfa, 0xfa, 0xfa));
    }

    #[test]
    fn ratios_fit_their_column() {
        assert_eq!([1.234, 9.999, 123.4, 1e7].map(ratio_text), ["1.23", "10.0", "123", ">9999"]);
    }
}

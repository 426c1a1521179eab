//! Line charts of a quantity over one factor, as SVG in the page's own colours.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours that the page's style sheet replaces in the dark: lines and text, secondary text, grid.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// See [`INK`].
pub const PALE: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// See [`INK`].
pub const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

/// Family of all text, as generic as it can be: the page has no font of its own.
pub const FONT: &str = "sans-serif";

/// Colours that stand out from white and from black alike, the first for the subject.
const COLORS: [RGBColor; 10] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x78, 0xbe),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x8c, 0x6b, 0xb1),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0x4f, 0x9f, 0xcf),
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0xa6, 0x5b, 0x2b),
    RGBColor(0x2c, 0xa0, 0x2c),
];

/// Size of a chart and of what stands around its plot, pixels.
const SIZE: (u32, u32) = (560, 380);
const LEGEND: i32 = 130;
const TITLE: i32 = 34;
const FOOT: u32 = 46;
const SIDE: u32 = 58;

/// The whole drawing.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What the drawing library says when it refuses.
type Failed = Box<dyn std::error::Error>;

/// How values are laid out on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm.
    Logarithmic,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
        }
    }
}

/// An axis: its name with the unit, its scale, the values that are marked.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name, with the unit.
    pub label: &'static str,
    /// Scale.
    pub scale: Scale,
    /// Values that are marked and written.
    pub marks: Vec<f64>,
}

impl Axis {
    /// An axis for `values` that marks round ones of them.
    pub fn round(label: &'static str, scale: Scale, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) =
            values.into_iter().fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)));
        let marks = match scale {
            Scale::Linear => even_numbers(high),
            Scale::Logarithmic => round_numbers(low, high),
        };
        Self { label, scale, marks }
    }

    /// The axis for points whose values on it are these: it begins and ends a little beyond values and marks.
    fn ruler(&self, values: impl Iterator<Item = f64>) -> Ruler<'_> {
        let places = values.chain(self.marks.iter().copied()).map(|value| self.scale.place(value));
        let (low, high) =
            places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (at.min(low), at.max(high)));
        let margin = ((high - low) * 0.03).max(1e-6);
        Ruler { axis: self, low: low - margin, high: high + margin }
    }
}

/// An axis with its beginning and end, both as [`Scale::place`] gives them.
struct Ruler<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
}

impl Ranged for Ruler<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (self.axis.scale.place(*value) - self.low) / (self.high - self.low);
        from + (f64::from(to - from) * part.clamp(0.0, 1.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.axis.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        let value = |place| if self.axis.scale == Scale::Logarithmic { 10f64.powf(place) } else { place };
        value(self.low)..value(self.high)
    }
}

impl ValueFormatter<f64> for Ruler<'_> {
    /// Without digits that mean nothing.
    fn format_ext(&self, value: &f64) -> String {
        ((value * 1000.0).round() / 1000.0).to_string()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten from 0 to above `high`, five or a few more.
fn even_numbers(high: f64) -> Vec<f64> {
    if high <= 0.0 {
        return vec![0.0, 1.0];
    }
    let power = 10f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0].map(|step| step * power).into_iter().find(|step| *step >= high / 5.0);
    let step = step.unwrap_or(10.0 * power);
    (0..=(high / step).ceil() as u32).map(|count| f64::from(count) * step).collect()
}

/// 1, 2 and 5 times the powers of ten from below `low` to above `high`, at most so many that they can be read.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    if !low.is_finite() || high <= 0.0 || low <= 0.0 {
        return vec![1.0, 10.0];
    }
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let steps: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all: Vec<f64> = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))).collect();
    let first = all.iter().rposition(|mark| *mark <= low).unwrap_or(0);
    let last = all.iter().position(|mark| *mark >= high).unwrap_or(all.len() - 1);
    all[first..=last.max(first)].to_vec()
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its colour and mark: a number that the same policy has in every chart; 0 is drawn thick.
    pub pen: usize,
    /// Points by rising x.
    pub points: Vec<(f64, f64)>,
}

/// Draws `lines` over `x`.
///
/// # Errors
/// The drawing library refuses.
pub fn draw(title: &str, (x, y): (&Axis, &Axis), lines: &[Line]) -> Result<String> {
    draw_with_legend(title, (x, y), lines, LEGEND)
}

/// As [`draw`], with so many pixels for the lines' names; the plot has the same size.
///
/// # Errors
/// The drawing library refuses.
pub fn draw_with_legend(title: &str, (x, y): (&Axis, &Axis), lines: &[Line], legend: i32) -> Result<String> {
    let mut text = String::new();
    draw_into(&mut text, title, (x, y), lines, legend)
        .map_err(|error| anyhow!("cannot draw the chart {title}: {error}"))?;
    Ok(text)
}

fn draw_into(
    text: &mut String,
    title: &str,
    (x, y): (&Axis, &Axis),
    lines: &[Line],
    legend: i32,
) -> Result<(), Failed> {
    let plot = SIZE.0 as i32 - LEGEND;
    let root = SVGBackend::with_string(text, ((plot + legend) as u32, SIZE.1)).into_drawing_area();
    let style = (FONT, 17).into_font().style(FontStyle::Bold).color(&INK);
    root.draw(&Text::new(title.to_owned(), (8, 6), style))?;
    let (whole, _) = root.split_horizontally(plot);
    let points = || lines.iter().flat_map(|line| &line.points);
    let (across, up) = (x.ruler(points().map(|point| point.0)), y.ruler(points().map(|point| point.1)));
    let (left, right) = (across.range().start, across.range().end);
    let mut chart = ChartBuilder::on(&whole)
        .margin_top(TITLE)
        .margin_left(8)
        .margin_right(8)
        .x_label_area_size(FOOT)
        .y_label_area_size(SIDE)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .axis_style(INK)
        .label_style((FONT, 14).into_font().color(&PALE))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .x_desc(x.label)
        .y_desc(y.label)
        .draw()?;
    chart.draw_series(y.marks.iter().map(|mark| PathElement::new([(left, *mark), (right, *mark)], GRID)))?;
    for line in lines {
        let style = color(line.pen).stroke_width(if line.pen == 0 { 4 } else { 2 });
        chart.draw_series([PathElement::new(line.points.clone(), style)])?;
        for point in &line.points {
            mark(&root, chart.backend_coord(point), line.pen)?;
        }
    }
    for (row, line) in (0..).zip(lines) {
        let top = TITLE + 10 + 20 * row;
        let style = color(line.pen).stroke_width(if line.pen == 0 { 4 } else { 2 });
        root.draw(&PathElement::new([(plot + 4, top), (plot + 30, top)], style))?;
        mark(&root, (plot + 17, top), line.pen)?;
        let style = (FONT, 14).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(line.name.clone(), (plot + 36, top), style))?;
    }
    root.present()?;
    Ok(())
}

fn color(pen: usize) -> RGBColor {
    COLORS[pen % COLORS.len()]
}

/// Draws the mark of a pen, so that lines can be told apart without their colours.
fn mark(root: &Area<'_>, place: (i32, i32), pen: usize) -> Result<(), Failed> {
    let color = color(pen);
    match pen % 4 {
        0 => root.draw(&Circle::new(place, 4, color.filled())),
        1 => root.draw(&TriangleMarker::new(place, 5, color.filled())),
        2 => root.draw(&Cross::new(place, 4, color.stroke_width(2))),
        _ => root.draw(&Circle::new(place, 4, color.stroke_width(2))),
    }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_around_the_values() {
        assert_eq!(even_numbers(86.7), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(even_numbers(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(even_numbers(0.0), [0.0, 1.0]);
        assert_eq!(round_numbers(1.3, 42.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(round_numbers(3.0, 50_000.0), [1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0]);
        assert_eq!(round_numbers(f64::INFINITY, 0.0), [1.0, 10.0], "no values");
    }

    #[test]
    fn values_are_placed_by_scale() {
        let axis = Axis { label: "", scale: Scale::Logarithmic, marks: vec![1.0, 100.0] };
        let ruler = axis.ruler([10.0].into_iter());
        assert_eq!(ruler.map(&10.0, (0, 200)), 100);
        assert_eq!(ruler.format_ext(&0.6000000000000001), "0.6");
        assert!(ruler.range().start < 1.0 && ruler.range().end > 100.0);
    }
}

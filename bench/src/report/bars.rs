//! Horizontal bars, one per measured value, each with a thin line over the span that the value may lie in.

use crate::demo::svg::{Anchor, Style, Svg};

/// Ink, secondary ink, bars of now and of before.
const INK: &str = "#222222";
const PALE: &str = "#666666";
const NOW_BAR: &str = "#d55e00";
const BEFORE_BAR: &str = "#4f9fcf";
/// Room for names, for bars, and for values behind them; height of a bar and its gap; pixels.
const LEFT: f64 = 270.0;
const WIDTH: f64 = 480.0;
const RIGHT: f64 = 90.0;
const STEP: f64 = 20.0;

/// One bar.
pub struct Bar {
    /// What it stands for; bars of one name stand together.
    pub name: String,
    /// Where the bar ends.
    pub value: f64,
    /// Ends of the thin line.
    pub span: (f64, f64),
    /// From the directory that is compared with.
    pub is_before: bool,
}

/// The picture of `bars`; values are written with so many digits behind the point. Nothing without bars.
pub fn draw(title: &str, bars: &[Bar], digits: usize) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let most = bars.iter().map(|bar| bar.span.1.max(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
    let at = |value: f64| LEFT + value / most * WIDTH;
    let mut svg = Svg::new(LEFT + WIDTH + RIGHT, STEP * bars.len() as f64 + 16.0);
    let text = |anchor, color| Style { size: 12.0, color, bold: false, anchor };
    let mut top = 8.0;
    for name in names(bars) {
        for bar in bars.iter().filter(|bar| bar.name == name) {
            let middle = top + STEP / 2.0;
            let (color, ink) = if bar.is_before { (BEFORE_BAR, PALE) } else { (NOW_BAR, INK) };
            svg.bar((LEFT, top + 3.0), at(bar.value) - LEFT, STEP - 6.0, color);
            svg.line((at(bar.span.0), middle), (at(bar.span.1), middle), ink, 1.5);
            let label = if bar.is_before { "before" } else { name };
            svg.text((LEFT - 8.0, middle + 4.0), label, text(Anchor::End, ink));
            let value = format!("{:.digits$}", bar.value);
            svg.text((at(bar.span.1.max(bar.value)) + 6.0, middle + 4.0), &value, text(Anchor::Start, ink));
            top += STEP;
        }
    }
    format!("<figure>\n{}</figure>\n", svg.finish(title))
}

/// Each name once, in the order of its first bar.
fn names(bars: &[Bar]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for bar in bars {
        if !names.contains(&bar.name.as_str()) {
            names.push(&bar.name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, value: f64, is_before: bool) -> Bar {
        Bar { name: name.to_owned(), value, span: (value / 2.0, value * 2.0), is_before }
    }

    #[test]
    fn what_is_compared_with_stands_below_what_it_is_compared_with() {
        let bars = [bar("a", 1.0, false), bar("b", 2.0, false), bar("a", 1.5, true)];
        let picture = draw("x", &bars, 1);
        let places = [">a<", ">before<", ">b<"].map(|label| picture.find(label).unwrap());
        assert!(places.is_sorted(), "{places:?}");
        assert!(picture.contains(">1.5<"));
    }

    #[test]
    fn the_longest_span_takes_the_whole_width() {
        assert!(draw("x", &[bar("a", 3.0, false)], 0).contains(&format!("x2=\"{:.1}\"", LEFT + WIDTH)));
        assert!(draw("x", &[], 0).is_empty());
        assert!(draw("x", &[bar("a", 0.0, false)], 0).contains("width=\"0.0\""));
    }
}

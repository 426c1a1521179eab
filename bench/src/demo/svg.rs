//! The few shapes a plot is made of, as SVG text.

use std::fmt::Write as _;

/// A drawing of fixed size, white ground.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub struct Style<'a> {
    /// Height of the letters, pixels.
    pub size: f64,
    /// Colour.
    pub color: &'a str,
    /// Heavy letters.
    pub bold: bool,
    /// Where it stands.
    pub anchor: Anchor,
}

impl Svg {
    /// An empty drawing, sizes in pixels.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}" stroke-width="{width}"/>"#
        );
    }

    /// A line through all points. `dashes` is a pattern of strokes and gaps; empty for a full line.
    pub fn path(&mut self, points: &[(f64, f64)], color: &str, width: f64, dashes: &str) {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            self.body,
            r#"<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}" stroke-dasharray="{dashes}" stroke-linejoin="round"/>"#
        );
    }

    /// A filled rectangle from its upper left corner.
    pub fn bar(&mut self, at: (f64, f64), width: f64, height: f64, color: &str) {
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{color}"/>"#
        );
    }

    /// A line of text whose base line is at `at`.
    pub fn text(&mut self, at: (f64, f64), text: &str, style: Style<'_>) {
        self.turned_text(at, text, style, 0.0);
    }

    /// As [`Self::text`], turned clockwise about its point by so many degrees.
    pub fn turned_text(&mut self, at: (f64, f64), text: &str, style: Style<'_>, degrees: f64) {
        let (x, y) = at;
        let anchor = match style.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if style.bold { "bold" } else { "normal" };
        let (size, color, text) = (style.size, style.color, escape(text));
        let turn =
            if degrees == 0.0 { String::new() } else { format!(r#" transform="rotate({degrees} {x:.1} {y:.1})""#) };
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" font-weight="{weight}" fill="{color}" text-anchor="{anchor}"{turn}>{text}</text>"#
        );
    }

    /// The finished file.
    pub fn finish(self, title: &str) -> String {
        let (width, height, title, body) = (self.width, self.height, escape(title), self.body);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" role="img">
<title>{title}</title>
<rect width="{width}" height="{height}" fill="#ffffff"/>
{body}</svg>
"##
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out() {
        let mut svg = Svg::new(10.0, 10.0);
        let style = Style { size: 10.0, color: "#000", bold: false, anchor: Anchor::Start };
        svg.text((1.0, 2.0), "a < b & \"c\"", style);
        let file = svg.finish("</title>");
        assert!(file.contains("a &lt; b &amp; &quot;c&quot;") && file.contains("<title>&lt;/title&gt;</title>"));
        assert_eq!(file.matches("<svg").count(), file.matches("</svg>").count());
    }
}

//! `latency.svg`: latency by percentile of each policy, its mean, and the share of packets it moved.

use super::outcome::{Outcome, PolicyOutcome};
use super::svg::{Anchor, Style, Svg};
use super::table::{format_ns, format_share};

const WIDTH: f64 = 1120.0;
/// Height of a bar and the gap behind it where there are many.
const BAR: f64 = 20.0;
/// Colours that people with any colour vision tell apart (Okabe and Ito, 2008), and a dash pattern for prints.
const PENS: [(&str, &str); 6] = [
    ("#555555", "2 4"),
    ("#e69f00", "10 4"),
    ("#0072b2", "6 3"),
    ("#009e73", ""),
    ("#cc79a7", "12 3 2 3"),
    ("#d55e00", "4 2"),
];
/// Width of the legend.
const LEGEND: f64 = 180.0;
const INK: &str = "#222222";
/// Ink of what is less important.
pub const PALE: &str = "#666666";
const GRID: &str = "#e4e4e4";

/// Quantiles that are marked on the axis.
const MARKS: [(f64, &str); 7] =
    [(0.0, "0"), (0.5, "50"), (0.75, "75"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];

/// A rectangle of the drawing: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// Where what is drawn.
struct Layout {
    height: f64,
    curves: Area,
    means: Area,
    moved: Area,
}

impl Layout {
    /// The drawing of so many policies: higher where the bars need it.
    fn of(policies: usize) -> Self {
        let bars = (BAR * policies as f64).max(160.0);
        let means = Area { left: 850.0, top: 112.0, right: 1030.0, bottom: 112.0 + bars };
        let moved = Area { top: means.bottom + 50.0, bottom: means.bottom + 50.0 + bars, ..means };
        let curves = Area { left: 90.0, top: 90.0, right: 700.0, bottom: moved.bottom - 2.0 };
        Self { height: curves.bottom + 80.0, curves, means, moved }
    }
}

/// Draws the outcome.
pub fn draw(outcome: &Outcome) -> String {
    let policies = outcome.in_order().collect::<Vec<_>>();
    let Layout { height, curves, means, moved } = Layout::of(policies.len());
    let mut svg = Svg::new(WIDTH, height);
    let title = "Latency of active packets by placement policy";
    svg.text((curves.left, 36.0), title, Style { size: 20.0, bold: true, ..plain(INK) });
    svg.text((curves.left, 58.0), &subtitle(outcome), Style { size: 12.0, ..plain(PALE) });
    draw_curves(&mut svg, curves, &policies);
    let most = policies.iter().map(|(_, policy)| policy.latency.mean_ns).fold(1.0, f64::max);
    draw_bars(&mut svg, means, "mean latency", &policies, |policy| {
        (policy.latency.mean_ns / most, format_ns(policy.latency.mean_ns))
    });
    draw_bars(&mut svg, moved, "packets computed by another node", &policies, |policy| {
        let megabytes = policy.interconnect_bytes as f64 / 1e6;
        (policy.forwarded_share, format!("{}, {megabytes:.1} MB", format_share(policy.forwarded_share)))
    });
    let host = format!("{}; dataplane-bench {}", outcome.host.line(), outcome.host.version);
    svg.text((curves.left, height - 14.0), &host, Style { size: 11.0, ..plain(PALE) });
    svg.finish(title)
}

/// A usual text.
pub fn plain(color: &str) -> Style<'_> {
    Style { size: 12.0, color, bold: false, anchor: Anchor::Start }
}

fn subtitle(outcome: &Outcome) -> String {
    let setup = &outcome.setup;
    let service = match setup.emulated().as_slice() {
        [] => "real computations".to_owned(),
        kinds => format!("emulated service for kind {}", kinds.join(", ")),
    };
    format!(
        "{} nodes, {service}; {:.0} packets/s, {} of them at node 1; load {:.2}; reports each {}; seed {}",
        setup.nodes,
        setup.rate_per_s,
        format_share(setup.arrival_shares[0]),
        setup.offered_load,
        format_ns(setup.report_interval_us as f64 * 1e3),
        setup.seed
    )
}

/// Colour and dashes of the policy at this place.
pub fn pen(index: usize) -> (&'static str, &'static str) {
    let (color, _) = PENS[index % PENS.len()];
    // Where there are more policies than colours, the next ones of a colour have other dashes.
    let (_, dashes) = PENS[(index + index / PENS.len()) % PENS.len()];
    (color, dashes)
}

/// Percentiles to the right in steps of "nines", latency upwards, both logarithmic.
fn draw_curves(svg: &mut Svg, area: Area, policies: &[(&str, &PolicyOutcome)]) {
    let points = || policies.iter().flat_map(|(_, policy)| &policy.latency_curve);
    let (Some(low), Some(high)) = (points().map(|(_, ns)| *ns).min(), points().map(|(_, ns)| *ns).max()) else {
        return;
    };
    let last = points().map(|(quantile, _)| *quantile).fold(0.0, f64::max);
    let x = |quantile: f64| area.left + (area.right - area.left) * nines(quantile) / nines(last);
    let (low, high) = ((low.max(1) as f64 / 1.2).log10(), (high.max(2) as f64 * 1.2).log10());
    let y = |ns: f64| area.bottom - (area.bottom - area.top) * (ns.log10() - low) / (high - low);
    for (quantile, label) in MARKS.into_iter().filter(|(quantile, _)| *quantile <= last + 1e-9) {
        svg.line((x(quantile), area.top), (x(quantile), area.bottom), GRID, 1.0);
        let style = Style { anchor: Anchor::Middle, ..plain(PALE) };
        svg.text((x(quantile), area.bottom + 18.0), label, style);
    }
    for ns in ticks(10f64.powf(low), 10f64.powf(high)) {
        svg.line((area.left, y(ns)), (area.right, y(ns)), GRID, 1.0);
        svg.text((area.left - 8.0, y(ns) + 4.0), &tick_label(ns), Style { anchor: Anchor::End, ..plain(PALE) });
    }
    svg.line((area.left, area.bottom), (area.right, area.bottom), INK, 1.0);
    svg.line((area.left, area.top), (area.left, area.bottom), INK, 1.0);
    let middle = Style { anchor: Anchor::Middle, size: 13.0, ..plain(INK) };
    svg.text(((area.left + area.right) / 2.0, area.bottom + 40.0), "percentile of packets", middle);
    let side = (26.0, (area.top + area.bottom) / 2.0);
    svg.turned_text(side, "latency from the scheduled sending time", middle, -90.0);
    for (index, (_, policy)) in policies.iter().enumerate() {
        let (color, dashes) = pen(index);
        let points = policy.latency_curve.iter().map(|(quantile, ns)| (x(*quantile), y((*ns).max(1) as f64)));
        svg.path(&points.collect::<Vec<_>>(), color, 2.5, dashes);
    }
    draw_legend(svg, area, policies);
}

fn draw_legend(svg: &mut Svg, area: Area, policies: &[(&str, &PolicyOutcome)]) {
    // Curves rise to the right, so the lower right corner is free.
    let height = 20.0 * policies.len() as f64 + 8.0;
    let (left, top) = (area.right - LEGEND, area.bottom - height - 10.0);
    svg.bar((left - 10.0, top), LEGEND, height, "#ffffff");
    for (index, (name, _)) in policies.iter().enumerate() {
        let (color, dashes) = pen(index);
        let y = top + 18.0 + 20.0 * index as f64;
        svg.path(&[(left, y - 4.0), (left + 34.0, y - 4.0)], color, 2.5, dashes);
        svg.text((left + 42.0, y), name, Style { size: 13.0, ..plain(INK) });
    }
}

/// A bar per policy with its name in front and its value behind; `value` gives the length (1 = full) and the label.
fn draw_bars(
    svg: &mut Svg,
    area: Area,
    title: &str,
    policies: &[(&str, &PolicyOutcome)],
    value: impl Fn(&PolicyOutcome) -> (f64, String),
) {
    svg.text((area.left - 70.0, area.top - 14.0), title, Style { size: 13.0, bold: true, ..plain(INK) });
    svg.line((area.left, area.top), (area.left, area.bottom), INK, 1.0);
    let step = (area.bottom - area.top) / policies.len().max(1) as f64;
    for (index, (name, policy)) in policies.iter().enumerate() {
        let (length, label) = value(policy);
        let width = (area.right - area.left) * length.clamp(0.0, 1.0);
        let top = area.top + step * (index as f64 + 0.18);
        let base = area.top + step * (index as f64 + 0.5) + 4.0;
        svg.bar((area.left, top), width, step * 0.64, pen(index).0);
        svg.text((area.left - 8.0, base), name, Style { anchor: Anchor::End, ..plain(INK) });
        svg.text((area.left + width + 6.0, base), &label, plain(INK));
    }
}

/// How many nines a quantile has: 0.9 has one, 0.99 two.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// 1, 2 and 5 times the powers of ten between two values.
pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

/// A round time: no digits that mean nothing.
pub fn tick_label(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", value.round())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(150.0, 6_000.0), [200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]);
        assert_eq!(ticks(150.0, 6_000.0).map_labels(), ["200 ns", "500 ns", "1 µs", "2 µs", "5 µs"]);
    }

    trait Labels {
        fn map_labels(self) -> Vec<String>;
    }

    impl Labels for Vec<f64> {
        fn map_labels(self) -> Vec<String> {
            self.into_iter().map(tick_label).collect()
        }
    }

    #[test]
    fn every_policy_has_a_pen_of_its_own_and_room() {
        let pens = (0..36).map(pen).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(pens.len(), 36);
        let few = Layout::of(5);
        assert_eq!((few.height, few.curves.bottom, few.moved.top), (560.0, 480.0, 322.0));
        let many = Layout::of(20);
        assert_eq!(many.moved.bottom - many.moved.top, 20.0 * BAR);
        assert!(many.height > many.moved.bottom);
    }

    #[test]
    fn each_nine_is_as_wide_as_the_one_before() {
        assert!(nines(0.0).abs() < 1e-9);
        assert!((nines(0.9) - 1.0).abs() < 1e-9 && (nines(0.999) - 3.0).abs() < 1e-9);
    }
}

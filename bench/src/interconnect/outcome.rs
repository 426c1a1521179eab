//! What the comparison says, as `interconnect.json` and the tables have it.

use std::fmt::Write as _;

use serde::Serialize;

use super::cell::{Flood, Line, Place, RoundTrips, Transport, Waiting};
use super::{Cpus, Options};
use crate::demo::table::align;
use crate::environment::Environment;
use crate::peers::Spread;

/// Format of the file.
pub const SCHEMA: &str = "dataplane.interconnect/1";
/// Fewest rounds whose ratios say anything.
const FEWEST_ROUNDS: u32 = 5;
/// Round trips of the baseline through those of xsk, workers spinning: at least this, at the median.
const ROUND_TRIP_GOAL: f64 = 1.5;
/// CPU time of xdp through that of the baseline: at most this, at the median.
const CPU_GOAL: f64 = 0.25;

/// Spreads over the rounds of one kind of round trip.
#[derive(Clone, Debug, Serialize)]
pub struct RoundTripRow {
    /// How the workers waited.
    pub waiting: Waiting,
    /// Length of the frames without frame check sequence.
    pub frame_bytes: usize,
    /// Where the packets were computed.
    pub place: Place,
    /// How frames travelled.
    pub transport: Transport,
    /// Median round trip, us.
    pub p50_us: Spread,
    /// 99th percentile, us.
    pub p99_us: Spread,
    /// 99.9th percentile, us.
    pub p999_us: Spread,
    /// Median round trip of udp through this one, round by round.
    pub udp_through_this: Option<Spread>,
    /// Packets without an answer, all rounds together.
    pub lost: u64,
    /// Share of the packets that were computed at this place.
    pub computed_there: Spread,
    /// Share of the CPUs that other programs used meanwhile.
    pub others: Spread,
}

/// Spreads over the rounds of one way under overload.
#[derive(Clone, Debug, Serialize)]
pub struct FloodRow {
    /// How frames travelled.
    pub transport: Transport,
    /// Frames per second that arrived.
    pub rate: Spread,
    /// That through udp's, round by round.
    pub rate_to_udp: Option<Spread>,
    /// CPU time per forwarded frame at the sending node, ns.
    pub cpu_ns: Spread,
    /// Of that, what its threads used, ns.
    pub threads_ns: Spread,
    /// CPU time through udp's, round by round.
    pub cpu_to_udp: Option<Spread>,
    /// Share of the CPUs that other programs used meanwhile.
    pub others: Spread,
}

/// What was to be shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What.
    pub name: String,
    /// The bound.
    pub wanted: f64,
    /// The median that was found.
    pub found: f64,
    /// Whether it keeps to the bound.
    pub met: bool,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub environment: Environment,
    /// The options it was run with.
    pub options: Options,
    /// CPUs of generator and nodes in round trips.
    pub cpus: Cpus,
    /// How XDP was attached and sockets were bound.
    pub mode: &'static str,
    /// Whether the rounds prove anything.
    pub enough_rounds: bool,
    /// Round trips.
    pub round_trips: Vec<RoundTripRow>,
    /// One way.
    pub floods: Vec<FloodRow>,
    /// What was to be shown.
    pub goals: Vec<Goal>,
    /// Turns that failed, with the reason.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Puts the measurements together.
    pub fn new(environment: Environment, options: &Options, cpus: Cpus, lines: &[Line]) -> Self {
        let trips = lines.iter().filter_map(|line| match line {
            Line::RoundTrips(trips) => Some(*trips),
            Line::Flood(_) => None,
        });
        let floods = lines.iter().filter_map(|line| match line {
            Line::Flood(flood) => Some(*flood),
            Line::RoundTrips(_) => None,
        });
        let (trips, floods) = (trips.collect::<Vec<_>>(), floods.collect::<Vec<_>>());
        let mut round_trips = Vec::new();
        for waiting in Waiting::ALL {
            for frame_bytes in &options.frame_bytes {
                for place in Place::ALL {
                    let rows =
                        Transport::ALL.map(|transport| trip_row(&trips, (waiting, *frame_bytes, place), transport));
                    round_trips.extend(rows.into_iter().flatten());
                }
            }
        }
        let floods =
            Transport::ALL.into_iter().filter_map(|transport| flood_row(&floods, transport)).collect::<Vec<_>>();
        let goals = goals(&round_trips, &floods);
        Self {
            schema: SCHEMA,
            environment,
            options: options.clone(),
            cpus,
            mode: "native XDP; AF_XDP in copy mode, the only one a veth has",
            enough_rounds: options.rounds >= FEWEST_ROUNDS,
            round_trips,
            floods,
            goals,
            failures: Vec::new(),
        }
    }

    /// The tables for people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}; {} rounds\n", self.environment.line(), self.mode, self.options.rounds);
        if !self.enough_rounds {
            let _ = writeln!(text, "fewer than {FEWEST_ROUNDS} rounds: this proves nothing");
        }
        let (generator, [first, second]) = (self.cpus.generator, self.cpus.nodes);
        let _ = writeln!(text, "round trips: generator on CPU {generator}, node 1 on {first}, node 2 on {second}");
        if generator == first {
            let _ = writeln!(
                text,
                "  too few cores: where node 1's worker has a part, the switch from the generator to it is in the round trip"
            );
        }
        let _ = write!(text, "\n{}", align(&self.trip_rows()));
        let _ = write!(text, "\none way, {} bytes, sleeping workers, overload\n", self.options.size);
        let _ = write!(text, "{}", align(&self.flood_rows()));
        text.push_str("\nCPU: threads of node 1, and what XDP took of the generator's CPU beyond dropping the frame at the port\n\n");
        for goal in &self.goals {
            let verdict = if goal.met { "met" } else { "missed" };
            let _ = writeln!(text, "goal: {} {:.2}: found {:.2}, {verdict}", goal.name, goal.wanted, goal.found);
        }
        for failure in &self.failures {
            let _ = writeln!(text, "failed: {failure}");
        }
        text
    }

    fn trip_rows(&self) -> Vec<Vec<String>> {
        let heads = [
            "workers",
            "bytes",
            "computed at",
            "transport",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "udp/this p50",
            "lost",
            "there",
            "others",
        ];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for row in &self.round_trips {
            rows.push(vec![
                row.waiting.name().to_owned(),
                row.frame_bytes.to_string(),
                row.place.name().to_owned(),
                row.transport.name().to_owned(),
                spread(Some(&row.p50_us), 1),
                spread(Some(&row.p99_us), 1),
                spread(Some(&row.p999_us), 1),
                spread(row.udp_through_this.as_ref(), 2),
                row.lost.to_string(),
                format!("{:.1} %", row.computed_there.min * 100.0),
                format!("{:.0} %", row.others.median * 100.0),
            ]);
        }
        rows
    }

    fn flood_rows(&self) -> Vec<Vec<String>> {
        let heads = ["transport", "kpps", "to udp", "CPU ns/frame", "of it threads", "to udp", "others"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for row in &self.floods {
            rows.push(vec![
                row.transport.name().to_owned(),
                spread(Some(&scaled(row.rate, 1e-3)), 0),
                spread(row.rate_to_udp.as_ref(), 2),
                spread(Some(&row.cpu_ns), 0),
                spread(Some(&row.threads_ns), 0),
                spread(row.cpu_to_udp.as_ref(), 2),
                format!("{:.0} %", row.others.median * 100.0),
            ]);
        }
        rows
    }
}

fn scaled(spread: Spread, factor: f64) -> Spread {
    Spread { min: spread.min * factor, median: spread.median * factor, max: spread.max * factor, ..spread }
}

/// Median, and least and largest in parentheses.
fn spread(spread: Option<&Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |Spread { min, median, max, .. }| format!("{median:.digits$} ({min:.digits$}-{max:.digits$})"),
    )
}

fn trip_row(
    trips: &[RoundTrips],
    (waiting, frame_bytes, place): (Waiting, usize, Place),
    transport: Transport,
) -> Option<RoundTripRow> {
    let of = |transport: Transport| {
        trips.iter().filter(move |trip| {
            (trip.waiting, trip.frame_bytes, trip.place, trip.transport) == (waiting, frame_bytes, place, transport)
        })
    };
    let microseconds = |ns: fn(&RoundTrips) -> u64| Spread::of(of(transport).map(|trip| ns(trip) as f64 / 1e3));
    let ratios = of(transport).filter_map(|trip| {
        let baseline = of(Transport::Udp).find(|other| other.round == trip.round)?;
        Some(baseline.p50_ns as f64 / trip.p50_ns.max(1) as f64)
    });
    Some(RoundTripRow {
        waiting,
        frame_bytes,
        place,
        transport,
        p50_us: microseconds(|trip| trip.p50_ns)?,
        p99_us: microseconds(|trip| trip.p99_ns)?,
        p999_us: microseconds(|trip| trip.p999_ns)?,
        udp_through_this: Spread::of(ratios),
        lost: of(transport).map(|trip| trip.lost).sum(),
        computed_there: Spread::of(of(transport).map(RoundTrips::computed_there))?,
        others: Spread::of(of(transport).map(|trip| trip.noise.others))?,
    })
}

fn flood_row(floods: &[Flood], transport: Transport) -> Option<FloodRow> {
    let of = |transport: Transport| floods.iter().filter(move |flood| flood.transport == transport);
    let to_udp = |value: fn(&Flood) -> f64| {
        Spread::of(of(transport).filter_map(|flood| {
            let baseline = of(Transport::Udp).find(|other| other.round == flood.round)?;
            Some(value(flood) / value(baseline))
        }))
    };
    Some(FloodRow {
        transport,
        rate: Spread::of(of(transport).map(Flood::rate))?,
        rate_to_udp: to_udp(Flood::rate),
        cpu_ns: Spread::of(of(transport).map(Flood::cpu_ns))?,
        threads_ns: Spread::of(of(transport).map(|flood| flood.node_ns as f64 / flood.arrived.max(1) as f64))?,
        cpu_to_udp: to_udp(Flood::cpu_ns),
        others: Spread::of(of(transport).map(|flood| flood.noise.others))?,
    })
}

fn goals(round_trips: &[RoundTripRow], floods: &[FloodRow]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let compared = round_trips
        .iter()
        .filter(|row| row.waiting == Waiting::Spinning && row.place == Place::There && row.transport == Transport::Xsk);
    for row in compared {
        if let Some(ratio) = row.udp_through_this {
            goals.push(Goal {
                name: format!("round trip p50, spinning, {} bytes, udp through xsk at least", row.frame_bytes),
                wanted: ROUND_TRIP_GOAL,
                found: ratio.median,
                met: ratio.median >= ROUND_TRIP_GOAL,
            });
        }
    }
    if let Some(ratio) = floods.iter().find(|row| row.transport == Transport::Xdp).and_then(|row| row.cpu_to_udp) {
        goals.push(Goal {
            name: "CPU time per frame, xdp through udp at most".to_owned(),
            wanted: CPU_GOAL,
            found: ratio.median,
            met: ratio.median <= CPU_GOAL,
        });
    }
    goals
}

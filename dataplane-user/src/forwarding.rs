//! What forwarding a packet costs, measured while the node runs.
//!
//! | cost | what is measured |
//! |---|---|
//! | send | run time of `dp_ingress`, mean: what the node of arrival works before a packet is on its way |
//! | send, by a worker | besides, the time that workers spend on a packet outside its function, mean: where workers decide |
//! | receive | run time of `dp_link`, mean; of links by kernel sockets, which a worker reads, the time that workers spend on a packet outside its function, mean |
//! | wire | half of what packets take to a peer and back beyond the time they spend there, mean over the peers, transmission left out |
//!
//! Run times are the kernel's (`BPF_STATS_RUN_TIME`). Counting them costs two readings of a clock per packet, so it is switched on
//! for a moment from time to time. What a worker spends outside functions has the system calls in it that send and receive; the worker
//! that computes a packet spends it wherever that is, so it is no cost of forwarding. What the kernel does besides, with a redirected
//! frame after the program has ended or before a socket has it, is in none of the costs. Peers are taken to be like this node. Until
//! something has been measured, the configured cost applies.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use aya::sys::{Stats, enable_stats};
use dataplane_common::feedback::mean;
use dataplane_common::load::Forwarding;
use dataplane_common::maps::{LoadRow, SignalsRow, WorkerRow};

use crate::maps::Tables;
use crate::maps::tables::set;

/// Time between two measurements of the programs, ns.
const PROGRAMS_NS: u64 = 5_000_000_000;
/// As [`PROGRAMS_NS`], until there has been enough traffic for a first mean.
const FIRST_NS: u64 = 200_000_000;
/// How long the kernel counts run times, ns.
const COUNTING_NS: u64 = 20_000_000;
/// Fewest runs of a program that make a mean.
const FEWEST_RUNS: u64 = 32;
/// Time between two looks at workers and peers, ns.
const LOOK_NS: u64 = 100_000_000;
/// New means weigh 1/8.
const SHIFT: u32 = 3;

/// Run time of a program as the kernel has counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RunTime {
    ns: u64,
    runs: u64,
}

impl RunTime {
    /// Reads what the kernel tells of the program behind `fd` (`bpf_prog_show_fdinfo`).
    fn read(fd: &OwnedFd) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Self { ns: field("run_time_ns"), runs: field("run_cnt") }
    }

    /// Mean run time since `before`, ns; `None` when there were too few runs.
    fn mean_since(self, before: Self) -> Option<u32> {
        let runs = self.runs.wrapping_sub(before.runs);
        if !(FEWEST_RUNS..1 << 63).contains(&runs) {
            return None;
        }
        u32::try_from(self.ns.wrapping_sub(before.ns) / runs).ok()
    }
}

/// The programs whose run time is measured.
#[derive(Debug)]
pub struct Programs {
    /// `dp_ingress`.
    pub ingress: OwnedFd,
    /// `dp_link`, unless the kernel's sockets take what comes from peers.
    pub link: Option<OwnedFd>,
}

impl Programs {
    fn read(&self) -> io::Result<[RunTime; 2]> {
        let link = self.link.as_ref().map(RunTime::read).transpose()?;
        Ok([RunTime::read(&self.ingress)?, link.unwrap_or_default()])
    }
}

/// Run times being counted: since when, from what, and the switch, which is off when it is dropped.
struct Counting {
    since_ns: u64,
    from: [RunTime; 2],
    _switch: OwnedFd,
}

/// What workers have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    stepped_ns: u64,
    busy_ns: u64,
    packets: u64,
}

/// See the module.
pub struct Meter {
    tables: Arc<Tables>,
    workers: u32,
    peers: Vec<u16>,
    prior: Forwarding,
    /// `None` when the kernel does not let us count.
    programs: Option<Programs>,
    /// A program takes what comes from peers.
    has_link: bool,
    counting: Option<Counting>,
    next_programs_ns: u64,
    next_look_ns: u64,
    steps: Steps,
    /// Means so far, ns; 0 = none yet.
    ingress_ns: u32,
    link_ns: u32,
    outside_ns: u32,
    wire_ns: u32,
}

impl Meter {
    /// Measures for a node with `workers` and `peers`, whose costs are `prior` until they are known.
    pub fn new(tables: Arc<Tables>, workers: u32, peers: Vec<u16>, prior: Forwarding, programs: Programs) -> Self {
        Self {
            tables,
            workers,
            peers,
            prior,
            has_link: programs.link.is_some(),
            programs: Some(programs),
            counting: None,
            next_programs_ns: 0,
            next_look_ns: 0,
            steps: Steps::default(),
            ingress_ns: 0,
            link_ns: 0,
            outside_ns: 0,
            wire_ns: 0,
        }
    }

    /// Takes the programs that have replaced the last ones. What has been measured stays.
    pub fn set_programs(&mut self, programs: Programs) {
        self.programs = Some(programs);
        self.counting = None;
    }

    /// Takes other peers.
    pub fn set_peers(&mut self, peers: Vec<u16>) {
        self.peers = peers;
    }

    /// Does what is due at `now_ns`, and shows deciders what is known.
    pub fn turn(&mut self, now_ns: u64) {
        if now_ns >= self.next_programs_ns {
            self.measure_programs(now_ns);
        }
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + LOOK_NS;
            self.look();
            self.tables.set_forwarding(&self.cost());
            let worker_ns = if self.ingress_ns > 0 { self.outside_ns } else { 0 };
            set(self.tables.signals.row(0), offset_of!(SignalsRow, worker_send_ns), worker_ns.into());
        }
    }

    /// Begins or ends the counting of run times.
    fn measure_programs(&mut self, now_ns: u64) {
        let Some(programs) = &self.programs else { return };
        if let Some(counting) = &self.counting {
            if now_ns < counting.since_ns + COUNTING_NS {
                return;
            }
            if let Ok([ingress, link]) = programs.read() {
                follow(&mut self.ingress_ns, ingress.mean_since(counting.from[0]));
                follow(&mut self.link_ns, link.mean_since(counting.from[1]));
            }
            self.counting = None;
            let is_known = self.ingress_ns > 0 && (self.link_ns > 0 || !self.has_link);
            self.next_programs_ns = now_ns + if is_known { PROGRAMS_NS } else { FIRST_NS };
        } else if let (Ok(switch), Ok(from)) = (enable_stats(Stats::RunTime), programs.read()) {
            self.counting = Some(Counting { since_ns: now_ns, from, _switch: switch });
        } else {
            // Counting needs CAP_SYS_ADMIN, which a node need not have.
            self.programs = None;
        }
    }

    /// Looks at what workers and peers have done since the last look.
    fn look(&mut self) {
        let steps = (0..self.workers).fold(Steps::default(), |sum, worker| {
            let row = self.tables.workers.row(worker);
            let word = |offset| row.word(offset).load(Relaxed);
            Steps {
                stepped_ns: sum.stepped_ns + word(offset_of!(WorkerRow, stepped_ns)),
                busy_ns: sum.busy_ns + word(offset_of!(WorkerRow, busy_ns)),
                packets: sum.packets + word(offset_of!(WorkerRow, stepped_packets)),
            }
        });
        let packets = steps.packets - self.steps.packets;
        if packets >= FEWEST_RUNS {
            let outside = (steps.stepped_ns - self.steps.stepped_ns).saturating_sub(steps.busy_ns - self.steps.busy_ns);
            follow(&mut self.outside_ns, u32::try_from(outside / packets).ok());
            self.steps = steps;
        }
        let (mut ways_ns, mut count) = (0, 0);
        for peer in &self.peers {
            let way = self.tables.load.row(u32::from(*peer)).word(offset_of!(LoadRow, transit_ns)).load(Relaxed);
            let (transit_ns, bytes) = (way & u64::from(u32::MAX), way >> 32);
            if transit_ns > 0 {
                let transmission = (bytes * u64::from(self.prior.wire_ns_per_byte_q16)) >> 16;
                ways_ns += (transit_ns / 2).saturating_sub(transmission);
                count += 1;
            }
        }
        if let Some(way_ns) = ways_ns.checked_div(count) {
            // The rows hold means already; 0 is the sign of "not known".
            self.wire_ns = u32::try_from(way_ns).unwrap_or(u32::MAX).max(1);
        }
    }

    /// What forwarding costs as far as it is known.
    fn cost(&self) -> Forwarding {
        let known = |measured, prior| if measured > 0 { measured } else { prior };
        let receive_ns = if self.has_link { self.link_ns } else { self.outside_ns };
        Forwarding {
            send_ns: known(self.ingress_ns, self.prior.send_ns),
            receive_ns: known(receive_ns, self.prior.receive_ns),
            wire_ns: known(self.wire_ns, self.prior.wire_ns),
            ..self.prior
        }
    }
}

/// Takes a new mean, if there is one, into the mean so far.
fn follow(known: &mut u32, found: Option<u32>) {
    if let Some(found) = found {
        *known = mean(*known, found, SHIFT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tables::pair;
    use crate::maps::tables::tests::tables;

    const PRIOR: Forwarding =
        Forwarding { send_ns: 2_000, receive_ns: 3_000, wire_ns: 10_000, wire_ns_per_byte_q16: 1 << 16 };

    /// A meter of a kernel that does not count.
    fn meter(tables: &Arc<Tables>) -> Meter {
        let fd = || OwnedFd::from(fs::File::open("/proc/self/status").unwrap());
        let programs = Programs { ingress: fd(), link: Some(fd()) };
        Meter { programs: None, ..Meter::new(Arc::clone(tables), 1, vec![2, 3], PRIOR, programs) }
    }

    fn shown(tables: &Tables) -> Forwarding {
        let row = tables.signals.row(0);
        let halves = |offset| {
            let word = row.word(offset).load(Relaxed);
            (word as u32, (word >> 32) as u32)
        };
        let ((send_ns, receive_ns), (wire_ns, wire_ns_per_byte_q16)) =
            (halves(offset_of!(SignalsRow, send_ns)), halves(offset_of!(SignalsRow, wire_ns)));
        Forwarding { send_ns, receive_ns, wire_ns, wire_ns_per_byte_q16 }
    }

    #[test]
    fn run_times_are_read_as_the_kernel_writes_them() {
        let text = "pos:\t0\nprog_type:\t6\nprog_id:\t77\nrun_time_ns:\t64000\nrun_cnt:\t64\nrecursion_misses:\t0\n";
        let time = RunTime::parse(text);
        assert_eq!(time, RunTime { ns: 64_000, runs: 64 });
        assert_eq!(time.mean_since(RunTime::default()), Some(1_000));
        assert_eq!(time.mean_since(RunTime { ns: 1, runs: 40 }), None, "24 runs are too few");
        assert_eq!(time.mean_since(RunTime { ns: 0, runs: 100 }), None, "another program");
        assert_eq!(RunTime::parse("run_time_ns: x"), RunTime::default());
    }

    #[test]
    fn what_is_not_known_costs_what_is_configured() {
        let tables = Arc::new(tables(4, 1, 1, 1));
        let mut meter = meter(&tables);
        meter.turn(0);
        assert_eq!(shown(&tables), PRIOR);
    }

    #[test]
    fn the_way_is_half_of_there_and_back_without_transmission() {
        let tables = Arc::new(tables(4, 1, 1, 1));
        set(tables.load.row(2), offset_of!(LoadRow, transit_ns), pair(20_000, 1_000));
        set(tables.load.row(3), offset_of!(LoadRow, transit_ns), pair(12_000, 1_000));
        meter(&tables).turn(0);
        assert_eq!(shown(&tables), Forwarding { wire_ns: 7_000, ..PRIOR });
        // A wire that seems to be faster than its bandwidth takes next to no time.
        set(tables.load.row(2), offset_of!(LoadRow, transit_ns), pair(100, 1_000));
        set(tables.load.row(3), offset_of!(LoadRow, transit_ns), pair(100, 1_000));
        meter(&tables).turn(0);
        assert_eq!(shown(&tables).wire_ns, 1);
    }

    #[test]
    fn receiving_is_the_program_and_workers_spend_their_part_on_every_packet() {
        let tables = Arc::new(tables(4, 1, 1, 1));
        let mut meter = meter(&tables);
        let row = tables.workers.row(0);
        set(row, offset_of!(WorkerRow, stepped_packets), 100);
        set(row, offset_of!(WorkerRow, stepped_ns), 1_000_000);
        set(row, offset_of!(WorkerRow, busy_ns), 850_000);
        meter.turn(0);
        assert_eq!((meter.outside_ns, shown(&tables)), (1_500, PRIOR), "a packet computed here costs it, too");
        (meter.ingress_ns, meter.link_ns) = (700, 400);
        set(row, offset_of!(WorkerRow, stepped_packets), 110);
        meter.turn(LOOK_NS);
        assert_eq!(shown(&tables), Forwarding { send_ns: 700, receive_ns: 400, ..PRIOR });
        // Ten more packets are too few; with thirty more they count together.
        set(row, offset_of!(WorkerRow, stepped_packets), 140);
        set(row, offset_of!(WorkerRow, stepped_ns), 1_000_000 + 40 * 2_300);
        meter.turn(2 * LOOK_NS);
        assert_eq!(meter.outside_ns, 1_600, "an eighth of the way");
        assert_eq!(tables.forwarding_by_worker(), Forwarding { send_ns: 700 + 1_600, receive_ns: 400, ..PRIOR });
    }

    #[test]
    fn links_by_kernel_sockets_cost_what_workers_do() {
        let tables = Arc::new(tables(4, 1, 1, 1));
        let mut meter = Meter { has_link: false, ..meter(&tables) };
        let row = tables.workers.row(0);
        set(row, offset_of!(WorkerRow, stepped_packets), 100);
        set(row, offset_of!(WorkerRow, stepped_ns), 600_000);
        meter.turn(0);
        assert_eq!(shown(&tables), Forwarding { receive_ns: 6_000, ..PRIOR }, "no program takes part");
        assert_eq!(tables.forwarding_by_worker().send_ns, PRIOR.send_ns, "half of it would be misleading");
        meter.ingress_ns = 700;
        meter.turn(LOOK_NS);
        assert_eq!(tables.forwarding_by_worker(), Forwarding { send_ns: 6_700, receive_ns: 6_000, ..PRIOR });
    }
}

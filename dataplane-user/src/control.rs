//! The slow half of deciding, on the control thread: what is known of the cluster as a whole, and the plans of policies that
//! place by slots.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use dataplane_common::load::{Row as _, Signals, Word};
use dataplane_common::maps::{FunctionRow, LoadRow, SignalsRow, SlotRow, function_slot};
use dataplane_common::plan::{Board, Demand, Member, NOWHERE, SLOTS, TABLES};
use dataplane_common::policy::{Needs, Planner, PolicyKind};
use dataplane_common::tuning::Tuning;

use crate::config::Config;
use crate::forwarding::{Meter, Programs};
use crate::maps::Tables;
use crate::maps::tables::{pair, set};
use crate::reporter::PeerAddress;
use crate::worker::monotonic_ns;

/// How often the signals are derived anew, ns.
const SIGNALS_NS: u64 = 1_000_000;
/// Utilisation is a mean over about so many derivations: single reports are of one interval and swing.
const MEMORY: u32 = 64;

/// As [`MEMORY`], for the busy share of one node: about as long as a plan lasts by default.
const BUSY_MEMORY: u32 = 10;

/// See the module.
pub struct Control {
    board: Tableau,
    tuning: Tuning,
    planners: Vec<(PolicyKind, Box<Planner>)>,
    next_signals_ns: u64,
    next_plan_ns: u64,
    /// Mean utilisation, thousandths of a thousandth.
    utilisation_micro: u32,
    /// Measures what forwarding costs, if that is asked for.
    meter: Option<Meter>,
}

impl Control {
    /// The control of a node with these peers. Slots begin without a node.
    pub fn new(tables: Arc<Tables>, config: &Config, peers: &[PeerAddress]) -> Self {
        for slot in 0..SLOTS * TABLES {
            set(tables.slots.row(slot), offset_of!(SlotRow, node), NOWHERE.into());
        }
        let params = config.params(1);
        Self {
            planners: planned(params.policies).map(planner).collect(),
            board: Tableau {
                tables,
                me: config.node.id,
                peers: peers.iter().map(|peer| peer.node).collect(),
                functions: config.functions.len(),
                workers: config.workers.cpus.len() as u32,
                busy_micro: vec![0; 1 + peers.len()],
            },
            tuning: params.tuning,
            next_signals_ns: 0,
            next_plan_ns: 0,
            utilisation_micro: 0,
            meter: None,
        }
    }

    /// Has the cost of forwarding measured by the run times of `programs`, if the configuration asks for that.
    pub fn measure(&mut self, config: &Config, programs: Programs) {
        let tables = Arc::clone(&self.board.tables);
        let (workers, peers, prior) = (self.board.workers, self.board.peers.clone(), config.forwarding.cost());
        self.meter = config.forwarding.measure.then(|| Meter::new(tables, workers, peers, prior, programs));
    }

    /// Goes on with another configuration of the same node, `new`, which `old` was before, and with other programs.
    pub fn reload(&mut self, old: &Config, new: &Config, programs: Programs) {
        let params = new.params(1);
        self.tuning = params.tuning;
        // Plans that go on are not begun anew.
        self.planners.retain(|(kind, _)| params.policies & kind.bit() != 0);
        for kind in planned(params.policies) {
            if self.planners.iter().all(|(known, _)| *known != kind) {
                self.planners.push(planner(kind));
            }
        }
        match &mut self.meter {
            Some(meter) if old.forwarding == new.forwarding => meter.set_programs(programs),
            _ => {
                self.board.tables.set_forwarding(&new.forwarding.cost());
                self.measure(new, programs);
            }
        }
    }

    /// Takes the present peers.
    pub fn set_peers(&mut self, peers: &[PeerAddress]) {
        let peers: Vec<_> = peers.iter().map(|peer| peer.node).collect();
        if let Some(meter) = &mut self.meter {
            meter.set_peers(peers.clone());
        }
        self.board.set_peers(peers);
    }

    /// Does what is due at `now_ns`.
    pub fn turn(&mut self, now_ns: u64) {
        if now_ns >= self.next_signals_ns {
            self.next_signals_ns = now_ns + SIGNALS_NS;
            self.signal();
            if let Some(meter) = &mut self.meter {
                meter.turn(now_ns);
            }
        }
        if now_ns >= self.next_plan_ns {
            self.next_plan_ns = now_ns + u64::from(self.tuning.plan_ns);
            for (_, planner) in &mut self.planners {
                planner.turn(&mut self.board, &self.tuning);
            }
        }
    }

    fn signal(&mut self) {
        self.board.follow_busy();
        let live = (0..self.board.members()).map(|index| self.board.member(index)).filter(|member| member.is_live);
        let (sum, count) = live.fold((0, 0), |(sum, count), member| (sum + u32::from(member.busy_milli), count + 1));
        let found_micro = sum * 1000 / count.max(1);
        self.utilisation_micro = (self.utilisation_micro * (MEMORY - 1) + found_micro) / MEMORY;
        let row = self.board.tables.signals.row(0);
        let signals = Signals::derive(self.utilisation_micro / 1000, self.board.service_ns(), 0, &self.tuning);
        set(row, offset_of!(SignalsRow, utilisation_milli), pair(signals.utilisation_milli, signals.service_ns));
        set(row, offset_of!(SignalsRow, price_q16), pair(signals.price_q16, signals.relax));
        set(row, offset_of!(SignalsRow, arrivals_q32), pair(signals.arrivals_q32, self.board.peers.len() as u32));
    }
}

/// Those of `policies` ([`Params::policies`](dataplane_common::maps::Params::policies)) that place by a plan.
fn planned(policies: u64) -> impl Iterator<Item = PolicyKind> {
    let is_planned = move |kind: &PolicyKind| policies & kind.bit() != 0 && kind.needs().has(Needs::PLAN);
    PolicyKind::ALL.iter().copied().filter(is_planned)
}

fn planner(kind: PolicyKind) -> (PolicyKind, Box<Planner>) {
    (kind, Box::new(Planner::new(kind)))
}

/// The tables as a plan sees them.
struct Tableau {
    tables: Arc<Tables>,
    me: u16,
    peers: Vec<u16>,
    functions: usize,
    workers: u32,
    /// Busy share of each member, mean over about [`BUSY_MEMORY`] derivations, thousandths of a thousandth. The share in a
    /// report is that of one interval, which is too short for a plan to go by.
    busy_micro: Vec<u32>,
}

impl Tableau {
    /// Takes other peers; what is known of those that stay is kept.
    fn set_peers(&mut self, peers: Vec<u16>) {
        let known = |node: &u16| self.peers.iter().position(|known| known == node).map(|at| self.busy_micro[at + 1]);
        let own = self.busy_micro.first().copied().unwrap_or_default();
        self.busy_micro = std::iter::once(own).chain(peers.iter().map(|node| known(node).unwrap_or(0))).collect();
        self.peers = peers;
    }

    /// Takes the present busy shares into their means.
    fn follow_busy(&mut self) {
        for index in 0..self.members() {
            let node = if index == 0 { self.me } else { self.peers[index - 1] };
            let found = u32::from(self.row(node).busy_milli) * 1000;
            let mean = &mut self.busy_micro[index];
            *mean = (*mean * (BUSY_MEMORY - 1) + found) / BUSY_MEMORY;
        }
    }

    fn load_word(&self, node: u16, word: Word) -> u64 {
        self.tables.load.row(u32::from(node)).word(word as usize).load(Relaxed)
    }

    /// Mean service time of the packets computed here so far, ns.
    fn service_ns(&self) -> u32 {
        let (mut measured, mut samples) = (0, 0);
        for function in 0..self.functions as u32 {
            for worker in 0..self.workers {
                let row = self.tables.functions.row(function_slot(function, worker));
                measured += row.word(offset_of!(FunctionRow, measured_ns)).load(Relaxed);
                samples += row.word(offset_of!(FunctionRow, samples)).load(Relaxed);
            }
        }
        u32::try_from(measured.checked_div(samples).unwrap_or(0)).unwrap_or(u32::MAX)
    }
}

impl Board for Tableau {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn members(&self) -> usize {
        1 + self.peers.len()
    }

    fn member(&self, index: usize) -> Member {
        let is_self = index == 0;
        let node = if is_self { self.me } else { self.peers[index - 1] };
        let row = self.row(node);
        let sent = self.load_word(node, Word::SentFrames);
        Member {
            node,
            is_self,
            is_live: is_self || row.is_candidate(self.now_ns()),
            workers: row.workers().min(u16::MAX.into()) as u16,
            speed_milli: if is_self { 1000 } else { row.speed_milli().min(u16::MAX.into()) as u16 },
            busy_milli: (self.busy_micro[index] / 1000).min(1000) as u16,
            memory_milli: row.memory_milli,
            backlog_ns: row.backlog_ns,
            queued_milli: row.queued_milli,
            // What a packet that arrives here now should expect: results that never left this node are not timed.
            response_ns: if is_self { row.backlog_ns.saturating_add(self.service_ns()) } else { row.response_ns },
            outstanding: (sent as u32).wrapping_sub(row.completed_frames as u32),
            completed: row.completed_frames as u32,
            reports: row.reports as u32,
        }
    }

    fn functions(&self) -> usize {
        self.functions
    }

    fn demand(&self, index: usize) -> Demand {
        let row = self.tables.functions.row(function_slot(index as u32, 0));
        Demand { arrivals: row.word(offset_of!(FunctionRow, arrivals)).load(Relaxed) }
    }

    fn set_home(&mut self, index: usize, node: Option<u16>) {
        for worker in 0..self.workers {
            let row = self.tables.functions.row(function_slot(index as u32, worker));
            let policy = row.word(offset_of!(FunctionRow, policy)).load(Relaxed) as u32;
            set(row, offset_of!(FunctionRow, policy), pair(policy, node.map_or(0, |node| u32::from(node) + 1)));
        }
    }

    fn charged_ns(&self, slot: u32) -> u64 {
        self.tables.slots.row(slot).word(offset_of!(SlotRow, charged_ns)).load(Relaxed)
    }

    fn slot(&self, slot: u32) -> u16 {
        self.tables.slots.row(slot).word(offset_of!(SlotRow, node)).load(Relaxed) as u16
    }

    fn place(&mut self, slot: u32, node: u16) {
        set(self.tables.slots.row(slot), offset_of!(SlotRow, node), node.into());
    }
}

impl Tableau {
    /// The row of `node`, read word by word.
    fn row(&self, node: u16) -> LoadRow {
        let halves = |word: Word| {
            let word = self.tables.load.row(u32::from(node)).word(word as usize).load(Acquire);
            (word as u32, (word >> 32) as u32)
        };
        let (queued_milli, workers) = halves(Word::Queue);
        let (mean_backlog_ns, speed) = halves(Word::Mean);
        LoadRow {
            backlog_ns: halves(Word::Report).0,
            valid_until_ns: self.load_word(node, Word::ValidUntil),
            queued_milli,
            workers: workers as u16,
            busy_milli: (workers >> 16) as u16,
            mean_backlog_ns,
            speed_milli: speed as u16,
            memory_milli: (speed >> 16) as u16,
            response_ns: halves(Word::Response).0,
            completed_frames: self.load_word(node, Word::Completed),
            reports: self.tables.load.row(u32::from(node)).word(offset_of!(LoadRow, reports)).load(Relaxed),
            ..LoadRow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tables::tests::tables;

    fn control(tables: &Arc<Tables>, policy: &str) -> Control {
        let text = format!(
            "[node]\nname = \"n0\"\nid = 0\n[[port]]\ninterface = \"p\"\n[policy]\nname = \"{policy}\"\n[[function]]\nname = \"crc32\"\n"
        );
        let config = Config::parse(&text, &crate::node::known_functions()).unwrap();
        let address = |node| PeerAddress { node, ifindex: 1, mac: [2; 6], source_mac: [4; 6] };
        Control::new(Arc::clone(tables), &config, &[address(2), address(3)])
    }

    #[test]
    fn signals_follow_the_live_nodes() {
        let tables = Arc::new(tables(4, 1, 1, 1));
        let mut control = control(&tables, "local");
        for (node, busy_milli) in [(0, 600), (2, 200), (3, 1000)] {
            set(tables.load.row(node), offset_of!(LoadRow, queued_milli), pair(0, 1 | busy_milli << 16));
        }
        // Node 3 has been silent for too long.
        set(tables.load.row(2), offset_of!(LoadRow, valid_until_ns), u64::MAX);
        set(tables.functions.row(0), offset_of!(FunctionRow, samples), 10);
        set(tables.functions.row(0), offset_of!(FunctionRow, measured_ns), 50_000);
        for turn in 0..1000 {
            control.turn(turn * SIGNALS_NS);
        }
        let row = tables.signals.row(0);
        let word = |offset| row.word(offset).load(Relaxed);
        let busy = word(offset_of!(SignalsRow, utilisation_milli));
        let (utilisation, service) = (busy as u32, busy >> 32);
        assert!((395..=400).contains(&utilisation), "{utilisation}");
        assert_eq!(service, 5_000);
        assert_eq!(word(offset_of!(SignalsRow, arrivals_q32)) >> 32, 2, "peers");
        let arrivals = f64::from(word(offset_of!(SignalsRow, arrivals_q32)) as u32) / 4_294_967_296.0;
        assert!((arrivals * 5_000.0 - 0.4).abs() < 0.01, "{arrivals}");
    }

    #[test]
    fn what_is_known_of_a_peer_stays_when_others_come_and_go() {
        let tables = Arc::new(tables(5, 1, 1, 1));
        let mut board = control(&tables, "local").board;
        board.busy_micro = vec![1_000, 2_000, 3_000];
        board.set_peers(vec![3, 4]);
        assert_eq!(
            (board.peers.as_slice(), board.busy_micro.as_slice()),
            ([3, 4].as_slice(), [1_000, 3_000, 0].as_slice())
        );
        board.set_peers(Vec::new());
        assert_eq!((board.members(), board.busy_micro.len()), (1, 1));
    }

    #[test]
    fn the_board_reads_and_writes_the_tables() {
        let tables = Arc::new(tables(4, 1, 1, 1));
        let mut board = control(&tables, "local").board;
        assert_eq!((board.members(), board.slot(5)), (3, NOWHERE));
        board.place(5, 3);
        assert_eq!(board.slot(5), 3);
        set(tables.functions.row(0), offset_of!(FunctionRow, policy), 20);
        board.set_home(0, Some(2));
        assert_eq!(tables.functions.row(0).word(offset_of!(FunctionRow, policy)).load(Relaxed), pair(20, 3));
        set(tables.load.row(2), offset_of!(LoadRow, sent_frames), 9);
        set(tables.load.row(2), offset_of!(LoadRow, completed_frames), 4);
        let member = board.member(1);
        assert_eq!((member.node, member.outstanding, member.is_live), (2, 5, false));
        assert!(board.member(0).is_self && board.member(0).is_live);
    }
}

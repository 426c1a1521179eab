//! The proof that no frame is lost silently: what entered each stage against what left it.

use crate::reason::{Effect, REASONS, Reason, Stage};

/// Counters of one node, summed over CPUs and workers, by [`Reason`].
pub type Counters = [u64; REASONS];

/// What entered and left each stage of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Frames that arrived at ports.
    pub port_seen: u64,
    /// Frames of ports that ended in a named counter.
    pub port_ended: u64,
    /// Frames that arrived on links.
    pub link_seen: u64,
    /// Frames of links that ended in a named counter.
    pub link_ended: u64,
    /// Frames given to workers: by the XDP programs, and by workers to themselves.
    pub queued: u64,
    /// Frames the kernel dropped in front of a worker's receive ring (ring full, fill ring empty).
    pub ring_dropped: u64,
    /// Frames the workers took.
    pub taken: u64,
    /// Frames of workers that ended in a named counter.
    pub worker_ended: u64,
}

impl Ledger {
    /// Draws up the ledger. `ring_dropped` is the sum of `rx_dropped` and `rx_ring_full` over the node's sockets.
    pub fn new(counters: &Counters, ring_dropped: u64) -> Self {
        let sum = |stage: Stage, seen: bool| -> u64 {
            Reason::ALL
                .iter()
                .filter(|reason| reason.stage() == stage && reason.effect() != Effect::Note)
                .filter(|reason| (reason.effect() == Effect::Seen) == seen)
                .map(|reason| counters[*reason as usize])
                .sum()
        };
        Self {
            port_seen: sum(Stage::Port, true),
            port_ended: sum(Stage::Port, false),
            link_seen: sum(Stage::Link, true),
            link_ended: sum(Stage::Link, false),
            // What a worker places anew it has given itself.
            queued: [
                Reason::LocalQueued,
                Reason::ForwardQueued,
                Reason::ResultQueued,
                Reason::PullQueued,
                Reason::SeenAgain,
            ]
            .iter()
            .map(|reason| counters[*reason as usize])
            .sum(),
            ring_dropped,
            taken: sum(Stage::Worker, true),
            worker_ended: sum(Stage::Worker, false),
        }
    }

    /// Frames between two stages at the moment of reading: in a receive ring, or in a worker's hands. Negative when the
    /// counters were read while they moved.
    pub fn in_flight(&self) -> i64 {
        let entered = self.port_seen + self.link_seen + self.queued + self.taken;
        let left = self.port_ended + self.link_ended + self.taken + self.ring_dropped + self.worker_ended;
        entered.wrapping_sub(left) as i64
    }

    /// True when every frame that entered a stage has left it under a name. Holds at every moment of rest.
    pub fn balances(&self) -> bool {
        self.port_seen == self.port_ended
            && self.link_seen == self.link_ended
            && self.queued == self.taken + self.ring_dropped
            && self.taken == self.worker_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(entries: &[(Reason, u64)]) -> Counters {
        let mut counters = [0; REASONS];
        for (reason, count) in entries {
            counters[*reason as usize] += count;
        }
        counters
    }

    const AT_REST: &[(Reason, u64)] = &[
        (Reason::SeenPort, 20),
        (Reason::PassNotActive, 5),
        (Reason::DropAnepVersion, 1),
        (Reason::Redirected, 4),
        (Reason::LocalQueued, 10),
        (Reason::NoteTrailing, 3),
        (Reason::SeenLink, 9),
        (Reason::ReportTaken, 3),
        (Reason::ResultReturned, 4),
        (Reason::ForwardQueued, 2),
        (Reason::SeenLocal, 9),
        (Reason::SeenForwarded, 2),
        (Reason::SentResult, 8),
        (Reason::DropAnepChecksum, 1),
        (Reason::SentHome, 2),
    ];

    #[test]
    fn balances_at_rest() {
        let ledger = Ledger::new(&counters(AT_REST), 1);
        assert!(ledger.balances(), "{ledger:?}");
        assert_eq!(ledger.in_flight(), 0);
    }

    #[test]
    fn any_frame_without_an_end_shows() {
        for reason in [Reason::SeenPort, Reason::SeenLink, Reason::SeenLocal, Reason::LocalQueued] {
            let mut counters = counters(AT_REST);
            counters[reason as usize] += 1;
            assert!(!Ledger::new(&counters, 1).balances(), "{reason:?}");
        }
        assert_eq!(Ledger::new(&counters(AT_REST), 0).in_flight(), 1);
    }
}

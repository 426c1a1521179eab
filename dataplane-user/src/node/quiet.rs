//! When a stopping node has nothing left to wait for.

use std::sync::atomic::Ordering::Relaxed;

use dataplane_common::reason::Reason;

use super::Node;

/// Packets that went to peers …
const AWAY: [Reason; 2] = [Reason::Redirected, Reason::SentForward];
/// … and what has come back of them: results, word that there is none, results of packets that were placed anew meanwhile.
const BACK: [Reason; 5] =
    [Reason::ResultReturned, Reason::ResultQueued, Reason::MarkTaken, Reason::UndoneTaken, Reason::DropLinkDuplicate];

impl Node {
    /// True when no worker has a packet and every packet sent to a peer has come back.
    pub(super) fn is_quiet(&self) -> bool {
        let workers = 0..self.tables.workers.len();
        let is_home = || {
            // Frames between nodes are counted by XDP, or by the workers that read kernel sockets.
            let of_workers =
                |reason| workers.clone().map(|worker| self.tables.count(worker, reason).load(Relaxed)).sum::<u64>();
            let count = |reason| self.object.count(reason).unwrap_or_default() + of_workers(reason);
            AWAY.map(count).iter().sum::<u64>() <= BACK.map(count).iter().sum::<u64>()
        };
        let is_idle = |worker| {
            let load = self.tables.worker_load(worker);
            load.charged_packets == load.discharged_packets
        };
        workers.clone().all(is_idle) && is_home()
    }
}

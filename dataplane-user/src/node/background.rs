//! What the control thread does beside the reports: follows peers and keys, decides slowly, takes reloads, publishes
//! measurements.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use anyhow::Result;
use dataplane_common::report::Plan;

use super::publisher::Publisher;
use super::report_plan;
use crate::config::Config;
use crate::control::Control;
use crate::forwarding::Programs;
use crate::kernel_log::KernelLog;
use crate::keys;
use crate::peers::Peers;
use crate::reporter::{Beside, Orders, Reporter};
use crate::xdp::PeerMaps;

/// Another configuration of the node, with the programs that run by it.
pub(super) struct Reload {
    pub(super) old: Config,
    pub(super) new: Config,
    pub(super) programs: Programs,
    /// The log of those programs.
    pub(super) log: Option<KernelLog>,
}

/// See the module.
pub(super) struct Background {
    pub(super) control: Control,
    pub(super) peers: Peers<PeerMaps>,
    pub(super) publisher: Publisher,
    pub(super) log: Option<KernelLog>,
    pub(super) keys: Option<keys::Follower>,
    pub(super) reloads: Receiver<Reload>,
}

impl Background {
    /// Starts the thread: `reporter`, and all of this beside it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn spawn(
        mut self,
        mut reporter: Reporter,
        stop: &Arc<AtomicBool>,
        draining: &Arc<AtomicBool>,
    ) -> Result<JoinHandle<()>> {
        let (stop, draining) = (Arc::clone(stop), Arc::clone(draining));
        let run = move || reporter.run(&stop, &draining, &mut self);
        Ok(thread::Builder::new().name("reporter".into()).spawn(run)?)
    }

    /// Goes on with another configuration; gives when to report by it, and how much work a worker takes, ns.
    fn take(&mut self, Reload { old, new, programs, log }: Reload) -> (Plan, u32) {
        self.control.reload(&old, &new, programs);
        self.log = log;
        (report_plan(&new), new.workers.backlog_limit_ns)
    }
}

impl Beside for Background {
    fn turn(&mut self, now_ns: u64) -> Orders {
        let peers = self.peers.turn(now_ns);
        if let Some(peers) = &peers {
            self.control.set_peers(peers);
        }
        let plan = self.reloads.try_recv().ok().map(|reload| self.take(reload));
        self.control.turn(now_ns);
        Orders { peers, plan }
    }

    fn slow_turn(&mut self) {
        self.publisher.publish();
        if let Some(log) = &mut self.log {
            log.flush();
        }
        if let Some(keys) = &mut self.keys {
            keys.look_and_tell();
        }
    }
}

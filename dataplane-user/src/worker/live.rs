//! What changes while a worker runs: the ways to other nodes, and its settings when the configuration is reloaded.
//!
//! Both are replaced as a whole by the control thread. A worker looks once a step, at the cost of a load each; what was
//! replaced is freed by whoever lets go of it last. New settings may need memory, which is the only time that a running worker
//! asks for some: between two steps, once a reload.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::{ArcSwap, Cache};
use dataplane_common::maps::WorkerRow;
use dataplane_common::tuning::FIFO;

use super::{Settings, Worker, decides, order};
use crate::port::Port;
use crate::ways::{LiveWays, WaysCache};
use crate::worker::pull::Pulling;

/// The settings of a worker as they are at the moment.
pub type LiveSettings = ArcSwap<Settings>;

/// What a worker follows.
#[derive(Default)]
pub(super) struct Live {
    ways: Option<WaysCache>,
    settings: Option<SettingsCache>,
}

/// Settings that may be replaced, and those that the worker has.
struct SettingsCache {
    cache: Cache<Arc<LiveSettings>, Arc<Settings>>,
    taken: Arc<Settings>,
}

impl<P: Port> Worker<P> {
    /// Has the worker take the present ways at every step.
    pub fn follow_ways(&mut self, ways: Arc<LiveWays>) {
        self.live.ways = Some(WaysCache::new(ways));
        self.take_ways();
    }

    /// Has the worker take the present settings at every step, but for its index and the ways: those stay. The rows of its
    /// functions are written before.
    pub fn follow_settings(&mut self, settings: Arc<LiveSettings>) {
        let mut cache = Cache::new(settings);
        let taken = Arc::clone(cache.load());
        self.adopt(&taken);
        self.live.settings = Some(SettingsCache { cache, taken });
    }

    /// Takes what has been replaced since the last step.
    #[inline]
    pub(super) fn take_changes(&mut self) {
        self.take_ways();
        let Some(live) = &mut self.live.settings else { return };
        let settings = live.cache.load();
        if !Arc::ptr_eq(settings, &live.taken) {
            let settings = Arc::clone(settings);
            live.taken = Arc::clone(&settings);
            self.adopt(&settings);
        }
    }

    #[inline]
    fn take_ways(&mut self) {
        if let Some(ways) = &mut self.live.ways {
            let ways = ways.load();
            if !Arc::ptr_eq(ways, &self.settings.ways) {
                self.settings.ways = Arc::clone(ways);
            }
        }
    }

    /// Goes on with other settings; what waits, is held or kept stays so.
    #[cold]
    fn adopt(&mut self, settings: &Settings) {
        let (worker, ways) = (self.settings.worker, Arc::clone(&self.settings.ways));
        self.settings = Settings { worker, ways, ..settings.clone() };
        let Settings { params, patience, pull, .. } = &self.settings;
        let (discipline, pull) = (params.tuning.discipline, *pull);
        self.held.set_patience(patience.as_nanos() as u64);
        // Packets on their way may still ask for a decision after the last function has stopped doing so.
        self.decides |= decides(&self.functions, &self.tables);
        if self.pulling.is_some() != pull {
            self.pulling = pull.then(Pulling::new);
        }
        // A queue may hold packets, so it stays, and serves in order of arrival as well.
        if self.queue.is_none() {
            self.queue = order::queue(discipline, self.umem.frames(), pull || self.decides);
        }
        if discipline == FIFO {
            let row = self.tables.workers.row(self.settings.worker);
            row.word(offset_of!(WorkerRow, behind)).store(0, Relaxed);
        }
    }
}

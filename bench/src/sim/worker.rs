//! A worker and its core: the packet in service, what waits, and the interrupts that take CPU time from both.
//!
//! Sending and receiving frames happens in the driver's interrupt context (where XDP runs): it comes before the worker's own
//! computation, one frame after the other, and moves the end of the packet in service.

use dataplane_common::load::{Here, WorkerLoad};

use super::queue::{Queue, Waiting};
use super::scenario::Sleep;

/// What a worker without work does about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Nothing: it has work, or need not ask.
    #[default]
    None,
    /// It has asked a node for work and waits for an answer; so many requests were refused before.
    Asked(u8),
    /// It waits before it asks again.
    Resting,
}

/// A worker.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// What waits.
    pub queue: Queue,
    /// Whether it looks for work elsewhere.
    pub search: Search,
    load: WorkerLoad,
    serving: Option<Waiting>,
    finish_ns: u64,
    /// Until when interrupts have the core, ns.
    interrupts_until_ns: u64,
    /// CPU time given out, to be used up in the future included, ns.
    committed_ns: u64,
    sleep: Sleep,
    /// Since when nothing has been in service, ns.
    idle_since_ns: u64,
    /// When it was or will be awake to serve the packet in service, ns; 0 = it did not sleep.
    awake_ns: u64,
}

impl Worker {
    /// An idle worker.
    pub fn new(queue: Queue, sleep: Sleep) -> Self {
        Self { queue, sleep, ..Self::default() }
    }

    /// An interrupt takes `ns` of CPU time. Returns when it is done.
    pub fn interrupt(&mut self, now_ns: u64, ns: u32) -> u64 {
        if ns > 0 {
            self.interrupts_until_ns = self.interrupts_until_ns.max(now_ns) + u64::from(ns);
            self.committed_ns += u64::from(ns);
            if self.serving.is_some() {
                self.finish_ns += u64::from(ns);
            }
        }
        self.interrupts_until_ns.max(now_ns)
    }

    /// Queues a packet and charges it.
    pub fn queue(&mut self, now_ns: u64, frame: u32, what: (u32, u32, u8), is_redirected: bool) {
        self.load.charged_ns += u64::from(what.0);
        self.load.charged_packets += 1;
        self.queue.push(now_ns, frame, what, is_redirected);
    }

    /// Takes the packet at position `index` away and discharges it.
    pub fn give(&mut self, index: usize) -> Option<Waiting> {
        let waiting = self.queue.remove(index)?;
        self.discharge(&waiting);
        Some(waiting)
    }

    /// True when a packet is in service.
    pub fn is_serving(&self) -> bool {
        self.serving.is_some()
    }

    /// Starts the next packet unless one is in service. Returns its frame; [`Worker::serve`] must follow.
    pub fn take_next(&mut self) -> Option<u32> {
        if self.serving.is_some() {
            return None;
        }
        self.serving = self.queue.pop();
        self.serving.map(|waiting| waiting.frame)
    }

    /// Serves the packet that [`Worker::take_next`] started for `service_ns`. Returns when it will be finished.
    pub fn serve(&mut self, now_ns: u64, service_ns: u32) -> u64 {
        let is_asleep = now_ns.saturating_sub(self.idle_since_ns) > u64::from(self.sleep.after_ns);
        self.awake_ns = if is_asleep { now_ns + u64::from(self.sleep.wake_ns) } else { 0 };
        let start_ns = self.interrupts_until_ns.max(now_ns).max(self.awake_ns);
        self.finish_ns = start_ns + u64::from(service_ns);
        self.committed_ns += u64::from(service_ns);
        self.load.serving_since_ns = start_ns;
        self.load.serving_charge_ns = self.serving.map_or(0, |waiting| waiting.charged_ns);
        self.finish_ns
    }

    /// When the packet in service will be finished, as it looks now; `None` when there is none.
    pub fn finish_ns(&self) -> Option<u64> {
        self.serving.map(|_| self.finish_ns)
    }

    /// Ends the packet in service and discharges it.
    pub fn finish(&mut self) -> Option<Waiting> {
        let waiting = self.serving.take()?;
        self.idle_since_ns = self.finish_ns;
        self.load.serving_since_ns = 0;
        self.load.serving_charge_ns = 0;
        self.discharge(&waiting);
        Some(waiting)
    }

    fn discharge(&mut self, waiting: &Waiting) {
        self.load.discharged_ns += u64::from(waiting.charged_ns);
        self.load.discharged_packets += 1;
    }

    /// Its load, as a decision sees it.
    pub fn here(&self, now_ns: u64) -> Here {
        let behind = self.queue.behind(self.load.serving_charge_ns);
        WorkerLoad { behind, ..self.load }.here(now_ns)
    }

    /// Work that waits or is in service, and packets of which it is.
    pub fn backlog(&self, now_ns: u64) -> (u32, u32) {
        let here = self.load.here(now_ns);
        (here.backlog_ns, here.queued_milli)
    }

    /// Estimated work of the packet in service, ns.
    pub fn serving_charge_ns(&self) -> u32 {
        self.load.serving_charge_ns
    }

    /// CPU time used until now, ns: computation and interrupts.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        let until_ns = self.finish_ns().unwrap_or(0).max(self.interrupts_until_ns);
        let asleep_ns = self.awake_ns.saturating_sub(now_ns.max(self.interrupts_until_ns));
        self.committed_ns - until_ns.saturating_sub(now_ns).saturating_sub(asleep_ns).min(self.committed_ns)
    }

    /// Packets it holds, waiting first.
    pub fn drain(&mut self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = std::iter::from_fn(|| self.queue.pop()).collect();
        all.extend(self.serving.take());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane_common::tuning::FIFO;

    fn worker() -> Worker {
        Worker::new(Queue::new(FIFO, true), Sleep::default())
    }

    #[test]
    fn a_sleeping_worker_serves_when_it_is_awake() {
        let mut worker = Worker { sleep: Sleep { after_ns: 20, wake_ns: 300 }, ..worker() };
        let mut serve = |now_ns| {
            worker.queue(now_ns, 7, (1_000, 1, 0), false);
            worker.take_next();
            let finish_ns = worker.serve(now_ns, 1_000);
            let busy_ns = worker.busy_ns(now_ns + 100);
            worker.finish();
            (finish_ns, busy_ns)
        };
        assert_eq!(serve(100), (1_400, 0), "it has slept since time 0, and sleep is no work");
        assert_eq!(serve(1_410), (2_410, 1_100), "it still looked for packets");
        assert_eq!(serve(2_500), (3_800, 2_000));
    }

    #[test]
    fn interrupts_come_first_and_move_the_end() {
        let mut worker = worker();
        assert_eq!(worker.interrupt(100, 50), 150);
        assert_eq!(worker.interrupt(100, 50), 200, "one after the other");
        worker.queue(100, 7, (1_000, 1, 0), false);
        assert_eq!(worker.take_next(), Some(7));
        assert_eq!(worker.serve(100, 1_000), 1_200);
        assert_eq!(worker.interrupt(300, 50), 350);
        assert_eq!(worker.finish_ns(), Some(1_250));
        assert_eq!(worker.take_next(), None, "one at a time");
        assert_eq!(worker.finish().map(|waiting| waiting.frame), Some(7));
        assert_eq!((worker.finish_ns(), worker.finish()), (None, None));
    }

    #[test]
    fn charges_are_discharged() {
        let mut worker = worker();
        worker.queue(1, 1, (1_000, 1, 0), false);
        worker.queue(1, 2, (500, 2, 0), false);
        assert_eq!(worker.backlog(1), (1_500, 2_000));
        worker.take_next();
        worker.serve(1, 1_000);
        assert_eq!(worker.backlog(401), (1_100, 2_000), "what is in service has had 400 ns");
        assert_eq!(worker.give(0).map(|waiting| waiting.frame), Some(2));
        worker.finish();
        assert_eq!(worker.backlog(1_000), (0, 0));
        assert_eq!(worker.give(0), None);
    }

    #[test]
    fn busy_time_is_what_has_passed_of_it() {
        let mut worker = worker();
        worker.queue(0, 1, (1_000, 1, 0), false);
        worker.take_next();
        worker.serve(0, 1_000);
        assert_eq!((worker.busy_ns(0), worker.busy_ns(400), worker.busy_ns(2_000)), (0, 400, 1_000));
        worker.interrupt(500, 100);
        assert_eq!((worker.busy_ns(1_000), worker.busy_ns(1_100)), (1_000, 1_100));
        assert_eq!(worker.drain().len(), 1);
    }
}

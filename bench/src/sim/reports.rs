//! Load reports: what a node says of itself, when, and which of it has reached whom.
//!
//! A report is the same for all receivers but for the acknowledged work, so it is kept once, at the node that made it, and
//! a receiver takes it when it next looks: memory and time do not grow with the square of the number of nodes.

use std::collections::VecDeque;

use dataplane_common::hash::{combine, mix};
use dataplane_common::load;
use dataplane_common::tuning::Tuning;
use dataplane_common::wire::link::Report;

use super::scenario::{ReportMode, Reports};

/// A report that was made. One cache line: decisions look at one for each node they consider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Made {
    /// Its number among the node's, from 1; 0 = there was none yet.
    pub sequence: u32,
    /// Backlog, mean over the workers, ns.
    pub backlog_ns: u32,
    /// When it was made, ns.
    pub at_ns: u64,
    /// Until when it is good for those who received it, ns: no two reports of a node have this in common.
    pub good_until_ns: u64,
    /// Packets waiting or in service at a worker, thousandths.
    pub queued_milli: u32,
    /// The rest of it; `received_frames` is not used.
    pub body: Report,
}

/// Reports kept: those on their way, and older ones for receivers that lost the newest.
const KEPT: usize = 32;

/// What one node has reported, but for the newest report.
#[derive(Clone, Debug, Default)]
struct Log {
    older: VecDeque<Made>,
    /// Packets the node held when it last reported.
    outstanding: u32,
    /// Packets it has finished since.
    finished: u32,
    /// Whether it last reported that it is over the threshold.
    is_over: bool,
}

/// The reports of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    newest: Vec<Made>,
    logs: Vec<Log>,
}

/// How reports of a run reach their receivers.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Time from making to arrival, ns.
    pub delay_ns: u64,
    /// A report is lost when its hash is below this; 0 = none is.
    lost_below: u64,
    seed: u64,
}

impl Delivery {
    /// Delivery as `reports` says; `seed` decides which ones are lost.
    pub fn new(reports: &Reports, seed: u64) -> Self {
        // The cast saturates: a probability of 1 loses all but one in 2^64.
        let lost_below = (reports.loss * 2f64.powi(64)) as u64;
        Self { delay_ns: reports.delay_ns, lost_below, seed: mix(seed ^ 0x7265_706f_7274) }
    }

    fn reaches(&self, source: u16, sequence: u32, receiver: u16) -> bool {
        let pair = u64::from(source) << 16 | u64::from(receiver);
        self.lost_below == 0 || combine(combine(self.seed, pair), u64::from(sequence)) >= self.lost_below
    }
}

impl Logs {
    /// No reports yet of so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self { newest: vec![Made::default(); nodes], logs: vec![Log::default(); nodes] }
    }

    /// `node` makes a report, holding `outstanding` packets.
    pub fn make(&mut self, node: u16, made: Made, outstanding: u32, delivery: &Delivery) {
        let (newest, log) = (&mut self.newest[usize::from(node)], &mut self.logs[usize::from(node)]);
        (log.outstanding, log.finished) = (outstanding, 0);
        if log.older.len() == KEPT {
            log.older.pop_front();
        }
        log.older.push_back(*newest);
        let good_until_ns = made.at_ns + delivery.delay_ns + load::valid_for_ns(made.body.interval_us);
        let is_later = good_until_ns > newest.good_until_ns;
        let good_until_ns = if is_later { good_until_ns } else { newest.good_until_ns + 1 };
        *newest = Made { sequence: newest.sequence.wrapping_add(1), good_until_ns, ..made };
    }

    /// The newest report of `node`; of number 0 when there is none.
    #[inline]
    pub fn newest(&self, node: u16) -> &Made {
        &self.newest[usize::from(node)]
    }

    /// The newest report of `source` that has reached `receiver` and is good beyond `known_ns`, the end of the one known.
    pub fn reached(&self, source: u16, receiver: &Receiver, known_ns: u64, delivery: &Delivery) -> Option<&Made> {
        let older = &self.logs[usize::from(source)].older;
        std::iter::once(self.newest(source))
            .chain(older.iter().rev())
            .take_while(|made| made.good_until_ns > known_ns)
            .find(|made| {
                let arrives_ns = made.at_ns + delivery.delay_ns;
                let is_here = arrives_ns <= receiver.now_ns && arrives_ns >= receiver.booted_ns;
                is_here && delivery.reaches(source, made.sequence, receiver.node)
            })
    }

    /// `node` has restarted: what counted towards its next report is void.
    pub fn restart(&mut self, node: u16) {
        self.logs[usize::from(node)] = Log::default();
    }

    /// Notes a finished packet of `node`. True when the mode asks for a report now.
    pub fn is_due_after_finish(&mut self, node: u16, reports: &Reports, now_ns: u64) -> bool {
        let log = &mut self.logs[usize::from(node)];
        log.finished += 1;
        let needed = match reports.mode {
            ReportMode::Periodic | ReportMode::Threshold => return false,
            ReportMode::OnFinish => 1,
            ReportMode::KFinish(milli) => (u64::from(log.outstanding) * u64::from(milli)).div_ceil(1000).max(1),
        };
        u64::from(log.finished) >= needed && now_ns - self.newest(node).at_ns >= reports.gap_ns
    }

    /// True when `node` shall report at the end of an interval in which it was busy for `busy_milli` of the time.
    pub fn is_due_after_interval(&mut self, node: u16, reports: &Reports, tuning: &Tuning, busy_milli: u16) -> bool {
        if reports.mode != ReportMode::Threshold {
            return true;
        }
        let log = &mut self.logs[usize::from(node)];
        let was_over = log.is_over;
        let bound = if was_over { tuning.recovery_milli + 1 } else { tuning.threshold_milli };
        log.is_over = u32::from(busy_milli) >= bound;
        log.is_over != was_over || log.older.is_empty()
    }
}

/// A node that looks for reports of others.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// Its id.
    pub node: u16,
    /// Now, ns.
    pub now_ns: u64,
    /// Since when it lives, ns: what arrived before is lost.
    pub booted_ns: u64,
}

impl Reports {
    /// Time within which a report promises the next one, µs.
    pub fn promised_us(&self) -> u32 {
        let ns = match self.mode {
            // A threshold alert promises nothing: the longest silence that is believed.
            ReportMode::Threshold => return load::MAX_INTERVAL_US,
            _ => self.interval_ns,
        };
        u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELIVERY: Delivery = Delivery { delay_ns: 10, lost_below: 0, seed: 1 };

    fn made(at_ns: u64) -> Made {
        Made { at_ns, body: Report { interval_us: 1, ..Report::default() }, ..Made::default() }
    }

    fn logs(times: &[u64]) -> Logs {
        let mut logs = Logs::new(2);
        for at_ns in times {
            logs.make(0, made(*at_ns), 4, &DELIVERY);
        }
        logs
    }

    #[test]
    fn a_report_arrives_after_its_delay() {
        let logs = logs(&[100, 200, 300]);
        let known = |sequence: u64| if sequence == 0 { 0 } else { sequence * 100 + 10 + 5_000 };
        let reached = |now_ns, sequence| {
            let receiver = Receiver { node: 1, now_ns, booted_ns: 105 };
            logs.reached(0, &receiver, known(sequence), &DELIVERY).map(|made| made.sequence)
        };
        assert_eq!(reached(109, 0), None);
        assert_eq!((reached(110, 0), reached(309, 0), reached(310, 0)), (Some(1), Some(2), Some(3)));
        assert_eq!((reached(500, 3), reached(305, 2)), (None, None), "known already");
        let late = Receiver { node: 1, now_ns: 500, booted_ns: 311 };
        assert_eq!(logs.reached(0, &late, 0, &DELIVERY), None, "it came before the receiver lived");
        assert_eq!((logs.newest(0).good_until_ns, logs.newest(1).sequence), (known(3), 0));
    }

    #[test]
    fn lost_reports_do_not_arrive_and_others_do() {
        let reports = Reports { delay_ns: 0, loss: 0.3, ..Reports::default() };
        let delivery = Delivery::new(&reports, 1);
        let lost = (0..10_000).filter(|sequence| !delivery.reaches(3, *sequence, 4)).count();
        assert!((2_800..3_200).contains(&lost), "{lost}");
        let none = Delivery::new(&Reports { loss: 1.0, ..reports }, 1);
        assert!((0..10_000).all(|sequence| !none.reaches(3, sequence, 4)));
    }

    #[test]
    fn old_reports_are_forgotten_and_none_ends_with_another() {
        let logs = logs(&[7; 100]);
        assert_eq!((logs.newest(0).sequence, logs.newest(0).at_ns, logs.logs[0].older.len()), (100, 7, KEPT));
        assert!(logs.logs[0].older.iter().is_sorted_by(|a, b| a.good_until_ns < b.good_until_ns));
    }

    #[test]
    fn event_modes_ask_at_their_events() {
        let mode = |mode| Reports { mode, ..Reports::default() };
        let mut logs = logs(&[0]);
        assert!(!logs.is_due_after_finish(0, &mode(ReportMode::Periodic), 1));
        assert!(logs.is_due_after_finish(0, &mode(ReportMode::OnFinish), 1));
        logs.make(0, made(0), 4, &DELIVERY);
        let half = mode(ReportMode::KFinish(500));
        assert!(!logs.is_due_after_finish(0, &half, 1), "one of four");
        assert!(logs.is_due_after_finish(0, &half, 1), "two of four");
        let gap = Reports { gap_ns: 20, ..half };
        assert!(!logs.is_due_after_finish(0, &gap, 19));
        assert!(logs.is_due_after_finish(0, &gap, 20));
    }

    #[test]
    fn thresholds_alert_once_each_way() {
        let reports = Reports { mode: ReportMode::Threshold, ..Reports::default() };
        let mut logs = logs(&[0]);
        let mut due = |busy_milli| logs.is_due_after_interval(0, &reports, &Tuning::DEFAULT, busy_milli);
        assert_eq!(
            [due(600), due(700), due(900), due(501), due(500), due(600)],
            [false, true, false, false, true, false]
        );
    }
}

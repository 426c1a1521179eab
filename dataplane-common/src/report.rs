//! When a node reports its load: from time to time, or when something has happened.
//!
//! | mode | reports | source |
//! |---|---|---|
//! | `periodic` | often under load, seldom when idle | |
//! | `on-finish` | after every packet finished | Ok and Park, NPC 2004 (update on finish) |
//! | `k-finish` | after K percent of the packets that were waiting at the last report are finished | Choi, Kang, Ok and Park, KIPS Trans. A 14A(1) 2007 |
//! | `threshold` | when the load passes a threshold, and when it has recovered | J. Lee, JKIECS 18(6) 2023 |
//!
//! Whatever the mode, a node that has nothing to say repeats itself every idle interval, so that its silence means trouble;
//! and two reports are at least a minimal gap apart. The published schemes report every event; at packet rates, reports
//! within a gap tell no more than the last of them.

/// When to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// After an interval.
    #[default]
    Periodic,
    /// After every packet.
    OnFinish,
    /// After a share of the packets that were waiting.
    KFinish,
    /// When the load passes a threshold.
    Threshold,
}

impl Mode {
    /// Every mode with its name in the configuration.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("periodic", Self::Periodic),
        ("on-finish", Self::OnFinish),
        ("k-finish", Self::KFinish),
        ("threshold", Self::Threshold),
    ];

    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::OnFinish => "on-finish",
            Self::KFinish => "k-finish",
            Self::Threshold => "threshold",
        }
    }
}

/// How a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What makes it report.
    pub mode: Mode,
    /// Periodic: time to the next report while there is work, µs.
    pub busy_us: u32,
    /// Time to the next report while there is none or nothing happens, µs; not below `busy_us`.
    pub idle_us: u32,
    /// Other modes: least time between two reports, µs.
    pub gap_us: u32,
    /// `k-finish`: percent of the packets that were waiting.
    pub finish_percent: u32,
    /// `threshold`: load from which a node is over, thousandths.
    pub threshold_milli: u32,
    /// `threshold`: load at which it has recovered, thousandths.
    pub recovery_milli: u32,
}

/// What a node knows of itself when it thinks of reporting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Now, ns.
    pub now_ns: u64,
    /// Packets finished so far (wrapping).
    pub finished: u64,
    /// Packets waiting or in service.
    pub waiting: u32,
    /// True when there is work, or was since the last look.
    pub is_busy: bool,
    /// Share of time the workers are busy, thousandths.
    pub load_milli: u32,
}

/// Follows a node's moments and says when a report is due.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    plan: Plan,
    reported_ns: u64,
    finished: u64,
    /// Finished packets that make the next report due.
    needed: u64,
    is_over: bool,
    promised_us: u32,
}

impl Schedule {
    /// A schedule by `plan`, whose first report is due at once.
    pub const fn new(plan: Plan) -> Self {
        Self { plan, reported_ns: 0, finished: 0, needed: 1, is_over: false, promised_us: 0 }
    }

    /// How often to look, µs.
    pub const fn look_us(&self) -> u32 {
        match self.plan.mode {
            Mode::Periodic => self.promised_us,
            _ => self.plan.gap_us,
        }
    }

    /// When a report is due at `moment`: within which time the next one will come, µs. The caller reports then.
    pub fn due(&mut self, moment: &Moment) -> Option<u32> {
        let since_us = moment.now_ns.saturating_sub(self.reported_ns) / 1000;
        let finished = moment.finished.wrapping_sub(self.finished);
        let was_over = self.is_over;
        self.is_over = if was_over {
            moment.load_milli > self.plan.recovery_milli
        } else {
            moment.load_milli >= self.plan.threshold_milli
        };
        let happened = match self.plan.mode {
            // The thread that looks has waited for the interval; a look that is a little early counts.
            Mode::Periodic => true,
            Mode::OnFinish => finished > 0,
            Mode::KFinish => finished >= self.needed,
            Mode::Threshold => self.is_over != was_over,
        };
        let is_first = self.promised_us == 0;
        let is_silent = since_us >= u64::from(self.plan.idle_us);
        let is_early = since_us < u64::from(self.plan.gap_us) && self.plan.mode != Mode::Periodic;
        if !is_first && !is_silent && (!happened || is_early) {
            // An event within the gap is reported after it, not forgotten.
            if self.plan.mode == Mode::Threshold && is_early {
                self.is_over = was_over;
            }
            return None;
        }
        self.reported_ns = moment.now_ns;
        self.finished = moment.finished;
        // ceil(K / 100 · waiting), at least one packet.
        let share = u64::from(moment.waiting) * u64::from(self.plan.finish_percent);
        self.needed = share.div_ceil(100).max(1);
        let is_periodic = self.plan.mode == Mode::Periodic;
        self.promised_us = if is_periodic && moment.is_busy { self.plan.busy_us } else { self.plan.idle_us };
        Some(self.promised_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn plan(mode: Mode) -> Plan {
        Plan {
            mode,
            busy_us: 100,
            idle_us: 1000,
            gap_us: 20,
            finish_percent: 50,
            threshold_milli: 700,
            recovery_milli: 500,
        }
    }

    fn at(us: u64) -> Moment {
        Moment { now_ns: us * 1000, ..Moment::default() }
    }

    #[test]
    fn periodic_reports_are_seldom_when_idle() {
        let mut schedule = Schedule::new(plan(Mode::Periodic));
        assert_eq!(schedule.due(&Moment { is_busy: true, ..at(0) }), Some(100));
        assert_eq!(schedule.look_us(), 100);
        assert_eq!(schedule.due(&at(100)), Some(1000));
        assert_eq!(schedule.look_us(), 1000);
    }

    #[test]
    fn every_finish_is_reported_but_not_within_the_gap() {
        let mut schedule = Schedule::new(plan(Mode::OnFinish));
        assert_eq!(schedule.due(&at(0)), Some(1000), "the first");
        assert_eq!(schedule.due(&at(30)), None, "nothing finished");
        assert_eq!(schedule.due(&Moment { finished: 1, ..at(40) }), Some(1000));
        assert_eq!(schedule.due(&Moment { finished: 2, ..at(50) }), None, "within the gap");
        assert_eq!(schedule.due(&Moment { finished: 2, ..at(60) }), Some(1000), "after it");
        assert_eq!(schedule.due(&Moment { finished: 2, ..at(1059) }), None);
        assert_eq!(schedule.due(&Moment { finished: 2, ..at(1060) }), Some(1000), "a sign of life");
    }

    #[test]
    fn half_of_what_was_waiting() {
        let mut schedule = Schedule::new(plan(Mode::KFinish));
        assert!(schedule.due(&Moment { waiting: 7, ..at(0) }).is_some());
        assert_eq!(schedule.due(&Moment { finished: 3, ..at(100) }), None, "four of seven are needed");
        assert!(schedule.due(&Moment { finished: 4, waiting: 0, ..at(200) }).is_some());
        assert!(schedule.due(&Moment { finished: 5, ..at(300) }).is_some(), "one at least, of none");
    }

    #[test]
    fn passing_the_threshold_and_recovering() {
        let mut schedule = Schedule::new(plan(Mode::Threshold));
        let mut due = |us, load_milli| schedule.due(&Moment { load_milli, ..at(us) }).is_some();
        assert!(due(0, 100), "the first");
        assert!(!due(50, 699) && due(100, 700));
        assert!(!due(150, 900) && !due(200, 501), "still over");
        assert!(due(250, 500));
        assert!(!due(260, 800) && due(270, 800), "passed within the gap, reported after it");
    }

    proptest! {
        #[test]
        fn no_mode_is_silent_for_longer_than_promised_nor_reports_within_the_gap(
            mode in 0usize..4,
            steps in proptest::collection::vec((0u64..3, 0u32..20, 0u32..1000), 1..300),
        ) {
            let plan = plan(Mode::NAMES[mode].1);
            let mut schedule = Schedule::new(plan);
            let (mut now, mut finished) = (0, 0);
            let mut reports: Vec<u64> = Vec::new();
            for (done, waiting, load_milli) in steps {
                finished += done;
                let moment = Moment { now_ns: now, finished, waiting, load_milli, is_busy: done > 0 };
                if let Some(promised_us) = schedule.due(&moment) {
                    prop_assert!(promised_us == plan.busy_us || promised_us == plan.idle_us);
                    reports.push(now);
                }
                now += u64::from(schedule.look_us()) * 1000;
            }
            prop_assert_eq!(reports.first(), Some(&0));
            for pair in reports.windows(2) {
                prop_assert!(pair[1] - pair[0] >= u64::from(plan.gap_us) * 1000);
                prop_assert!(pair[1] - pair[0] <= u64::from(plan.idle_us + plan.gap_us) * 1000);
            }
        }
    }
}

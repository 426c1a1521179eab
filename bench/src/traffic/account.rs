//! The book of one run: which packets were sent, which came back, when, in which order, and whether they were right.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::schedule::{Schedule, Workload};

/// What became of a packet that came back, apart from its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Its number.
    pub sequence: u64,
    /// Index of the node whose port it came out of.
    pub node: u16,
    /// When the generator's XDP program saw it, ns of the monotonic clock.
    pub arrival_ns: u64,
    /// Whether its checksums are right.
    pub is_intact: bool,
}

/// Counts of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Packets given to the kernel to send.
    pub sent: u64,
    /// Packets that came back, each counted once.
    pub received: u64,
    /// Copies beyond the first.
    pub duplicated: u64,
    /// Packets that came back after one of their flow that was sent later (RFC 4737 section 3, Type-P-Reordered).
    pub reordered: u64,
    /// Those of them that came right behind three or more of their flow that were sent later (RFC 4737 section 5.4,
    /// n-reordering with n >= 3): what TCP takes for a loss.
    pub three_reordered: u64,
    /// Packets that came out of another port than the one they were sent to.
    pub misdelivered: u64,
    /// Packets with a wrong checksum.
    pub corrupt: u64,
    /// Frames that are none of ours.
    pub foreign: u64,
    /// Results computed again here.
    pub results_checked: u64,
    /// Results that were wrong.
    pub results_wrong: u64,
}

impl Counts {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.three_reordered += other.three_reordered;
        self.misdelivered += other.misdelivered;
        self.corrupt += other.corrupt;
        self.foreign += other.foreign;
        self.results_checked += other.results_checked;
        self.results_wrong += other.results_wrong;
    }

    /// Packets that did not come back.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// What has come back of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Largest sequence number; 0 before the first packet, which is larger than none.
    newest: u64,
    /// Sequence numbers of the last three packets, the last one first.
    last: [Option<u64>; 3],
}

impl Flow {
    /// Notes a packet in `counts`. Copies do not count.
    fn returned(&mut self, sequence: u64, counts: &mut Counts) {
        let is_before = |other: Option<u64>| other.is_some_and(|other| sequence < other);
        counts.reordered += u64::from(sequence < self.newest);
        counts.three_reordered += u64::from(self.last.into_iter().all(is_before));
        self.newest = self.newest.max(sequence);
        self.last = [Some(sequence), self.last[0], self.last[1]];
    }
}

/// One kind of packet in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KindReport {
    /// Its name.
    pub name: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets that came back.
    pub received: u64,
    /// Latency of the measured ones.
    pub latency: Distribution,
}

/// When packets of a run were lost or late.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Disturbance {
    /// Time 0 of the schedule, ns of the monotonic clock.
    pub start_ns: u64,
    /// Packets scheduled in each [`SLOT_NS`] from then on that did not come back, or later than the plan allows.
    pub slots: Vec<u32>,
}

/// Length of a slot of [`Disturbance`], ns.
pub const SLOT_NS: u64 = 1_000_000;

impl Disturbance {
    fn note(&mut self, at_ns: u64) {
        let slot = (at_ns / SLOT_NS) as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] += 1;
    }

    /// End of the last slot with such a packet in front of the first `calm` slots in a row without one, counted from a moment of the
    /// monotonic clock, ns; `None` when they begin there.
    pub fn calm_after(&self, from_ns: u64, calm: usize) -> Option<u64> {
        let first = usize::try_from(from_ns.saturating_sub(self.start_ns) / SLOT_NS).ok()?;
        let mut last = None;
        for (slot, count) in self.slots.iter().enumerate().skip(first) {
            if slot - last.map_or(first, |last| last + 1) >= calm {
                break;
            }
            if *count > 0 {
                last = Some(slot);
            }
        }
        last.map(|last| self.start_ns + (last + 1) as u64 * SLOT_NS)
    }

    /// Such packets in all.
    pub fn total(&self) -> u64 {
        self.slots.iter().map(|count| u64::from(*count)).sum()
    }
}

/// The outcome of one run, as the generator prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Counts over warm-up and measurement.
    pub counts: Counts,
    /// By kind, in the workload's order.
    pub kinds: Vec<KindReport>,
    /// Scheduled sending → arrival back, of the measured packets.
    pub latency: Distribution,
    /// Scheduled sending → actual sending, of the measured packets: the error of the generator's timer. It is part of
    /// the latency.
    pub lag: Distribution,
    /// From time 0 of the schedule to the last packet, ns.
    pub sending_ns: u64,
    /// CPU time of the generator's process, ns.
    pub cpu_ns: u64,
    /// When packets were lost or late, if the plan says what is late.
    pub disturbance: Option<Disturbance>,
}

/// The book while the run goes on.
pub struct Account<'a> {
    schedule: &'a Schedule,
    start_ns: u64,
    /// Latency beyond which a packet is late, ns.
    late_ns: Option<u64>,
    /// Copies received, by sequence number.
    copies: Vec<u8>,
    /// By node and flow.
    flows: HashMap<(u16, u16), Flow>,
    report: Report,
}

impl<'a> Account<'a> {
    /// An empty book for a run that starts at `start_ns`.
    pub fn new(workload: &Workload, schedule: &'a Schedule, start_ns: u64) -> Self {
        let kind =
            |name: &str| KindReport { name: name.to_owned(), sent: 0, received: 0, latency: Distribution::default() };
        let report = Report {
            counts: Counts::default(),
            kinds: workload.kinds.iter().map(|entry| kind(&entry.name)).collect(),
            latency: Distribution::default(),
            lag: Distribution::default(),
            sending_ns: schedule.arrivals().last().map_or(0, |arrival| arrival.at_ns),
            cpu_ns: 0,
            disturbance: None,
        };
        let copies = vec![0; schedule.arrivals().len()];
        Self { schedule, start_ns, late_ns: None, copies, flows: HashMap::new(), report }
    }

    /// Notes when packets are lost, or come back later than `late`.
    pub fn watch(self, late: Duration) -> Self {
        let disturbance = Some(Disturbance { start_ns: self.start_ns, slots: Vec::new() });
        let late_ns = Some(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        Self { late_ns, report: Report { disturbance, ..self.report }, ..self }
    }

    /// When a packet is to be sent, ns of the monotonic clock.
    pub fn due_ns(&self, sequence: usize) -> u64 {
        self.start_ns + self.schedule.arrivals()[sequence].at_ns
    }

    /// Notes that a packet was sent at `now_ns`.
    pub fn sent(&mut self, sequence: usize, now_ns: u64) {
        self.report.counts.sent += 1;
        self.report.kinds[usize::from(self.schedule.arrivals()[sequence].kind)].sent += 1;
        if self.schedule.is_measured(sequence) {
            self.report.lag.record(now_ns.saturating_sub(self.due_ns(sequence)));
        }
    }

    /// Notes a packet that came back; false when it is none of this run.
    pub fn returned(&mut self, returned: &Returned) -> bool {
        let sequence = usize::try_from(returned.sequence).unwrap_or(usize::MAX);
        let Some(arrival) = self.schedule.arrivals().get(sequence).copied() else {
            self.foreign();
            return false;
        };
        let counts = &mut self.report.counts;
        self.copies[sequence] = self.copies[sequence].saturating_add(1);
        if self.copies[sequence] > 1 {
            counts.duplicated += 1;
            return true;
        }
        counts.received += 1;
        counts.misdelivered += u64::from(returned.node != arrival.node);
        counts.corrupt += u64::from(!returned.is_intact);
        self.flows.entry((arrival.node, arrival.flow)).or_default().returned(returned.sequence, counts);
        let latency_ns = returned.arrival_ns.saturating_sub(self.start_ns + arrival.at_ns);
        if self.late_ns.is_some_and(|late_ns| latency_ns > late_ns) {
            self.disturbed(arrival.at_ns);
        }
        let kind = &mut self.report.kinds[usize::from(arrival.kind)];
        kind.received += 1;
        if self.schedule.is_measured(sequence) {
            kind.latency.record(latency_ns);
            self.report.latency.record(latency_ns);
        }
        true
    }

    fn disturbed(&mut self, at_ns: u64) {
        if let Some(disturbance) = &mut self.report.disturbance {
            disturbance.note(at_ns);
        }
    }

    /// Notes a frame that is none of ours.
    pub fn foreign(&mut self) {
        self.report.counts.foreign += 1;
    }

    /// Notes that a result was computed again.
    pub fn checked(&mut self, is_right: bool) {
        self.report.counts.results_checked += 1;
        self.report.counts.results_wrong += u64::from(!is_right);
    }

    /// The counts so far.
    pub fn counts(&self) -> &Counts {
        &self.report.counts
    }

    /// The outcome.
    pub fn close(mut self) -> Report {
        for (sequence, arrival) in self.schedule.arrivals().iter().enumerate() {
            if self.copies[sequence] == 0 {
                self.disturbed(arrival.at_ns);
            }
        }
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::workload;
    use super::*;

    const START: u64 = 1_000_000;

    /// Sends everything 10 ns late, then returns what `order` says, each 500 ns after it was scheduled.
    fn run(order: impl Fn(&Schedule) -> Vec<u64>) -> Report {
        let workload = workload();
        let schedule = Schedule::new(&workload).unwrap();
        let mut account = Account::new(&workload, &schedule, START);
        for sequence in 0..schedule.arrivals().len() {
            account.sent(sequence, account.due_ns(sequence) + 10);
        }
        for sequence in order(&schedule) {
            let arrival = schedule.arrivals().get(sequence as usize);
            let (node, at_ns) = arrival.map_or((0, 0), |arrival| (arrival.node, arrival.at_ns));
            let arrival_ns = START + at_ns + 500;
            account.returned(&Returned { sequence, node, arrival_ns, is_intact: true });
        }
        account.close()
    }

    fn all(schedule: &Schedule) -> Vec<u64> {
        (0..schedule.arrivals().len() as u64).collect()
    }

    #[test]
    fn latency_counts_from_the_scheduled_time_and_warm_up_is_left_out() {
        let report = run(all);
        let schedule = Schedule::new(&workload()).unwrap();
        let measured = (0..schedule.arrivals().len()).filter(|at| schedule.is_measured(*at)).count() as u64;
        assert_eq!(report.counts.lost(), 0);
        assert_eq!(report.latency.count(), measured);
        assert_eq!((report.latency.min_ns(), report.latency.max_ns()), (500, 500));
        assert_eq!((report.lag.min_ns(), report.lag.max_ns()), (10, 10));
        assert_eq!(report.kinds.iter().map(|kind| kind.latency.count()).sum::<u64>(), measured);
        assert_eq!(report.kinds.iter().map(|kind| kind.sent).sum::<u64>(), report.counts.sent);
        assert_eq!(report.counts.reordered, 0);
    }

    #[test]
    fn losses_copies_and_strangers_are_told_apart() {
        let report = run(|schedule| {
            let mut order = all(schedule);
            order.retain(|sequence| sequence % 100 != 0);
            order.extend([1, 1, u64::MAX]);
            order
        });
        assert_eq!(report.counts.lost(), report.counts.sent.div_ceil(100));
        assert_eq!(report.counts.duplicated, 2);
        assert_eq!(report.counts.foreign, 1);
    }

    #[test]
    fn lost_and_late_packets_are_noted_when_they_were_due() {
        let workload = workload();
        let schedule = Schedule::new(&workload).unwrap();
        let mut account = Account::new(&workload, &schedule, START).watch(Duration::from_nanos(1_000));
        let last = schedule.arrivals().len() - 1;
        for (sequence, arrival) in schedule.arrivals().iter().enumerate() {
            account.sent(sequence, account.due_ns(sequence));
            let latency_ns = if sequence == 100 { 1_001 } else { 1_000 };
            let arrival_ns = account.due_ns(sequence) + latency_ns;
            if sequence != last {
                let returned = Returned { sequence: sequence as u64, node: arrival.node, arrival_ns, is_intact: true };
                account.returned(&returned);
            }
        }
        let disturbance = account.close().disturbance.unwrap();
        assert_eq!(disturbance.total(), 2, "one was late and one was lost");
        let end_ns = |sequence: usize| START + (schedule.arrivals()[sequence].at_ns / SLOT_NS + 1) * SLOT_NS;
        assert_eq!(disturbance.calm_after(START, 100), Some(end_ns(100)), "the other one is much later");
        assert_eq!(disturbance.calm_after(START, usize::MAX), Some(end_ns(last)));
        assert_eq!(disturbance.calm_after(end_ns(100), 100), None);
        assert_eq!(disturbance.calm_after(end_ns(last), 100), None);
    }

    #[test]
    fn order_is_kept_per_flow() {
        let flow = |schedule: &Schedule, at: usize| {
            let arrival = schedule.arrivals()[at];
            (arrival.node, arrival.flow)
        };
        let schedule = Schedule::new(&workload()).unwrap();
        let same = (1..).find(|at| flow(&schedule, *at) == flow(&schedule, 0)).unwrap();
        let other = (1..).find(|at| flow(&schedule, *at) != flow(&schedule, 0)).unwrap();
        assert_eq!(run(|_| vec![same as u64, 0]).counts.reordered, 1);
        assert_eq!(run(|_| vec![other as u64, 0]).counts.reordered, 0);
    }

    /// (reordered, reordered by three) of one flow whose packets come back in this order.
    fn reordering(order: &[u64]) -> (u64, u64) {
        let (mut flow, mut counts) = (Flow::default(), Counts::default());
        order.iter().for_each(|sequence| flow.returned(*sequence, &mut counts));
        (counts.reordered, counts.three_reordered)
    }

    #[test]
    fn reordering_is_that_of_rfc_4737() {
        assert_eq!(reordering(&[]), (0, 0));
        assert_eq!(reordering(&[0, 1, 2, 5, 6]), (0, 0), "a gap is no reordering");
        assert_eq!(reordering(&[1, 0]), (1, 0));
        // Section 5.4: the packets right before it count, as far as they were sent later.
        assert_eq!(reordering(&[1, 2, 0, 3]), (1, 0));
        assert_eq!(reordering(&[1, 2, 3, 0]), (1, 1));
        assert_eq!(reordering(&[1, 2, 3, 4, 0]), (1, 1));
        assert_eq!(reordering(&[2, 3, 4, 0, 1]), (2, 1), "0 comes right before 1 and was sent earlier");
        assert_eq!(reordering(&[4, 5, 6, 3, 2, 1, 0]), (4, 4));
        // Section 3: against the largest so far, not against the one before.
        assert_eq!(reordering(&[3, 1, 2]), (2, 0));
    }

    #[test]
    fn a_wrong_port_and_a_wrong_checksum_count() {
        let workload = workload();
        let schedule = Schedule::new(&workload).unwrap();
        let mut account = Account::new(&workload, &schedule, START);
        let node = 1 - schedule.arrivals()[0].node;
        account.sent(0, START);
        assert!(account.returned(&Returned { sequence: 0, node, arrival_ns: START, is_intact: false }));
        assert_eq!((account.counts().misdelivered, account.counts().corrupt), (1, 1));
    }
}

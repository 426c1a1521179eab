//! Whose turn it is to leave in a flow: the rule that workers and the XDP program share.
//!
//! Results of a flow slot leave in the order of their numbers. [`FlowRow::released`](crate::maps::FlowRow::released) holds the
//! number that leaves next and who has sent the one before it. A turn may be passed on only when the frame before it is on
//! the device, or on its way there through a queue that the next frame joins behind it:
//!
//! * A worker passes a turn on after it has given the frame to the kernel and had it sent.
//! * The XDP program cannot wait for that: the kernel collects redirected frames and sends them at the end of the poll. So it
//!   passes the turn on at once and leaves its CPU and the time. The same CPU may follow at once, because its frames
//!   stay in one queue; everybody else waits [`SETTLE_NS`], longer than a poll.

use crate::load::saturate;

/// How long after the XDP program has released a result nobody but the same CPU may follow, ns: longer than a poll of a device
/// (64 frames, `NAPI_POLL_WEIGHT`) takes, after which the kernel sends what was redirected meanwhile.
pub const SETTLE_NS: u64 = SETTLE_UNITS as u64 * UNIT_NS;

const SETTLE_UNITS: u32 = 128;
/// Unit of time in the word, ns.
const UNIT_NS: u64 = 1 << 10;
const TIME_MASK: u32 = (1 << 20) - 1;
/// The CPUs that cannot be told apart: none of them is ever taken for the same.
const OTHER_CPU: u32 = 4095;

/// Where a result stands in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the next one.
    Next,
    /// Others must leave before it.
    Later,
    /// Those after it have left already.
    Past,
}

/// The number that leaves next, and who has sent the one before it.
///
/// ```text
///  0     number that leaves next                                                          u32
/// 32     when the XDP program released the one before it, µs (1024 ns, wrapping)      20 bits
/// 52     the CPU it did that on, plus one; 0 = it was no XDP program                  12 bits
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The number that leaves next (wrapping).
    pub next: u32,
    by: u32,
}

impl Released {
    /// A worker has sent all results before `next`.
    #[inline(always)]
    pub const fn by_worker(next: u32) -> Self {
        Self { next, by: 0 }
    }

    /// The XDP program on `cpu` has released the one before `next`.
    #[inline(always)]
    pub const fn by_xdp(next: u32, cpu: u32, now_ns: u64) -> Self {
        Self { next, by: time_of(now_ns) | cpu_of(cpu) << 20 }
    }

    /// Reads the word.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { next: word as u32, by: (word >> 32) as u32 }
    }

    /// The word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.next as u64 | (self.by as u64) << 32
    }

    /// Where the result with `number` stands.
    #[inline(always)]
    pub const fn place(self, number: u32) -> Place {
        match number.wrapping_sub(self.next) {
            0 => Place::Next,
            ahead if ahead < 1 << 31 => Place::Later,
            _ => Place::Past,
        }
    }

    /// The CPU on which the XDP program released the one before `next`, if it was one that can be told from others.
    #[inline(always)]
    pub const fn cpu(self) -> Option<u32> {
        match self.by >> 20 {
            0 | OTHER_CPU => None,
            cpu => Some(cpu - 1),
        }
    }

    /// Whether anybody may follow: the frame before has surely been sent.
    #[inline(always)]
    pub const fn is_settled(self, now_ns: u64) -> bool {
        self.by == 0 || time_of(now_ns).wrapping_sub(self.by) & TIME_MASK >= SETTLE_UNITS
    }

    /// Whether the XDP program on `cpu` may follow.
    #[inline(always)]
    pub const fn may_follow(self, cpu: u32, now_ns: u64) -> bool {
        matches!(self.cpu(), Some(same) if same == cpu) || self.is_settled(now_ns)
    }
}

/// When the packets of a flow are expected to be done, ns, after one more that is expected to be done `done_ns` after
/// `now_ns`: what [`FlowRow::expected_ns`](crate::maps::FlowRow::expected_ns) holds.
///
/// A packet that is done before the earlier ones of its flow has gained nothing: its result waits for theirs. Policies that
/// estimate when a packet is done therefore count it as done no earlier ([`crate::policy::Job::earlier_ns`]), and prefer a
/// node where it does not overtake.
#[inline(always)]
pub const fn expected_ns(before_ns: u64, now_ns: u64, done_ns: u32) -> u64 {
    let done_ns = now_ns + done_ns as u64;
    if done_ns > before_ns { done_ns } else { before_ns }
}

/// Time until then, ns.
#[inline(always)]
pub const fn earlier_ns(expected_ns: u64, now_ns: u64) -> u32 {
    saturate(expected_ns.saturating_sub(now_ns))
}

#[inline(always)]
const fn time_of(now_ns: u64) -> u32 {
    (now_ns / UNIT_NS) as u32 & TIME_MASK
}

#[inline(always)]
const fn cpu_of(cpu: u32) -> u32 {
    if cpu >= OTHER_CPU - 1 { OTHER_CPU } else { cpu + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_wrap() {
        let released = Released::by_worker(u32::MAX);
        assert_eq!(released.place(u32::MAX), Place::Next);
        assert_eq!(released.place(3), Place::Later);
        assert_eq!(released.place(u32::MAX - 1), Place::Past);
        assert_eq!(Released::default().place(0), Place::Next, "a zeroed row begins with number 0");
    }

    #[test]
    fn who_follows_xdp_waits_unless_it_is_the_same_cpu() {
        for now_ns in [0, 1 << 30, u64::MAX - 10 * SETTLE_NS] {
            let released = Released::from_word(Released::by_xdp(7, 2, now_ns).to_word());
            assert_eq!((released.next, released.cpu()), (7, Some(2)));
            assert!(!released.is_settled(now_ns) && !released.is_settled(now_ns + SETTLE_NS - 2 * UNIT_NS));
            assert!(released.is_settled(now_ns + SETTLE_NS + UNIT_NS));
            assert!(released.may_follow(2, now_ns), "its frames stay in one queue");
            assert!(!released.may_follow(3, now_ns));
            assert!(released.may_follow(3, now_ns + SETTLE_NS + UNIT_NS));
        }
    }

    #[test]
    fn a_worker_has_sent_what_it_releases() {
        let released = Released::by_worker(7);
        assert!(released.is_settled(0) && released.may_follow(0, 0) && released.may_follow(5, 1 << 40));
    }

    #[test]
    fn a_flow_is_done_when_its_last_packet_is() {
        assert_eq!((expected_ns(0, 100, 50), expected_ns(500, 100, 50), expected_ns(120, 100, 50)), (150, 500, 150));
        assert_eq!((earlier_ns(150, 100), earlier_ns(150, 200), earlier_ns(1 << 40, 0)), (50, 0, u32::MAX));
    }

    #[test]
    fn cpus_that_cannot_be_told_apart_are_never_the_same() {
        for cpu in [4094, 5000, u32::MAX] {
            assert!(!Released::by_xdp(1, cpu, 0).may_follow(cpu, 0));
        }
        assert!(Released::by_xdp(1, 4093, 0).may_follow(4093, 0));
    }
}

//! Which waiting packet a node gives to an idle one that asks for work.
//!
//! ```text
//! gain = ahead − (s + wire + r) + behind · x − waiting · s
//! ```
//! The packet (`x` of work) no longer waits here for the work `ahead` of it, but for its way; those `behind` it no longer wait for
//! it; and all that wait do so while it is sent. It is given when that is more than the CPU time burned costs everyone at the
//! present utilisation, the `h` of [`crate::policy`]'s `sooner`, and the packet whose move gains most is.

use crate::load::Forwarding;

/// Packets of a queue that are considered.
pub const CONSIDERED: usize = 128;

/// Where a packet stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its estimated processing time, ns.
    pub work_ns: u32,
    /// Work that runs before it, ns.
    pub ahead_ns: u64,
    /// Packets that wait behind it.
    pub behind: u32,
    /// Packets that wait, itself included.
    pub waiting: u32,
}

/// How a node chooses the packet that it gives away.
#[derive(Clone, Copy, Debug)]
pub struct Giving {
    cost: Forwarding,
    price_ns: i64,
    guard: bool,
}

/// Utilisation beyond which a move does not become more expensive, thousandths.
const MOST_UTILISATION: u64 = 990;
/// Times and counts are capped here, so that no sum of products overflows.
const MOST_NS: u64 = 1 << 40;

impl Giving {
    /// For a cluster of this utilisation; `price_milli` weighs the CPU time burned, and `guard` forbids to move a packet that
    /// is shorter than that.
    pub const fn new(cost: Forwarding, utilisation_milli: u32, price_milli: u32, guard: bool) -> Self {
        let busy =
            if utilisation_milli as u64 > MOST_UTILISATION { MOST_UTILISATION } else { utilisation_milli as u64 };
        let per_packet = cost.cpu_ns() * busy / (1000 - busy);
        Self { cost, price_ns: capped(per_packet.saturating_mul(price_milli as u64) / 1000), guard }
    }

    /// What giving a packet away gains, ns; `None` when nothing.
    pub const fn gain_ns(&self, packet: &Standing) -> Option<u64> {
        if self.guard && packet.work_ns as u64 <= self.cost.cpu_ns() {
            return None;
        }
        let way = capped(self.cost.cpu_ns()) + self.cost.wire_ns as i64;
        let relieved = capped((packet.behind as u64).saturating_mul(packet.work_ns as u64));
        let delayed = capped((packet.waiting as u64).saturating_mul(self.cost.send_ns as u64));
        let gain = capped(packet.ahead_ns) - way + relieved - delayed;
        if gain > self.price_ns { Some(gain as u64) } else { None }
    }
}

const fn capped(ns: u64) -> i64 {
    if ns > MOST_NS { MOST_NS as i64 } else { ns as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COST: Forwarding = Forwarding { send_ns: 500, receive_ns: 500, wire_ns: 2_000, wire_ns_per_byte_q16: 0 };

    fn gain(work_ns: u32, ahead_ns: u64, (behind, waiting): (u32, u32), utilisation_milli: u32) -> Option<u64> {
        Giving::new(COST, utilisation_milli, 2_000, true).gain_ns(&Standing { work_ns, ahead_ns, behind, waiting })
    }

    #[test]
    fn a_move_gains_the_wait_and_what_waits_behind() {
        assert_eq!(gain(10_000, 20_000, (0, 1), 0), Some(20_000 - 3_000 - 500));
        assert_eq!(gain(10_000, 0, (2, 3), 0), Some(20_000 - 3_000 - 1_500), "two wait behind it");
        assert_eq!(gain(10_000, 3_000, (0, 1), 0), None, "it would start here sooner");
        assert_eq!(gain(1_000, 90_000, (0, 1), 0), None, "the guard");
    }

    #[test]
    fn the_price_grows_with_utilisation() {
        let least = |milli| (0..).find(|ahead| gain(10_000, ahead * 500, (0, 1), milli).is_some()).unwrap() * 500;
        assert_eq!([0, 500, 800].map(least), [4_000, 6_000, 12_000]);
    }

    proptest! {
        #[test]
        fn as_by_the_formula(work: u32, ahead in 0u64..1 << 33, behind in 0u32..5_000, before in 0u32..5_000, busy in 0u32..1_100) {
            let waiting = behind + before + 1;
            let found = gain(work, ahead, (behind, waiting), busy);
            let busy = f64::from(busy.min(990)) / 1000.0;
            let price = (1_000.0 * busy / (1.0 - busy)).floor() * 2.0;
            let exact = ahead as f64 - 3_000.0 + f64::from(behind) * f64::from(work) - f64::from(waiting) * 500.0;
            let expected = (work > 1_000 && exact > price && exact < (1u64 << 40) as f64).then_some(exact as u64);
            if exact < (1u64 << 40) as f64 {
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn nothing_overflows(work: u32, ahead: u64, behind: u32, waiting: u32, busy: u32, price: u32, send: u32) {
            let cost = Forwarding { send_ns: send, receive_ns: send, wire_ns: send, wire_ns_per_byte_q16: 0 };
            Giving::new(cost, busy, price, false).gain_ns(&Standing { work_ns: work, ahead_ns: ahead, behind, waiting });
        }
    }
}

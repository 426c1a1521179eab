//! `hold`: emulated service. The worker is occupied for a declared time but sleeps, so that a machine with few cores can
//! run a cluster of as many servers as it likes. Never a measure of throughput; output that uses it says "emulated".

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::Timespec;

use super::{Call, PacketFunction};

/// See the module.
pub struct Hold;

impl PacketFunction for Hold {
    const UNITS: Units = Units::Operand;
    const PRIOR: Cost = Cost { a_ns: 60_000, b_q16: 65_536 };
    const RESULT_BYTES: usize = 0;

    fn compute(call: Call<'_>) {
        let ns = i64::from(call.operand);
        let mut left = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: (ns % 1_000_000_000) as _ };
        // A signal does not end the service early.
        while let NanosleepRelativeResult::Interrupted(remaining) = nanosleep(&left) {
            left = remaining;
        }
    }
}

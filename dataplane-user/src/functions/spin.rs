//! `spin`: burns CPU for a declared time; calibration, and work whose cost is exactly known.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;

use super::{Call, PacketFunction};

/// See the module.
pub struct Spin;

impl PacketFunction for Spin {
    const UNITS: Units = Units::Operand;
    const PRIOR: Cost = Cost { a_ns: 100, b_q16: 65_536 };
    const RESULT_BYTES: usize = 0;

    fn compute(call: Call<'_>) {
        let length = Duration::from_nanos(u64::from(call.operand));
        let start = Instant::now();
        while start.elapsed() < length {
            spin_loop();
        }
    }
}

//! `forward`: the packet goes back as it came; the floor of every cost.

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;

use super::{Call, PacketFunction};

/// See the module.
pub struct Forward;

impl PacketFunction for Forward {
    const UNITS: Units = Units::Length;
    const PRIOR: Cost = Cost { a_ns: 100, b_q16: 0 };
    const RESULT_BYTES: usize = 0;

    fn compute(_call: Call<'_>) {}
}

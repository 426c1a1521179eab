//! `slow-hold`: [`Hold`] as a slower node serves it. A node that registers it under the type id of `hold` is such a node to
//! itself and to its peers: all of them have to find out by measuring.

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;

use super::hold::Hold;
use super::{Call, PacketFunction};

/// How many times as long as a `hold` it takes.
pub const SLOWNESS: u32 = 4;

/// See the module.
pub struct SlowHold;

impl PacketFunction for SlowHold {
    const UNITS: Units = Hold::UNITS;
    /// That of `hold`: nobody tells the node that it is slow.
    const PRIOR: Cost = Hold::PRIOR;
    const RESULT_BYTES: usize = Hold::RESULT_BYTES;

    fn compute(call: Call<'_>) {
        Hold::compute(Call { operand: call.operand.saturating_mul(SLOWNESS), ..call });
    }
}

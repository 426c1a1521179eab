//! `crc32`: CRC-32 (IEEE 802.3) of the payload.

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;

use super::{Call, PacketFunction};

/// See the module.
pub struct Crc32;

impl PacketFunction for Crc32 {
    const UNITS: Units = Units::Length;
    const PRIOR: Cost = Cost { a_ns: 150, b_q16: 65_536 / 16 };
    const RESULT_BYTES: usize = 4;

    fn compute(call: Call<'_>) {
        call.result.copy_from_slice(&crc32fast::hash(call.payload).to_be_bytes());
    }
}

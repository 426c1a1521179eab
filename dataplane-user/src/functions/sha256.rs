//! `sha256`: repeated SHA-256 over the payload. The operand is the number of rounds; each round hashes the digest of the
//! round before, followed by the payload, so that no round can be left out.

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;
use sha2::{Digest, Sha256 as Hasher};

use super::{Call, PacketFunction};

/// See the module.
pub struct Sha256;

impl PacketFunction for Sha256 {
    const UNITS: Units = Units::Rounds;
    const PRIOR: Cost = Cost { a_ns: 300, b_q16: 65_536 };
    const RESULT_BYTES: usize = 32;

    fn compute(call: Call<'_>) {
        let mut digest = Hasher::digest(&*call.payload);
        for _ in 1..call.operand {
            digest = Hasher::new().chain_update(digest).chain_update(&*call.payload).finalize();
        }
        call.result.copy_from_slice(&digest);
    }
}

//! A hasher for small keys that is the same in every run, so that no result depends on the order of a map.

use std::hash::Hasher;

use dataplane_common::hash::{combine, mix};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = combine(self.0, u64::from(*byte));
        }
    }

    fn write_u16(&mut self, key: u16) {
        self.0 = mix(u64::from(key) + 1);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = mix(key.wrapping_add(1));
    }
}

//! Packet functions: the computations an active packet can name. One file each, one line each in the registry below.
//!
//! A function works in place on the packet's payload and may leave a result in the packet's result option. It runs on a
//! worker: no allocation, no lock, no I/O.

mod crc32;
mod forward;
mod hold;
mod sha256;
mod slow_hold;
mod spin;

use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;

pub use self::slow_hold::SLOWNESS;

/// What a function gets of a packet.
#[derive(Debug)]
pub struct Call<'a> {
    /// The bytes behind the ANEP header.
    pub payload: &'a mut [u8],
    /// The operand option's value, 0 when the packet has none.
    pub operand: u32,
    /// Room for the result: exactly [`PacketFunction::RESULT_BYTES`] bytes.
    pub result: &'a mut [u8],
}

/// A computation.
pub trait PacketFunction {
    /// What its work grows with; XDP estimates the processing time from it.
    const UNITS: Units;
    /// Cost assumed until it is measured.
    const PRIOR: Cost;
    /// Bytes of result; the packet must carry a result option at least this large.
    const RESULT_BYTES: usize;
    /// Computes.
    fn compute(call: Call<'_>);
}

macro_rules! functions {
    ($($variant:ident = $type_id:literal, $name:literal, $function:ty, $help:literal;)*) => {
        /// Every packet function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Builtin {
            $(#[doc = $help] $variant,)*
        }

        impl Builtin {
            /// Every function, in registry order.
            pub const ALL: &'static [Builtin] = &[$(Builtin::$variant,)*];

            /// Name in configuration and output.
            pub const fn name(self) -> &'static str {
                match self { $(Builtin::$variant => $name,)* }
            }

            /// Type id unless the configuration gives another.
            pub const fn type_id(self) -> u16 {
                match self { $(Builtin::$variant => $type_id,)* }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(Builtin::$variant => $help,)* }
            }

            /// What its work grows with.
            pub const fn units(self) -> Units {
                match self { $(Builtin::$variant => <$function>::UNITS,)* }
            }

            /// Cost assumed until it is measured.
            pub const fn prior(self) -> Cost {
                match self { $(Builtin::$variant => <$function>::PRIOR,)* }
            }

            /// Bytes of result.
            pub const fn result_bytes(self) -> usize {
                match self { $(Builtin::$variant => <$function>::RESULT_BYTES,)* }
            }

            /// Computes.
            #[inline]
            pub fn compute(self, call: Call<'_>) {
                match self { $(Builtin::$variant => <$function>::compute(call),)* }
            }
        }
    };
}

functions! {
    Forward = 0xff01, "forward", forward::Forward, "Sends the packet back unchanged.";
    Crc32 = 0xff02, "crc32", crc32::Crc32, "CRC-32 (IEEE 802.3) of the payload, 4 bytes of result, big endian.";
    Sha256 = 0xff03, "sha256", sha256::Sha256, "SHA-256 of the payload, as many rounds as the operand says, 32 bytes of result.";
    Spin = 0xff04, "spin", spin::Spin, "Burns CPU for as many nanoseconds as the operand says.";
    Hold = 0xff05, "hold", hold::Hold, "Emulated service: occupies the worker for as many nanoseconds as the operand says without using the CPU.";
    SlowHold = 0xff06, "slow-hold", slow_hold::SlowHold, "As hold, four times as long: what a slower node serves under the type id of hold.";
}

impl Builtin {
    /// The function of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    fn compute(function: Builtin, payload: &[u8], operand: u32) -> (Vec<u8>, Vec<u8>, Duration) {
        let mut payload = payload.to_vec();
        let mut result = vec![0; function.result_bytes()];
        let start = Instant::now();
        function.compute(Call { payload: &mut payload, operand, result: &mut result });
        (payload, result, start.elapsed())
    }

    #[test]
    fn names_and_type_ids_are_unique() {
        let names: BTreeSet<_> = Builtin::ALL.iter().map(|function| function.name()).collect();
        let ids: BTreeSet<_> = Builtin::ALL.iter().map(|function| function.type_id()).collect();
        assert_eq!((names.len(), ids.len()), (Builtin::ALL.len(), Builtin::ALL.len()));
        assert_eq!(Builtin::from_name("crc32"), Some(Builtin::Crc32));
    }

    #[test]
    fn forward_changes_nothing() {
        assert_eq!(compute(Builtin::Forward, b"payload", 0).0, b"payload");
    }

    #[test]
    fn crc32_gives_the_check_value() {
        // The check value of CRC-32/ISO-HDLC for "123456789".
        assert_eq!(compute(Builtin::Crc32, b"123456789", 0).1, 0xcbf4_3926u32.to_be_bytes());
    }

    #[test]
    fn sha256_rounds_begin_with_the_standard_vector() {
        // FIPS 180-2 appendix B.1: SHA-256 of "abc".
        let once = compute(Builtin::Sha256, b"abc", 1).1;
        assert_eq!(once[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(compute(Builtin::Sha256, b"abc", 0).1, once, "no round still means one");
        assert_ne!(compute(Builtin::Sha256, b"abc", 2).1, once);
    }

    #[test]
    fn spin_and_hold_last_at_least_what_they_say() {
        for function in [Builtin::Spin, Builtin::Hold] {
            let (.., took) = compute(function, b"", 300_000);
            assert!(took >= Duration::from_nanos(295_000), "{function:?} took {took:?}");
        }
        let (.., took) = compute(Builtin::SlowHold, b"", 100_000);
        assert!(took >= Duration::from_nanos(u64::from(SLOWNESS) * 98_000), "a slow hold took {took:?}");
    }
}

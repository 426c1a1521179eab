//! What the deciding side must know of a packet function: its type id, what its work grows with, and a prior cost.
//!
//! The computing itself is in `dataplane-user/src/functions`, one file each.

use crate::wire::anep::Anep;

/// What a round costs besides the payload, as bytes: without it an empty payload would make any number of rounds free.
pub const ROUND_BYTES: u64 = 64;

/// What the work of a function grows with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Units {
    /// Bytes of payload.
    Length = 0,
    /// The packet's operand (for example nanoseconds).
    Operand = 1,
    /// Rounds: the operand (at least 1) × (bytes of payload + [`ROUND_BYTES`]).
    Rounds = 2,
}

impl Units {
    /// The value as it stands in a map; unknown values read as [`Units::Length`].
    #[inline(always)]
    pub const fn from_map(value: u32) -> Self {
        match value {
            1 => Self::Operand,
            2 => Self::Rounds,
            _ => Self::Length,
        }
    }

    /// True when a packet of the function must carry an operand.
    #[inline(always)]
    pub const fn needs_operand(self) -> bool {
        !matches!(self, Self::Length)
    }

    /// The packet's amount of work in these units (saturating); `None` when it lacks the operand.
    #[inline(always)]
    pub fn of(self, anep: &Anep) -> Option<u32> {
        let length = anep.payload_len() as u32;
        match (self, anep.operand) {
            (Self::Length, _) => Some(length),
            (Self::Operand, Some(operand)) => Some(operand),
            (Self::Rounds, Some(operand)) => {
                // A payload is shorter than 2^16, so the product fits 64 bits and is capped like every 32-bit cost.
                let rounds = if operand == 0 { 1 } else { operand };
                let product = u64::from(rounds) * (u64::from(length) + ROUND_BYTES);
                Some(if product > u64::from(u32::MAX) { u32::MAX } else { product as u32 })
            }
            (_, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_packet() {
        let anep = Anep { header_len: 8, packet_len: 108, operand: Some(7), ..Anep::default() };
        assert_eq!(Units::Length.of(&anep), Some(100));
        assert_eq!(Units::Operand.of(&anep), Some(7));
        assert_eq!(Units::Rounds.of(&anep), Some(7 * 164));
        let empty = Anep { header_len: 8, packet_len: 8, operand: Some(u32::MAX), ..Anep::default() };
        assert_eq!(Units::Rounds.of(&empty), Some(u32::MAX), "rounds over nothing are not free");
        assert_eq!(Units::Rounds.of(&Anep { operand: Some(0), ..empty }), Some(64));
        let huge = Anep { operand: Some(u32::MAX), ..anep };
        assert_eq!(Units::Rounds.of(&huge), Some(u32::MAX));
        let none = Anep { operand: None, ..anep };
        assert_eq!(Units::Operand.of(&none), None);
    }
}

//! Credit in work: how much a node still takes of another one.

/// Whether a node takes `charge_ns` of work more: `limit` is the word `limit_ns`, `limited` of its row, `sent_ns` the position
/// sent.
///
/// As with a window of TCP (RFC 9293 section 3.8.6), the receiver names the position up to which it takes work, and the sender
/// keeps below it, whatever was lost in between.
#[inline(always)]
pub const fn has_credit(limit: u64, sent_ns: u64, charge_ns: u32) -> bool {
    let left = (limit as u32).wrapping_sub(sent_ns as u32);
    limit >> 32 == 0 || (left < 1 << 31 && charge_ns <= left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_ends_at_the_position_that_the_receiver_named() {
        let limit = |position: u32| u64::from(position) | 1 << 32;
        for sent in [0u64, 1_000, u64::from(u32::MAX) - 10, (7 << 32) + 5] {
            let named = (sent as u32).wrapping_add(100);
            assert!(has_credit(limit(named), sent, 100) && !has_credit(limit(named), sent, 101), "{sent}");
            assert!(!has_credit(limit((sent as u32).wrapping_sub(1)), sent, 0), "more was sent than is taken");
            assert!(has_credit(u64::from(named), sent, u32::MAX), "no limit");
        }
    }
}

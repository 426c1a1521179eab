//! One of two values without a branch.
//!
//! Which of two loads is the larger one is not foreseen, so a branch on it costs more than both values. BPF has no
//! instruction that selects, and its verifier follows both ways of a branch: two for each selection in a row, times those of the
//! next one. There the comparison becomes a mask.

#[cfg(target_arch = "bpf")]
use core::hint::black_box;
#[cfg(not(target_arch = "bpf"))]
use core::hint::select_unpredictable;

/// Whether one number was below another.
#[cfg(not(target_arch = "bpf"))]
#[derive(Clone, Copy)]
pub struct Below(bool);

/// Whether one number was below another: all bits, or none.
#[cfg(target_arch = "bpf")]
#[derive(Clone, Copy)]
pub struct Below(u64);

#[cfg(not(target_arch = "bpf"))]
impl Below {
    /// Compares two numbers of at most 63 bits.
    #[inline(always)]
    pub fn of(this: u64, that: u64) -> Self {
        debug_assert!(this < 1 << 63 && that < 1 << 63);
        Self(this < that)
    }

    /// `yes` if it was, else `no`.
    #[inline(always)]
    pub fn pick(self, yes: u64, no: u64) -> u64 {
        select_unpredictable(self.0, yes, no)
    }
}

#[cfg(target_arch = "bpf")]
impl Below {
    /// Compares two numbers of at most 63 bits.
    #[inline(always)]
    pub fn of(this: u64, that: u64) -> Self {
        // The difference is negative. The compiler must not see through this: it would make a branch of it again.
        Self(black_box((this.wrapping_sub(that) as i64 >> 63) as u64))
    }

    /// `yes` if it was, else `no`.
    #[inline(always)]
    pub fn pick(self, yes: u64, no: u64) -> u64 {
        no ^ ((yes ^ no) & self.0)
    }
}

/// `this` less `that`, at least 0. Both have at most 63 bits.
#[inline(always)]
pub fn less(this: u64, that: u64) -> u64 {
    Below::of(this, that).pick(0, this.wrapping_sub(that))
}

/// The larger of two numbers of at most 63 bits.
#[inline(always)]
pub fn larger(this: u64, that: u64) -> u64 {
    Below::of(this, that).pick(that, this)
}

/// The smaller of two numbers of at most 63 bits.
#[inline(always)]
pub fn smaller(this: u64, that: u64) -> u64 {
    Below::of(this, that).pick(this, that)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_the_operations_with_branches(a in 0u64..1 << 63, b in 0u64..1 << 63) {
            prop_assert_eq!((less(a, b), larger(a, b), smaller(a, b)), (a.saturating_sub(b), a.max(b), a.min(b)));
        }
    }
}

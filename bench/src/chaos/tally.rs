//! [`Tally`]: what happened to the frames of one direction of a cable.

use dataplane_common::chaos::{COUNT_WORDS, Fate, FrameKind, KINDS, SEEN};
use serde::Serialize;

/// What happened to frames of one kind. Every frame seen is in exactly one of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindTally {
    /// Frames that came in.
    pub seen: u64,
    /// Went on as they came.
    pub passed: u64,
    /// Ended here.
    pub dropped: u64,
    /// Went on with one byte changed.
    pub corrupted: u64,
    /// Given to the thread to be sent twice.
    pub duplicated: u64,
    /// Given to the thread to be sent behind a later one.
    pub reordered: u64,
    /// Given to the thread to be sent later.
    pub delayed: u64,
}

impl KindTally {
    /// What one map value says.
    pub(super) const fn of_words(words: &[u64; COUNT_WORDS]) -> Self {
        Self {
            seen: words[SEEN],
            passed: words[Fate::Pass as usize],
            dropped: words[Fate::Drop as usize],
            corrupted: words[Fate::Corrupt as usize],
            duplicated: words[Fate::Duplicate as usize],
            reordered: words[Fate::Reorder as usize],
            delayed: words[Fate::Delay as usize],
        }
    }

    /// Adds another one's.
    pub const fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.passed += other.passed;
        self.dropped += other.dropped;
        self.corrupted += other.corrupted;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.delayed += other.delayed;
    }

    /// What has happened since `earlier`.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            seen: self.seen.saturating_sub(earlier.seen),
            passed: self.passed.saturating_sub(earlier.passed),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            corrupted: self.corrupted.saturating_sub(earlier.corrupted),
            duplicated: self.duplicated.saturating_sub(earlier.duplicated),
            reordered: self.reordered.saturating_sub(earlier.reordered),
            delayed: self.delayed.saturating_sub(earlier.delayed),
        }
    }

    /// Frames given to the thread.
    pub const fn held(&self) -> u64 {
        self.duplicated + self.reordered + self.delayed
    }

    /// Whether every frame seen has met its fate.
    pub const fn balances(&self) -> bool {
        self.seen == self.passed + self.dropped + self.corrupted + self.held()
    }

    /// Frames that go out once the thread holds none: a duplicated one counts twice.
    pub const fn leaving(&self) -> u64 {
        self.passed + self.corrupted + self.held() + self.duplicated
    }
}

/// What happened to the frames of one direction of a cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// By kind, in the order of [`FrameKind::ALL`].
    pub kinds: [KindTally; KINDS],
    /// Frames that the thread has sent on, copies left out.
    pub relayed: u64,
    /// Copies that it has sent.
    pub copies: u64,
    /// Reordered frames that a later one has overtaken; the others were sent when none came.
    pub overtaken: u64,
    /// Frames for the thread that the kernel dropped in front of its socket, against the box's will.
    pub lost: u64,
    /// Frames and copies of the thread that the kernel dropped behind its socket, or for which there was no room.
    pub unsent: u64,
}

impl Tally {
    /// Frames of one kind.
    pub const fn kind(&self, kind: FrameKind) -> &KindTally {
        &self.kinds[kind as usize]
    }

    /// Frames of all kinds.
    pub fn total(&self) -> KindTally {
        let mut total = KindTally::default();
        for kind in &self.kinds {
            total.add(kind);
        }
        total
    }

    /// Whether every frame seen has met its fate and the thread holds none.
    pub fn is_settled(&self) -> bool {
        let total = self.total();
        total.balances() && total.held() == self.relayed + self.lost
    }

    /// What has happened since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            kinds: std::array::from_fn(|kind| self.kinds[kind].since(&earlier.kinds[kind])),
            relayed: self.relayed.saturating_sub(earlier.relayed),
            copies: self.copies.saturating_sub(earlier.copies),
            overtaken: self.overtaken.saturating_sub(earlier.overtaken),
            lost: self.lost.saturating_sub(earlier.lost),
            unsent: self.unsent.saturating_sub(earlier.unsent),
        }
    }

    /// Adds another one's.
    pub fn add(&mut self, other: &Self) {
        for (kind, others) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.add(others);
        }
        self.relayed += other.relayed;
        self.copies += other.copies;
        self.overtaken += other.overtaken;
        self.lost += other.lost;
        self.unsent += other.unsent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        let mut words = [0; COUNT_WORDS];
        for (fate, count) in Fate::ALL.into_iter().zip([10, 1, 2, 3, 4, 5]) {
            words[fate as usize] = count;
        }
        words[SEEN] = 25;
        let mut tally = Tally::default();
        tally.kinds[FrameKind::Result as usize] = KindTally::of_words(&words);
        tally
    }

    #[test]
    fn every_frame_has_one_fate() {
        let mut tally = tally();
        assert!(tally.total().balances());
        assert_eq!((tally.total().held(), tally.total().leaving()), (12, 27));
        assert_eq!(tally.kind(FrameKind::Result).dropped, 1);
        assert_eq!(tally.kind(FrameKind::Forward), &KindTally::default());
        assert!(!tally.is_settled(), "the thread has twelve frames");
        (tally.relayed, tally.copies) = (12, 3);
        assert!(tally.is_settled());
        tally.kinds[0].seen += 1;
        assert!(!tally.is_settled());
    }

    #[test]
    fn directions_add_up() {
        let mut sum = tally();
        sum.add(&tally());
        assert_eq!((sum.total().seen, sum.total().delayed), (50, 10));
        assert_eq!(sum.since(&tally()), tally());
    }
}

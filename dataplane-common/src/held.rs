//! Packets of lossless functions, which their node of arrival keeps until the result is there.
//!
//! Each kept packet has a place, and each place one word that all who may end the wait change by compare-and-swap: whoever
//! brings the result ([`Word::answered`]), and the worker that gives up waiting and has the packet computed again. Whatever
//! comes later finds another word, so a result leaves at most once although a packet may be computed twice.

use crate::maps::MAX_WORKERS;

/// Places of a worker.
pub const PLACES: u32 = 1024;
/// Places of a node, as its maps have them at most.
pub const MAX_PLACES: usize = PLACES as usize * MAX_WORKERS;

/// What a place is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing: no packet is kept here, or its worker has taken it back.
    Free = 0,
    /// The result.
    Waiting = 1,
    /// Nothing more: the result has come.
    Done = 2,
    /// That the worker takes the packet back: the node that had it did not compute it.
    Undone = 3,
}

/// The word of a place: its state, and how often it was taken (wrapping), which tells a late result from the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// How often the place was taken (wrapping).
    pub generation: u32,
    /// What it is waiting for.
    pub state: State,
}

impl Word {
    /// The word as it lies in the map.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.state as u64 | (self.generation as u64) << 32
    }

    /// The inverse of [`Word::to_word`]; an unknown state reads as [`State::Free`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        let state = match word as u32 {
            1 => State::Waiting,
            2 => State::Done,
            3 => State::Undone,
            _ => State::Free,
        };
        Self { generation: (word >> 32) as u32, state }
    }

    /// A packet waits here for the `generation`-th time.
    #[inline(always)]
    pub const fn waiting(generation: u32) -> Self {
        Self { generation, state: State::Waiting }
    }

    /// The word after the answer of this generation; `None` when the place no longer waits for it. `undone` says that the
    /// packet was not computed.
    #[inline(always)]
    pub const fn answered(self, generation: u32, undone: bool) -> Option<Self> {
        if self.generation != generation || !matches!(self.state, State::Waiting) {
            return None;
        }
        Some(Self { generation, state: if undone { State::Undone } else { State::Done } })
    }
}

/// The place `index` of `worker`, among those of the node.
#[inline(always)]
pub const fn place(worker: u32, index: u32) -> u32 {
    worker * PLACES + index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_answered_once_and_by_its_own_generation() {
        for state in [State::Free, State::Waiting, State::Done, State::Undone] {
            let word = Word { generation: 7, state };
            assert_eq!(Word::from_word(word.to_word()), word);
            for (generation, undone) in [(7, false), (7, true), (6, false), (8, true)] {
                let after = word.answered(generation, undone);
                let is_right = state == State::Waiting && generation == 7;
                let expected = if undone { State::Undone } else { State::Done };
                assert_eq!(after, is_right.then_some(Word { generation: 7, state: expected }));
                assert!(after.is_none_or(|after| after.answered(generation, undone).is_none()));
            }
        }
    }

    #[test]
    fn places_of_workers_do_not_overlap() {
        assert_eq!(place(0, PLACES - 1) + 1, place(1, 0));
        assert_eq!(place(MAX_WORKERS as u32 - 1, PLACES - 1) as usize + 1, MAX_PLACES);
    }
}

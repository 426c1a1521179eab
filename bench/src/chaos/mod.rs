//! Failure injection: a box in the middle of a cable that drops, corrupts, duplicates, reorders and delays frames by share, for
//! kernels without netem and for accounts that must be exact.
//!
//! ```text
//!   node 1                        namespace …-box                         node 2
//!   to-n2 ═══ veth ═══ c1-2  ──XDP: pass, drop, corrupt──►  c2-1 ═══ veth ═══ to-n1
//!                        │                                    ▲
//!                        └─XDP─► AF_XDP ─ thread: duplicate, reorder, delay ─┘        and the same way back
//! ```
//!
//! A frame that nothing shall happen to is redirected in the kernel by a device map and wakes nobody. Each frame meets one fate,
//! drawn from a seed and the frame's number among those of its direction, queue and kind ([`dataplane_common::chaos`]); every fate
//! is counted, so that tests compare accounts to the frame ([`Tally`]).
//!
//! | file | concern |
//! |---|---|
//! | `impairment` | what shall happen to frames, as values and as text |
//! | `cable` | a box: loads the programs, changes their rules, reads their counts |
//! | `relay` | its thread: frames that need memory or time |
//! | `tally` | what happened to frames |
//!
//! A frame counts as handed on when it was given to the other interface. Nobody counts it any more when no node runs at that end:
//! a veth takes redirected frames only when its peer runs XDP.

mod cable;
mod impairment;
mod relay;
mod tally;

pub use dataplane_common::chaos::{Direction, Fate, FrameKind};

pub use self::cable::{Cable, Place, namespace};
pub use self::impairment::{Chaos, ImpairmentError, Kinds, Share};
pub use self::tally::{KindTally, Tally};

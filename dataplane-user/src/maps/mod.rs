//! The maps as user space sees them: values with a known layout, mapped arrays, and the directory they are pinned in.

mod mmap;
mod pin;
pub mod tables;

use dataplane_common::maps::{
    FlowRow, FunctionRow, InterfaceRow, LoadRow, MetaRow, NameRow, Params, PeerRow, QueueRow, ReloadRow, SignalsRow,
    SlotRow, WorkerRow,
};
use dataplane_common::seal::{KeyRow, SealRow};

pub use mmap::{MappedArray, Row};
pub use pin::{ClaimedDir, DEFAULT_BPFFS, PinDir, PinError};
pub use tables::Tables;

/// A type whose bytes may be a map value.
///
/// # Safety
/// The type is `repr(C)`, consists of integers only, has no padding, and every bit pattern is valid.
pub unsafe trait MapValue: Copy + 'static {}

// SAFETY: an integer.
unsafe impl MapValue for u64 {}
// SAFETY: repr(C), integers, no padding (sizes are asserted where the types are).
unsafe impl MapValue for LoadRow {}
// SAFETY: as above.
unsafe impl MapValue for WorkerRow {}
// SAFETY: as above.
unsafe impl MapValue for QueueRow {}
// SAFETY: as above.
unsafe impl MapValue for FunctionRow {}
// SAFETY: as above.
unsafe impl MapValue for NameRow {}
// SAFETY: as above.
unsafe impl MapValue for PeerRow {}
// SAFETY: as above.
unsafe impl MapValue for InterfaceRow {}
// SAFETY: as above.
unsafe impl MapValue for MetaRow {}
// SAFETY: as above.
unsafe impl MapValue for ReloadRow {}
// SAFETY: as above.
unsafe impl MapValue for SlotRow {}
// SAFETY: as above.
unsafe impl MapValue for FlowRow {}
// SAFETY: as above.
unsafe impl MapValue for SignalsRow {}
// SAFETY: as above.
unsafe impl MapValue for KeyRow {}
// SAFETY: as above.
unsafe impl MapValue for SealRow {}
// SAFETY: as above.
unsafe impl MapValue for Params {}

/// A map value as aya passes it to the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Value<T>(pub T);

// SAFETY: `MapValue` promises what `Pod` asks for, and the wrapper is transparent.
unsafe impl<T: MapValue> aya::Pod for Value<T> {}

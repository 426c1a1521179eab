//! A worker's maps in memory that no kernel program knows of.

use std::os::fd::AsFd;

use dataplane_common::held::PLACES;
use dataplane_common::maps::{FLOW_SLOTS, MAX_WORKERS};
use dataplane_common::plan::{SLOTS, TABLES};
use dataplane_common::reason::REASON_STRIDE;
use dataplane_common::seal::KEY_ROWS;
use dataplane_user::functions::Builtin;
use dataplane_user::maps::{MapValue, MappedArray, Tables};
use dataplane_user::samples::{FunctionSamples, Samples};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// A map of so many entries in memory of its own.
fn anonymous<T: MapValue>(entries: u32) -> MappedArray<T> {
    let fd = memfd_create("map", MemfdFlags::CLOEXEC).expect("memfd");
    ftruncate(&fd, u64::from(entries) * size_of::<T>() as u64).expect("ftruncate");
    MappedArray::map(fd.as_fd(), entries).expect("mmap")
}

/// The maps of a node with one worker and so many functions.
pub fn tables(functions: u32) -> Tables {
    let per_worker = MAX_WORKERS as u32;
    Tables {
        load: anonymous(4),
        workers: anonymous(1),
        queues: anonymous(2 * per_worker),
        functions: anonymous(functions * per_worker),
        counts: anonymous(REASON_STRIDE as u32),
        meta: anonymous(1),
        reloads: anonymous(1),
        slots: anonymous(SLOTS * TABLES),
        flows: anonymous(FLOW_SLOTS as u32),
        held: anonymous(PLACES),
        signals: anonymous(1),
        roster: anonymous(4),
        names: anonymous(4),
        keys: anonymous(KEY_ROWS as u32),
        seals: anonymous(4),
    }
}

/// What a worker measures in, for every function.
pub fn samples() -> Samples {
    Builtin::ALL.iter().map(|_| FunctionSamples::new().expect("constant bounds")).collect()
}

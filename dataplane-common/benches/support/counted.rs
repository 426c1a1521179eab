//! Work between two marks, for `cargo xtask bench instructions`: callgrind is told to write down its counts whenever [`mark`] is
//! called, so that every other of them is those of one piece of work.

use std::hint::black_box;

/// Callgrind looks for this name.
#[inline(never)]
pub fn mark(call: u32) {
    black_box(call);
}

/// Announces `units` units of work under a name, and does them between two marks. What is done for the first time is done
/// before: it may fetch what later calls find.
pub fn counted(name: &str, units: u32, mut work: impl FnMut()) {
    work();
    println!("{name} {units}");
    mark(0);
    work();
    mark(1);
}

//! The kernel and user space, on the same random frames and the same random tables, do the same.
//!
//! `dp_ingress` is compared with `classify`, `identify` and `decide` of `dataplane_common` for every policy that may
//! run in XDP, `dp_link` with its `Header`, `Report`, `load` and `feedback`: verdict, frame, metadata, chosen node,
//! counters, turns, and every word of the tables. Needs root.
//!
//! Two inputs of the kernel's are not ours. *Randomness*: with [`dataplane_common::maps::Params::seed`] set, a decision
//! draws what follows from the packet's flow, so that user space draws the same; one test leaves the numbers to the
//! kernel and accepts every choice that some number leads to. *Time*: the program's output tells when it decided,
//! exactly in a forward and to 16 ns for a worker; user space decides at that time, or at both ends of those 16 ns.
//!
//! The seed is fixed; `DATAPLANE_SEED=N` takes another. A failure prints the case in full.

mod support;

#[path = "xdp_agrees/compare.rs"]
mod compare;
#[path = "xdp_agrees/generate.rs"]
mod generate;
#[path = "xdp_agrees/ingress.rs"]
mod ingress;
#[path = "xdp_agrees/link.rs"]
mod link;
#[path = "xdp_agrees/tables.rs"]
mod tables;

//! The kernel and user space, on the same random frames and the same random tables, do the same.
//!
//! `dp_ingress` is compared with `classify` and `decide` of `dataplane_common`, `dp_link` with its `Header`, `Report` and
//! `load`: verdict, frame, metadata, chosen node, counters, and every word of the tables. Needs root.
//!
//! Two inputs of the kernel's are not ours. *Time*: reports are good for ever or not at all, and a packet in service has
//! been so for longer than its charge, or begins in the future; then the clock decides nothing, and times in headers and
//! rows are checked against the clock before and after. *Randomness* decides among equals: every choice that some random
//! number leads to in user space is accepted.
//!
//! The seed is fixed; `DATAPLANE_SEED=N` takes another, and a failure says which and which case.

mod support;

#[path = "xdp_agrees/compare.rs"]
mod compare;
#[path = "xdp_agrees/generate.rs"]
mod generate;
#[path = "xdp_agrees/ingress.rs"]
mod ingress;
#[path = "xdp_agrees/link.rs"]
mod link;

//! Everything that decides, and nothing that touches the world.
//!
//! The same code runs in three homes: the XDP programs (`dataplane-ebpf`), the workers and the control
//! thread (`dataplane-user`), and the simulator (`bench`). That is why this crate is `no_std`, integer only,
//! without allocator, clock, atomics or I/O: time, randomness and memory are handed in by the caller, and the
//! world is read through three small traits.
//!
//! | trait | what it abstracts | implementations |
//! |---|---|---|
//! | [`packet::Packet`] | bounds-checked reads of a frame | `[u8]`, the XDP frame |
//! | [`load::LoadView`] | the load of every node, by value | slice, mmapped table, BPF map |
//! | [`load::Visit`] | what a policy does with each candidate | every scanning policy |
//!
//! The way of a packet through the modules: [`classify`] finds the ANEP header in a frame ([`wire`]), the
//! function's cost model ([`estimate`]) turns its length and operand into an estimated processing time (EPT),
//! [`policy`] compares that time here and on every live candidate of [`load`], and every outcome is counted
//! under one [`reason::Reason`]. What crosses a boundary (BPF map values, XDP metadata) is laid out in
//! [`maps`] and [`meta`].
//!
//! Never add here: `std`, `alloc`, floats, `core::sync::atomic` (the BPF target has none), `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::float_arithmetic))]

pub mod bands;
pub mod bench;
pub mod chaos;
pub mod classify;
pub mod credit;
pub mod decay;
pub mod estimate;
pub mod feedback;
pub mod function;
pub mod hash;
pub mod held;
pub mod ledger;
pub mod load;
pub mod maps;
pub mod meta;
pub mod order;
pub mod packet;
pub mod params;
mod pick;
pub mod plan;
pub mod policy;
pub mod pull;
pub mod reason;
pub mod report;
pub mod seal;
mod signals;
pub mod taking;
pub mod tuning;
pub mod wire;

#[cfg(test)]
extern crate std;

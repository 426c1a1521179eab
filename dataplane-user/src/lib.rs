//! Everything of the dataplane that touches the world: AF_XDP sockets, pinned maps, workers, packet functions, the
//! `dataplane` command. What decides is in `dataplane-common`.
//!
//! | module | concern |
//! |---|---|
//! | [`config`] | the configuration file: format, defaults, all errors at once |
//! | [`catalogue`] | what functions, policies, settings and counters there are |
//! | [`advice`] | an errno of a set-up step → its cause and what to do |
//! | [`xsk`] | AF_XDP: UMEM, frames, rings, sockets |
//! | [`maps`] | pinned and mapped BPF maps |
//! | [`xdp`] | load, fill, attach, detach the XDP object |
//! | [`kernel_log`] | log lines of an XDP object built for debugging |
//! | [`sys`] | the few system calls without a safe wrapper |
//! | [`functions`] | packet functions, one file each |
//! | [`process`] | what a worker does to one packet, over bytes only |
//! | [`peers`] | who the peers are while the node runs, and the way to each |
//! | [`port`] | what a worker needs of a socket |
//! | [`queue`] | the packets that wait in a worker, in order of service |
//! | [`worker`] | the packet loop |
//! | [`samples`] | measurements on their way from worker to control thread |
//! | [`keys`] | the key file, what is derived from it, and how it is followed |
//! | [`seal`] | seals of the frames that leave from user space |
//! | [`reporter`] | load reports to the peers |
//! | [`membership`] | who belongs to the cluster, on the management network |
//! | [`neighbour`] | who is behind an IP address, from the kernel |
//! | [`node`] | a running node: all of the above, started and stopped in order |
//! | [`reload`] | asks a running node to read its configuration again |
//! | [`status`] | what a node looks like from outside, read from its pins |
//! | [`explain`] | what a node would do with a packet now, and why |
//!
//! `unsafe` is allowed in `xsk`, `maps` and `sys` only.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod advice;
pub mod catalogue;
pub mod config;
pub mod control;
pub mod explain;
pub mod forwarding;
pub mod functions;
pub mod kernel_log;
pub mod keys;
#[expect(unsafe_code, reason = "maps memory that XDP programs share")]
pub mod maps;
pub mod membership;
pub mod neighbour;
pub mod node;
pub mod peers;
pub mod port;
pub mod process;
pub mod queue;
pub mod reload;
pub mod reporter;
pub mod resequence;
pub mod samples;
pub mod seal;
pub mod status;
#[expect(unsafe_code, reason = "system calls without a safe wrapper")]
pub mod sys;
pub mod transport;
pub mod ways;
pub mod worker;
pub mod xdp;
pub mod xsk;

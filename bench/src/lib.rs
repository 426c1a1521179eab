//! Clusters of nodes in network namespaces, real traffic for them, measurement, and the demonstration made of these.
//!
//! | module | concern |
//! |---|---|
//! | [`topology`] | builds and removes a cluster; starts, stops and kills its nodes; tests use it too |
//! | [`status`] | what `dataplane status -j` says, as values |
//! | [`packet`] | builds active packets, reads them when they come back |
//! | [`ask`] | active packets to a node from ordinary sockets, and what comes back |
//! | [`interconnect`] | the three transports between nodes, compared |
//! | [`throughput`] | the highest rate without loss, and with little |
//! | [`trials`] | benchmarks that are series of trials: loss, burst, soak, scale, reload, faults |
//! | [`traffic`] | schedules, the generator, the account of one run |
//! | [`search`] | search for throughput: MLRsearch's logic over any device |
//! | [`sim`] | the cluster simulated, with the decision code of the product |
//! | [`chaos`] | a box in a cable that drops, corrupts, duplicates, reorders and delays frames |
//! | [`demo`] | each policy in turn on the same traffic: table, JSON, plot |
//! | [`generate`] | generators of load behind one trait: kernel pktgen, XDP live frames, AF_XDP, replay of a capture |
//! | [`capture`] | frames of a capture file |
//! | [`object`] | the XDP programs of the benchmarks |
//! | [`peers`] | the dataplane beside what it can be compared with |
//! | [`report`] | one page of what the benchmarks found |
//! | [`latency`] | how long an answer takes at shares of the highest rate |
//! | [`maps`] | opens our eBPF object and pinned maps with libbpf |
//! | [`environment`] | facts of the machine that a result belongs to |
//! | [`autogroup`] | this session's share of the CPUs, raised while a measurement runs |
//! | [`cpu`] | who used the CPUs meanwhile |
//! | [`interrupt`] | SIGINT and SIGTERM as a flag |
//! | [`command`] | runs other programs |
//!
//! A measurement here is made on real packets by the real `dataplane` program, started as a process of its own in each
//! namespace; nothing here reaches into a node but through its configuration, its signals and its status.
#![forbid(unsafe_code)]

pub mod ask;
pub mod autogroup;
pub mod capture;
pub mod chaos;
pub mod command;
pub mod cpu;
pub mod demo;
pub mod environment;
pub mod generate;
pub mod interconnect;
pub mod interrupt;
pub mod latency;
pub mod maps;
pub mod object;
pub mod packet;
pub mod peers;
pub mod report;
pub mod results;
pub mod search;
pub mod sim;
pub mod status;
pub mod throughput;
pub mod topology;
pub mod traffic;
pub mod trials;
pub mod validate;

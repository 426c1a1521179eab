//! Traffic for a cluster, and the measurement of what comes back.
//!
//! | module | concern |
//! |---|---|
//! | [`schedule`] | kinds of packets, their mix, arrival times: all fixed by a seed before the first packet leaves |
//! | [`generator`] | sends at the scheduled times over AF_XDP, takes what comes back; a process of its own in the generator's namespace |
//! | [`session`] | starts that process and reads its outcome |
//! | [`account`] | which packets were sent, came back, when, in which order; pure |
//! | [`verify`] | computes sampled results again |
//! | [`distribution`] | percentiles that travel between processes |
//! | [`random`] | the deterministic source behind the schedule |
//! | [`wire`] | AF_XDP sockets on the generator's interfaces |

pub mod account;
pub mod distribution;
pub mod generator;
pub mod random;
pub mod schedule;
pub mod session;
pub mod verify;
pub mod wire;

pub use self::account::{Counts, Disturbance, KindReport, Report};
pub use self::distribution::Distribution;
pub use self::generator::{Event, GeneratorPlan};
pub use self::schedule::{Arrival, Kind, Schedule, Workload};

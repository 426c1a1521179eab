//! The contenders: what is compared, in which group, and what each needs to start.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::lab::Lab;
use super::{kernel, plain, product, socket, tools};
use crate::interrupt::Interrupt;

/// What is compared with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Dropped in XDP: the generator's ceiling on this path.
    Drop,
    /// Sent back or on in XDP.
    Xdp,
    /// Received by an AF_XDP socket.
    Receive,
    /// Received by an AF_XDP socket and sent back.
    Answer,
    /// Done by the kernel's network stack.
    Kernel,
}

/// A contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// XDP_DROP, counted by the program.
    Drop,
    /// XDP_TX.
    Tx,
    /// XDP_REDIRECT by a device map.
    Redirect,
    /// AF_XDP by hand: receive and release.
    SocketDrop,
    /// AF_XDP by hand: receive, swap MAC addresses, send back.
    SocketAnswer,
    /// The dataplane: decision and encapsulation in XDP, by this policy.
    ProductRedirect(String),
    /// The dataplane: decision in XDP, received and checked by a worker, by this policy.
    ProductReceive(String),
    /// The dataplane: decision in XDP, computed and answered by a worker, by this policy.
    ProductAnswer(String),
    /// Kernel forwarding.
    KernelForward,
    /// The dataplane in front of kernel forwarding: XDP finds that the packets are none of its own and passes them.
    ProductPass(String),
    /// A UDP socket that sends everything back.
    KernelEcho,
    /// DPDK testpmd over net_af_xdp, receiving only.
    TestpmdReceive,
    /// DPDK testpmd over net_af_xdp, swapping MAC addresses.
    TestpmdAnswer,
    /// xdp-bench in one of its modes.
    XdpBench(tools::XdpBenchMode),
}

/// Where the frames of a contender are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountedAt {
    /// By the contender's XDP program itself.
    Program,
    /// At the generator's interface, where they came back.
    Back,
    /// At the other end of the link, where they were sent on.
    Onward,
    /// By the driver of the tested port: frames that it gave to a socket.
    DriverRedirects,
    /// By the driver of the tested port: frames that XDP dropped.
    DriverDrops,
}

impl CountedAt {
    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "XDP program",
            Self::Back => "sender's interface",
            Self::Onward => "end of the link",
            Self::DriverRedirects => "socket (driver)",
            Self::DriverDrops => "XDP (driver)",
        }
    }
}

/// A contender that runs. Dropping it ends it.
pub trait Running {
    /// Frames that its own program has counted; for [`CountedAt::Program`] only.
    ///
    /// # Errors
    /// It cannot be read.
    fn counted(&self) -> Result<u64> {
        Ok(0)
    }

    /// Processes of it.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had failed meanwhile.
    fn stop(self: Box<Self>, lab: &mut Lab) -> Result<()>;
}

/// What contenders are told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nominal size of the frames, bytes.
    pub size: usize,
    /// They are the kernel's packet generator's, so the dataplane is told to take those for active packets.
    pub by_pktgen: bool,
    /// CPU of everything that is tested and has a thread.
    pub cpu: usize,
    /// CPU of the generator and, because a veth receives on its sender's CPU, of XDP programs.
    pub generator_cpu: usize,
}

impl Contender {
    /// All of them, with the dataplane under each of `policies`; those that are compared stand side by side.
    pub fn all(policies: &[String]) -> Vec<Self> {
        let with = |make: fn(String) -> Self| policies.iter().cloned().map(make).collect::<Vec<_>>();
        [
            vec![Self::Drop, Self::Tx, Self::Redirect],
            with(Self::ProductRedirect),
            vec![Self::SocketDrop],
            with(Self::ProductReceive),
            vec![Self::TestpmdReceive, Self::SocketAnswer],
            with(Self::ProductAnswer),
            vec![Self::TestpmdAnswer, Self::KernelForward],
            with(Self::ProductPass),
            vec![Self::KernelEcho],
            tools::XdpBenchMode::ALL.map(Self::XdpBench).to_vec(),
        ]
        .concat()
    }

    /// Name in tables and JSON.
    pub fn name(&self) -> String {
        match self {
            Self::Drop => "XDP drop".to_owned(),
            Self::Tx => "XDP_TX".to_owned(),
            Self::Redirect => "devmap redirect".to_owned(),
            Self::SocketDrop => "AF_XDP by hand, drop".to_owned(),
            Self::SocketAnswer => "AF_XDP by hand, answer".to_owned(),
            Self::ProductRedirect(policy) => format!("dataplane redirect ({policy})"),
            Self::ProductReceive(policy) => format!("dataplane receive ({policy})"),
            Self::ProductAnswer(policy) => format!("dataplane answer ({policy})"),
            Self::KernelForward => "kernel forwarding".to_owned(),
            Self::ProductPass(policy) => format!("dataplane pass ({policy})"),
            Self::KernelEcho => "kernel UDP echo".to_owned(),
            Self::TestpmdReceive => "DPDK testpmd rxonly".to_owned(),
            Self::TestpmdAnswer => "DPDK testpmd macswap".to_owned(),
            Self::XdpBench(mode) => format!("xdp-bench {}", mode.name()),
        }
    }

    /// Its group.
    pub const fn group(&self) -> Group {
        match self {
            Self::Drop | Self::XdpBench(tools::XdpBenchMode::Drop) => Group::Drop,
            Self::Tx | Self::Redirect | Self::ProductRedirect(_) | Self::XdpBench(_) => Group::Xdp,
            Self::SocketDrop | Self::ProductReceive(_) | Self::TestpmdReceive => Group::Receive,
            Self::SocketAnswer | Self::ProductAnswer(_) | Self::TestpmdAnswer => Group::Answer,
            Self::KernelForward | Self::ProductPass(_) | Self::KernelEcho => Group::Kernel,
        }
    }

    /// Where its frames are counted.
    pub const fn counted_at(&self) -> CountedAt {
        match self {
            Self::Drop => CountedAt::Program,
            Self::Tx | Self::SocketAnswer | Self::ProductAnswer(_) | Self::TestpmdAnswer | Self::KernelEcho => {
                CountedAt::Back
            }
            Self::Redirect | Self::ProductRedirect(_) | Self::KernelForward | Self::ProductPass(_) => CountedAt::Onward,
            Self::SocketDrop | Self::ProductReceive(_) | Self::TestpmdReceive => CountedAt::DriverRedirects,
            Self::XdpBench(tools::XdpBenchMode::Drop) => CountedAt::DriverDrops,
            Self::XdpBench(tools::XdpBenchMode::Tx) => CountedAt::Back,
            Self::XdpBench(tools::XdpBenchMode::Redirect) => CountedAt::Onward,
        }
    }

    /// The frame it is offered.
    ///
    /// # Errors
    /// The size is not one of Ethernet's.
    pub fn frame(&self, lab: &Lab, settings: &Settings) -> Result<Vec<u8>> {
        let size = settings.size;
        match self {
            Self::KernelForward | Self::ProductPass(_) => kernel::forwarded_frame(lab, size),
            Self::KernelEcho => kernel::echoed_frame(lab, size),
            Self::ProductRedirect(_) => product::redirected_frame(lab, settings),
            Self::ProductReceive(_) => product::checked_frame(lab, settings),
            _ => product::answered_frame(lab, settings),
        }
    }

    /// Starts it in the lab.
    ///
    /// # Errors
    /// It does not start here; the error says why.
    pub fn start(&self, lab: &mut Lab, settings: &Settings, interrupt: &Interrupt) -> Result<Box<dyn Running>> {
        match self {
            Self::Drop => plain::start(lab, plain::Program::Drop),
            Self::Tx => plain::start(lab, plain::Program::Tx),
            Self::Redirect => plain::start(lab, plain::Program::Redirect),
            Self::SocketDrop => socket::start(lab, settings.cpu, socket::Task::Drop),
            Self::SocketAnswer => socket::start(lab, settings.cpu, socket::Task::Answer),
            Self::ProductRedirect(policy) => product::start(lab, settings, policy, product::Task::Redirect, interrupt),
            Self::ProductReceive(policy) | Self::ProductAnswer(policy) => {
                product::start(lab, settings, policy, product::Task::Local, interrupt)
            }
            Self::KernelForward => kernel::start_forwarding(lab),
            Self::ProductPass(policy) => product::start_passing(lab, settings, policy, interrupt),
            Self::KernelEcho => kernel::start_echo(lab, settings.cpu),
            Self::TestpmdReceive => tools::start_testpmd(lab, settings, "rxonly", interrupt),
            Self::TestpmdAnswer => tools::start_testpmd(lab, settings, "macswap", interrupt),
            Self::XdpBench(mode) => tools::start_xdp_bench(lab, *mode, interrupt),
        }
    }

    /// Program that must be installed for it, and Debian's package with it.
    pub fn needs(&self) -> Option<(PathBuf, &'static str)> {
        match self {
            Self::TestpmdReceive | Self::TestpmdAnswer => Some((tools::TESTPMD.into(), "dpdk-dev")),
            Self::XdpBench(_) => Some((tools::XDP_BENCH.into(), "xdp-tools")),
            _ => None,
        }
    }
}

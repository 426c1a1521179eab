//! What happens to the cluster: begun and ended while packets come.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use dataplane_user::worker::monotonic_ns;
use rustix::process::Signal;
use serde::Serialize;

use crate::chaos::{Chaos, FrameKind, Kinds, Share};
use crate::interrupt::Interrupt;
use crate::topology::{Cluster, NodeSettings};

/// Node at which all packets arrive.
pub(super) const ARRIVAL: u16 = 1;
/// Node, or its link to [`ARRIVAL`], that something happens to.
pub(super) const VICTIM: u16 = 2;
/// How long a node is stopped.
const STOPPED: Duration = Duration::from_millis(200);

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A node is killed (SIGKILL), and started again later.
    Kill,
    /// The link to a node loses everything, and later nothing.
    Cut,
    /// Every link loses 5 % of all frames, and later nothing.
    Loss,
    /// Every link loses half of the reports, and later nothing.
    Reports,
    /// A node is stopped for 200 ms (SIGSTOP, SIGCONT).
    Stop,
}

/// When it happened, ns of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Kill, Self::Cut, Self::Loss, Self::Reports, Self::Stop];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "node killed",
            Self::Cut => "link cut",
            Self::Loss => "links lose 5 %",
            Self::Reports => "half of reports lost",
            Self::Stop => "node stopped 200 ms",
        }
    }

    /// Whether other nodes can take over while it lasts: then recovery counts from its begin, else from its end.
    pub(super) const fn can_be_avoided(self) -> bool {
        matches!(self, Self::Kill | Self::Cut | Self::Stop)
    }

    /// Whether the boxes in the links lose packets.
    pub(super) const fn loses_frames(self) -> bool {
        matches!(self, Self::Cut | Self::Loss)
    }

    pub(super) fn begin(self, cluster: &mut Cluster) -> Result<u64> {
        let begin_ns = monotonic_ns();
        match self {
            Self::Kill => cluster.kill(VICTIM)?,
            Self::Cut => cut(cluster, &Chaos::CUT)?,
            Self::Loss => cluster.impair_all(&Chaos { drop: Share::percent(5), ..Chaos::NONE })?,
            Self::Reports => cluster.impair_all(&Chaos {
                drop: Share::percent(50),
                kinds: Kinds::of(&[FrameKind::Report]),
                ..Chaos::NONE
            })?,
            Self::Stop => cluster.process(VICTIM)?.signal(Signal::STOP)?,
        }
        Ok(begin_ns)
    }

    /// How long it lasts, if that is given.
    pub(super) const fn length(self) -> Option<Duration> {
        match self {
            Self::Stop => Some(STOPPED),
            _ => None,
        }
    }

    pub(super) fn end(self, cluster: &mut Cluster, settings: &NodeSettings, interrupt: &Interrupt) -> Result<u64> {
        match self {
            Self::Kill => cluster.start(VICTIM, settings, interrupt)?,
            Self::Cut => cut(cluster, &Chaos::NONE)?,
            Self::Loss | Self::Reports => cluster.impair_all(&Chaos::NONE)?,
            Self::Stop => cluster.process(VICTIM)?.signal(Signal::CONT)?,
        }
        Ok(monotonic_ns())
    }
}

/// Does this to all frames on the link to the victim.
fn cut(cluster: &mut Cluster, chaos: &Chaos) -> Result<()> {
    cluster.impair(ARRIVAL, VICTIM, chaos)?;
    cluster.impair(VICTIM, ARRIVAL, chaos)
}

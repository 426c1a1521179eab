//! Plain XDP programs: drop, send back, redirect.

use anyhow::Result;
use aya::programs::links::FdLink;
use dataplane_common::bench::{self, Counter};

use super::contender::Running;
use super::lab::{Lab, TESTED, inside};
use crate::object::BenchObject;
use crate::topology::Host;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Counts and drops.
    Drop,
    /// XDP_TX.
    Tx,
    /// By a device map, over the link.
    Redirect,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Drop => bench::DROP,
            Self::Tx => bench::TX,
            Self::Redirect => bench::REDIRECT,
        }
    }
}

struct Attached {
    object: BenchObject,
    _link: FdLink,
}

/// Attaches the program to the tested port.
///
/// # Errors
/// The kernel refuses.
pub fn start(lab: &Lab, program: Program) -> Result<Box<dyn Running>> {
    let (port, link) = lab.tested_interfaces()?;
    let attached = inside(&lab.cluster, Host::Node(TESTED), || {
        let mut object = BenchObject::load()?;
        object.set_out(link)?;
        let link = object.attach(program.name(), port)?;
        Ok(Attached { object, _link: link })
    })?;
    Ok(Box::new(attached))
}

impl Running for Attached {
    fn counted(&self) -> Result<u64> {
        self.object.count(Counter::Udp)
    }

    fn stop(self: Box<Self>, _lab: &mut Lab) -> Result<()> {
        Ok(())
    }
}

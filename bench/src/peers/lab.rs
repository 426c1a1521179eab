//! [`Lab`]: the veth path that every contender is measured on, with a counting receiver at each end.
//!
//! ```text
//!  namespace …-gen             …-n1 (under test)              …-n2
//!  generator ──► g1 ═════════ port        to-n2 ═════════ to-n1
//!                bn_drop        contender's program          bn_drop
//!                counts what    and its sockets              counts what is
//!                comes back                                  sent on
//! ```

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use aya::programs::links::FdLink;
use dataplane_common::bench::DROP;
use dataplane_user::sys::NetDevice;
use rustix::process::setpriority_process;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::object::{BenchObject, Seen};
use crate::topology::{Cluster, Host, PORT_INTERFACE, Purpose, Shape};

/// Node under test.
pub const TESTED: u16 = 1;
/// Node at the other end of its link.
pub const NEXT: u16 = 2;

/// Nice value of the largest share (`sched(7)`).
const HIGHEST_NICE: i32 = -20;
/// Words that start a program with it.
pub const FAVOURED: [&str; 3] = ["nice", "-n", "-20"];

/// The cluster and its receivers.
pub struct Lab {
    /// Namespaces and interfaces; node 2 never runs.
    pub cluster: Cluster,
    /// The program `dataplane-bench`, which is started as generator.
    pub program: PathBuf,
    back: Receiver,
    onward: Arc<Receiver>,
}

/// A receiver that counts and drops, until it is dropped itself.
pub struct Receiver {
    object: BenchObject,
    _link: FdLink,
}

impl Receiver {
    fn attach(cluster: &Cluster, host: Host, interface: &str) -> Result<Self> {
        inside(cluster, host, || {
            let device = NetDevice::find(interface).with_context(|| format!("interface {interface}"))?;
            let mut object = BenchObject::load()?;
            let link = object.attach(DROP, device.index)?;
            Ok(Self { object, _link: link })
        })
    }

    /// Epoch and position of the last forward it received.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn last_forward(&self) -> Result<(u32, u32)> {
        self.object.last_forward()
    }
}

impl Lab {
    /// Builds it; `program` is `dataplane-bench`.
    ///
    /// # Errors
    /// Not root, the benchmarks' object is not there, or the kernel refuses.
    pub fn build(program: PathBuf) -> Result<Self> {
        let cluster = Cluster::build(Shape::new(Purpose::Bench, 2))?;
        let back = Receiver::attach(&cluster, Host::Generator, &cluster.plan().port(TESTED).generator_interface)?;
        let link = cluster.plan().link(NEXT, TESTED).interface;
        let onward = Arc::new(Receiver::attach(&cluster, Host::Node(NEXT), &link)?);
        Ok(Self { cluster, program, back, onward })
    }

    /// What came back to the generator's interface.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn back(&self) -> Result<Seen> {
        self.back.object.seen()
    }

    /// What was sent on over the link.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn onward(&self) -> Result<Seen> {
        self.onward.object.seen()
    }

    /// The receiver at the end of the link.
    pub fn onward_receiver(&self) -> Arc<Receiver> {
        Arc::clone(&self.onward)
    }

    /// Index of the tested node's port and of its link, in its namespace.
    ///
    /// # Errors
    /// An interface is not there.
    pub fn tested_interfaces(&self) -> Result<(u32, u32)> {
        let link = self.cluster.plan().link(TESTED, NEXT).interface;
        inside(&self.cluster, Host::Node(TESTED), || {
            let find = |name: &str| NetDevice::find(name).with_context(|| format!("interface {name}"));
            Ok((find(PORT_INTERFACE)?.index, find(&link)?.index))
        })
    }
}

/// Moves the calling thread into a namespace of the cluster, for good.
///
/// # Errors
/// Not root, or the namespace is gone.
pub fn enter(cluster: &Cluster, host: Host) -> Result<()> {
    let path = format!("/run/netns/{}", cluster.plan().name(host));
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter {path}"))
}

/// Runs `work` on a thread inside a namespace of the cluster and returns what it returns.
///
/// # Errors
/// As [`enter`], and what `work` returns.
pub fn inside<T: Send>(cluster: &Cluster, host: Host, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(cluster, host)?;
            work()
        });
        thread.join().map_err(|_| anyhow!("BUG: a thread inside a namespace panicked"))?
    })
}

/// Pins the calling thread to a CPU and gives it the largest share there that an ordinary thread can have, so that what else
/// runs on this machine disturbs the measurement less.
///
/// # Errors
/// There is no such CPU, or not root.
pub fn take_cpu(cpu: usize) -> Result<()> {
    ensure!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }), "cannot pin a thread to CPU {cpu}");
    // Of this thread alone: Linux keeps the nice value of each thread.
    setpriority_process(None, HIGHEST_NICE).context("cannot raise the priority of a thread")
}

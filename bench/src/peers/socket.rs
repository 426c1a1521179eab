//! AF_XDP by hand: the shortest loop over one socket, without a decision, as the yardstick of the workers.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use anyhow::{Context, Result};
use dataplane_common::bench::SOCKET;
use dataplane_user::xsk::{Batch, Umem, UmemConfig, Xsk, XskConfig};

use super::background::Background;
use super::contender::Running;
use super::lab::{Lab, TESTED, inside, take_cpu};
use crate::object::BenchObject;
use crate::topology::Host;

/// Entries of each ring.
const RING: u32 = 2048;
/// Frames taken at once.
const BATCH: usize = 64;

/// What is done with each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Release it.
    Drop,
    /// Swap the MAC addresses and send it back.
    Answer,
}

struct Loop {
    thread: Background,
}

/// Starts the loop, pinned to `cpu`.
///
/// # Errors
/// The kernel refuses a socket or the program.
pub fn start(lab: &Lab, cpu: usize, task: Task) -> Result<Box<dyn Running>> {
    let (port, _) = lab.tested_interfaces()?;
    let (mut umem, mut socket, object, link) = inside(&lab.cluster, Host::Node(TESTED), || {
        let mut umem = Umem::new(&UmemConfig { frames: 4 * RING, ..UmemConfig::default() }).context("packet memory")?;
        let mut socket = Xsk::open(&mut umem, &XskConfig::new(port, 0)).context("socket on the tested port")?;
        socket.refill(&mut umem);
        let mut object = BenchObject::load()?;
        object.set_socket(0, socket.as_fd())?;
        let link = object.attach(SOCKET, port)?;
        Ok((umem, socket, object, link))
    })?;
    let (ready, is_ready) = mpsc::channel();
    let thread = Background::start(move |is_over| {
        let _attached = (object, link);
        take_cpu(cpu)?;
        // Nobody may be waiting any more.
        let _ = ready.send(());
        match task {
            Task::Drop => run_drop(&mut umem, &mut socket, is_over),
            Task::Answer => run_answer(&mut umem, &mut socket, is_over)?,
        }
        Ok(())
    });
    let mut running = Box::new(Loop { thread });
    if is_ready.recv().is_err() {
        running.thread.end()?;
    }
    Ok(running)
}

fn run_drop(umem: &mut Umem, socket: &mut Xsk, is_over: &AtomicBool) {
    let mut batch = Batch::new(BATCH);
    while !is_over.load(Ordering::Relaxed) {
        if socket.receive(umem, &mut batch) > 0 {
            batch.release_all(umem);
            socket.refill(umem);
        }
    }
}

fn run_answer(umem: &mut Umem, socket: &mut Xsk, is_over: &AtomicBool) -> Result<()> {
    let mut batch = Batch::new(BATCH);
    while !is_over.load(Ordering::Relaxed) {
        let received = socket.receive(umem, &mut batch);
        if received > 0 {
            for frame in batch.iter_mut() {
                if let Some((macs, _)) = umem.bytes_mut(frame).split_first_chunk_mut::<12>() {
                    let (to, from) = macs.split_at_mut(6);
                    to.swap_with_slice(from);
                }
            }
            socket.transmit(umem, &mut batch);
            // What the ring has no room for is dropped, as a driver would.
            batch.release_all(umem);
        }
        socket.kick_tx()?;
        socket.complete(umem);
        if received > 0 {
            socket.refill(umem);
        }
    }
    Ok(())
}

impl Running for Loop {
    fn stop(mut self: Box<Self>, _lab: &mut Lab) -> Result<()> {
        self.thread.end()
    }
}

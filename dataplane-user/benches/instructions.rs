//! Instructions of a packet's way through a worker, and what the kernel says of the XDP programs, for
//! `cargo xtask bench instructions`.
//!
//! Without an argument, packets go through a worker between marks that callgrind knows; with `xdp`, the programs are loaded for
//! every policy (root; after `cargo xtask build`) and described. How many instructions of an XDP program a packet executes, no
//! interface of the kernel says.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../../dataplane-common/benches/support/counted.rs"]
mod counted;
#[path = "../tests/support/memory.rs"]
mod memory;
#[path = "../tests/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use counted::counted;
use dataplane_common::classify::Rules;
use dataplane_common::maps::Params;
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;
use dataplane_common::wire::link::NO_FLOW;
use dataplane_user::functions::Builtin;
use dataplane_user::port::{Losses, Port};
use dataplane_user::process::Checks;
use dataplane_user::samples::Exchange;
use dataplane_user::ways::Ways;
use dataplane_user::worker::{InterfaceKind, Settings, Worker};
use dataplane_user::xsk::{Batch, Umem, UmemConfig};
use support::frames::{Packet, UDP_PORT};
use support::node::{load, object};

/// Frames of packet memory.
const FRAMES: u32 = 256;
/// What the kernel leaves free in front of metadata.
const ROOM: usize = 192;
/// Packets between two marks.
const PACKETS: u32 = 6400;
/// The worker looks at the clock now and then, and tidies up: the least of so many counts is without that.
const TIMES: u32 = 5;
/// What XDP charged for each packet, ns.
const CHARGED_NS: u32 = 100;

/// A socket in memory that always has packets while any are `left`, all of the same bytes.
struct Source {
    frame: Vec<u8>,
    function: u16,
    left: Rc<Cell<u32>>,
    sequence: u32,
}

impl Port for Source {
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        let mut received = 0;
        while batch.room() > 0 && self.left.get() > 0 {
            let Some(mut frame) = umem.allocate() else { break };
            let metadata = Metadata {
                function: self.function,
                charged_ns: CHARGED_NS,
                arrival_16ns: 1,
                position_ns: u64::from(self.sequence) * u64::from(CHARGED_NS),
                sequence: self.sequence,
                origin: Origin::Port,
                policy: 0,
                flow: NO_FLOW,
                flow_sequence: 0,
            };
            frame.set_len(ROOM + METADATA_BYTES + self.frame.len()).unwrap();
            frame.pull_front(ROOM).unwrap();
            let (front, packet) = umem.bytes_mut(&mut frame).split_at_mut(METADATA_BYTES);
            front.copy_from_slice(&metadata.emit());
            packet.copy_from_slice(&self.frame);
            frame.pull_front(METADATA_BYTES).unwrap();
            batch.push(frame).unwrap();
            self.sequence = self.sequence.wrapping_add(1);
            self.left.set(self.left.get() - 1);
            received += 1;
        }
        received
    }

    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        let sent = batch.len();
        batch.release_all(umem);
        sent
    }

    fn kick(&mut self) {}

    fn recycle(&mut self, _umem: &mut Umem) {}

    fn losses(&self) -> Losses {
        Losses::default()
    }

    fn vacant(&self) -> u32 {
        0
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Packets of one function through a worker: received, checked, computed, sent back.
fn through_worker(name: &str, function: Builtin, payload: usize) {
    let tables = Arc::new(memory::tables(Builtin::ALL.len() as u32));
    let settings = Settings {
        worker: 0,
        params: Params { policies: PolicyKind::RoundRobin.bit(), tuning: Tuning::DEFAULT, ..Params::DEFAULT },
        ways: Arc::new(Ways::new([])),
        checks: Checks { rules: Rules::anep(UDP_PORT), udp_checksum: true },
        spin: Duration::ZERO,
        patience: Duration::from_millis(50),
        pull: false,
        retry: Duration::from_millis(20),
        egress: None,
    };
    let umem = Umem::new(&UmemConfig { frames: FRAMES, ..UmemConfig::default() }).unwrap();
    let exchange = Arc::new(Exchange::default());
    let mut worker = Worker::new(settings, umem, Builtin::ALL, tables, exchange, memory::samples());
    let left = Rc::new(Cell::new(0));
    let packet =
        Packet { payload: vec![0x5a; payload], ..Packet::new(function.type_id()).operand(3).result(32).checksum() };
    let index = Builtin::ALL.iter().position(|builtin| *builtin == function).unwrap();
    let source = Source { frame: packet.frame(), function: index as u16, left: Rc::clone(&left), sequence: 0 };
    worker.add_socket(0, InterfaceKind::Port, source);
    for _ in 0..TIMES {
        counted(name, PACKETS, || {
            left.set(PACKETS);
            while left.get() > 0 {
                worker.step();
            }
        });
    }
}

/// Loads the programs for each policy alone and says what the kernel says of them.
fn describe_programs() {
    let object = object();
    for kind in PolicyKind::ALL.iter().copied().filter(|kind| kind.homes().has_xdp()) {
        let mut loaded = load(&object, Params { policy: kind as u32, policies: kind.bit(), ..Params::DEFAULT });
        for program in ["dp_ingress", "dp_link"] {
            let info = loaded.load_program(program).unwrap().info().unwrap();
            let name = format!("{program}/{}", kind.name());
            println!("{name}/instructions {}", info.size_translated().unwrap_or_default() / 8);
            println!("{name}/machine-code-bytes {}", info.size_jitted());
            println!("{name}/verified {}", info.verified_instruction_count().unwrap_or_default());
        }
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("xdp") {
        describe_programs();
        return;
    }
    through_worker("worker/forward/40", Builtin::Forward, 40);
    through_worker("worker/crc32/40", Builtin::Crc32, 40);
    through_worker("worker/crc32/1000", Builtin::Crc32, 1000);
}

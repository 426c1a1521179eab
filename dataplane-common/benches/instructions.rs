//! Instructions of a decision, of classifying a frame, of an estimate and of a seal, for `cargo xtask bench instructions`,
//! which runs this under callgrind. By itself it prints the names of what is counted.
//!
//! Everything is drawn from fixed seeds, so the same program executes the same instructions.
#[path = "support/counted.rs"]
mod counted;
#[path = "support/table.rs"]
mod table;

use std::hint::black_box;

use counted::counted;
use dataplane_common::classify::{Class, Rules, classify, identify};
use dataplane_common::estimate::{Cost, Estimator};
use dataplane_common::maps::Params;
use dataplane_common::policy::{PolicyKind, decide};
use dataplane_common::seal;
use dataplane_common::wire::anep::{FLAG_DISCARD, HEADER_BYTES, UDP_PORT, emit_header};
use dataplane_common::wire::{fold_checksum, sum_words};
use table::{Jobs, NODES, Table};

/// Repetitions of each piece of work.
const TIMES: u32 = 256;
/// Lengths of payload that is hashed, bytes.
const SEALED: [usize; 2] = [64, 1400];

/// An active packet in UDP over IPv4.
fn frame() -> Vec<u8> {
    let anep = emit_header(FLAG_DISCARD, 0xff01, (HEADER_BYTES / 4) as u16, HEADER_BYTES as u16);
    let udp_bytes = 8 + anep.len() as u16;
    let [t0, t1] = (20 + udp_bytes).to_be_bytes();
    let ethernet = [&[2; 6][..], &[4; 6], &[8, 0]].concat();
    let mut ip = [0x45, 0, t0, t1, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 1, 2, 198, 18, 1, 1];
    let sum = fold_checksum(sum_words(&ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [40_000, UDP_PORT, udp_bytes, 0].map(u16::to_be_bytes).concat();
    [&ethernet[..], &ip, &udp, &anep].concat()
}

fn classifying() {
    let active = frame();
    let mut other = active.clone();
    // Another UDP port.
    other[36] ^= 1;
    for (name, frame) in [("classify/active", &active), ("classify/other", &other)] {
        counted(name, TIMES, || {
            for _ in 0..TIMES {
                black_box(classify(black_box(frame.as_slice()), &Rules::anep(UDP_PORT)));
            }
        });
    }
    let Class::Active(found) = classify(active.as_slice(), &Rules::anep(UDP_PORT)) else {
        panic!("BUG: no active packet")
    };
    counted("identify", TIMES, || {
        for _ in 0..TIMES {
            black_box(identify(black_box(active.as_slice()), &found));
        }
    });
}

fn estimating() {
    let mut estimator = Estimator::new(Cost::default());
    let mut jobs = Jobs::default();
    counted("estimate/observe", TIMES, || {
        for _ in 0..TIMES {
            let job = jobs.next();
            estimator.observe(job.random & 0x3ff, job.ept_ns);
        }
    });
}

fn sealing() {
    for bytes in SEALED {
        let payload = vec![0x5a; bytes];
        counted(&format!("seal/{bytes}"), TIMES, || {
            for _ in 0..TIMES {
                black_box(seal::hash(black_box([1, 2]), &payload));
            }
        });
    }
}

fn deciding() {
    for kind in PolicyKind::ALL {
        let params = Params { policy: *kind as u32, policies: kind.bit(), ..Params::DEFAULT };
        for nodes in NODES {
            let table = Table::new(nodes - 1);
            let mut jobs = Jobs::default();
            counted(&format!("decide/{}/{nodes}", kind.name()), TIMES, || {
                for _ in 0..TIMES {
                    black_box(decide(*kind as u32, black_box(&jobs.next()), &params, &&table));
                }
            });
        }
    }
}

fn main() {
    classifying();
    estimating();
    sealing();
    deciding();
}

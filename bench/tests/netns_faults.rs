//! Nodes that die or stand still, links that are cut or lose frames, reports that are lost: lossless functions lose and repeat
//! nothing, of others is lost what was in flight, and the ledgers say so. `cargo xtask bench faults` is the same with more packets.
//! See README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::path::Path;

use clap::Parser;
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::topology::Purpose;
use dataplane_bench::trials::faults::{self, Fault, Function, Line, Options};
use support::lacks_root;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

/// One trial of some thousand packets: every promise is kept.
fn promises_are_kept(arguments: &str, fault: Fault, function: Function) -> Option<Line> {
    if lacks_root() {
        return None;
    }
    let words = format!("faults --packets 6000 --rate 5000 {arguments}");
    let options = Command::parse_from(words.split_whitespace()).options;
    let program = Path::new(env!("CARGO_BIN_EXE_dataplane-bench"));
    let line = faults::trial(&options, Purpose::Test, (fault, function), program, &Interrupt::never()).unwrap();
    assert!(line.broken.is_empty(), "{line:#?}");
    assert!(line.account.forwarded > options.packets / 4, "most packets cross a link: {line:#?}");
    Some(line)
}

#[test]
fn lossless_functions_survive_every_fault() {
    for fault in Fault::ALL {
        let Some(line) = promises_are_kept("", fault, Function::Lossless) else { return };
        println!("{fault:?}: {} placed anew, {} late copies", line.account.again, line.account.late);
        let hurts = fault != Fault::Reports;
        assert!(!hurts || line.account.again > 0, "nothing was placed anew: {line:#?}");
    }
}

#[test]
fn lossless_functions_survive_every_fault_without_order_and_with_workers_that_send() {
    for fault in Fault::ALL {
        promises_are_kept("--order none --transport xsk", fault, Function::Lossless);
    }
}

#[test]
fn ordinary_functions_lose_what_was_in_flight() {
    for fault in Fault::ALL {
        let Some(line) = promises_are_kept("", fault, Function::Ordinary) else { return };
        println!("{fault:?}: {} lost, {} in flight", line.lost, line.account.in_flight());
        assert_eq!(line.account.in_flight() > 0, matches!(fault, Fault::Kill | Fault::Cut | Fault::Loss), "{line:#?}");
    }
}

#[test]
fn ordinary_functions_over_kernel_sockets_lose_what_was_in_flight() {
    for fault in [Fault::Loss, Fault::Stop, Fault::Reports] {
        promises_are_kept("--transport udp", fault, Function::Ordinary);
    }
}

//! Tests of [`super`], and the window of serials under every interleaving of two CPUs.

use super::*;
use crate::keys::{self, Secret};
use crate::maps::tables::tests::tables;
use crate::ways::{Way, Ways};
use dataplane_common::maps::{AUTH_FULL, AUTH_HEADER, AUTH_REPORTS};
use dataplane_common::seal::{SEAL_BYTES, Taken, admit, tag};
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{HEADER_BYTES, OVERHEAD_BYTES};
use loom::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Where a sealed frame has its tag.
const TAG: usize = OVERHEAD_BYTES + 16;

fn be(frame: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*frame[at..].first_chunk().unwrap())
}

#[test]
fn frames_are_sealed_with_the_key_that_the_tables_name() {
    let tables = Arc::new(tables(4, 1, 1, 1));
    let secrets = [Secret::new(3, [7; 32]), Secret::new(9, [8; 32])];
    let rows = keys::rows(&secrets, "here").unwrap();
    keys::write(&tables, &rows);
    let way = Way { node: 2, interface: 0, mac: [2; 6], source_mac: [4; 6], max_frame: 1_514, route: None };
    let send = |auth: u32, kind: Kind, body: &[u8]| {
        let ways = Ways::new([way]).sealed(Sealer::new(Arc::clone(&tables), auth));
        let front = ways.overhead(&way, kind);
        let mut frame = vec![0; front];
        frame.extend_from_slice(body);
        let header = Header { length: body.len() as u16, ..Header::without_frame(kind, 1, 2, 5) };
        ways.address(&way, &header, &mut frame);
        assert_eq!(Header::parse(frame.as_slice(), ETHERNET_BYTES).unwrap(), header.with_key(frame[17] >> 4));
        assert_eq!(&frame[front..], body);
        frame
    };
    let genuine = |frame: &[u8], number: usize| {
        tag(frame, ETHERNET_BYTES, rows[number].header).is_some_and(|tag| tag == be(frame, TAG))
    };
    for (serial, (auth, kind)) in (1..).zip([
        (AUTH_REPORTS, Kind::Pull),
        (AUTH_HEADER, Kind::Forward),
        (AUTH_FULL, Kind::Result),
        (AUTH_FULL, Kind::Report),
    ]) {
        let frame = send(auth, kind, b"a body");
        assert_eq!((frame.len(), frame[17] >> 4), (OVERHEAD_BYTES + SEAL_BYTES + 6, 3), "{kind:?}");
        assert!(genuine(&frame, 3) && !genuine(&frame, 9), "{kind:?}");
        assert_eq!(be(&frame, OVERHEAD_BYTES), serial, "every frame has a serial of its own");
        let covered = dataplane_common::seal::hash(rows[3].body, b"a body");
        assert_eq!(be(&frame, OVERHEAD_BYTES + 8), if auth == AUTH_FULL { covered } else { 0 });
    }
    let plain = send(AUTH_REPORTS, Kind::Forward, b"a body");
    assert_eq!((plain.len(), plain[17]), (OVERHEAD_BYTES + 6, 0), "not sealed");

    // The other way round: the second key signs now.
    let [first, second] = secrets;
    keys::write(&tables, &keys::rows(&[second, first], "here").unwrap());
    assert!(genuine(&send(AUTH_HEADER, Kind::Forward, b""), 9));
    // Without any key a frame is what no receiver takes.
    keys::write(&tables, &[KeyRow::default(); 16]);
    let frame = send(AUTH_HEADER, Kind::Forward, b"");
    assert_eq!((frame[17], &frame[ETHERNET_BYTES + HEADER_BYTES..]), (0, &[0; SEAL_BYTES][..]));
}

/// The words of one peer: the boot, and the only entry that the models use.
struct Words {
    boot: AtomicU64,
    entry: AtomicU64,
}

impl Taken for Words {
    fn boot(&self) -> u64 {
        self.boot.load(Relaxed)
    }

    fn swap_boot(&self, old: u64, new: u64) -> bool {
        self.boot.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }

    fn entry(&self, _index: u32) -> u64 {
        self.entry.load(Relaxed)
    }

    fn swap_entry(&self, _index: u32, old: u64, new: u64) -> bool {
        self.entry.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
}

/// How often two CPUs that get these frames (boot, serial) at once take each, after `before`.
fn race(before: &'static [(u32, u64)], first: &'static [(u32, u64)], second: &'static [(u32, u64)], once: (u32, u64)) {
    loom::model(move || {
        let words = loom::sync::Arc::new(Words { boot: AtomicU64::new(0), entry: AtomicU64::new(0) });
        let take = move |words: &Words, frames: &[(u32, u64)]| {
            let taken = |frame: &&(u32, u64)| admit(words, frame.0, frame.1).is_new && **frame == once;
            frames.iter().filter(taken).count()
        };
        take(&words, before);
        let there = loom::sync::Arc::clone(&words);
        let other = loom::thread::spawn(move || take(&there, second));
        let here = take(&words, first);
        assert!(here + other.join().unwrap() <= 1, "{once:?} was taken twice");
    });
}

#[test]
fn two_cpus_take_a_serial_once() {
    race(&[], &[(7, 1)], &[(7, 1)], (7, 1));
    race(&[(7, 1)], &[(7, 2)], &[(7, 2), (7, 3)], (7, 2));
}

#[test]
fn a_late_frame_of_an_old_boot_uncovers_no_serial() {
    // The entry holds a serial of boot 7 when boot 8 begins; a frame of boot 7 is still under way at one CPU.
    race(&[(7, 1)], &[(7, 2), (8, 3)], &[(8, 3), (8, 3)], (8, 3));
}

//! Tests of [`super`].

use super::*;
use crate::wire::ip::ETHERNET_BYTES;
use core::hash::Hasher;
use proptest::prelude::*;
use siphasher::sip::SipHasher24;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

/// The key of the published vectors: the bytes 0 to 15.
const VECTOR_KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

#[test]
fn siphash_gives_the_published_vectors() {
    // Of the messages 0, 1, 2, ... of 0 to 8 bytes (the authors' reference implementation, `vectors.h`).
    let vectors: [[u8; 8]; 9] = [
        [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72],
        [0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74],
        [0x5a, 0x4f, 0xa9, 0xd9, 0x09, 0x80, 0x6c, 0x0d],
        [0x2d, 0x7e, 0xfb, 0xd7, 0x96, 0x66, 0x67, 0x85],
        [0xb7, 0x87, 0x71, 0x27, 0xe0, 0x94, 0x27, 0xcf],
        [0x8d, 0xa6, 0x99, 0xcd, 0x64, 0x55, 0x76, 0x18],
        [0xce, 0xe3, 0xfe, 0x58, 0x6e, 0x46, 0xc9, 0xcb],
        [0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab],
        [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93],
    ];
    let message: Vec<u8> = (0..15).collect();
    for (length, vector) in vectors.into_iter().enumerate() {
        assert_eq!(hash(VECTOR_KEY, &message[..length]).to_le_bytes(), vector, "{length} bytes");
    }
    assert_eq!(hash(VECTOR_KEY, &message), 0xa129_ca61_49be_45e5, "the paper's example, appendix A");
}

/// A frame that is sealed with key 3, and the key.
fn sealed(body: &[u8], with_body: bool) -> (Vec<u8>, KeyRow) {
    let key = KeyRow { header: [1, 2], body: [3, 4], valid: 1, ..KeyRow::default() };
    let header = Header { length: body.len() as u16, ..Header::without_frame(Kind::Forward, 1, 2, 77) };
    let mut frame = vec![0xee; ETHERNET_BYTES];
    frame.extend_from_slice(&header.emit());
    frame.extend_from_slice(&[0; SEAL_BYTES]);
    frame.extend_from_slice(body);
    assert!(seal(&mut frame[ETHERNET_BYTES..], 3, &key, 0x0102_0304_0506_0708, with_body));
    (frame, key)
}

#[test]
fn a_seal_lies_between_header_and_body() {
    let (frame, key) = sealed(b"a packet", true);
    let header = Header::parse(frame.as_slice(), ETHERNET_BYTES).unwrap();
    assert_eq!((header.key(), header.length, body_bytes(&header)), (3, 8, 8));
    let at = ETHERNET_BYTES + HEADER_BYTES;
    assert_eq!(frame[at..at + 8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(frame[at + 8..at + 16], hash(key.body, b"a packet").to_be_bytes());
    let expected = tag(frame.as_slice(), ETHERNET_BYTES, key.header).unwrap();
    assert_eq!(frame[at + 16..at + 24], expected.to_be_bytes());
    assert_eq!(&frame[at + 24..], b"a packet");
    let (open, _) = sealed(b"a packet", false);
    assert_eq!(open[at + 8..at + 16], [0; 8], "the body is not covered");
    assert!(!seal(&mut [0; HEADER_BYTES + SEAL_BYTES - 1], 1, &key, 0, true));
}

#[test]
fn every_bit_of_header_and_seal_is_under_the_tag() {
    let (frame, key) = sealed(b"a packet", true);
    let at = ETHERNET_BYTES + TAGGED_BYTES;
    let is_genuine =
        |frame: &[u8]| tag(frame, ETHERNET_BYTES, key.header).is_some_and(|tag| frame[at..at + 8] == tag.to_be_bytes());
    assert!(is_genuine(&frame));
    for bit in 8 * ETHERNET_BYTES..8 * (at + 8) {
        let mut altered = frame.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_genuine(&altered), "bit {bit}");
    }
}

#[test]
fn what_is_sealed_depends_on_kind_and_setting() {
    let sealed = |auth| [Kind::Forward, Kind::Result, Kind::Report, Kind::Pull].map(|kind| is_sealed(auth, kind));
    assert_eq!(sealed(AUTH_OFF), [false; 4]);
    assert_eq!(sealed(AUTH_REPORTS), [false, false, true, true]);
    assert_eq!((sealed(AUTH_HEADER), sealed(AUTH_FULL)), ([true; 4], [true; 4]));
    let covered = |auth| [Kind::Forward, Kind::Report].map(|kind| covers_body(auth, kind));
    assert_eq!(
        [AUTH_OFF, AUTH_REPORTS, AUTH_HEADER, AUTH_FULL].map(covered),
        [[false, false], [false, true], [false, true], [true, true]]
    );
    assert_eq!((seal_bytes(AUTH_OFF, Kind::Report), seal_bytes(AUTH_HEADER, Kind::Result)), (0, SEAL_BYTES));
}

/// The words of one peer, of one thread; `step` counts its reads and can play another CPU in between.
struct Words<'a> {
    boot: Cell<u64>,
    taken: [Cell<u64>; ENTRIES],
    between: &'a dyn Fn(&Words<'_>),
}

impl<'a> Words<'a> {
    fn new(between: &'a dyn Fn(&Words<'_>)) -> Self {
        Self { boot: Cell::default(), taken: Default::default(), between }
    }
}

fn swap(word: &Cell<u64>, old: u64, new: u64) -> bool {
    let is_old = word.get() == old;
    if is_old {
        word.set(new);
    }
    is_old
}

impl Taken for Words<'_> {
    fn boot(&self) -> u64 {
        self.boot.get()
    }

    fn swap_boot(&self, old: u64, new: u64) -> bool {
        swap(&self.boot, old, new)
    }

    fn entry(&self, index: u32) -> u64 {
        let entry = self.taken[index as usize].get();
        (self.between)(self);
        entry
    }

    fn swap_entry(&self, index: u32, old: u64, new: u64) -> bool {
        swap(&self.taken[index as usize], old, new)
    }
}

fn nothing(_: &Words<'_>) {}

#[test]
fn the_first_frame_of_a_boot_is_told() {
    let words = Words::new(&nothing);
    let at = |epoch, serial| {
        let Admitted { is_new, is_first } = admit(&words, epoch, serial);
        (is_new, is_first)
    };
    assert_eq!(at(7, 100), (true, true));
    assert_eq!(at(7, 100), (false, false));
    assert_eq!(at(7, 101), (true, false));
    assert_eq!(at(6, 102), (false, false), "a boot that is over");
    assert_eq!(at(8, 1), (true, true), "serials begin anew");
    assert_eq!(at(8, 100), (true, false), "100 was taken in another boot");
    assert_eq!(at(7, 103), (false, false));
    assert_eq!(at(9, 1 << SERIAL_BITS), (false, false), "no such serial");
    assert_eq!(at(9, (1 << SERIAL_BITS) - 1), (true, true));
}

#[test]
fn generations_go_round() {
    let words = Words::new(&nothing);
    for epoch in 1..=5_000 {
        assert_eq!(admit(&words, epoch, 1), Admitted { is_new: true, is_first: true }, "{epoch}");
        assert!(!admit(&words, epoch, 1).is_new, "{epoch}");
        assert_ne!(Boot::from_word(words.boot.get()).generation, 0);
    }
    assert!(Boot::from_word(words.boot.get()).generation < 1 << GENERATION_BITS);
}

#[test]
fn a_word_that_another_cpu_changes_is_tried_again() {
    let others = Cell::new(3u64);
    let between = |words: &Words<'_>| {
        // Another CPU takes a serial of the same block.
        if let Some(left) = others.get().checked_sub(1) {
            others.set(left);
            let entry = &words.taken[entry_of(left) as usize];
            if let Some(after) = entry_after(entry.get(), Boot::from_word(words.boot.get()).generation, left) {
                entry.set(after);
            }
        }
    };
    let words = Words::new(&between);
    assert!(admit(&words, 7, 9).is_new);
    assert_eq!(words.taken[0].get() & 0xffff, 1 << 9 | 1 << 1 | 1);
}

/// How far serials are sent out of order, or how many are lost.
fn serials() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![8 => 0u64..3, 2 => 0u64..40, 1 => 0u64..2_000, 1 => 1_000_000u64..3_000_000_000];
    let sent = proptest::collection::vec((step, 0u64..600), 1..400);
    sent.prop_map(|steps| {
        let mut newest = 0;
        let order = |(step, behind): (u64, u64)| {
            newest += step;
            u64::saturating_sub(newest, behind)
        };
        steps.into_iter().map(order).collect()
    })
}

proptest! {
    #[test]
    fn siphash_agrees_with_another_implementation(k0: u64, k1: u64, bytes in proptest::collection::vec(any::<u8>(), 0..1_600)) {
        let mut other = SipHasher24::new_with_keys(k0, k1);
        other.write(&bytes);
        prop_assert_eq!(hash([k0, k1], &bytes), other.finish());
    }

    #[test]
    fn no_serial_is_taken_twice_and_none_of_the_window_is_refused(serials in serials()) {
        let words = Words::new(&nothing);
        let (mut taken, mut newest) = (BTreeSet::new(), 0);
        for serial in serials {
            let is_new = admit(&words, 7, serial).is_new;
            prop_assert!(!(is_new && taken.contains(&serial)), "{serial} was taken twice");
            if serial + WINDOW >= newest {
                prop_assert_eq!(is_new, !taken.contains(&serial), "{} after {}", serial, newest);
            }
            if is_new {
                taken.insert(serial);
                newest = newest.max(serial);
            }
        }
    }

    #[test]
    fn boots_and_replays_in_any_order(frames in proptest::collection::vec((1u32..6, 0u64..700), 1..600)) {
        let words = Words::new(&nothing);
        let (mut taken, mut newest) = (BTreeSet::new(), 0);
        for (epoch, serial) in frames {
            let Admitted { is_new, is_first } = admit(&words, epoch, serial);
            prop_assert_eq!(is_first, epoch > newest);
            prop_assert!(!is_new || taken.insert((epoch, serial)));
            prop_assert!(!is_new || epoch >= newest);
            newest = newest.max(epoch);
        }
    }

    /// Another CPU does all of its work between two reads of this one.
    #[test]
    fn no_serial_is_taken_twice_by_two_cpus(
        frames in proptest::collection::vec((1u32..4, 0u64..600, proptest::option::of((1u32..4, 0u64..600))), 1..200)
    ) {
        let turn: Cell<Option<(u32, u64)>> = Cell::new(None);
        let taken = std::cell::RefCell::new(BTreeSet::new());
        let twice = Cell::new(false);
        let note = |epoch, serial, words: &Words<'_>| {
            let is_new = admit(words, epoch, serial).is_new;
            if is_new && !taken.borrow_mut().insert((epoch, serial)) {
                twice.set(true);
            }
        };
        let between = |words: &Words<'_>| {
            if let Some((epoch, serial)) = turn.take() {
                note(epoch, serial, words);
            }
        };
        let words = Words::new(&between);
        for (epoch, serial, other) in frames {
            turn.set(other);
            note(epoch, serial, &words);
            // The same frame at both CPUs.
            turn.set(Some((epoch, serial)));
            note(epoch, serial, &words);
        }
        prop_assert!(!twice.get());
    }
}

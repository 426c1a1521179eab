//! Whose frames are believed, and that all others change nothing but a counter; `xdp_verdicts` has the same of `dp_link`.

use super::*;
use crate::keys::{self, Secret};
use crate::maps::MappedArray;
use crate::maps::tables::tests::tables;
use crate::maps::tables::{pair, set};
use crate::seal::Sealer;
use crate::ways::{Way, Ways};
use dataplane_common::maps::{AUTH_FULL, AUTH_HEADER, AUTH_REPORTS, LoadRow};
use dataplane_common::reason::Reason::*;

const NODE: u16 = 1;
const NEAR: u16 = 2;
const EPOCH: u32 = 700;
const TYPE: u16 = 0xff02;
const KINDS: [Kind; 4] = [Kind::Forward, Kind::Result, Kind::Report, Kind::Pull];

fn way(node: u16) -> Way {
    Way { node, interface: 0, mac: [2; 6], source_mac: [4; 6], max_frame: 1_514, route: None }
}

/// A node with keys, and what takes its frames.
fn taker(auth: u32) -> Taker {
    let tables = Arc::new(tables(8, 1, 1, 1));
    keys::write(&tables, &keys::rows(&[Secret::new(3, [7; 32]), Secret::new(9, [8; 32])], "here").unwrap());
    let row = tables.functions.row(0);
    set(row, offset_of!(FunctionRow, limit_ns), pair(50_000_000, 0));
    set(row, offset_of!(FunctionRow, type_id), TYPE.into());
    let params = Params { auth, node: NODE, nodes: 8, epoch: EPOCH, ..Params::DEFAULT };
    Taker::new(tables, params, Arc::new(LiveWays::from_pointee(Ways::new([way(NEAR)]))), 0, 0)
}

/// Who sends frames sealed by a secret, in a cluster.
struct Sender(Ways);

impl Sender {
    fn new(secret: Secret, cluster: &str, auth: u32) -> Self {
        let tables = Arc::new(tables(8, 1, 1, 1));
        keys::write(&tables, &keys::rows(&[secret], cluster).unwrap());
        Self(Ways::new([way(NODE)]).sealed(Sealer::new(tables, auth)))
    }

    fn genuine(auth: u32) -> Self {
        Self::new(Secret::new(3, [7; 32]), "here", auth)
    }

    /// A frame under the next serial.
    fn frame(&self, kind: Kind) -> Vec<u8> {
        self.frame_to(kind, EPOCH as u16)
    }

    /// As [`Self::frame`], from a sender that knows this boot of the receiver's.
    fn frame_to(&self, kind: Kind, received_epoch: u16) -> Vec<u8> {
        let (way, body) = (way(NODE), body(kind));
        let mut frame = vec![0; self.0.overhead(&way, kind)];
        frame.extend_from_slice(&body);
        self.0.address(&way, &header(kind, received_epoch), &mut frame);
        frame
    }
}

fn body(kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Report => Report { interval_us: 1_000, workers: 1, ..Report::default() }.emit().to_vec(),
        Kind::Pull => Vec::new(),
        Kind::Forward | Kind::Result => vec![0x5a; 100],
    }
}

fn header(kind: Kind, received_epoch: u16) -> Header {
    let has_packet = matches!(kind, Kind::Forward | Kind::Result);
    let mut header = Header {
        sequence: 5,
        charged_ns: 5_000,
        position_ns: 9_000,
        type_id: TYPE,
        length: if has_packet { 100 } else { 0 },
        ..Header::without_frame(kind, NEAR, NODE, 33)
    };
    header.load.received_epoch = received_epoch;
    header
}

fn words_of<T: MapValue>(array: &MappedArray<T>) -> Vec<u64> {
    let words = |row: u32| (0..size_of::<T>()).step_by(8).map(move |at| array.row(row).word(at).load(Relaxed));
    (0..array.len()).flat_map(words).collect()
}

impl Taker {
    /// Everything that a frame may change, without the counters.
    fn words(&self) -> Vec<u64> {
        let Tables { load, workers, queues, functions, held, signals, seals, .. } = &*self.tables;
        let parts = [words_of(load), words_of(workers), words_of(queues), words_of(functions), words_of(held)];
        [parts.concat(), words_of(signals), words_of(seals)].concat()
    }

    fn counted(&self) -> Vec<u64> {
        Reason::ALL.iter().map(|reason| self.tables.count(0, *reason).load(Relaxed)).collect()
    }

    /// Takes a frame; what was counted besides it.
    fn counts(&self, frame: &[u8]) -> Vec<Reason> {
        let before = self.counted();
        self.take(&mut frame.to_vec());
        let changed = Reason::ALL.iter().zip(before.iter().zip(self.counted()));
        changed.filter(|(reason, (a, b))| **reason != SeenLink && *a != b).map(|(reason, _)| *reason).collect()
    }

    /// The counter of a frame that changes nothing else.
    #[track_caller]
    fn refuses(&self, what: &str, frame: &[u8]) -> Reason {
        let before = self.words();
        let counted = self.counts(frame);
        assert_eq!(before, self.words(), "{what}: a word has changed");
        let [reason] = counted[..] else { panic!("{what}: {counted:?}") };
        assert!(reason.name().starts_with("drop_"), "{what}: {reason:?}");
        reason
    }
}

#[test]
fn a_peers_frames_are_taken_and_lose_their_seal() {
    for auth in [AUTH_REPORTS, AUTH_HEADER, AUTH_FULL] {
        let (taker, sender) = (taker(auth), Sender::genuine(auth));
        let taken = KINDS.map(|kind| taker.counts(&sender.frame(kind)));
        assert_eq!(taken.map(|counted| counted[0]), [ForwardQueued, ResultQueued, ReportTaken, PullQueued], "{auth}");
        let mut frame = sender.frame(Kind::Forward);
        let (metadata, skipped) = taker.take(&mut frame).unwrap();
        assert_eq!((metadata.origin, metadata.charged_ns), (Origin::Peer, 5_000));
        let opened = &frame[skipped..];
        assert_eq!(Header::parse(opened, ETHERNET_BYTES).unwrap(), header(Kind::Forward, EPOCH as u16));
        assert_eq!(&opened[OVERHEAD_BYTES..], body(Kind::Forward));
    }
}

#[test]
fn what_must_be_sealed_is_refused_without_a_seal() {
    for auth in [AUTH_REPORTS, AUTH_HEADER, AUTH_FULL] {
        let (taker, open) = (taker(auth), Sender(Ways::new([way(NODE)])));
        for kind in KINDS {
            if auth == AUTH_REPORTS && matches!(kind, Kind::Forward | Kind::Result) {
                assert_ne!(taker.counts(&open.frame(kind)), [DropLinkUnsealed]);
            } else {
                assert_eq!(taker.refuses("no seal", &open.frame(kind)), DropLinkUnsealed, "{kind:?}, {auth}");
            }
        }
    }
    let (without_keys, sender) = (taker(AUTH_OFF), Sender::genuine(AUTH_FULL));
    for kind in KINDS {
        assert_eq!(without_keys.refuses("a node without keys", &sender.frame(kind)), DropLinkKey, "{kind:?}");
    }
}

#[test]
fn a_strangers_frames_change_nothing_but_a_counter() {
    let (taker, sender) = (taker(AUTH_FULL), Sender::genuine(AUTH_FULL));
    // A node at work: it knows the peer.
    assert_eq!(taker.counts(&sender.frame(Kind::Pull)), [PullQueued]);
    let stranger = |number, byte, cluster| Sender::new(Secret::new(number, [byte; 32]), cluster, AUTH_FULL);
    for kind in KINDS {
        assert_eq!(taker.refuses("unknown key", &stranger(4, 7, "here").frame(kind)), DropLinkKey);
        assert_eq!(taker.refuses("another number", &stranger(9, 7, "here").frame(kind)), DropLinkTag);
        assert_eq!(taker.refuses("another secret", &stranger(3, 9, "here").frame(kind)), DropLinkTag);
        assert_eq!(taker.refuses("another cluster", &stranger(3, 7, "there").frame(kind)), DropLinkTag);
        assert_eq!(taker.refuses("another boot", &sender.frame_to(kind, 1)), DropLinkStaleBoot);
        let genuine = sender.frame(kind);
        let body_at = OVERHEAD_BYTES + SEAL_BYTES;
        for at in ETHERNET_BYTES..genuine.len() {
            let mut altered = genuine.clone();
            altered[at] ^= 1 << (at % 8);
            let reason = taker.refuses(&format!("{kind:?}, byte {at}"), &altered);
            // Other things are looked at first in the header.
            assert!(
                at < OVERHEAD_BYTES || reason == if at < body_at { DropLinkTag } else { DropLinkBody },
                "{reason:?}"
            );
        }
        for length in ETHERNET_BYTES..genuine.len() {
            assert_eq!(taker.refuses(&format!("{length} bytes"), &genuine[..length]), DropLinkTruncated);
        }
        assert_eq!(taker.refuses("shorter than Ethernet", &genuine[..5]), DropLinkTruncated);
        // It was genuine, and is taken once.
        assert!(!taker.counts(&genuine)[0].name().starts_with("drop_"), "{kind:?}");
        assert_eq!(taker.refuses("again", &genuine), DropLinkReplay);
    }
}

#[test]
fn only_reports_are_taken_where_reports_come() {
    let (taker, sender) = (taker(AUTH_FULL), Sender::genuine(AUTH_FULL));
    let reported = || taker.tables.load.row(NEAR.into()).word(offset_of!(LoadRow, reports)).load(Relaxed);
    for kind in KINDS {
        taker.take_report(&mut sender.frame(kind));
    }
    assert_eq!(reported(), 1);
    let counted = |reason| taker.tables.count(0, reason).load(Relaxed);
    assert_eq!((counted(SeenLink), counted(ReportTaken), counted(DropLinkKind)), (4, 1, 3));
    assert_eq!(taker.tables.workers.row(0).word(offset_of!(WorkerRow, charged_packets)).load(Relaxed), 0);
}

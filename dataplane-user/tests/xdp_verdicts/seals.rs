//! Seals: which frames are believed, and that all others change nothing but a counter.

use std::mem::offset_of;

use dataplane_common::maps::{AUTH_FULL, AUTH_HEADER, AUTH_OFF, AUTH_REPORTS, LoadRow, Params, WorkerRow};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason::{self, *};
use dataplane_common::seal::{KeyRow, SealRow, WINDOW};
use dataplane_user::keys::{self, Secret};

use super::case::{
    BYTES, Case, EPOCH, FAR, MAX_FRAME, NEAR, NODE, TIMED, XDP_DROP, XDP_REDIRECT, check, node_with, params,
};
use super::peer::{
    BODY, FORWARD, HEADER, PEER_EPOCH, PULL, REPORT, RESULT, inner, received, received_frames, received_sequence,
};
use crate::support::frames::{Interconnect, OVERHEAD, Packet, SEAL, SealKey, with};
use crate::support::node::{Arrival, LINK, Node, Outcome, PORT, Site, inside};
use crate::support::random::Random;
use crate::support::words::{Place, two};

/// Keys of the node: it signs with the first one.
const SECRETS: [Secret; 2] = [Secret::new(3, [0x33; 32]), Secret::new(12, [0xcc; 32])];
const CLUSTER: &str = "here";
const ON_LINK: Arrival = Arrival { interface: LINK, queue: 0, metadata: 0 };
const ON_PORT: Arrival = Arrival { interface: PORT, queue: 0, metadata: 0 };

/// A key of `cluster`.
fn key_of(secret: &Secret, cluster: &str) -> SealKey {
    let rows = keys::rows(std::slice::from_ref(secret), cluster).unwrap_or_else(|error| panic!("{error}"));
    let KeyRow { header, body, .. } = rows[usize::from(secret.number())];
    SealKey { number: secret.number(), keys: [header, body] }
}

fn key() -> SealKey {
    key_of(&SECRETS[0], CLUSTER)
}

/// A node with keys.
fn secured(site: &Site, auth: u32) -> Node<'_> {
    // Without the guard, packets of any cost are forwarded.
    let node = node_with(site, Params { auth, guard: 0, ..params(PolicyKind::EptErl) });
    let rows = keys::rows(&SECRETS, CLUSTER).unwrap_or_else(|error| panic!("{error}"));
    keys::write(&node.tables, &rows);
    node
}

/// A frame of `NEAR` of each kind that carries no packet home.
fn plain(kind: u8) -> Vec<u8> {
    let header = Interconnect { kind, ..HEADER };
    match kind {
        REPORT => header.report(&BODY),
        PULL => Interconnect { charged_ns: 0, ..header }.frame(&[]),
        _ => header.frame(&inner()),
    }
}

/// The word of the peer's boot, and that of the entry of `serial`.
fn boot() -> Place {
    Place::seal(NEAR, offset_of!(SealRow, epoch))
}

fn entry(serial: u64) -> Place {
    Place::seal(NEAR, offset_of!(SealRow, taken) + 8 * (serial / 16 % 32) as usize)
}

/// A case whose serial is the first one that is taken of the peer.
fn first(case: Case, serial: u64) -> Case {
    case.changes(boot(), two(PEER_EPOCH, 1)).changes(entry(serial), 1 << 52 | (serial / 512) << 16 | 1 << (serial % 16))
}

#[test]
fn sealed_frames_are_what_they_are_without_a_seal() {
    inside("sealed_frames_are_what_they_are_without_a_seal", |site| {
        for (auth, with_body) in [(AUTH_REPORTS, true), (AUTH_HEADER, false), (AUTH_FULL, true)] {
            let mut node = secured(site, auth);
            let mut cases = Vec::new();
            for secret in &SECRETS {
                for serial in [0, 1, 15, 16, 511, 512, 123_456_789, (1 << 45) - 1] {
                    let seal = |kind| {
                        let frame = key_of(secret, CLUSTER).seal(&plain(kind), serial, with_body);
                        first(Case::link(&format!("kind {kind}, serial {serial}, {auth}"), frame), serial)
                            .opens(plain(kind))
                            .changes(received(NEAR), two(HEADER.position_ns, PEER_EPOCH))
                    };
                    let forward = seal(FORWARD)
                        .changes(received_frames(NEAR), 1)
                        .changes(received_sequence(NEAR), HEADER.sequence.into());
                    cases.push(forward.stays(0, 5_000));
                    cases.push(seal(PULL).asks());
                }
            }
            let mark = Interconnect { kind: RESULT, ..HEADER }.frame(&[]);
            cases.push(
                first(Case::link("a mark", key().seal(&mark, 7, false)), 7)
                    .opens(mark)
                    .adds(Place::load(NEAR, offset_of!(LoadRow, completed_frames)), 1)
                    .drops(MarkTaken),
            );
            check(&mut node, &cases);
        }
    });
}

/// Runs `dp_link`; what it counted besides the frame.
fn link(node: &mut Node<'_>, frame: &[u8]) -> (Outcome, Vec<Reason>) {
    let before = node.count_all();
    let outcome = node.run("dp_link", ON_LINK, frame);
    let after = node.count_all();
    let counted = Reason::ALL.iter().copied().filter(|reason| after[*reason as usize] != before[*reason as usize]);
    (outcome, counted.filter(|reason| *reason != SeenLink).collect())
}

/// The counter of a frame that changes nothing else.
#[track_caller]
fn refused(node: &mut Node<'_>, what: &str, frame: &[u8]) -> Reason {
    let before = node.words();
    let (outcome, counted) = link(node, frame);
    assert_eq!(before.differences(&node.words()), [], "{what}: a word has changed");
    assert_eq!((outcome.verdict, outcome.frame.as_slice()), (XDP_DROP, frame), "{what}");
    let [reason] = counted[..] else { panic!("{what}: {counted:?}") };
    assert!(reason.name().starts_with("drop_"), "{what}: {reason:?}");
    reason
}

#[test]
fn a_result_and_a_report_take_their_usual_way() {
    inside("a_result_and_a_report_take_their_usual_way", |site| {
        for (auth, with_body) in [(AUTH_HEADER, false), (AUTH_FULL, true)] {
            let mut node = secured(site, auth);
            let (outcome, counted) = link(&mut node, &key().seal(&plain(RESULT), 5, with_body));
            assert_eq!((outcome.verdict, outcome.frame, counted), (XDP_REDIRECT, inner(), vec![ResultReturned]));
            // A report's body is always covered.
            let (outcome, counted) = link(&mut node, &key().seal(&plain(REPORT), 6, true));
            assert_eq!((outcome.verdict, outcome.frame, counted), (XDP_DROP, plain(REPORT), vec![ReportTaken]));
            let backlog = node.get(Place::load(NEAR, offset_of!(LoadRow, backlog_ns))) as u32;
            assert_eq!(backlog, HEADER.backlog_ns);
        }
    });
}

#[test]
fn what_must_be_sealed_is_refused_without_a_seal() {
    inside("what_must_be_sealed_is_refused_without_a_seal", |site| {
        for auth in [AUTH_REPORTS, AUTH_HEADER, AUTH_FULL] {
            let mut node = secured(site, auth);
            for kind in [FORWARD, RESULT, REPORT, PULL] {
                if auth == AUTH_REPORTS && [FORWARD, RESULT].contains(&kind) {
                    let (outcome, counted) = link(&mut node, &plain(kind));
                    assert_eq!(outcome.verdict, XDP_REDIRECT, "{counted:?}");
                } else {
                    assert_eq!(refused(&mut node, "no seal", &plain(kind)), DropLinkUnsealed, "{kind}, {auth}");
                }
            }
        }
        let mut open = node_with(site, Params { auth: AUTH_OFF, ..params(PolicyKind::EptErl) });
        for kind in [FORWARD, RESULT, REPORT, PULL] {
            let frame = key().seal(&plain(kind), 1, true);
            assert_eq!(refused(&mut open, "a node without keys", &frame), DropLinkKey, "{kind}");
        }
    });
}

#[test]
fn a_strangers_frames_change_nothing_but_a_counter() {
    inside("a_strangers_frames_change_nothing_but_a_counter", |site| {
        let mut node = secured(site, AUTH_FULL);
        // A node at work: it knows the peer.
        let (_, counted) = link(&mut node, &key().seal(&plain(REPORT), 1, true));
        assert_eq!(counted, [ReportTaken]);
        for kind in [FORWARD, RESULT, REPORT, PULL] {
            let sealed = |key: SealKey| key.seal(&plain(kind), 40, true);
            for number in (1..16).filter(|number| ![3, 12].contains(number)) {
                let unknown = SealKey { number, ..key() };
                assert_eq!(refused(&mut node, "unknown key", &sealed(unknown)), DropLinkKey);
            }
            let other = SealKey { number: 12, ..key() };
            assert_eq!(refused(&mut node, "another number", &sealed(other)), DropLinkTag);
            let guessed = key_of(&Secret::new(3, [0x34; 32]), CLUSTER);
            assert_eq!(refused(&mut node, "another secret", &sealed(guessed)), DropLinkTag);
            let elsewhere = key_of(&SECRETS[0], "there");
            assert_eq!(refused(&mut node, "another cluster", &sealed(elsewhere)), DropLinkTag);
            let genuine = sealed(key());
            for at in OVERHEAD - 72..OVERHEAD + SEAL {
                for bit in 0..8 {
                    let altered = with(genuine.clone(), at, &[genuine[at] ^ 1 << bit]);
                    let reason = refused(&mut node, &format!("byte {at}, bit {bit}"), &altered);
                    // The rest of the header is judged first.
                    assert!(at < OVERHEAD || reason == DropLinkTag, "byte {at}: {reason:?}");
                }
            }
            for at in OVERHEAD + SEAL..genuine.len() {
                let altered = with(genuine.clone(), at, &[genuine[at] ^ 0x10]);
                assert_eq!(refused(&mut node, &format!("byte {at} of the body"), &altered), DropLinkBody);
            }
            for length in 14..genuine.len() {
                let reason = refused(&mut node, &format!("{length} bytes"), &genuine[..length]);
                assert_eq!(reason, DropLinkTruncated);
            }
        }
    });
}

#[test]
fn a_header_seal_leaves_the_packet_and_covers_a_report() {
    inside("a_header_seal_leaves_the_packet_and_covers_a_report", |site| {
        let mut node = secured(site, AUTH_HEADER);
        let altered = |frame: Vec<u8>| with(frame.clone(), OVERHEAD + SEAL, &[!frame[OVERHEAD + SEAL]]);
        let (outcome, _) = link(&mut node, &altered(key().seal(&plain(FORWARD), 1, false)));
        assert_eq!(outcome.verdict, XDP_REDIRECT);
        let report = altered(key().seal(&plain(REPORT), 2, true));
        assert_eq!(refused(&mut node, "a report", &report), DropLinkBody);
        let bare = key().seal(&plain(REPORT), 2, false);
        assert_eq!(refused(&mut node, "a report without a body tag", &bare), DropLinkBody);
    });
}

#[test]
fn every_frame_is_taken_once() {
    inside("every_frame_is_taken_once", |site| {
        let mut node = secured(site, AUTH_HEADER);
        let frame = |epoch: u32, serial: u64| {
            key().seal(&Interconnect { kind: PULL, epoch, ..HEADER }.frame(&[]), serial, false)
        };
        let mut takes = |epoch: u32, serial: u64| link(&mut node, &frame(epoch, serial)).1 == [PullQueued];
        assert!(takes(PEER_EPOCH, 1_000));
        for serial in (1_000 - WINDOW..=1_000).rev() {
            assert_eq!(takes(PEER_EPOCH, serial), serial != 1_000, "{serial}");
        }
        // The block that the oldest of the window is in was not passed as a whole.
        for serial in (1..1_000 - WINDOW - 16).chain(1_000 - WINDOW..=1_000) {
            let what = format!("{serial} again");
            assert_eq!(refused(&mut node, &what, &frame(PEER_EPOCH, serial)), DropLinkReplay);
        }
        // The peer starts anew.
        let (_, counted) = link(&mut node, &frame(PEER_EPOCH + 1, 1));
        assert_eq!(counted, [PullQueued]);
        for serial in [1, 2, 1_001, 5_000] {
            assert_eq!(refused(&mut node, "the boot before", &frame(PEER_EPOCH, serial)), DropLinkReplay);
        }
        assert_eq!(refused(&mut node, "again", &frame(PEER_EPOCH + 1, 1)), DropLinkReplay);
    });
}

#[test]
fn after_a_restart_recorded_frames_teach_at_most_a_boot() {
    inside("after_a_restart_recorded_frames_teach_at_most_a_boot", |site| {
        let earlier = (EPOCH - 1) as u16;
        let stale = |kind: u8, epoch: u32, received_epoch: u16| {
            let header = Interconnect { kind, epoch, received_epoch, position_ns: 1 << 31, ..HEADER };
            let frame = if kind == REPORT { header.report(&BODY) } else { header.frame(&inner()) };
            key().seal(&frame, 9, true)
        };
        let mut node = secured(site, AUTH_FULL);
        for kind in [FORWARD, RESULT, PULL] {
            let frame = stale(kind, PEER_EPOCH, earlier);
            assert_eq!(refused(&mut node, "for an earlier boot", &frame), DropLinkStaleBoot, "{kind}");
        }
        // Who has not heard of this boot says so by a report. It teaches the sender's boot, and the position with it.
        check(
            &mut node,
            &[Case::link("a report before all", stale(REPORT, PEER_EPOCH, 0))
                .changes(received(NEAR), two(1 << 31, PEER_EPOCH))
                .drops(DropLinkStaleBoot)],
        );
        let (_, counted) = link(&mut node, &stale(REPORT, PEER_EPOCH, 0));
        assert_eq!(counted, [DropLinkStaleBoot]);
        for epoch in [PEER_EPOCH, PEER_EPOCH - 1] {
            let frame = stale(REPORT, epoch, 0);
            assert_eq!(refused(&mut node, "a boot that is known", &frame), DropLinkStaleBoot);
        }
        // The first frame to this boot begins the account: that position may have been any.
        let (_, counted) = link(&mut node, &key().seal(&plain(REPORT), 10, true));
        assert_eq!(counted, [ReportTaken]);
        assert_eq!(node.get(received(NEAR)), two(HEADER.position_ns, PEER_EPOCH));
        let frame = stale(REPORT, PEER_EPOCH, 0);
        assert_eq!(refused(&mut node, "recorded", &frame), DropLinkStaleBoot);
    });
}

/// A packet that goes to `FAR`, as it leaves.
fn forwarded(node: &mut Node<'_>, packet: &[u8]) -> Outcome {
    let fresh = [
        (Place::worker(0, offset_of!(WorkerRow, charged_ns)), 50_000_000),
        (Place::worker(0, offset_of!(WorkerRow, charged_packets)), 9),
        (Place::load(FAR, offset_of!(LoadRow, valid_until_ns)), u64::MAX),
    ];
    fresh.into_iter().for_each(|(place, word)| node.set(place, word));
    node.run("dp_ingress", ON_PORT, packet)
}

#[test]
fn packets_of_every_length_are_sealed_and_opened() {
    inside("packets_of_every_length_are_sealed_and_opened", |site| {
        let mut random = Random::new(Random::seed());
        for (auth, with_body) in [(AUTH_HEADER, false), (AUTH_FULL, true)] {
            let mut node = secured(site, auth);
            let longest = MAX_FRAME - OVERHEAD - SEAL;
            let room = longest - Packet::new(BYTES).payload_of(0).frame().len();
            for serial in 1..400 {
                let payload = if serial <= 70 { serial as usize - 1 } else { random.below(room as u64 + 1) as usize };
                let packet = Packet::new(BYTES).payload_of(payload).frame();
                let outcome = forwarded(&mut node, &packet);
                assert_eq!(outcome.verdict, XDP_REDIRECT);
                let (plain, found) = key().open(&outcome.frame, with_body).expect("the tags are right");
                assert_eq!((&plain[OVERHEAD..], found, plain[17]), (&packet[..], serial, 0), "{payload} bytes");
                assert_eq!(plain[16], 1, "one hop");
            }
            let mut place = |payload| forwarded(&mut node, &Packet::new(BYTES).payload_of(payload).frame());
            assert_eq!(place(room).frame.len(), MAX_FRAME);
            place(room + 1);
            assert_eq!(node.counter(NoteTooLong), 1, "a byte more than the link carries");
            for serial in 1..1_500 {
                let length = if serial <= 150 { serial - 1 } else { random.below(1_405) };
                let body = random.bytes(length as usize);
                let frame = key().seal(&HEADER.frame(&body), serial, with_body);
                let (outcome, counted) = link(&mut node, &frame);
                assert_eq!((outcome.verdict, &counted[..]), (XDP_REDIRECT, &[ForwardQueued][..]), "{}", body.len());
                assert_eq!(outcome.frame, HEADER.frame(&body));
            }
        }
    });
}

#[test]
fn what_one_node_seals_another_one_opens() {
    inside("what_one_node_seals_another_one_opens", |site| {
        let mut far = node_with(site, Params { auth: AUTH_FULL, node: FAR, epoch: 77, ..params(PolicyKind::EptErl) });
        keys::write(&far.tables, &keys::rows(&SECRETS, CLUSTER).unwrap_or_else(|error| panic!("{error}")));
        far.set_peer(NODE, super::case::peer(NODE));
        let mut node = secured(site, AUTH_FULL);
        node.set(received(FAR), two(0, 77));
        let packet = Packet::new(TIMED).operand(5_000).frame();
        let sent = forwarded(&mut node, &packet).frame;
        let (outcome, counted) = link(&mut far, &sent);
        assert_eq!((outcome.verdict, counted), (XDP_REDIRECT, vec![ForwardQueued]));
        assert_eq!(&outcome.frame[OVERHEAD..], packet);
        assert_eq!(refused(&mut far, "again", &sent), DropLinkReplay);
        // Rotation: the second key signs, then the first one is gone.
        let [one, two] = SECRETS;
        let rows = |secrets: &[Secret]| keys::rows(secrets, CLUSTER).unwrap_or_else(|error| panic!("{error}"));
        keys::write(&node.tables, &rows(&[two.clone(), one]));
        let (_, counted) = link(&mut far, &forwarded(&mut node, &packet).frame);
        assert_eq!(counted, [ForwardQueued]);
        keys::write(&far.tables, &rows(&[two]));
        let (_, counted) = link(&mut far, &forwarded(&mut node, &packet).frame);
        assert_eq!(counted, [ForwardQueued]);
        let frame = key().seal(&Interconnect { source: NODE, destination: FAR, ..HEADER }.frame(&[]), 99, true);
        assert_eq!(refused(&mut far, "the old key", &frame), DropLinkKey);
    });
}

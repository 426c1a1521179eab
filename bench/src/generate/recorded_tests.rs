use std::fs;

use super::*;
use crate::capture::tests::pcap;

const MICROSECONDS: u32 = 0xa1b2_c3d4;

/// Writes a capture, reads it by `read`, and removes it.
fn with<T>(name: &str, file: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let path = std::env::temp_dir().join(format!("dpt-{}-recorded-{name}", std::process::id()));
    fs::write(&path, file).unwrap();
    let outcome = read(&path);
    fs::remove_file(path).unwrap();
    outcome
}

/// A frame of `length` bytes: UDP over IPv4, filled with `fill`.
fn frame(length: usize, fill: u8) -> Vec<u8> {
    let mut bytes = vec![fill; length];
    bytes[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
    bytes[23] = PROTOCOL_UDP;
    bytes
}

fn recorded(name: &str, frames: &[(u32, u32, &[u8])]) -> Recorded {
    with(name, &pcap(MICROSECONDS, 1, frames, 0), Recorded::read).unwrap()
}

fn error(name: &str, file: &[u8]) -> String {
    format!("{:#}", with(name, file, read_countable).unwrap_err())
}

#[test]
fn frames_are_due_at_their_own_times_round_after_round() {
    let (a, b, c) = (frame(60, 1), frame(80, 2), frame(70, 3));
    let recorded = recorded("times", &[(7, 0, &a), (7, 100, &b), (7, 300, &c)]);
    assert_eq!((recorded.frame(0), recorded.frame(1), recorded.frame(2)), (&a[..], &b[..], &c[..]));
    assert_eq!(recorded.lengths().collect::<Vec<_>>(), [60, 80, 70]);
    // The second round begins one mean gap, 150 us, after the last frame of the first one.
    let due: Vec<_> = (0..5).map(|number| recorded.due_ns(number)).collect();
    assert_eq!(due, [0, 100_000, 300_000, 450_000, 550_000]);
}

#[test]
fn times_that_go_back_keep_the_order_of_the_file() {
    let frame = frame(60, 1);
    let recorded = recorded("order", &[(7, 200, &frame), (7, 500, &frame), (7, 400, &frame), (6, 0, &frame)]);
    assert_eq!((0..4).map(|number| recorded.due_ns(number)).collect::<Vec<_>>(), [0, 300_000, 300_000, 300_000]);
}

#[test]
fn one_frame_alone_is_due_at_once() {
    let frame = frame(60, 1);
    assert_eq!(recorded("single", &[(7, 0, &frame)]).due_ns(3), 0);
}

#[test]
fn only_ethernet_addresses_are_rewritten_and_only_on_demand() {
    let (a, b) = (frame(60, 1), frame(64, 2));
    let mut recorded = recorded("macs", &[(7, 0, &a), (7, 1, &b)]);
    recorded.address(&[]);
    assert_eq!(recorded.frame(1), &b[..]);
    recorded.address(&[9; 60]);
    for (index, before) in [a, b].iter().enumerate() {
        assert_eq!(recorded.frame(index)[..12], [9; 12]);
        assert_eq!(recorded.frame(index)[12..], before[12..]);
    }
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let good = frame(60, 1);
    let cut = pcap(MICROSECONDS, 1, &[(1, 0, &good), (2, 0, &good[..40])], 20);
    assert!(error("cut", &cut).contains("frame 1 is not whole (60 of 80 bytes)"), "{}", error("cut", &cut));
    let short = pcap(MICROSECONDS, 1, &[(1, 0, &good), (2, 0, &good[..13])], 0);
    assert!(error("short", &short).contains("frame 2 has 13 bytes"));
    assert!(error("none", &pcap(MICROSECONDS, 1, &[], 0)).contains("has no frame"));
    assert!(error("text", b"not a capture at all, is it?").contains("neither pcap nor pcapng"));
    assert!(error("wifi", &pcap(MICROSECONDS, 105, &[(1, 0, &good)], 0)).contains("link type 105"));
    let tcp = [&good[..23], &[6], &good[24..]].concat();
    let mixed = pcap(MICROSECONDS, 1, &[(1, 0, &good), (2, 0, &tcp)], 0);
    assert!(error("mixed", &mixed).contains("frame 2 is no UDP over IPv4"));
    assert!(with("any", &mixed, Recorded::read).is_ok(), "a replay sends what no receiver of ours counts");
    let missing = read_countable(Path::new("/nonexistent.pcap")).unwrap_err();
    assert!(format!("{missing:#}").contains("cannot open the capture /nonexistent.pcap"), "{missing:#}");
}

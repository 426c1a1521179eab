use super::*;

const NOW: u64 = 1_700_000_000_000_000;

fn seal(node: u16, cluster: &str) -> Seal {
    Seal::new(Key::without_secret(cluster), node, 5, NOW)
}

#[test]
fn what_was_sealed_opens_once() {
    let (mut from, mut to) = (seal(1, "blue"), seal(2, "blue"));
    let datagram = from.seal(Kind::Profile, b"payload", NOW);
    let opened = to.open(&datagram, NOW + MAX_SKEW_US).unwrap();
    assert_eq!(opened, Opened { kind: Kind::Profile, node: 1, epoch: 5, payload: b"payload" });
    assert_eq!(to.open(&datagram, NOW), Err(Refusal::Replayed));
    assert_eq!(seal(2, "green").open(&datagram, NOW), Err(Refusal::Tag), "another cluster");
}

#[test]
fn no_altered_byte_is_accepted() {
    let datagram = seal(1, "blue").seal(Kind::Swim, b"payload", NOW);
    let mut to = seal(2, "blue");
    for at in 0..datagram.len() {
        let mut altered = datagram.clone();
        altered[at] ^= 1;
        let refused = match at {
            0..3 => Refusal::Malformed,
            3 => Refusal::Version,
            4 => Refusal::NoKey,
            _ => Refusal::Tag,
        };
        assert_eq!(to.open(&altered, NOW), Err(refused), "byte {at}");
        let cut = to.open(&datagram[..at], NOW);
        assert!(cut == Err(Refusal::Tag) || cut == Err(Refusal::Malformed), "{at} bytes");
    }
    assert!(to.open(&datagram, NOW).is_ok(), "none of them has moved the window");
    assert_eq!(to.open(&vec![0; 70_000], NOW), Err(Refusal::Malformed));
}

#[test]
fn datagrams_may_overtake_each_other_within_the_window() {
    let (mut from, mut to) = (seal(1, "blue"), seal(2, "blue"));
    let datagrams: Vec<_> = (0..=WINDOW).map(|_| from.seal(Kind::Swim, b"", NOW)).collect();
    for at in [0, 2, 1, 3] {
        assert!(to.open(&datagrams[at], NOW).is_ok(), "{at}");
    }
    assert!(to.open(&datagrams[WINDOW as usize], NOW).is_ok());
    assert!(to.open(&datagrams[5], NOW).is_ok(), "late");
    assert_eq!(to.open(&datagrams[0], NOW), Err(Refusal::Replayed), "behind the window");
    assert_eq!(to.open(&datagrams[5], NOW), Err(Refusal::Replayed));
}

#[test]
fn old_datagrams_are_refused_by_one_that_has_just_started() {
    let datagram = seal(1, "blue").seal(Kind::Swim, b"", NOW);
    for now in [NOW + MAX_SKEW_US + 1, NOW - MAX_SKEW_US - 1] {
        assert_eq!(seal(2, "blue").open(&datagram, now), Err(Refusal::Clock));
    }
}

#[test]
fn a_restarted_sender_is_heard_and_forgotten_ones_are_not_kept() {
    let mut to = seal(2, "blue");
    for boot in 0..100 {
        let now = NOW + boot * MAX_SKEW_US;
        let mut from = Seal::new(Key::without_secret("blue"), 1, boot as u32, now);
        assert!(to.open(&from.seal(Kind::Swim, b"", now), now).is_ok());
    }
    assert!(to.seen.len() <= 5, "{}", to.seen.len());
}

#[test]
fn refusals_are_counted_by_reason() {
    let refusals = Refusals::default();
    refusals.add(Refusal::Tag);
    refusals.add(Refusal::Tag);
    assert_eq!((refusals.count(Refusal::Tag), refusals.total()), (2, 2));
    assert_eq!(serde_json::to_value(&refusals).unwrap()["tag"], 2);
}

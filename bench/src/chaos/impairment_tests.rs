use super::*;

#[test]
fn every_part_is_read() {
    let text = "drop=5%, duplicate=1%,reorder=1.5%,corrupt=0.1%,delay=10000ppm:2ms,kinds=forward+result,seed=7";
    let chaos: Chaos = text.parse().unwrap();
    assert_eq!(
        chaos,
        Chaos {
            drop: Share::percent(5),
            corrupt: Share::ppm(1_000),
            duplicate: Share::percent(1),
            reorder: Share::ppm(15_000),
            delay: Share::percent(1),
            delay_by: Duration::from_millis(2),
            corrupt_from: 0,
            kinds: Kinds::PACKETS,
            seed: 7,
        }
    );
    assert_eq!(chaos.to_string().parse(), Ok(chaos));
    assert_eq!("".parse(), Ok(Chaos::NONE));
    assert_eq!("drop=100%".parse(), Ok(Chaos::CUT));
}

#[test]
fn errors_say_what_is_wrong() {
    let cases = [
        ("lose=5%", "`lose=5%` is none of drop=SHARE"),
        ("drop", "`drop` is none of"),
        ("drop=5", "`drop=5`: a share is a number from 0 to 100 with `%`"),
        ("drop=101%", "`drop=101%`: a share"),
        ("drop=-1%", "`drop=-1%`: a share"),
        ("drop=1.2.3%", "`drop=1.2.3%`: a share"),
        ("drop=1%,drop=2%", "`drop` stands there twice"),
        ("delay=1%", "`delay=1%`: write the share and the time"),
        ("delay=1%:2", "`delay=1%:2`: write the share and the time"),
        ("kinds=forward+reports", "`reports` is no kind of frame; there are other, forward, result, report, pull"),
        ("seed=x", "`seed=x`: a seed is a whole number"),
        ("drop=60%,delay=60%:1ms", "the shares are 120% together"),
    ];
    for (text, message) in cases {
        let error = text.parse::<Chaos>().unwrap_err().to_string();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

#[test]
fn cables_directions_and_kinds_draw_apart() {
    let rules: Vec<_> = (0..4).map(|number| Chaos::CUT.rule(number, FrameKind::Forward)).collect();
    assert!((1..4).all(|at| rules[at].draw(0) != rules[0].draw(0)));
    assert_ne!(Chaos::CUT.rule(0, FrameKind::Result).draw(0), rules[0].draw(0));
}

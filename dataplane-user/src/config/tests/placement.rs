//! `[policy]`, its settings, and what `[[function]]` says about it.

use dataplane_common::policy::Needs;
use dataplane_common::tuning::CLASS;

use super::*;

#[test]
fn thesis_sets_what_the_file_does_not() {
    let policy = |keys: &str| parse(&format!("{BASE}[policy]\n{keys}\n")).unwrap();
    let literal = policy("thesis = true");
    assert_eq!((literal.policy.tuning.erl, literal.policy.tuning.sample), (Erl::Add as u32, 0));
    assert_eq!(literal.params(1).guard, 0);
    let kept = policy("thesis = true\nerl = \"drain\"\nsample = 5").policy.tuning;
    assert_eq!((kept.erl, kept.sample), (Erl::Drain as u32, 5));
    assert_eq!(policy("thesis = false").policy, Policy::default());
    assert_eq!(policy("").params(1).guard, 1);
}

#[test]
fn only_policies_that_this_node_can_run_are_taken() {
    for kind in PolicyKind::ALL {
        let needs = kind.needs();
        let works =
            |pull: bool| kind.homes().has_xdp() && !needs.has(Needs::PROBES) && (pull || !needs.has(Needs::PULL));
        for pull in [false, true] {
            let workers = format!("{BASE}[workers]\npull = {pull}\n");
            let of_node = format!("{workers}[policy]\nname = {:?}\n", kind.name());
            let of_function = format!("{workers}[[function]]\nname = \"crc32\"\npolicy = {:?}\n", kind.name());
            for (text, place) in [(of_node, "16:8"), (of_function, "17:10")] {
                if works(pull) {
                    assert!(parse(&text).is_ok(), "{text}");
                } else {
                    refused(&text, place, &[kind.name()]);
                }
            }
        }
    }
}

#[test]
fn the_programs_get_what_the_file_says() {
    let text = format!(
        "{BASE}[policy]\nname = \"ept\"\nmargin = \"3us\"\nprice = 3.5\n[reports]\npiggyback = false\n\
         [workers]\ndiscipline = \"class\"\n"
    );
    let params = parse(&text).unwrap().params(77);
    assert_eq!((params.node, params.nodes, params.epoch), (1, 3, 77));
    assert_eq!((params.policy, params.margin_ns, params.guard), (PolicyKind::Ept as u32, 3_000, 1));
    assert_eq!((params.udp_port, params.abi), (3322, ABI_VERSION));
    assert_eq!((params.policies, params.piggyback), (PolicyKind::Ept.bit(), 0));
    assert_eq!(params.tuning, Tuning { price_milli: 3_500, discipline: CLASS, ..Tuning::DEFAULT });
    // 10 Gbit/s is 0.8 ns per byte.
    assert_eq!(parse(&text).unwrap().forwarding.wire_ns_per_byte_q16(), 52_429);
}

#[test]
fn the_programs_get_the_policies_of_all_functions() {
    let function = |name: &str, policy: &str| format!("[[function]]\nname = \"{name}\"\n{policy}\n");
    let text = format!("{BASE}{}{}", function("crc32", ""), function("spin", "policy = \"local\""));
    let params = parse(&text).unwrap().params(1);
    assert_eq!(params.policies, PolicyKind::EptErl.bit() | PolicyKind::Local.bit());
    assert_eq!((params.policy, params.piggyback), (PolicyKind::EptErl as u32, 1));
    // No function names the policy of [policy]: its code need not be in the programs.
    let text = format!("{BASE}{}", function("spin", "policy = \"local\""));
    assert_eq!(parse(&text).unwrap().params(1).policies, PolicyKind::Local.bit());
}

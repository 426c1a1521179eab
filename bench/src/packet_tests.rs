use dataplane_common::classify::{Class, Rules, classify};
use dataplane_user::functions::Builtin;

use super::*;
use crate::topology::{Plan, Purpose, Shape};

const PROBE: Probe = Probe { sequence: 0x0102_0304_0506_0708, scheduled_ns: 1 << 50 };

fn recipe() -> Recipe {
    let plan = Plan::new(Shape::new(Purpose::Test, 2)).unwrap();
    Recipe::to_port(&plan.port(1), 3, Builtin::Sha256.type_id())
}

fn v6() -> Addresses {
    Addresses::V6 { source: "fd00::2".parse().unwrap(), destination: "fd00::1".parse().unwrap() }
}

/// Every combination of address family, carrier, VLAN tags, options.
fn variants() -> Vec<Recipe> {
    let mut all = Vec::new();
    for addresses in [recipe().addresses, v6()] {
        for carrier in [recipe().carrier, Carrier::Protocol107] {
            for vlans in [vec![], vec![7], vec![100, 200]] {
                for (operand, result_bytes, checksum) in [(None, 0, false), (Some(5), 32, true), (Some(1), 6, false)] {
                    let vlans = vlans.clone();
                    all.push(Recipe { addresses, carrier, vlans, operand, result_bytes, checksum, ..recipe() });
                }
            }
        }
    }
    all
}

#[test]
fn every_variant_is_what_a_node_takes_for_active() {
    for recipe in variants() {
        let recipe = recipe.with_frame_bytes(300).unwrap();
        let frame = recipe.template().unwrap().frame(&PROBE);
        assert_eq!(frame.len(), 300, "{recipe:?}");
        let Class::Active(active) = classify(frame.as_slice(), &Rules::anep(UDP_PORT)) else {
            panic!("not active: {recipe:?}");
        };
        assert_eq!(active.anep.operand, recipe.operand);
        assert_eq!(active.anep.result_len, recipe.result_bytes.next_multiple_of(4));
        assert_eq!(active.anep.checksum_at.is_some(), recipe.checksum);
        assert_eq!(active.anep.payload_len(), recipe.payload_bytes);
        assert_eq!(active.trailing, 0);
    }
}

#[test]
fn every_variant_is_read_back() {
    for recipe in variants() {
        let frame = recipe.template().unwrap().frame(&PROBE);
        let reply = Reply::parse(&frame).unwrap_or_else(|| panic!("not read: {recipe:?}"));
        assert_eq!(reply.probe, PROBE);
        assert_eq!(reply.type_id, recipe.type_id);
        assert_eq!(reply.result.len(), recipe.result_bytes.next_multiple_of(4));
        assert_eq!(reply.payload.len(), recipe.payload_bytes);
        assert!(reply.is_intact, "{recipe:?}");
    }
}

#[test]
fn one_flipped_bit_behind_the_addresses_is_noticed() {
    let recipe = Recipe { checksum: true, ..recipe() };
    let good = recipe.template().unwrap().frame(&PROBE);
    for at in ETHERNET_BYTES..good.len() {
        let mut frame = good.clone();
        frame[at] ^= 0x10;
        let intact = Reply::parse(&frame).is_some_and(|reply| reply.is_intact);
        assert!(!intact, "byte {at}");
    }
}

#[test]
fn a_missing_udp_checksum_is_allowed_over_ipv4_only() {
    let carrier = Carrier::Udp { source: 1, destination: UDP_PORT, checksum: false };
    let v4 = Recipe { carrier, ..recipe() }.template().unwrap().frame(&PROBE);
    let v6 = Recipe { carrier, addresses: v6(), ..recipe() }.template().unwrap().frame(&PROBE);
    assert_eq!(Reply::parse(&v4).map(|reply| reply.is_intact), Some(true));
    assert_eq!(Reply::parse(&v6).map(|reply| reply.is_intact), Some(false));
}

#[test]
fn strangers_and_stumps_are_no_replies() {
    let good = recipe().template().unwrap().frame(&PROBE);
    for length in 0..good.len() {
        assert_eq!(Reply::parse(&good[..length]), None, "{length} bytes");
    }
    let mut other = good.clone();
    other[recipe().template().unwrap().payload_range().start] ^= 1;
    assert_eq!(Reply::parse(&other), None, "without the magic number");
}

#[test]
fn impossible_recipes_are_refused() {
    assert!(Recipe { vlans: vec![1, 2, 3], ..recipe() }.template().is_err());
    assert!(Recipe { payload_bytes: PROBE_BYTES - 1, ..recipe() }.template().is_err());
    assert!(Recipe { payload_bytes: 70_000, ..recipe() }.template().is_err());
    assert!(Recipe { result_bytes: 300, ..recipe() }.template().is_err());
    assert!(recipe().with_frame_bytes(60).is_err());
}

//! The verifier takes the programs of every policy that may run in XDP, and is far from giving up.

use dataplane_common::maps::{AUTH_FULL, AUTH_HEADER, AUTH_REPORTS, Params};
use dataplane_common::policy::PolicyKind;

use crate::support::node::{load, may_run, object};

/// The verifier gives up after 1 000 000 instructions, counted by path. Other kernels find other paths equal, so a
/// program needs some distance.
const MOST_INSTRUCTIONS: u32 = 750_000;

/// Instructions that the verifier has looked at in each program of an object for these policies, or its last words.
fn verified(object: &[u8], params: Params) -> Result<[u32; 2], String> {
    let mut object = load(object, params);
    let mut count = |name| -> Result<u32, String> {
        let program = object.load_program(name).map_err(|error| error.to_string())?;
        let info = program.info().map_err(|error| format!("{name}: {error}"))?;
        Ok(info.verified_instruction_count().unwrap_or_default())
    };
    Ok([count("dp_ingress")?, count("dp_link")?])
}

#[test]
fn every_policy_for_xdp_is_accepted() {
    if !may_run("every_policy_for_xdp_is_accepted") {
        return;
    }
    let object = object();
    let (mut accepted, mut failures) = (0, Vec::new());
    for kind in PolicyKind::ALL.iter().copied().filter(|kind| kind.homes().has_xdp()) {
        let params = Params { policy: kind as u32, policies: kind.bit(), ..Params::DEFAULT };
        match verified(&object, params) {
            Ok([ingress, link]) if ingress.max(link) <= MOST_INSTRUCTIONS => {
                accepted += 1;
                println!("{}: {ingress} instructions verified in dp_ingress, {link} in dp_link", kind.name());
            }
            Ok(counts) => failures.push(format!("{}: {counts:?} instructions verified", kind.name())),
            Err(refused) => failures.push(format!("{}: {refused}", kind.name())),
        }
    }
    let sealing = Params { policy: PolicyKind::Sooner as u32, policies: PolicyKind::Sooner.bit(), ..Params::DEFAULT };
    for auth in [AUTH_REPORTS, AUTH_HEADER, AUTH_FULL] {
        match verified(&object, Params { auth, ..sealing }) {
            Ok(counts) if counts[0].max(counts[1]) <= MOST_INSTRUCTIONS => println!("auth {auth}: {counts:?}"),
            refused => failures.push(format!("auth {auth}: {refused:?}")),
        }
    }
    println!("{accepted} policies accepted");
    assert!(failures.is_empty(), "{} policies refused:\n{}", failures.len(), failures.join("\n"));
    assert!(accepted >= 4);
}

/// What costs the verifier most: these two in one object are at its limit.
const HEAVIEST: [PolicyKind; 2] = [PolicyKind::Sooner, PolicyKind::Prequal];

#[test]
fn functions_of_a_node_may_have_different_policies() {
    if !may_run("functions_of_a_node_may_have_different_policies") {
        return;
    }
    let object = object();
    let kinds = PolicyKind::ALL.iter().copied().filter(|kind| kind.homes().has_xdp());
    let light: Vec<_> = kinds.filter(|kind| !HEAVIEST.contains(kind)).collect();
    let with_sooner =
        [PolicyKind::Local, PolicyKind::EptErl, PolicyKind::Sooner, PolicyKind::Hrw, PolicyKind::TypeBurst];
    let mut failures = Vec::new();
    for kinds in [&light[..], &with_sooner] {
        let policies = kinds.iter().fold(0, |all, kind| all | kind.bit());
        match verified(&object, Params { policies, ..Params::DEFAULT }) {
            Ok([ingress, link]) => println!("{} policies: {ingress} and {link} instructions verified", kinds.len()),
            Err(refused) => failures.push(format!("{kinds:?}: {refused}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

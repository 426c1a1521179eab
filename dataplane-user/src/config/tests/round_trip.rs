//! Whatever is written reads back as the same.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use dataplane_common::policy::Needs;

use super::*;

/// True for a policy that runs without workers that pull.
fn can_run(kind: PolicyKind) -> bool {
    kind.homes().has_xdp() && !kind.needs().has(Needs::PROBES) && !kind.needs().has(Needs::PULL)
}

/// Settings within their bounds, chosen by a number each, and in order where one may not be above another.
fn tuning(numbers: &[u32]) -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    for (setting, number) in Tuning::ALL.iter().zip(numbers) {
        let span = setting.most - setting.least;
        settings::set(&mut tuning, setting, setting.least + number % span.saturating_add(1).max(1));
    }
    tuning.recovery_milli = tuning.recovery_milli.min(tuning.threshold_milli);
    tuning.busy_milli = tuning.busy_milli.min(tuning.full_milli);
    tuning.calm_milli = tuning.calm_milli.min(tuning.flood_milli);
    tuning
}

fn any_workers() -> impl Strategy<Value = Workers> {
    let ns = 0..=1_000_000_000u32;
    let cpus = prop::collection::btree_set(0..1024u32, 1..=64);
    (cpus, 8..=16u32, any::<bool>(), ns.clone(), ns.clone(), any::<bool>(), ns).prop_map(
        |(cpus, frames, large, spin_ns, patience_ns, pull, backlog_limit_ns)| Workers {
            cpus: cpus.into_iter().rev().collect(),
            frames: 1 << frames,
            frame_size: if large { 4096 } else { 2048 },
            spin_ns,
            patience_ns,
            pull,
            backlog_limit_ns,
        },
    )
}

fn any_membership() -> impl Strategy<Value = Option<Membership>> {
    let address =
        (any::<[u8; 4]>(), 1..=u16::MAX).prop_map(|([_, b, c, d], port)| SocketAddr::from(([10, b, c, d], port)));
    let key_file = prop::sample::select(vec![None, Some("/a \"b\"/ä.key")]);
    let membership =
        (address.clone(), prop::collection::vec(address, 0..5), key_file, "[a-z][a-z0-9-]{0,31}", 1..=4096u16)
            .prop_map(|(bind, join, key_file, cluster, max_nodes)| Membership {
                bind,
                join,
                key_file: key_file.map(PathBuf::from),
                cluster,
                max_nodes,
            });
    prop::option::of(membership)
}

/// Any configuration that [`Config::parse`] may return.
#[expect(clippy::too_many_lines, reason = "one strategy for each section, in the order of the file")]
fn any_config() -> impl Strategy<Value = Config> {
    let mode = prop::sample::select(vec![Mode::Native, Mode::Auto]);
    let zero_copy = prop::sample::select(vec![ZeroCopy::Auto, ZeroCopy::On, ZeroCopy::Off]);
    let interface = (mode, zero_copy);
    let ns = 0..=1_000_000_000u32;
    let usable: Vec<_> = PolicyKind::ALL.iter().copied().filter(|kind| can_run(*kind)).collect();
    let kind = prop::sample::select(usable);
    let policy = (kind.clone(), ns.clone(), any::<bool>(), prop::collection::vec(any::<u32>(), Tuning::ALL.len()));
    let forwarding = (ns.clone(), ns.clone(), ns, 1_000_000..=1_000_000_000_000u64, any::<bool>());
    let interval = 10_000..=1_000_000_000u32;
    let mode = prop::sample::select(ReportMode::NAMES.to_vec());
    let reports = (interval.clone(), interval.clone(), mode, 1..=100u32, interval, any::<bool>());
    let order = prop::sample::select(Order::NAMES.to_vec());
    let function = (1_000..=1_000_000_000u32, kind, order);
    let returns =
        prop::sample::select(vec![(Returns::Ingress, false), (Returns::Ingress, true), (Returns::Direct, false)]);
    let function = (function, returns);
    let functions = prop::collection::btree_map(0..KNOWN.len(), function, 1..=KNOWN.len());
    // Kernel sockets need links that carry UDP.
    let transport = prop::sample::select(Transport::NAMES[..2].to_vec());
    let auth = (prop::sample::select(Auth::NAMES.to_vec()), any::<bool>());
    let way =
        (transport, 1_000_000..=1_000_000_000u32, 0..8usize, prop::option::of(any::<[u8; 5]>()), 1..u16::MAX, auth);
    let peers = prop::collection::btree_map(1..4096u16, 0..8usize, 0..20);
    (
        prop::collection::vec(interface, 1..=8),
        (peers, any_membership()),
        any_workers(),
        policy,
        forwarding,
        reports,
        (1..=u16::MAX, any::<bool>(), prop::option::of(1..=65_000u16), any::<u32>()),
        functions,
        way,
    )
        .prop_map(
            |(interfaces, (peers, membership), workers, policy, forwarding, reports, active, functions, way)| {
                let interface = |kind: &str, n: usize| {
                    let (mode, zero_copy) = interfaces[n % interfaces.len()];
                    Interface { name: format!("{kind}\"\\{n}"), mode, zero_copy }
                };
                let peers: Vec<_> = peers
                    .into_iter()
                    .map(|(id, link)| {
                        let [high, low] = id.to_be_bytes();
                        let link = format!("l\"\\{link}");
                        let end = if id % 3 == 0 {
                            PeerEnd::Address(IpAddr::from([198, 18, high, low]))
                        } else {
                            PeerEnd::Mac([2, 0, 0xab, 0, high, low])
                        };
                        Peer { name: format!("n{id}"), id, link, end }
                    })
                    .collect();
                Config {
                    node: Node { name: "self-0".to_owned(), id: 0 },
                    ports: (0..interfaces.len()).map(|n| interface("p", n)).collect(),
                    links: (0..8)
                        .map(|n| Link {
                            interface: interface("l", n),
                            segment: format!("s{n}"),
                            encapsulation: Encapsulation::Ethernet,
                        })
                        .filter(|link| peers.iter().any(|peer| peer.link == link.interface.name))
                        .collect(),
                    peers,
                    membership,
                    workers,
                    policy: Policy { kind: policy.0, margin_ns: policy.1, thesis: policy.2, tuning: tuning(&policy.3) },
                    forwarding: Forwarding {
                        send_ns: forwarding.0,
                        receive_ns: forwarding.1,
                        wire_ns: forwarding.2,
                        bandwidth_bits: forwarding.3,
                        measure: forwarding.4,
                    },
                    interconnect: Interconnect {
                        transport: way.0.1,
                        port: way.4,
                        retry_ns: way.1,
                        auth: if way.5.1 { way.5.0.1 } else { Auth::Off },
                        key_file: way.5.1.then(|| "/etc/k\"\\".into()),
                        cluster: format!("c\"{}", way.2),
                    },
                    egress: Egress {
                        interface: format!("p\"\\{}", way.2 % interfaces.len()),
                        next_hop: way.3.map(|[a, b, c, d, e]| [2, a, b, c, d, e]),
                    },
                    reports: Reports {
                        mode: reports.2.1,
                        interval_ns: reports.0.min(reports.1),
                        idle_interval_ns: reports.0.max(reports.1),
                        finish_share: reports.3,
                        min_gap_ns: reports.4,
                        piggyback: reports.5,
                    },
                    active: Active {
                        udp_port: active.0,
                        verify_udp_checksum: active.1,
                        pktgen_port: active.2.filter(|first| !(*first..=first.saturating_add(8)).contains(&active.0)),
                        pktgen_operand: active.3,
                    },
                    functions: functions
                        .into_iter()
                        .map(|(n, ((limit_ns, policy, (_, order)), (returns, lossless)))| {
                            let type_id = 0x4000 + n as u16;
                            let returns = if order == Order::None { returns } else { Returns::Ingress };
                            FunctionConfig { name: KNOWN[n].name, type_id, limit_ns, policy, order, returns, lossless }
                        })
                        .collect(),
                }
            },
        )
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_the_same(config in any_config()) {
        let text = config.to_toml();
        prop_assert_eq!(parse(&text), Ok(config), "{}", text);
    }
}

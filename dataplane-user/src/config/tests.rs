use std::fs;

use dataplane_common::tuning::SHORTEST;
use proptest::prelude::*;

use super::*;

mod cluster;
mod placement;
mod round_trip;

const KNOWN: [KnownFunction; 4] = [
    KnownFunction { name: "crc32", type_id: 0xff02 },
    KnownFunction { name: "sha256", type_id: 0xff03 },
    KnownFunction { name: "spin", type_id: 0xff04 },
    KnownFunction { name: "checksum", type_id: 0xff05 },
];

/// A small file that is right; the tests below break it.
const BASE: &str = r#"[node]
name = "n1"
id = 1
[[port]]
interface = "eth1"
[[link]]
interface = "to-n2"
[[peer]]
name = "n2"
id = 2
link = "to-n2"
mac = "02:00:00:00:02:01"
"#;

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text, &KNOWN)
}

fn problems(text: &str) -> Vec<Problem> {
    parse(text).expect_err(text).problems().to_vec()
}

/// `line:column what | why | todo` of each problem.
fn shown(text: &str) -> Vec<String> {
    problems(text)
        .into_iter()
        .map(|Problem { place, what, why, todo }| match place {
            Some(place) => format!("{}:{} {what} | {why} | {todo}", place.line, place.column),
            None => format!("{what} | {why} | {todo}"),
        })
        .collect()
}

/// Expects exactly one problem, at `place` (`line:column`), that says each of `words`.
#[track_caller]
fn refused(text: &str, place: &str, words: &[&str]) {
    let found = shown(text);
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    assert!(found[0].starts_with(&format!("{place} ")), "expected at {place}: {}", found[0]);
    for word in words {
        assert!(found[0].contains(word), "expected {word:?} in: {}", found[0]);
    }
}

#[test]
fn a_minimal_file_gets_every_default() {
    let config = parse("node = { name = \"n1\", id = 0 }\nport = [{ interface = \"eth1\" }]").unwrap();
    let port = Interface { name: "eth1".to_owned(), mode: Mode::Native, zero_copy: ZeroCopy::Auto };
    assert_eq!(
        config,
        Config {
            node: Node { name: "n1".to_owned(), id: 0 },
            ports: vec![port],
            links: Vec::new(),
            peers: Vec::new(),
            membership: None,
            workers: Workers {
                cpus: vec![0],
                frames: 4096,
                frame_size: 2048,
                spin_ns: 20_000,
                patience_ns: 50_000_000,
                pull: false,
                backlog_limit_ns: 500_000_000,
            },
            policy: Policy { kind: PolicyKind::EptErl, margin_ns: 0, thesis: false, tuning: Tuning::DEFAULT },
            forwarding: Forwarding {
                send_ns: 2_000,
                receive_ns: 2_000,
                wire_ns: 10_000,
                bandwidth_bits: 10_000_000_000,
                measure: true,
            },
            interconnect: Interconnect {
                transport: Transport::Xdp,
                port: 49_322,
                retry_ns: 20_000_000,
                key_file: None,
                auth: Auth::Off,
                cluster: "dataplane".to_owned(),
            },
            egress: Egress { interface: "eth1".to_owned(), next_hop: None },
            reports: Reports {
                mode: ReportMode::Periodic,
                interval_ns: 100_000,
                idle_interval_ns: 1_000_000,
                finish_share: 50,
                min_gap_ns: 20_000,
                piggyback: true,
            },
            active: Active { udp_port: 3322, verify_udp_checksum: true, pktgen_port: None, pktgen_operand: 0 },
            functions: KNOWN.map(|known| FunctionConfig::new(known, PolicyKind::EptErl)).to_vec(),
        }
    );
    assert_eq!((config.functions[0].limit_ns, config.functions[0].order), (10_000_000, DEFAULT_ORDER));
}

/// Every key with a value that is not its default.
const FULL: &str = r#"
[node]
name = "edge-7"
id = 4095
[[port]]
interface = "eth1"
mode = "skb"
zero_copy = "off"
[[link]]
interface = "eth2.100"
mode = "auto"
zero_copy = "on"
segment = "rack-7"
[[peer]]
name = "n2"
id = 0
link = "eth2.100"
mac = "0A:00:00:00:02:ff"
[[peer]]
name = "n3"
id = 3
link = "eth2.100"
address = "fd00::3"
[membership]
bind = "192.0.2.7:7946"
join = ["192.0.2.2:7946", "[fd00::9]:1"]
key_file = "/etc/key"
auth = "key"
cluster = "blue"
max_nodes = 4096
[workers]
cpus = [3, 1]
frames = 65536
frame_size = 4096
spin = 0
patience = "3ms"
discipline = "shortest"
pull = true
backlog_limit = "70ms"
[policy]
name = "cpu-load"
margin = "1.5us"
thesis = true
choices = 3
price = 1.25
relax = 4
plan = "20ms"
over = "none"
[forwarding]
send = "250ns"
receive = "1us"
wire = "2 µs"
bandwidth = "2.5Gbit/s"
measure = false
[interconnect]
transport = "xsk"
retry = "3ms"
[egress]
interface = "eth1"
next_hop = "02:00:00:00:00:fe"
[reports]
mode = "k-finish"
interval = "10us"
idle_interval = "1s"
finish_share = 75
min_gap = "15us"
piggyback = false
[active]
udp_port = 9000
verify_udp_checksum = false
pktgen_port = 9100
pktgen_operand = 7
[[function]]
name = "sha256"
type_id = 0x1234
limit = "1us"
policy = "ept"
order = "affine"
lossless = true
[[function]]
name = "crc32"
order = "none"
returns = "direct"
"#;

#[test]
fn a_full_file_is_read_key_by_key() {
    let config = parse(FULL).unwrap();
    assert_eq!((config.node.name.as_str(), config.node.id), ("edge-7", 4095));
    assert_eq!((config.ports[0].mode, config.ports[0].zero_copy), (Mode::Skb, ZeroCopy::Off));
    let link = &config.links[0];
    assert_eq!((link.interface.mode, link.interface.zero_copy), (Mode::Auto, ZeroCopy::On));
    assert_eq!(link.segment, "rack-7");
    assert_eq!(config.peers[0].end, PeerEnd::Mac([0x0a, 0, 0, 0, 2, 0xff]));
    assert_eq!(config.peers[1].end, PeerEnd::Address("fd00::3".parse().unwrap()));
    let membership = Membership {
        bind: "192.0.2.7:7946".parse().unwrap(),
        join: vec!["192.0.2.2:7946".parse().unwrap(), "[fd00::9]:1".parse().unwrap()],
        key_file: Some("/etc/key".into()),
        cluster: "blue".to_owned(),
        max_nodes: 4096,
    };
    assert_eq!(config.membership, Some(membership));
    assert_eq!(config.peers[0].link, "eth2.100");
    let workers = Workers {
        cpus: vec![3, 1],
        frames: 65_536,
        frame_size: 4096,
        spin_ns: 0,
        patience_ns: 3_000_000,
        pull: true,
        backlog_limit_ns: 70_000_000,
    };
    assert_eq!(config.workers, workers);
    let tuning = Tuning {
        discipline: SHORTEST,
        erl: Erl::Add as u32,
        sample: 0,
        choices: 3,
        price_milli: 1_250,
        relax_milli: 4_000,
        plan_ns: 20_000_000,
        over: 1,
        ..Tuning::DEFAULT
    };
    assert_eq!(config.policy, Policy { kind: PolicyKind::CpuLoad, margin_ns: 1_500, thesis: true, tuning });
    let forwarding =
        Forwarding { send_ns: 250, receive_ns: 1_000, wire_ns: 2_000, bandwidth_bits: 2_500_000_000, measure: false };
    assert_eq!(config.forwarding, forwarding);
    let reports = Reports {
        mode: ReportMode::KFinish,
        interval_ns: 10_000,
        idle_interval_ns: 1_000_000_000,
        finish_share: 75,
        min_gap_ns: 15_000,
        piggyback: false,
    };
    assert_eq!(config.reports, reports);
    assert_eq!(
        config.interconnect,
        Interconnect { transport: Transport::Xsk, retry_ns: 3_000_000, ..Interconnect::default() }
    );
    assert_eq!(config.egress.next_hop, Some([2, 0, 0, 0, 0, 0xfe]));
    assert_eq!(
        config.active,
        Active { udp_port: 9000, verify_udp_checksum: false, pktgen_port: Some(9100), pktgen_operand: 7 }
    );
    assert_eq!(
        config.functions,
        [
            FunctionConfig {
                name: "sha256",
                type_id: 0x1234,
                limit_ns: 1_000,
                policy: PolicyKind::Ept,
                order: Order::Affine,
                returns: Returns::Ingress,
                lossless: true,
            },
            FunctionConfig {
                order: Order::None,
                returns: Returns::Direct,
                ..FunctionConfig::new(KNOWN[0], PolicyKind::CpuLoad)
            },
        ]
    );
}

#[test]
fn each_bad_value_is_refused_at_its_place_with_what_to_write() {
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("name = \"n1\"", "name = \"1n\"", "2:8", &["does not begin with a letter"]),
        ("name = \"n1\"", "name = \"N1\"", "2:8", &["holds 'N'", "directory of its maps"]),
        ("name = \"n1\"", "name = \"\"", "2:8", &["does not begin with a letter"]),
        ("name = \"n1\"", "name = \"aaaaaaaaaabbbbbbbbbbccccccccccddd\"", "2:8", &["33 characters"]),
        ("name = \"n1\"", "name = 1", "2:8", &["is a whole number, not a string", "quotes"]),
        ("id = 1", "id = 4096", "3:6", &["id = 4096 is out of range", "load table", "0 to 4095"]),
        ("id = 1", "id = -1", "3:6", &["out of range"]),
        ("id = 1", "id = 99999999999999999999999999999999999999999", "3:6", &["out of range"]),
        ("id = 1", "id = \"1\"", "3:6", &["is a string, not a whole number"]),
        ("id = 1", "id = 1.0", "3:6", &["is a fractional number"]),
        ("\"eth1\"", "\"\"", "5:13", &["is empty"]),
        ("\"eth1\"", "\"eth 1\"", "5:13", &["holds ' '"]),
        ("\"eth1\"", "\"a/b\"", "5:13", &["holds '/'"]),
        ("\"eth1\"", "\"abcdefghijklmnop\"", "5:13", &["16 bytes", "ip link"]),
        ("\"eth1\"", "\"..\"", "5:13", &["is a directory"]),
        ("\"eth1\"", "\"eth1\"\nmode = \"naitve\"", "6:8", &["did you mean native?", "\"native\", \"skb\", \"auto\""]),
        ("\"eth1\"", "\"eth1\"\nzero_copy = true", "6:13", &["is a truth value, not a string"]),
        ("02:00:00:00:02:01", "02-00-00-00-02-01", "12:7", &["is not a MAC address", "like \"02:"]),
        ("02:00:00:00:02:01", "2:0:0:0:2:1", "12:7", &["is not a MAC address"]),
        ("02:00:00:00:02:01", "02:00:00:00:02:01:00", "12:7", &["is not a MAC address"]),
        ("02:00:00:00:02:01", "00:00:00:00:00:00", "12:7", &["is zero"]),
        ("02:00:00:00:02:01", "ff:ff:ff:ff:ff:ff", "12:7", &["is a group address"]),
    ];
    for (from, to, place, words) in cases {
        assert!(BASE.contains(from), "{from}");
        refused(&BASE.replacen(from, to, 1), place, words);
    }
}

#[test]
fn each_bad_setting_of_an_optional_section_is_refused() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("[workers]\ncpus = []", "14:8", &["lists 0 CPUs", "at most 64"]),
        ("[workers]\ncpus = 2", "14:8", &["is a whole number, not a list"]),
        ("[workers]\ncpus = [2, 0, 2]", "14:15", &["CPU 2 is listed twice"]),
        ("[workers]\ncpus = [0, \"1\"]", "14:12", &["is a string"]),
        ("[workers]\ncpus = [1024]", "14:9", &["the CPU 1024 is out of range"]),
        ("[workers]\nframes = 3000", "14:10", &["not a power of two", "write 2048 or 4096"]),
        ("[workers]\nframes = 128", "14:10", &["out of range", "256 to 65536"]),
        ("[workers]\nframe_size = 1500", "14:14", &["write 2048 or 4096"]),
        ("[workers]\nspin = 20", "14:8", &["has no unit", "\"100us\""]),
        ("[workers]\nspin = \"20\"", "14:8", &["spin = \"20\" has no unit"]),
        ("[workers]\nspin = \"2min\"", "14:8", &["unknown unit, \"min\""]),
        ("[workers]\npatience = \"2s\"", "14:12", &["out of range", "0ns to 1s", "packet memory"]),
        ("[workers]\nspin = \"2s\"", "14:8", &["out of range", "0ns to 1s"]),
        ("[workers]\nspin = 12:30:00", "14:8", &["is a date or time"]),
        ("[policy]\nname = \"ept_erl\"", "14:8", &["is no policy", "did you mean ept-erl?"]),
        ("[workers]\ndiscipline = \"shortst\"", "14:14", &["mean shortest?", "in a worker", "\"class\""]),
        ("[workers]\npull = 1", "14:8", &["is a whole number", "write true or false"]),
        ("[policy]\nthesis = \"yes\"", "14:10", &["write true or false"]),
        ("[policy]\nsample = 65", "14:10", &["out of range", "Nodes a decision looks at", "from 0 to 64"]),
        ("[policy]\nsample = 1.5", "14:10", &["is a fractional number, not a whole number"]),
        ("[policy]\nprice = \"2\"", "14:9", &["price = \"2\" is a string, not a number", "0.0 to 100.0"]),
        ("[policy]\nprice = 100.001", "14:9", &["out of range", "weight of the CPU time"]),
        ("[policy]\nprice = 101", "14:9", &["out of range"]),
        ("[policy]\nprice = -1", "14:9", &["out of range"]),
        ("[policy]\nprice = 0.0005", "14:9", &["more than three decimals"]),
        ("[policy]\nprice = 1e3", "14:9", &["not a plain decimal number"]),
        ("[policy]\nplan = 10", "14:8", &["has no unit"]),
        ("[policy]\nplan = \"10us\"", "14:8", &["out of range", "100us to 4s"]),
        ("[policy]\nerl = \"adds\"", "14:7", &["mean add?", "\"ack\", \"add\", \"drain\", \"off\""]),
        ("[policy]\nthreshold = 0.4", "14:13", &["recovery is above threshold", "over and recovered"]),
        ("[policy]\nbusy = 0.9\nfull = 0.85", "14:8", &["busy is above full"]),
        ("[policy]\nmargin = \"0.5ns\"", "14:10", &["not a whole number of ns"]),
        ("[forwarding]\nbandwidth = \"10Gbps\"", "14:13", &["unknown unit", "\"10Gbit/s\""]),
        ("[forwarding]\nbandwidth = \"10gbit/s\"", "14:13", &["did you mean Gbit/s?"]),
        ("[forwarding]\nbandwidth = 10", "14:13", &["has no unit"]),
        ("[forwarding]\nbandwidth = \"100kbit/s\"", "14:13", &["out of range"]),
        ("[forwarding]\nwire = \"99999999999999999999s\"", "14:8", &["too large"]),
        ("[reports]\ninterval = \"5us\"", "14:12", &["out of range", "10us to 1s"]),
        ("[reports]\nidle_interval = \"50us\"", "14:17", &["below interval", "\"100us\" or more"]),
        ("[reports]\nmode = \"on_finish\"", "14:8", &["is no mode", "did you mean on-finish?"]),
        ("[reports]\nfinish_share = 0", "14:16", &["out of range", "1 to 100", "percent"]),
        ("[reports]\nmin_gap = \"1us\"", "14:11", &["out of range"]),
        ("[reports]\npiggyback = \"on\"", "14:13", &["write true or false"]),
        ("[active]\nudp_port = 0", "14:12", &["1 to 65535"]),
        ("[active]\npktgen_port = 0", "14:15", &["1 to 65535"]),
        ("[active]\npktgen_port = 65535", "14:15", &["would have port", "16 bits"]),
        ("[active]\npktgen_port = 3321", "14:15", &["contain udp_port, 3322", "no function reaches it"]),
        ("[[function]]\nname = \"crc23\"", "14:8", &["is no function", "did you mean crc32?"]),
        ("[[function]]\nname = \"crc32\"\ntype_id = 0", "15:11", &["reserved"]),
        ("[[function]]\nname = \"crc32\"\ntype_id = 15", "15:11", &["ASP"]),
        ("[[function]]\nname = \"crc32\"\ntype_id = 51", "15:11", &["Anetd", "like 0xff02"]),
        ("[[function]]\nname = \"crc32\"\ntype_id = 0x10000", "15:11", &["out of range"]),
        ("[[function]]\nname = \"crc32\"\nlimit = \"2s\"", "15:9", &["out of range", "1us to 1s"]),
        ("[[function]]\nname = \"crc32\"\npolicy = \"epd\"", "15:10", &["is no policy", "mean ept?"]),
        ("[[function]]\nname = \"crc32\"\norder = \"flows\"", "15:9", &["is no order", "did you mean flow?"]),
        ("[[function]]\nlimit = \"2ms\"", "13:1", &["this [[function]] has no name"]),
    ];
    for (section, place, words) in cases {
        refused(&format!("{BASE}{section}\n"), place, words);
    }
}

#[test]
fn places_that_contradict_each_other_are_named_both() {
    let link = "[[link]]\ninterface = \"to-n3\"\n";
    let peer = |name: &str, id: u16, mac: u8| {
        format!("[[peer]]\nname = \"{name}\"\nid = {id}\nlink = \"to-n2\"\nmac = \"02:00:00:00:02:{mac:02x}\"\n")
    };
    let function = |name: &str, rest: &str| format!("[[function]]\nname = \"{name}\"\n{rest}\n");
    let cases: &[(String, &str, &[&str])] = &[
        (peer("n1", 3, 3), "14:8", &["the name n1 is taken by the [node] on line 1"]),
        (peer("n2", 3, 3), "14:8", &["the name n2 is taken by the [[peer]] on line 8"]),
        (peer("n3", 1, 3), "15:6", &["the id 1 is taken by the [node] on line 1"]),
        (peer("n3", 2, 3), "15:6", &["the id 2 is taken by the [[peer]] on line 8"]),
        (peer("n3", 3, 1), "17:7", &["this address on to-n2 is taken by the [[peer]] on line 8"]),
        ("[[port]]\ninterface = \"eth1\"\n".to_owned(), "14:13", &["eth1 is taken by the [[port]] on line 4"]),
        ("[[port]]\ninterface = \"to-n2\"\n".to_owned(), "7:13", &["to-n2 is taken by the [[port]] on line 13"]),
        (link.to_owned(), "14:13", &["to-n3 leads to no peer", "remove the [[link]]"]),
        (function("crc32", "") + &function("crc32", "type_id = 9"), "17:8", &["the function crc32 is taken"]),
        (
            function("crc32", "type_id = 9") + &function("spin", "type_id = 9"),
            "18:11",
            &["the type id 0x0009 is taken by the [[function]] on line 13"],
        ),
        (function("crc32", "type_id = 0xff04") + &function("spin", ""), "17:8", &["type id 0xff04 is taken"]),
    ];
    for (section, place, words) in cases {
        refused(&format!("{BASE}{section}"), place, words);
    }
    let contradiction = "interface = \"eth1\"\nmode = \"skb\"\nzero_copy = \"on\"";
    refused(&BASE.replace("interface = \"eth1\"", contradiction), "7:13", &["contradicts mode"]);
}

#[test]
fn a_peer_needs_a_link_that_exists() {
    // One wrong name is one problem: the link it should have named is not called unused on top.
    refused(&BASE.replace("link = \"to-n2\"", "link = \"to-n3\""), "11:8", &["names no [[link]]", "mean to-n2?"]);
    refused(
        &BASE.replace("link = \"to-n2\"", "link = \"eth1\""),
        "11:8",
        &["names the [[port]] on line 4, not a link"],
    );
    // And a link with a mistake does not make its peer wrong.
    refused(&BASE.replace("interface = \"to-n2\"", "interface = \"to n2\""), "7:13", &["holds ' '"]);
}

#[test]
fn what_is_missing_is_said_with_a_line_to_add() {
    assert_eq!(
        shown(""),
        [
            "1:1 there is no [node] | a node must say who it is | add a section [node] with name = \"n1\" and id = 1",
            "1:1 there is no [[port]] | active packets arrive at a port | \
             add a section [[port]] with interface = \"eth1\"",
        ]
    );
    refused(&BASE.replace("id = 1\n", ""), "1:1", &["this [node] has no id", "add a line id = 1"]);
    refused(&BASE.replace("mac = \"02:00:00:00:02:01\"\n", ""), "8:1", &["this [[peer]] has no mac"]);
}

#[test]
fn unknown_names_get_a_suggestion_or_their_home() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("[worker]\ncpus = [1]", "13:2", &["no section worker; did you mean workers?"]),
        ("[xyz]", "13:2", &["no section xyz |", "[node], [[port]]"]),
        ("[[peers]]\nname = \"n3\"", "13:3", &["no section peers; did you mean peer?"]),
        ("[workers]\nframe-size = 2048", "14:1", &["[workers] has no key frame-size; did you mean frame_size?"]),
        ("[workers]\nmargin = \"1us\"", "14:1", &["has no key margin |", "move it to [policy]"]),
        ("[workers]\nhyperdrive = 1", "14:1", &["cpus, frames, frame_size, spin, patience, discipline", "remove it"]),
        ("[policy]\ndiscipline = \"fifo\"", "14:1", &["has no key discipline", "move it to [workers]"]),
        ("[policy]\nplan_ns = 1", "14:1", &["has no key plan_ns; did you mean plan?"]),
        ("[policy]\ntreshold = 0.5", "14:1", &["did you mean threshold?"]),
        ("[policy]\nguard = false", "14:1", &["name, margin, thesis and what `dataplane policies --settings`"]),
        ("[workers.cpus]", "13:1", &["cpus", "is a section, not a list"]),
    ];
    for (section, place, words) in cases {
        refused(&format!("{BASE}{section}\n"), place, words);
    }
    refused(&format!("cpus = [0]\n{BASE}"), "1:1", &["stands outside of every section", "move it to [workers]"]);
}

#[test]
fn a_section_of_the_wrong_shape_is_refused_and_still_read() {
    refused(&BASE.replace("[[port]]", "[port]"), "4:2", &["port is a single section here", "write [[port]]"]);
    refused(&BASE.replace("[node]", "[[node]]"), "1:3", &["node is a list here", "write [node]"]);
    refused(&format!("active = 1\n{BASE}"), "1:10", &["active is a whole number here", "write [active]"]);
    let both = BASE.replace("[[port]]", "[port]").replace("eth1", "a/b");
    assert_eq!(problems(&both).len(), 2, "{both}");
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_in_its_order() {
    let text = r#"[node]
name = "N1"
id = 5000
[[port]]
interfce = "eth1"
[[link]]
interface = "to-n2"
mode = "fast"
[[peer]]
name = "n2"
id = 2
link = "to-n9"
mac = "x"
[workers]
spin = "20"
[polcy]
"#;
    let places: Vec<_> = problems(text).into_iter().filter_map(|p| p.place).map(|p| (p.line, p.column)).collect();
    assert_eq!(places, [(2, 8), (3, 6), (4, 1), (5, 1), (8, 8), (12, 8), (13, 7), (15, 8), (16, 2)]);
}

#[test]
fn syntax_errors_are_all_reported_and_leave_the_rest_of_the_file_checked() {
    let text = BASE.replace("name = \"n1\"", "name = n1").replace("id = 2", "id = = 2").replace("eth1", "a/b");
    let found = shown(&text);
    let starts = ["2:8 not TOML", "5:13 interface = \"a/b\" holds", "10:6 not TOML"];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
    assert!(found[0].contains("write it in quotes"));
    refused(&format!("{BASE}[node]\n"), "13:2", &["duplicate key", "[[port]]"]);
}

#[test]
fn after_a_broken_header_or_list_nothing_is_guessed() {
    // What follows would be read as part of the wrong section.
    let header = BASE.replace("[[port]]", "[[port]").replace("eth1", "a/b");
    refused(&header, "4:8", &["not TOML: unclosed array table", "add the missing bracket"]);
    let list = format!("{BASE}[workers]\ncpus = [0, 1\n[policy]\nname = \"ept\"\n");
    let found = shown(&list);
    assert!(found.iter().all(|problem| problem.contains("not TOML")), "{found:#?}");
    assert!(found[0].contains("close the list"), "{found:#?}");
    let text = parse(&header).unwrap_err().to_string();
    assert!(text.ends_with("config: 1 error; the rest is checked once this is TOML"), "{text}");
}

#[test]
fn limits_of_the_tables_hold() {
    let port = |n: usize| format!("[[port]]\ninterface = \"p{n}\"\n");
    let ports = |n: usize| (0..n).map(port).collect::<String>();
    let alone = "[node]\nname = \"n1\"\nid = 1\n";
    assert_eq!(parse(&format!("{alone}{}", ports(16))).unwrap().ports.len(), 16);
    refused(&format!("{alone}{}", ports(18)), "36:1", &["more than 16 ports and links"]);
    let cpus = |n: u32| format!("{BASE}[workers]\ncpus = {:?}\n", (0..n).collect::<Vec<_>>());
    assert_eq!(parse(&cpus(64)).unwrap().workers.cpus.len(), 64);
    refused(&cpus(65), "14:8", &["lists 65 CPUs"]);
    let many: Vec<_> = (0..65u16)
        .map(|n| KnownFunction { name: Box::leak(format!("f{n}").into_boxed_str()), type_id: 100 + n })
        .collect();
    let functions: String = many.iter().map(|f| format!("[[function]]\nname = \"{}\"\n", f.name)).collect();
    let errors = Config::parse(&format!("{BASE}{functions}"), &many).unwrap_err();
    assert!(errors.to_string().contains("more than 64 functions"), "{errors}");
}

#[test]
fn an_idle_interval_that_is_not_given_follows_the_interval() {
    let config = parse(&format!("{BASE}[reports]\ninterval = \"20ms\"\n")).unwrap();
    assert_eq!(config.reports.idle_interval_ns, 20_000_000);
}

#[test]
fn errors_are_shown_with_their_line_a_mark_reason_and_remedy() {
    let errors = parse(&BASE.replace("id = 1", "\tid = 5000 # é").replace("eth1", "a/b")).unwrap_err();
    assert_eq!(
        errors.to_string(),
        r#"config:3:7: id = 5000 is out of range
  3 |  id = 5000 # é
    |       ^^^^
  why: the id is the node's row in the load table, which has 4096
  do:  write a whole number from 0 to 4095

config:5:13: interface = "a/b" holds '/'; no interface has such a name
  5 | interface = "a/b"
    |             ^^^^^
  why: the kernel allows 1 to 15 bytes without '/', ':' and white space, and not . or ..
  do:  write a name that `ip link` shows

config: 2 errors"#
    );
}

#[test]
fn columns_count_characters_and_control_characters_do_not_reach_the_terminal() {
    let errors = problems("é\u{1b}[31m = 1");
    let place = errors[0].place.as_ref().unwrap();
    assert!(!place.excerpt.contains('\u{1b}'), "{place:?}");
    refused(&BASE.replace("name = \"n1\"", "\"é\" = 1 \nname = \"n1\""), "2:1", &["has no key \"é\""]);
    refused(&BASE.replace("id = 1\n", "'ééé' . x = 1\nid = 1\n"), "3:1", &["has no key"]);
    assert!(parse(&BASE.replace('\n', "\r\n")).is_ok());
    assert!(parse(&format!("\u{feff}{BASE}")).is_ok());
}

#[test]
fn a_file_that_cannot_be_read_says_what_to_do() {
    let directory = std::env::temp_dir().join(format!("dataplane-config-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let missing = Config::load(directory.join("none.toml"), &KNOWN).unwrap_err().to_string();
    assert!(missing.contains("none.toml: the configuration cannot be read"), "{missing}");
    assert!(missing.contains("dataplane config example"), "{missing}");
    let path = directory.join("n1.toml");
    fs::write(&path, b"[node]\nname = \"\xff\"\n").unwrap();
    let binary = Config::load(&path, &KNOWN).unwrap_err().to_string();
    assert!(binary.starts_with(&format!("{}:2:9: this byte is not UTF-8", path.display())), "{binary}");
    fs::write(&path, BASE).unwrap();
    assert_eq!(Config::load(&path, &KNOWN), parse(BASE));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_example_is_right_and_so_is_everything_it_comments_out() {
    let plain = parse(example()).unwrap();
    assert_eq!((&plain.workers, &plain.policy), (&Workers::default(), &Policy::default()));
    assert_eq!((&plain.forwarding, &plain.reports), (&Forwarding::default(), &Reports::default()));
    let full = parse(&uncommented()).unwrap();
    // What is commented out shows the defaults, except that it picks one function, a router for direct results, a key file, and the
    // pktgen profile.
    assert_eq!(full.functions, [FunctionConfig::new(KNOWN[0], PolicyKind::EptErl)]);
    assert_eq!(full.egress.interface, plain.egress.interface);
    let keyless = Interconnect { key_file: None, auth: Auth::Off, ..full.interconnect.clone() };
    assert_eq!((full.interconnect.auth, keyless), (Auth::Header, plain.interconnect.clone()));
    assert_eq!(full.active, Active { pktgen_port: Some(9000), ..plain.active.clone() });
    let (functions, egress) = (plain.functions.clone(), plain.egress.clone());
    let (interconnect, active) = (plain.interconnect.clone(), plain.active.clone());
    assert_eq!(Config { functions, egress, interconnect, active, ..full }, plain);
}

/// The example with everything that it comments out.
fn uncommented() -> String {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    example().lines().map(uncomment).collect()
}

#[test]
fn the_example_has_every_key() {
    let text = uncommented();
    let root: toml::Table = text.parse().unwrap();
    for schema in schema::SECTIONS {
        let sections: Vec<_> = match &root[schema.name] {
            toml::Value::Array(list) => list.iter().map(|entry| entry.as_table().unwrap()).collect(),
            single => vec![single.as_table().unwrap()],
        };
        for key in schema.keys() {
            assert!(sections.iter().any(|section| section.contains_key(key)), "{} has no {key}", schema.header());
        }
    }
    for setting in settings().filter(|setting| setting.section == "policy") {
        let lines = format!("# {} [{}]\n#{} = {}\n", setting.help, setting.accepted, setting.key, setting.default);
        assert!(example().contains(&lines), "the example lacks, at the end of [policy]:\n{lines}");
    }
}

#[test]
fn transmission_time_per_byte_fits_at_both_ends_of_the_range() {
    let q16 = |bandwidth_bits| Forwarding { bandwidth_bits, ..Forwarding::default() }.wire_ns_per_byte_q16();
    assert_eq!(q16(1_000_000), 8_000 << 16);
    assert_eq!(q16(1_000_000_000_000), 524);
    assert_eq!(q16(0), u32::MAX);
}

/// What may be typed into a file by accident.
const DAMAGE: &str = "[\\[\\]=\"#.,{}\n\u{e9}0-9a-z]{0,3}";

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.problems().is_empty() && !errors.to_string().is_empty());
        }
    }

    #[test]
    fn no_damage_to_a_right_file_makes_the_reader_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..6usize, DAMAGE), 1..6),
    ) {
        let mut text: Vec<char> = parse(BASE).unwrap().to_toml().chars().collect();
        for (at, removed, inserted) in edits {
            let at = at.index(text.len());
            let end = (at + removed).min(text.len().saturating_sub(1)).max(at);
            text.splice(at..end, inserted.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(errors) = parse(&text) {
            let shown = errors.to_string();
            prop_assert!(!shown.contains("BUG"), "{}\n{}", text, shown);
        }
    }
}

#[test]
fn authentication_needs_a_key_file_and_is_of_headers_unless_it_says_otherwise() {
    use dataplane_common::maps::{AUTH_FULL, AUTH_HEADER, AUTH_OFF, AUTH_REPORTS};
    let auth = |lines: &str| {
        let text = format!("{BASE}\n[interconnect]\n{lines}");
        parse(&text).map(|config| config.interconnect.auth_id())
    };
    assert_eq!(auth(""), Ok(AUTH_OFF));
    assert_eq!(auth("auth = \"off\""), Ok(AUTH_OFF));
    assert_eq!(auth("key_file = \"/k\""), Ok(AUTH_HEADER));
    assert_eq!(auth("key_file = \"/k\"\nauth = \"off\""), Ok(AUTH_REPORTS));
    assert_eq!(auth("key_file = \"/k\"\nauth = \"full\""), Ok(AUTH_FULL));
    for wrong in ["auth = \"header\"", "auth = \"full\""] {
        let said = auth(wrong).unwrap_err().to_string();
        assert!(said.contains("needs a key_file") && said.contains("dataplane key new"), "{said}");
    }
    assert!(auth("auth = \"fulll\"").unwrap_err().to_string().contains("did you mean"));
}

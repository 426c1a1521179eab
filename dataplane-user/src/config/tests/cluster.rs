//! `[[peer]]` by address, segments, `[membership]`.

use super::*;

const MEMBERSHIP: &str = "[membership]\nbind = \"192.0.2.1:7946\"\nkey_file = \"/key\"\n";

#[test]
fn membership_gets_its_defaults_and_leaves_room_for_others() {
    let alone = BASE.split("[[peer]]").next().unwrap();
    let config = parse(&format!("{alone}{MEMBERSHIP}")).unwrap();
    let membership = config.membership.as_ref().unwrap();
    assert_eq!((membership.join.len(), membership.cluster.as_str(), membership.max_nodes), (0, "dataplane", 64));
    assert_eq!((config.params(1).nodes, config.links[0].segment.as_str()), (64, "main"));
    let open = parse(&format!("{alone}{}", MEMBERSHIP.replace("key_file = \"/key\"", "auth = \"off\""))).unwrap();
    assert_eq!(open.membership.unwrap().key_file, None);
}

#[test]
fn each_bad_setting_of_membership_is_refused() {
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("bind = \"192.0.2.1:7946\"\n", "", "13:1", &["has no bind"]),
        ("192.0.2.1:7946", "192.0.2.1", "14:8", &["is not an IP address with a port"]),
        ("192.0.2.1:7946", "0.0.0.0:7946", "14:8", &["is not the address of one node", "send to this"]),
        ("192.0.2.1:7946", "192.0.2.1:0", "14:8", &["is not the address of one node"]),
        ("key_file = \"/key\"", "", "13:1", &["has no key_file", "take packets", "auth = \"off\""]),
        ("key_file = \"/key\"", "auth = \"key\"", "15:8", &["has no key_file"]),
        ("key_file", "auth = \"off\"\nkey_file", "15:8", &["contradicts key_file"]),
        ("key_file", "auth = \"none\"\nkey_file", "15:8", &["is no choice", "\"key\", \"off\""]),
        ("\"/key\"", "\"\"", "15:12", &["is no path"]),
        ("key_file", "join = \"192.0.2.2:1\"\nkey_file", "15:8", &["join is a string, not a list"]),
        ("key_file", "join = [\"n2\"]\nkey_file", "15:9", &["\"n2\" in join is not an IP address"]),
        ("key_file", "cluster = \"Blue\"\nkey_file", "15:11", &["holds 'B'"]),
        ("key_file", "max_nodes = 0\nkey_file", "15:13", &["out of range", "1 to 4096"]),
        ("key_file", "max_nodes = 1\nkey_file", "15:13", &["no row for this node's id, 1", "max_nodes = 2"]),
    ];
    for (from, to, place, words) in cases {
        assert!(MEMBERSHIP.contains(from), "{from}");
        refused(&format!("{BASE}{}", MEMBERSHIP.replacen(from, to, 1)), place, words);
    }
}

#[test]
fn links_of_members_are_on_segments_of_their_own() {
    let second = "[[link]]\ninterface = \"to-n3\"\n";
    refused(&format!("{BASE}{second}{MEMBERSHIP}"), "13:1", &["to-n2 and to-n3 are both on the segment main"]);
    let named = format!("{BASE}{second}segment = \"n1-n3\"\n{MEMBERSHIP}");
    assert_eq!(parse(&named).unwrap().links[1].segment, "n1-n3");
    refused(&named.replace("n1-n3", "1"), "15:11", &["does not begin with a letter"]);
}

#[test]
fn a_peer_has_a_mac_or_an_address() {
    const MAC: &str = "mac = \"02:00:00:00:02:01\"";
    let config = parse(&BASE.replace(MAC, "address = \"198.18.1.2\"")).unwrap();
    assert_eq!(config.peers[0].end, PeerEnd::Address("198.18.1.2".parse().unwrap()));
    let both = BASE.replace(MAC, &format!("{MAC}\naddress = \"198.18.1.2\""));
    refused(&both, "12:7", &["has a mac and an address", "neighbour table"]);
    for (address, words) in
        [("198.18.1.2/24", "is not an IP address"), ("0.0.0.0", "one interface"), ("ff02::1", "one interface")]
    {
        refused(&BASE.replace(MAC, &format!("address = \"{address}\"")), "12:11", &[words]);
    }
}

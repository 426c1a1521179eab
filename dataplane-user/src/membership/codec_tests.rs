use foca::Codec as _;
use proptest::prelude::*;

use super::*;

fn any_identity() -> impl Strategy<Value = Identity> {
    (any::<u16>(), any::<u32>(), any::<u16>(), any::<IpAddr>(), any::<u16>())
        .prop_map(|(node, epoch, life, ip, port)| Identity { node, epoch, life, address: SocketAddr::new(ip, port) })
}

fn any_message() -> impl Strategy<Value = Message<Identity>> {
    (0u8..11, any_identity(), any::<u8>()).prop_map(|(kind, about, probe_number)| match kind {
        0 => Message::Ping(probe_number),
        1 => Message::Ack(probe_number),
        2 => Message::PingReq { target: about, probe_number },
        3 => Message::IndirectPing { origin: about, probe_number },
        4 => Message::IndirectAck { target: about, probe_number },
        5 => Message::ForwardedAck { origin: about, probe_number },
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        9 => Message::Broadcast,
        _ => Message::TurnUndead,
    })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let link = ("[a-z0-9]{0,32}", any::<[u8; 6]>(), any::<Option<IpAddr>>())
        .prop_map(|(segment, mac, address)| LinkEnd { segment, mac, address });
    (
        "[a-z0-9]{0,32}",
        any::<(u32, u16, bool)>(),
        proptest::collection::vec(link, 0..=MAX_LINKS),
        proptest::collection::vec(any::<(u16, u32)>(), 0..=MAX_FUNCTIONS),
    )
        .prop_map(|(name, (abi, workers, draining), links, functions)| Profile {
            name,
            abi,
            workers,
            draining,
            links,
            functions,
        })
}

proptest! {
    #[test]
    fn headers_read_back(src in any_identity(), dst in any_identity(), src_incarnation: u16, message in any_message()) {
        let header = Header { src, src_incarnation, dst, message };
        let mut bytes = Vec::new();
        Codec.encode_header(&header, &mut bytes).unwrap();
        prop_assert!(bytes.len() <= MAX_HEADER_BYTES);
        prop_assert_eq!(Codec.decode_header(bytes.as_slice()).unwrap(), header);
        for end in 0..bytes.len() {
            prop_assert!(Codec.decode_header(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn members_read_back(id in any_identity(), incarnation: u16, state in 0usize..3) {
        let member = Member::new(id, incarnation, [State::Alive, State::Suspect, State::Down][state]);
        let mut bytes = Vec::new();
        Codec.encode_member(&member, &mut bytes).unwrap();
        prop_assert_eq!(Codec.decode_member(bytes.as_slice()).unwrap(), member);
    }

    #[test]
    fn profiles_read_back(profile in any_profile()) {
        let mut bytes = Vec::new();
        put_profile(&mut bytes, &profile);
        prop_assert_eq!(super::profile(&mut bytes.as_slice()).unwrap(), profile);
        for end in 0..bytes.len() {
            prop_assert!(super::profile(&mut &bytes[..end]).is_err());
        }
        bytes.push(0);
        prop_assert!(super::profile(&mut bytes.as_slice()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = super::profile(&mut bytes.as_slice());
        let _ = Codec.decode_header(bytes.as_slice());
        let _ = Codec.decode_member(bytes.as_slice());
    }
}

#[test]
fn what_is_beyond_the_bounds_is_left_out_or_refused() {
    let end = LinkEnd { segment: "ä".repeat(40), mac: [2; 6], address: None };
    let long = Profile { links: vec![end; 20], functions: vec![(1, 2); 100], ..Profile::default() };
    let mut bytes = Vec::new();
    put_profile(&mut bytes, &long);
    let read = profile(&mut bytes.as_slice()).unwrap();
    assert_eq!((read.links.len(), read.functions.len()), (MAX_LINKS, MAX_FUNCTIONS));
    assert_eq!(read.links[0].segment, "ä".repeat(16));

    let mut controls = Vec::new();
    put_profile(&mut controls, &Profile { name: "\u{1b}[2J".to_owned(), ..Profile::default() });
    assert_eq!(profile(&mut controls.as_slice()), Err(CodecError::Meaning("a name")));
    assert_eq!(
        Codec.encode_member(&Member::alive(Identity::unknown("[::1]:1".parse().unwrap())), &mut [0u8; 29][..]),
        Err(CodecError::Room)
    );
}

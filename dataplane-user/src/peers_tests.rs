use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};

use super::*;
use crate::config::KnownFunction;
use crate::maps::tables::tests::tables;
use crate::membership::{LinkEnd, Profile};

/// What was written last of each node.
#[derive(Clone, Default)]
struct Written(Rc<RefCell<BTreeMap<u16, (u32, PeerRow)>>>);

impl PeerRows for Written {
    fn write(&mut self, node: u16, ifindex: u32, row: PeerRow) -> Result<(), String> {
        self.0.borrow_mut().insert(node, (ifindex, row));
        Ok(())
    }
}

impl Written {
    fn flags(&self, node: u16) -> u16 {
        self.0.borrow().get(&node).map_or(0, |(_, row)| row.flags)
    }
}

const CONFIGURED: &str = r#"
[node]
name = "n1"
id = 1
[[port]]
interface = "port"
[[link]]
interface = "left"
segment = "left"
[[link]]
interface = "right"
segment = "right"
[[peer]]
name = "n4"
id = 4
link = "right"
mac = "02:00:00:00:04:01"
[[peer]]
name = "n2"
id = 2
link = "left"
mac = "02:00:00:00:02:01"
[membership]
bind = "192.0.2.1:7946"
auth = "off"
max_nodes = 16
"#;

fn link(name: &str, index: u32) -> Link {
    let mac = [2, 0, 0, 0, 1, index as u8];
    let device = NetDevice { name: name.to_owned(), index, mac, mtu: 1500 };
    Link { device, interface: index - 10, segment: name.to_owned(), max_frame: 1514, source: None }
}

fn member(node: u16, epoch: u32, segments: &[&str]) -> Member {
    let end = |(at, segment): (usize, &&str)| LinkEnd {
        segment: (*segment).to_owned(),
        mac: [2, 0, 0, 0, node as u8, at as u8 + 7],
        address: None,
    };
    Member {
        node,
        epoch,
        address: SocketAddr::from(([192, 0, 2, node as u8], 7946)),
        profile: Profile {
            name: format!("n{node}"),
            abi: ABI_VERSION,
            workers: 1,
            draining: false,
            links: segments.iter().enumerate().map(end).collect(),
            functions: vec![(0xff02, name_hash("crc32"))],
        },
    }
}

struct Scene {
    peers: Peers<Written>,
    written: Written,
    tables: Arc<Tables>,
    events: Sender<Event>,
    refusals: Arc<Refusals>,
}

impl Scene {
    fn new() -> Self {
        let config = Config::parse(CONFIGURED, &[KnownFunction { name: "crc32", type_id: 0xff02 }]).unwrap();
        let (written, tables) = (Written::default(), Arc::new(tables(16, 1, 3, 1)));
        let links = vec![link("left", 11), link("right", 12)];
        let mut peers = Peers::new(&config, links, (written.clone(), Arc::clone(&tables)), None, |_| {});
        let (events, receiver) = channel();
        let refusals = Arc::<Refusals>::default();
        peers.listen(receiver, Arc::clone(&refusals));
        Self { peers, written, tables, events, refusals }
    }

    fn turn(&mut self) -> Option<Vec<u16>> {
        let changed = self.peers.turn(1)?;
        let nodes: Vec<_> = changed.iter().map(|peer| peer.node).collect();
        assert_eq!(self.visited(), nodes, "decisions visit those that reports go to");
        assert_eq!(self.peers.ways().load().all().iter().map(|way| way.node).collect::<Vec<_>>(), nodes);
        Some(nodes)
    }

    fn tell(&mut self, event: Event) -> Option<Vec<u16>> {
        self.events.send(event).unwrap();
        self.turn()
    }

    fn visited(&self) -> Vec<u16> {
        let count = self.tables.signals.row(0).word(offset_of!(SignalsRow, arrivals_q32)).load(Relaxed) >> 32;
        (0..count as u32).map(|position| self.tables.roster.row(position).word(0).load(Relaxed) as u16).collect()
    }

    fn valid_until(&self, node: u32) -> u64 {
        self.tables.load.row(node).word(offset_of!(LoadRow, valid_until_ns)).load(Relaxed)
    }
}

#[test]
fn peers_of_the_configuration_are_there_from_the_start() {
    let mut scene = Scene::new();
    assert_eq!(scene.turn(), Some(vec![4, 2]));
    assert_eq!(scene.turn(), None, "nothing new");
    let (ifindex, row) = scene.written.0.borrow()[&4];
    assert_eq!((ifindex, row.mac, row.source_mac), (12, [2, 0, 0, 0, 4, 1], [2, 0, 0, 0, 1, 12]));
    assert_eq!((row.flags, row.max_frame), (PEER_PRESENT, 1514));
    let ways = scene.peers.ways().load_full();
    assert_eq!((ways.all()[0].interface, ways.all()[0].mac), (2, row.mac));
}

#[test]
fn a_member_is_reached_where_both_are_on_one_segment_and_goes_without_a_trace() {
    let mut scene = Scene::new();
    scene.turn();
    assert_eq!(scene.tell(Event::Up(member(3, 7, &["other", "right", "left"]))), Some(vec![4, 2, 3]));
    let (ifindex, row) = scene.written.0.borrow()[&3];
    assert_eq!((ifindex, row.mac), (11, [2, 0, 0, 0, 3, 9]), "this node's first link");
    assert_eq!(row.flags, PEER_PRESENT | PEER_MEMBER);

    let mut draining = member(3, 7, &["left"]);
    draining.profile.draining = true;
    let changed = scene.tell(Event::Changed(draining.clone()));
    assert_eq!(changed, Some(vec![4, 2, 3]), "its MAC address is another one");
    assert_eq!(scene.written.flags(3), PEER_PRESENT | PEER_MEMBER | PEER_DRAINING);

    set(scene.tables.load.row(3), offset_of!(LoadRow, valid_until_ns), 99);
    assert_eq!(scene.tell(Event::Down(draining)), Some(vec![4, 2]));
    assert_eq!((scene.written.flags(3), scene.valid_until(3)), (0, 0));
    assert_eq!(scene.tell(Event::Up(member(3, 8, &["right"]))), Some(vec![4, 2, 3]), "restarted");
}

#[test]
fn who_cannot_be_reached_is_shown_and_not_chosen() {
    let mut scene = Scene::new();
    scene.turn();
    assert_eq!(scene.tell(Event::Up(member(3, 1, &["elsewhere"]))), None);
    assert_eq!(scene.written.flags(3), PEER_MEMBER | PEER_UNREACHABLE);
    let mut foreign = member(5, 1, &["left"]);
    foreign.profile.abi = ABI_VERSION + 1;
    assert_eq!(scene.tell(Event::Up(foreign)), None);
    assert_eq!(scene.written.flags(5), PEER_MEMBER | PEER_UNREACHABLE);
    assert_eq!(scene.tell(Event::Changed(member(3, 1, &["left"]))), Some(vec![4, 2, 3]));
}

#[test]
fn a_configured_peer_that_was_a_member_goes_and_comes_back_in_its_place() {
    let mut scene = Scene::new();
    scene.turn();
    assert_eq!(scene.tell(Event::Up(member(4, 1, &["left"]))), None, "the configuration says how to reach it");
    assert_eq!(scene.written.flags(4), PEER_PRESENT | PEER_MEMBER);
    assert_eq!(scene.tell(Event::Down(member(4, 1, &["left"]))), Some(vec![2]));
    assert_eq!(scene.tell(Event::Up(member(4, 2, &["left"]))), Some(vec![4, 2]));
}

#[test]
fn a_peer_without_a_mac_address_is_not_chosen() {
    let by_address = CONFIGURED.replace("mac = \"02:00:00:00:02:01\"", "address = \"198.18.9.2\"");
    let config = Config::parse(&by_address, &[]).unwrap();
    assert!(Peers::<Written>::need_neighbours(&config));
    let (written, tables) = (Written::default(), Arc::new(tables(16, 1, 3, 1)));
    let links = vec![link("left", 11), link("right", 12)];
    let mut peers = Peers::new(&config, links, (written.clone(), tables), None, |_| {});
    assert_eq!(peers.turn(1).unwrap().iter().map(|peer| peer.node).collect::<Vec<_>>(), [4]);
    assert_eq!(written.flags(2), PEER_UNRESOLVED);
}

#[test]
fn a_member_with_another_ip_address_is_reached_there() {
    let routed = CONFIGURED.split("[[peer]]").next().unwrap().replace("[[link]]", "[[link]]\nencapsulation = \"udp\"");
    let membership = CONFIGURED.split("[membership]").nth(1).unwrap();
    let text = format!("{routed}[interconnect]\ntransport = \"udp\"\n[membership]{membership}");
    let config = Config::parse(&text, &[]).unwrap();
    let links = vec![Link { source: Some(Ipv4Addr::new(198, 18, 9, 1)), ..link("left", 11) }];
    let mut peers = Peers::new(&config, links, (Written::default(), Arc::new(tables(16, 1, 3, 1))), None, |_| {});
    let (events, receiver) = channel();
    peers.listen(receiver, Arc::default());
    let mut come = |event: fn(Member) -> Event, host: u8| {
        let mut member = member(3, 1, &["left"]);
        member.profile.links[0].address = Some(IpAddr::from([198, 18, 9, host]));
        events.send(event(member)).unwrap();
        let changed = peers.turn(1).map(|peers| peers.len());
        (changed, peers.ways().load().get(3).unwrap().route.unwrap().address)
    };
    assert_eq!(come(Event::Up, 2), (Some(1), [198, 18, 9, 2]));
    assert_eq!(come(Event::Changed, 2), (None, [198, 18, 9, 2]), "nothing new");
    assert_eq!(come(Event::Changed, 7), (Some(1), [198, 18, 9, 7]), "its MAC address is the same");
}

#[test]
fn refused_datagrams_are_among_the_counters() {
    let mut scene = Scene::new();
    scene.turn();
    for now_ns in [COUNT_NS, 2 * COUNT_NS] {
        scene.refusals.add(Refusal::Tag);
        scene.peers.turn(now_ns + 1);
        scene.peers.turn(now_ns + 2);
    }
    assert_eq!(scene.tables.count(0, Reason::DropMemberTag).load(Relaxed), 2);
}

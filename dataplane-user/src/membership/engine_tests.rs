//! Several members, a network of 100 µs, and time by hand.

use super::*;
use crate::membership::{Key, LinkEnd};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const LATENCY_NS: u64 = 100 * US;
const WALL_US: u64 = 1_700_000_000_000_000;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn settings(node: u16, epoch: u32, join: &[u16]) -> Settings {
    Settings {
        node,
        epoch,
        bind: address(node),
        join: join.iter().copied().map(address).collect(),
        max_nodes: 64,
        key: Key::without_secret("test"),
        profile: Profile {
            name: format!("n{node}"),
            abi: 1,
            workers: 1,
            draining: false,
            links: vec![LinkEnd { segment: "rack".to_owned(), mac: [node as u8; 6], address: None }],
            functions: vec![(0xff02, 7)],
        },
    }
}

#[derive(Default)]
struct Net {
    now_ns: u64,
    engines: BTreeMap<SocketAddr, (Engine, Arc<Refusals>)>,
    events: BTreeMap<SocketAddr, Vec<Event>>,
    flying: VecDeque<(u64, SocketAddr, SocketAddr, Vec<u8>)>,
    /// Every datagram that was ever sent.
    seen: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    /// One in so many datagrams is lost; 0 = none.
    loss: usize,
}

impl Net {
    fn now(&self) -> Moment {
        Moment { mono_ns: self.now_ns, wall_us: WALL_US + self.now_ns / 1000 }
    }

    fn start_at(&mut self, settings: &Settings, port: u16) {
        let refusals = Arc::<Refusals>::default();
        let engine = Engine::new(settings, address(port), Arc::clone(&refusals), self.now());
        self.engines.insert(address(port), (engine, refusals));
    }

    fn start(&mut self, node: u16, epoch: u32, join: &[u16]) {
        self.start_at(&settings(node, epoch, join), node);
    }

    /// Runs for `ns`.
    fn run(&mut self, ns: u64) {
        let end = self.now_ns + ns;
        while self.now_ns < end {
            while self.flying.front().is_some_and(|(at_ns, ..)| *at_ns <= self.now_ns) {
                if let Some((_, from, to, datagram)) = self.flying.pop_front() {
                    self.deliver(from, to, &datagram);
                }
            }
            let now = self.now();
            let next = self.engines.values_mut().map(|(engine, _)| engine.poll(now)).min().unwrap_or(u64::MAX);
            self.collect();
            let arrives = self.flying.front().map_or(u64::MAX, |(at_ns, ..)| *at_ns);
            self.now_ns = next.min(arrives).max(self.now_ns + US).min(end);
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let now = self.now();
        if let Some((engine, _)) = self.engines.get_mut(&to) {
            engine.handle(now, from, datagram);
            self.collect();
        }
    }

    fn collect(&mut self) {
        for (from, (engine, _)) in &mut self.engines {
            while let Some((to, datagram)) = engine.next_datagram() {
                assert!(datagram.len() <= MAX_DATAGRAM_BYTES);
                self.seen.push((*from, to, datagram.clone()));
                if self.loss == 0 || !self.seen.len().is_multiple_of(self.loss) {
                    self.flying.push_back((self.now_ns + LATENCY_NS, *from, to, datagram));
                }
            }
            while let Some(event) = engine.next_event() {
                self.events.entry(*from).or_default().push(event);
            }
        }
    }

    fn engine(&mut self, port: u16) -> &mut Engine {
        &mut self.engines.get_mut(&address(port)).unwrap().0
    }

    fn members(&self, port: u16) -> Vec<(u16, u32)> {
        self.engines[&address(port)].0.members().map(|member| (member.node, member.epoch)).collect()
    }

    fn events(&mut self, port: u16) -> Vec<Event> {
        self.events.remove(&address(port)).unwrap_or_default()
    }

    fn refused(&self, port: u16, reason: Refusal) -> u64 {
        self.engines[&address(port)].1.count(reason)
    }
}

/// Three members that have found each other.
fn three() -> Net {
    let mut net = Net::default();
    net.start(1, 1, &[]);
    net.start(2, 1, &[1]);
    net.start(3, 1, &[1, 9]);
    net.run(2 * S);
    net
}

#[test]
fn members_find_each_other_through_one_seed() {
    let mut net = three();
    assert_eq!(net.members(1), [(2, 1), (3, 1)]);
    assert_eq!(net.members(2), [(1, 1), (3, 1)]);
    assert_eq!(net.members(3), [(1, 1), (2, 1)]);
    let events = net.events(3);
    assert!(events.iter().all(|event| matches!(event, Event::Up(_))), "{events:?}");
    let member = net.engine(2).members().find(|member| member.node == 3).unwrap();
    assert_eq!((member.address, member.profile), (address(3), settings(3, 1, &[]).profile));
}

#[test]
fn a_seed_may_come_last_and_may_be_oneself() {
    let mut net = Net::default();
    net.start(2, 1, &[1, 2]);
    net.start(3, 1, &[1, 2]);
    net.engines.remove(&address(3));
    net.run(3 * S);
    assert!(net.members(2).is_empty());
    net.start(1, 1, &[1]);
    net.run(3 * S);
    assert_eq!((net.members(1), net.members(2)), (vec![(2, 1)], vec![(1, 1)]));
}

#[test]
fn a_dead_member_is_noticed_and_a_new_boot_takes_its_place() {
    let mut net = three();
    net.events.clear();
    net.engines.remove(&address(3));
    net.run(3 * S);
    for port in [1, 2] {
        assert!(matches!(net.events(port).as_slice(), [Event::Down(member)] if member.node == 3));
    }
    net.start(3, 2, &[1]);
    net.run(2 * S);
    assert_eq!((net.members(2), net.members(3)), (vec![(1, 1), (3, 2)], vec![(1, 1), (2, 1)]));
}

#[test]
fn a_quick_restart_is_a_down_and_an_up() {
    let mut net = three();
    net.events.clear();
    net.engines.remove(&address(3));
    net.start(3, 2, &[1]);
    net.run(2 * S);
    for port in [1, 2] {
        let events = net.events(port);
        let [Event::Down(old), Event::Up(new)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((old.node, old.epoch, new.node, new.epoch), (3, 1, 3, 2));
    }
}

#[test]
fn who_leaves_is_gone_at_once() {
    let mut net = three();
    net.events.clear();
    let now = net.now();
    net.engine(2).leave(now);
    net.collect();
    net.engines.remove(&address(2));
    net.run(10 * MS);
    for port in [1, 3] {
        assert!(matches!(net.events(port).as_slice(), [Event::Down(member)] if member.node == 2));
    }
    net.start(2, 2, &[3]);
    net.run(2 * S);
    assert_eq!(net.members(1), [(2, 2), (3, 1)]);
}

#[test]
fn a_new_profile_reaches_everyone_even_with_loss() {
    let mut net = three();
    net.events.clear();
    net.loss = 3;
    let (now, draining) = (net.now(), Profile { draining: true, ..settings(2, 1, &[]).profile });
    net.engine(2).set_profile(now, draining);
    net.run(S);
    for port in [1, 3] {
        let events = net.events(port);
        let changed =
            |event: &Event| matches!(event, Event::Changed(member) if member.node == 2 && member.profile.draining);
        assert_eq!(events.iter().filter(|event| changed(event)).count(), 1, "{events:?}");
    }
}

#[test]
fn a_member_that_was_stopped_for_a_while_comes_back() {
    let mut net = three();
    net.events.clear();
    let stopped = net.engines.remove(&address(3)).unwrap();
    net.run(2 * S);
    assert_eq!(net.members(1), [(2, 1)]);
    net.engines.insert(address(3), stopped);
    net.run(6 * S);
    for port in 1..=3 {
        assert_eq!(net.members(port).len(), 2, "{port}");
    }
    let events = net.events(1);
    assert!(matches!(events.as_slice(), [Event::Down(_), Event::Up(_)]), "{events:?}");
}

#[test]
fn a_second_node_with_an_id_is_told_who_has_it() {
    let mut net = three();
    net.events.clear();
    net.start_at(&settings(2, 5, &[1, 3]), 7);
    net.run(5 * S);
    let refused = net.engine(7).refused().unwrap();
    assert_eq!((refused.holder.address, refused.holder.node), (address(2), 2));
    assert!([address(1), address(2), address(3)].contains(&refused.by));
    assert!(net.members(7).is_empty());
    assert!(net.refused(1, Refusal::Conflict) > 0);
    for port in 1..=3 {
        assert_eq!(net.members(port).len(), 2);
        assert!(net.events(port).is_empty(), "the others see nothing of it");
    }
    net.engines.remove(&address(2));
    net.run(8 * S);
    assert_eq!(net.engine(7).refused(), None, "the id is free");
    assert_eq!((net.members(1), net.members(7)), (vec![(3, 1), (2, 5)], vec![(1, 1), (3, 1)]));
}

#[test]
fn of_two_with_one_id_from_two_halves_the_elder_stays() {
    let mut net = three();
    let mut half = std::mem::take(&mut net.engines);
    net.start(4, 1, &[1]);
    net.start(5, 1, &[4]);
    net.start_at(&settings(3, 8, &[4]), 7);
    net.run(100 * MS);
    assert_eq!(net.members(7), [(4, 1), (5, 1)]);
    net.engines.append(&mut half);
    net.run(10 * S);
    assert_eq!(net.engine(7).refused().map(|refused| refused.holder.address), Some(address(3)));
    for port in [1, 2, 4, 5] {
        assert!(net.members(port).contains(&(3, 1)), "{port}: {:?}", net.members(port));
        assert!(!net.members(port).contains(&(3, 8)), "{port}");
    }
}

#[test]
fn ids_without_a_row_are_refused() {
    let mut net = three();
    net.start_at(&settings(64, 1, &[1]), 64);
    net.run(2 * S);
    assert_eq!(net.members(1).len(), 2);
    assert!(net.refused(1, Refusal::Conflict) > 0);
}

#[test]
fn strangers_change_nothing_but_a_counter() {
    let mut net = three();
    net.events.clear();
    let (members, seen) = (net.members(1), net.seen.clone());
    let stranger = address(66);
    // Everything that was ever sent to node 1, once more, from its sender and from elsewhere.
    let to_one = seen.iter().filter(|(_, to, _)| *to == address(1));
    for (from, _, datagram) in to_one.clone() {
        net.deliver(*from, address(1), datagram);
        net.deliver(stranger, address(1), datagram);
    }
    assert_eq!(net.refused(1, Refusal::Replayed), 2 * to_one.clone().count() as u64);
    for (from, _, datagram) in to_one {
        for at in [8, 30, datagram.len() - 1] {
            let mut altered = datagram.clone();
            altered[at] ^= 0x40;
            net.deliver(*from, address(1), &altered);
        }
        net.deliver(*from, address(1), &datagram[..datagram.len() / 2]);
    }
    let mut other = Seal::new(Key::without_secret("other"), 9, 1, WALL_US);
    net.deliver(stranger, address(1), &other.seal(Kind::Leave, b"", WALL_US));
    assert!(net.refused(1, Refusal::Tag) > 0 && net.refused(1, Refusal::Malformed) > 0);
    assert_eq!(net.refused(1, Refusal::Conflict), 0);
    net.run(S);
    assert_eq!(net.members(1), members);
    assert!(net.events.is_empty(), "{:?}", net.events);
}

#[test]
fn nonsense_under_a_good_tag_changes_nothing_but_a_counter() {
    let mut net = three();
    net.events.clear();
    let now = net.now();
    let mut insider = Seal::new(Key::without_secret("test"), 9, 1, now.wall_us);
    let payloads = [&b""[..], &[0xff; 40], &[0; 200]];
    for payload in payloads {
        for kind in [Kind::Swim, Kind::Profile, Kind::Taken, Kind::Conflict, Kind::Leave] {
            let datagram = insider.seal(kind, payload, now.wall_us);
            net.deliver(address(9), address(1), &datagram);
        }
    }
    assert!(net.refused(1, Refusal::Malformed) >= 3);
    net.run(S);
    assert_eq!(net.members(1).len(), 2);
    assert!(net.events.is_empty(), "{:?}", net.events);
}

#[test]
fn loss_makes_no_member_dead() {
    let mut net = three();
    net.events.clear();
    net.loss = 50;
    net.run(30 * S);
    assert!(net.events.is_empty(), "{:?}", net.events);
}

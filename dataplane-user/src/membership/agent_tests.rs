//! Real sockets on the loopback interface. Nothing is timed: every step waits until what must come has come.

use std::time::Instant;

use super::*;
use crate::membership::{Key, Refusal};

fn settings(node: u16, epoch: u32, bind: SocketAddr, join: &[SocketAddr]) -> Settings {
    Settings {
        node,
        epoch,
        bind,
        join: join.to_vec(),
        max_nodes: 64,
        key: Key::without_secret("agents"),
        profile: Profile { name: format!("n{node}"), ..Profile::default() },
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn start(node: u16, join: &[SocketAddr]) -> (Membership, Receiver<Event>) {
    Membership::start(settings(node, 1, any(), join)).unwrap()
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what} has not happened");
        thread::sleep(Duration::from_millis(5));
    }
}

fn nodes(membership: &Membership) -> Vec<(u16, u32)> {
    let mut nodes: Vec<_> = membership.view().members.iter().map(|member| (member.node, member.epoch)).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn members_join_die_leave_and_come_back() {
    let (one, events) = start(1, &[]);
    let seed = one.address();
    let (two, _events) = start(2, &[seed]);
    let (three, _events) = start(3, &[two.address()]);
    wait_for("all know all", || [&one, &two, &three].iter().all(|member| member.view().members.len() == 2));

    let bind = three.address();
    drop(three);
    wait_for("a death is noticed", || nodes(&one) == [(2, 1)] && nodes(&two) == [(1, 1)]);
    let (three, _events) = Membership::start(settings(3, 2, bind, &[seed])).unwrap();
    wait_for("it is back", || nodes(&one) == [(2, 1), (3, 2)] && nodes(&three) == [(1, 1), (2, 1)]);

    two.set_profile(Profile { draining: true, name: "n2".to_owned(), ..Profile::default() });
    let drains = |member: &Membership| member.view().members.iter().any(|it| it.node == 2 && it.profile.draining);
    wait_for("all know that it drains", || drains(&one) && drains(&three));
    two.leave().unwrap();
    wait_for("it has left", || nodes(&one) == [(3, 2)] && nodes(&three) == [(1, 1)]);

    assert!(!one.is_broken() && one.refusals().total() == 0, "{:?}", one.refusals());
    one.leave().unwrap();
    let told: Vec<_> = events.iter().collect();
    assert!(matches!(told.last(), Some(Event::Down(member)) if member.node == 2), "{told:?}");
}

#[test]
fn a_node_with_another_ones_id_is_refused_and_says_by_whom() {
    let (one, _events) = start(1, &[]);
    let (two, _events) = start(2, &[one.address()]);
    wait_for("both are there", || nodes(&one) == [(2, 1)] && nodes(&two) == [(1, 1)]);
    let (double, _events) = start(2, &[one.address()]);
    wait_for("it is refused", || double.view().refused.is_some_and(|refused| refused.holder.address == two.address()));
    wait_for("it is counted", || one.refusals().count(Refusal::Conflict) > 0);
    assert_eq!((nodes(&one), nodes(&double)), (vec![(2, 1)], vec![]));
}

#[test]
fn strangers_are_counted_and_nothing_else() {
    let (one, _events) = start(1, &[]);
    let (two, _events) = start(2, &[one.address()]);
    wait_for("both are there", || nodes(&one) == [(2, 1)] && nodes(&two) == [(1, 1)]);
    let foreign = Settings { key: Key::without_secret("elsewhere"), ..settings(3, 1, any(), &[one.address()]) };
    let (foreign, _events) = Membership::start(foreign).unwrap();
    let socket = UdpSocket::bind(any()).unwrap();
    for length in [0, 1, 44, 1400, 2000, 9000] {
        socket.send_to(&vec![0xa5; length], one.address()).unwrap();
    }
    wait_for("both kinds are counted", || {
        one.refusals().count(Refusal::Tag) > 0 && one.refusals().count(Refusal::Malformed) >= 6
    });
    assert_eq!((nodes(&one), nodes(&foreign)), (vec![(2, 1)], vec![]));
    assert!(!one.is_broken());
}

#[test]
fn a_socket_that_cannot_be_had_says_what_to_do() {
    let (one, _events) = start(1, &[]);
    let error = Membership::start(settings(2, 1, one.address(), &[])).unwrap_err().to_string();
    assert!(error.contains("cannot open") && error.contains("\n  do:  "), "{error}");
    let error = Membership::start(settings(2, 1, SocketAddr::from(([0; 4], 0)), &[])).unwrap_err().to_string();
    assert!(error.contains("wildcard"), "{error}");
}

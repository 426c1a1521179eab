//! The kernel's own table, in network namespaces made for each test. Needs root and `ip`.
//!
//! ```text
//!   namespace of the test's thread          another one
//!   ┌────────────────────────┐   ┌────────────────────────┐
//!   │  near  198.18.7.1/24   ╪═══╪  far  198.18.7.2/24    │
//!   └────────────────────────┘   └────────────────────────┘
//! ```

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::*;
use crate::sys::NetDevice;
use crate::worker::monotonic_ns;

const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 7, 2];

fn try_ip(arguments: &str) -> bool {
    Command::new("ip")
        .args(arguments.split_whitespace())
        .stdout(process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn ip(arguments: &str) {
    assert!(try_ip(arguments), "ip {arguments}");
}

/// Two namespaces with a veth pair between them, removed when dropped.
struct Pair(String);

impl Pair {
    fn near(&self) -> String {
        format!("{}-near", self.0)
    }

    fn far(&self) -> String {
        format!("{}-far", self.0)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in [self.near(), self.far()] {
            try_ip(&format!("netns del {name}"));
        }
    }
}

/// Runs the test on a thread of its own in the near namespace.
fn inside(test: &str, body: impl FnOnce(&Pair) + Send) {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !try_ip("-V") {
        assert!(std::env::var_os("DATAPLANE_TEST_ALL").is_none(), "{test}: DATAPLANE_TEST_ALL forbids skipping");
        return eprintln!("SKIP {test}: needs root and ip");
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let pair = Pair(format!("neigh-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let (near, far) = (pair.near(), pair.far());
    for name in [&near, &far] {
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
    }
    ip(&format!("-n {near} link add near type veth peer name far netns {far} address 02:00:00:00:07:02"));
    ip(&format!("-n {near} addr add 198.18.7.1/24 dev near"));
    ip(&format!("-n {far} addr add 198.18.7.2/24 dev far"));
    ip(&format!("-n {near} link set near up"));
    ip(&format!("-n {far} link set far up"));
    let outcome = thread::scope(|scope| {
        let run = || {
            let file = File::open(format!("/run/netns/{near}")).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            body(&pair);
        };
        scope.spawn(run).join()
    });
    drop(pair);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[track_caller]
fn wait_for(neighbours: &mut Neighbours, neighbour: Neighbour, mac: Option<[u8; 6]>) {
    let until = Instant::now() + Duration::from_secs(30);
    while neighbours.mac(neighbour) != mac {
        assert!(Instant::now() < until, "{neighbour:?} is {:?}, not {mac:?}", neighbours.mac(neighbour));
        neighbours.turn(monotonic_ns());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_neighbour_is_resolved_and_followed() {
    inside("a_neighbour_is_resolved_and_followed", |pair| {
        let ifindex = NetDevice::find("near").unwrap().index;
        let (far, nobody) = ((ifindex, "198.18.7.2".parse().unwrap()), (ifindex, "198.18.7.9".parse().unwrap()));
        let mut neighbours = Neighbours::open().unwrap();
        assert!(!neighbours.turn(1), "nothing is wanted");
        neighbours.follow([far, nobody]);
        wait_for(&mut neighbours, far, Some(FAR_MAC));
        assert_eq!(neighbours.mac(nobody), None);
        assert_eq!(neighbours.mac((ifindex, "198.18.7.3".parse().unwrap())), None, "not followed");

        // A new address by hand, one learned from the wire, and none.
        ip(&format!("-n {} neigh replace 198.18.7.2 lladdr 02:00:00:00:07:03 dev near nud permanent", pair.near()));
        wait_for(&mut neighbours, far, Some([2, 0, 0, 0, 7, 3]));
        ip(&format!("-n {} link set far address 02:00:00:00:07:04", pair.far()));
        ip(&format!("-n {} neigh del 198.18.7.2 dev near", pair.near()));
        wait_for(&mut neighbours, far, Some([2, 0, 0, 0, 7, 4]));
        ip(&format!("-n {} addr del 198.18.7.2/24 dev far", pair.far()));
        ip(&format!("-n {} neigh del 198.18.7.2 dev near", pair.near()));
        wait_for(&mut neighbours, far, None);
        ip(&format!("-n {} addr add 198.18.7.2/24 dev far", pair.far()));
        wait_for(&mut neighbours, far, Some([2, 0, 0, 0, 7, 4]));
    });
}

#[test]
fn what_the_kernel_had_no_room_to_say_is_asked_for() {
    inside("what_the_kernel_had_no_room_to_say_is_asked_for", |pair| {
        let ifindex = NetDevice::find("near").unwrap().index;
        let far = (ifindex, "198.18.7.2".parse().unwrap());
        let mut neighbours = Neighbours::open().unwrap();
        neighbours.follow([far]);
        wait_for(&mut neighbours, far, Some(FAR_MAC));
        neighbours.netlink.shrink();
        for round in 0..20 {
            let lines: String = (10..250).map(|host| format!("neigh replace 198.18.7.{host} lladdr 02:00:00:00:{round:02x}:{host:02x} dev near nud permanent\n")).collect();
            batch(pair, &lines);
        }
        batch(pair, "neigh replace 198.18.7.2 lladdr 02:00:00:00:07:05 dev near nud permanent\n");
        wait_for(&mut neighbours, far, Some([2, 0, 0, 0, 7, 5]));
    });
}

fn batch(pair: &Pair, lines: &str) {
    use std::io::Write as _;
    let near = pair.near();
    let arguments = ["-n", near.as_str(), "-batch", "-"];
    let mut child = Command::new("ip").args(arguments).stdin(process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn routes_and_addresses_are_those_of_the_kernel() {
    inside("routes_and_addresses_are_those_of_the_kernel", |pair| {
        let ifindex = NetDevice::find("near").unwrap().index;
        let own: IpAddr = "198.18.7.1".parse().unwrap();
        let near = Route::to("198.18.7.2".parse().unwrap()).unwrap();
        assert_eq!(near, Route { ifindex, source: Some(own), gateway: None });
        let beyond = "198.19.0.1".parse().unwrap();
        assert_eq!(Route::to(beyond).unwrap_err().raw_os_error(), Some(libc::ENETUNREACH));
        ip(&format!("-n {} route add 198.19.0.0/16 via 198.18.7.2", pair.near()));
        let far = Route::to(beyond).unwrap();
        assert_eq!(far, Route { ifindex, source: Some(own), gateway: Some("198.18.7.2".parse().unwrap()) });
        assert!(addresses(ifindex).unwrap().contains(&own));
        assert!(addresses(u32::MAX).unwrap().is_empty());
    });
}

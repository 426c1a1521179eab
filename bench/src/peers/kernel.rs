//! The kernel's own network stack: forwarding, and a UDP socket that sends everything back.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};

use super::background::Background;
use super::contender::Running;
use super::lab::{Lab, NEXT, TESTED, inside, take_cpu};
use crate::command;
use crate::generate::FrameSpec;
use crate::topology::{Host, PORT_INTERFACE, format_mac};

/// Port of the echo protocol (RFC 862).
const ECHO_PORT: u16 = 7;
/// Port of the discard protocol (RFC 863).
const DISCARD_PORT: u16 = 9;
/// A port nobody listens on.
const SENDER_PORT: u16 = 40_000;
/// Ours and the next node's address on the link, in the network for benchmarks of RFC 2544.
const LINK_ADDRESSES: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(198, 19, 0, 1), Ipv4Addr::new(198, 19, 0, 2));
/// Largest datagram of a test.
const DATAGRAM: usize = 2048;
/// How long the socket waits before it looks whether it is over.
const GLANCE: Duration = Duration::from_millis(20);

fn frame(lab: &Lab, size: usize, to: Ipv4Addr, port_number: u16) -> Result<Vec<u8>> {
    let port = lab.cluster.plan().port(TESTED);
    FrameSpec {
        size,
        macs: (port.generator_mac, port.node_mac),
        addresses: (port.generator_ipv4, to),
        ports: (SENDER_PORT, port_number),
        type_id: 0,
        operand: None,
        is_sound: true,
    }
    .build()
}

/// A frame that is routed over the link.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn forwarded_frame(lab: &Lab, size: usize) -> Result<Vec<u8>> {
    frame(lab, size, LINK_ADDRESSES.1, DISCARD_PORT)
}

/// A frame that the UDP socket sends back.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn echoed_frame(lab: &Lab, size: usize) -> Result<Vec<u8>> {
    frame(lab, size, lab.cluster.plan().port(TESTED).node_ipv4, ECHO_PORT)
}

/// GRO on the tested port: without it or an XDP program a veth takes no live frames.
fn set_gro(lab: &Lab, state: &str) -> Result<()> {
    let arguments = ["-K", PORT_INTERFACE, "gro", state];
    command::output(lab.cluster.enter(Host::Node(TESTED), "ethtool").args(arguments)).map(drop)
}

fn set_forwarding(lab: &Lab, value: &str) -> Result<()> {
    let path = "/proc/sys/net/ipv4/ip_forward";
    inside(&lab.cluster, Host::Node(TESTED), || fs::write(path, value).with_context(|| format!("cannot write {path}")))
}

struct Forwarding;

/// Makes the tested node a router between its port and its link.
///
/// # Errors
/// A setting is refused.
pub fn start_forwarding(lab: &Lab) -> Result<Box<dyn Running>> {
    let plan = lab.cluster.plan();
    let (ours, next) = (plan.link(TESTED, NEXT), plan.link(NEXT, TESTED));
    let script = format!(
        "addr replace {}/24 dev {}\nneigh replace {} lladdr {} dev {} nud permanent\n",
        LINK_ADDRESSES.0,
        ours.interface,
        LINK_ADDRESSES.1,
        format_mac(next.mac),
        ours.interface
    );
    let mut ip = Command::new("ip");
    ip.args(["-netns", &plan.name(Host::Node(TESTED)), "-batch", "-"]);
    command::output_of_input(&mut ip, &script)?;
    set_gro(lab, "on")?;
    set_forwarding(lab, "1")?;
    Ok(Box::new(Forwarding))
}

impl Running for Forwarding {
    fn stop(self: Box<Self>, lab: &mut Lab) -> Result<()> {
        set_forwarding(lab, "0")?;
        set_gro(lab, "off")
    }
}

struct Echo {
    thread: Background,
}

/// Starts the UDP socket, pinned to `cpu`.
///
/// # Errors
/// The port is taken.
pub fn start_echo(lab: &Lab, cpu: usize) -> Result<Box<dyn Running>> {
    let address = lab.cluster.plan().port(TESTED).node_ipv4;
    let socket = inside(&lab.cluster, Host::Node(TESTED), || {
        let socket = UdpSocket::bind((address, ECHO_PORT)).context("UDP port of the echo")?;
        socket.set_read_timeout(Some(GLANCE)).context("time limit of the echo")?;
        Ok(socket)
    })?;
    set_gro(lab, "on")?;
    let thread = Background::start(move |is_over| {
        take_cpu(cpu)?;
        let mut datagram = [0; DATAGRAM];
        while !is_over.load(Ordering::Relaxed) {
            // A time limit, or a full send buffer: the datagram is lost, and that is a result.
            if let Ok((length, from)) = socket.recv_from(&mut datagram) {
                let _ = socket.send_to(&datagram[..length], from);
            }
        }
        Ok(())
    });
    Ok(Box::new(Echo { thread }))
}

impl Running for Echo {
    fn stop(mut self: Box<Self>, lab: &mut Lab) -> Result<()> {
        self.thread.end()?;
        set_gro(lab, "off")
    }
}

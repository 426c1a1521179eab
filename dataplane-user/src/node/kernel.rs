//! Links by kernel sockets: `[interconnect] transport = "udp"`.

use std::net::SocketAddrV4;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::config::{self, Config};
use crate::maps::Tables;
use crate::peers::Link;
use crate::reporter::ReportSocket;
use crate::sys::{BulkSocket, PacketSocket};
use crate::transport::Taker;
use crate::ways::LiveWays;

/// Whether frames between nodes go by kernel sockets.
pub(super) fn carries(config: &Config) -> bool {
    config.interconnect.transport == config::Transport::Udp
}

/// A socket on `address`; with `shared`, one of several.
pub(super) fn open(address: SocketAddrV4, shared: bool) -> Result<BulkSocket> {
    BulkSocket::bind(address, shared).with_context(|| {
        format!(
            "cannot open a UDP socket on {address}\n  why: another program has the port, or the address is gone\n  do:  ss -ulnp, and set [interconnect] port, on all nodes the same"
        )
    })
}

/// How reports leave, and arrive where XDP does not take them.
pub(super) fn report_socket(
    config: &Config,
    tables: &Arc<Tables>,
    epoch: u32,
    (links, ways): (&[Link], Arc<LiveWays>),
) -> Result<ReportSocket> {
    if !carries(config) {
        let socket = PacketSocket::open();
        return Ok(ReportSocket::Packet(
            socket.context("cannot open a packet socket for reports (needs CAP_NET_RAW)")?,
        ));
    }
    let bind = |link: &Link| {
        let address = SocketAddrV4::new(link.source?, config.interconnect.port + 1);
        Some(open(address, false).map(|socket| (link.device.index, socket)))
    };
    let sockets = links.iter().filter_map(bind).collect::<Result<Vec<_>>>()?;
    let taker = Box::new(Taker::new(Arc::clone(tables), config.params(epoch), ways, 0, 0));
    Ok(ReportSocket::Udp { sockets, taker })
}

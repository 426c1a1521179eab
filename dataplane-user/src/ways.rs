//! How interconnect frames reach the other nodes: which interface leads there, and what goes in front of a frame.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4};
use dataplane_common::wire::link::{HEADER_BYTES, Header, Kind, OVERHEAD_BYTES, emit_ethernet};
use dataplane_common::wire::route::{ROUTE_BYTES, Route};

use crate::seal::Sealer;

/// A peer, and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The peer's id.
    pub node: u16,
    /// The node's index of the interface that leads there.
    pub interface: u32,
    /// The peer's MAC address.
    pub mac: [u8; 6],
    /// That interface's MAC address.
    pub source_mac: [u8; 6],
    /// Longest frame of that interface, Ethernet header included, bytes.
    pub max_frame: u16,
    /// Where frames go that travel in UDP; `mac` is then the next hop's.
    pub route: Option<Route>,
}

impl Way {
    /// Bytes in front of a frame that goes this way without a seal.
    #[inline]
    const fn overhead(&self) -> usize {
        OVERHEAD_BYTES + if self.route.is_some() { ROUTE_BYTES } else { 0 }
    }

    /// Writes what goes in front of a frame into the first [`Way::overhead`] bytes of `frame`, which has as many at least.
    #[inline]
    fn address(&self, header: &Header, frame: &mut [u8]) {
        let ethernet = emit_ethernet(self.mac, self.source_mac);
        frame[..ETHERNET_BYTES].copy_from_slice(&ethernet);
        if let Some(route) = &self.route {
            frame[12..ETHERNET_BYTES].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            let payload = frame.len() - ETHERNET_BYTES - ROUTE_BYTES;
            let headers = route.emit(payload, header.flow);
            frame[ETHERNET_BYTES..ETHERNET_BYTES + ROUTE_BYTES].copy_from_slice(&headers);
        }
        let end = self.overhead();
        frame[end - HEADER_BYTES..end].copy_from_slice(&header.emit());
    }
}

/// The ways to all peers.
#[derive(Debug, Default)]
pub struct Ways {
    /// By node id.
    places: Box<[Option<u16>]>,
    ways: Box<[Way]>,
    sealer: Option<Sealer>,
}

impl Ways {
    /// These ways, one for each peer.
    pub fn new(ways: impl IntoIterator<Item = Way>) -> Self {
        let ways: Box<[Way]> = ways.into_iter().collect();
        let nodes = ways.iter().map(|way| usize::from(way.node) + 1).max().unwrap_or(0);
        let mut places = vec![None; nodes].into_boxed_slice();
        for (place, way) in (0..).zip(&ways) {
            places[usize::from(way.node)] = Some(place);
        }
        Self { places, ways, sealer: None }
    }

    /// The same, with frames sealed.
    pub fn sealed(self, sealer: Sealer) -> Self {
        Self { sealer: Some(sealer), ..self }
    }

    /// Bytes in front of the body of a frame of `kind` that goes by `way`.
    #[inline]
    pub fn overhead(&self, way: &Way, kind: Kind) -> usize {
        way.overhead() + self.sealer.as_ref().map_or(0, |sealer| sealer.bytes(kind))
    }

    /// Writes what goes in front of a body into the first [`Ways::overhead`] bytes of `frame`. The body is there already: a
    /// seal may cover it.
    #[inline]
    pub fn address(&self, way: &Way, header: &Header, frame: &mut [u8]) {
        way.address(header, frame);
        if let Some(sealer) = &self.sealer {
            sealer.seal(header, &mut frame[way.overhead() - HEADER_BYTES..]);
        }
    }

    /// The way to `node`, if it is a peer.
    #[inline]
    pub fn get(&self, node: u16) -> Option<&Way> {
        let place = (*self.places.get(usize::from(node))?)?;
        self.ways.get(usize::from(place))
    }

    /// All of them.
    pub fn all(&self) -> &[Way] {
        &self.ways
    }
}

/// The ways as they are at the moment. They are replaced as a whole.
pub type LiveWays = ArcSwap<Ways>;

/// What a worker keeps to see at the cost of one load whether they were replaced.
pub(crate) type WaysCache = Cache<Arc<LiveWays>, Arc<Ways>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_found_by_node() {
        let way = |node| Way { node, interface: 1, mac: [2; 6], source_mac: [4; 6], max_frame: 1_514, route: None };
        let ways = Ways::new([way(7), way(0)]);
        assert_eq!(ways.all(), [way(7), way(0)]);
        for node in 0..9 {
            assert_eq!(ways.get(node).copied(), [7, 0].contains(&node).then(|| way(node)), "{node}");
        }
        assert_eq!(Ways::default().get(0), None);
    }
}

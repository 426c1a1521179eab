//! Frames of a peer, and the words of its load row.

use std::mem::offset_of;

use dataplane_common::maps::LoadRow;

use super::case::{BYTES, EPOCH, NEAR, NO_FLOW, NODE};
use crate::support::frames::{Interconnect, Load, Packet};
use crate::support::words::Place;

pub const FORWARD: u8 = 1;
pub const RESULT: u8 = 2;
pub const REPORT: u8 = 3;
pub const PULL: u8 = 4;
/// The peer's boot.
pub const PEER_EPOCH: u32 = 900;

/// A frame of `NEAR` for this node.
pub const HEADER: Interconnect = Interconnect {
    mac: [[2, 0, 0, 0, 9, 9], [2, 0, 0, 0, 1, 1]],
    version: 3,
    kind: FORWARD,
    hops: 1,
    flags: 0,
    source: NEAR,
    destination: NODE,
    epoch: PEER_EPOCH,
    sequence: 12,
    charged_ns: 5_000,
    position_ns: 70_000,
    type_id: BYTES,
    port: 0,
    flow: NO_FLOW,
    arrival_ns: 0,
    flow_sequence: 0,
    stamp_us: 3_000,
    backlog_ns: 123_456,
    received_ns: 40_000,
    received_epoch: EPOCH as u16,
    // 2.5 packets.
    queued: 40,
    spent_ns: 0,
    held: 0,
    generation: 0,
};

/// What its reports say besides.
pub const BODY: Load = Load {
    behind: 0x0807_0605_0403_0201,
    mean_backlog_ns: 99_000,
    received_frames: 4,
    interval_us: 100,
    workers: 3,
    busy_milli: 900,
    memory_milli: 70,
    limit_ns: Some(345_678),
};

pub fn inner() -> Vec<u8> {
    Packet::new(BYTES).frame()
}

/// Position and boot of the peer's work that has arrived.
pub fn received(node: u16) -> Place {
    Place::load(node, offset_of!(LoadRow, received_ns))
}

/// Newest sequence of its forwards.
pub fn received_sequence(node: u16) -> Place {
    Place::load(node, offset_of!(LoadRow, received_sequence))
}

/// Frames of the peer's work that have arrived.
pub fn received_frames(node: u16) -> Place {
    Place::load(node, offset_of!(LoadRow, received_frames))
}

/// When its load was read, and in which boot.
pub fn stamp(node: u16) -> Place {
    Place::load(node, offset_of!(LoadRow, stamp_us))
}

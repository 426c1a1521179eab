//! What a worker does to one packet: a plain function over bytes, without socket, clock or map.
//!
//! It validates what XDP left to the worker (checksums, result room), runs the function in place, and turns the packet
//! round so that it goes back to its sender.

use dataplane_common::classify::{Active, Class, Rules, classify};
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::IPV4_BYTES;
use dataplane_common::wire::{anep, fold_checksum, sum_words};

use crate::functions::{Builtin, Call};

/// What the worker checks besides what must be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// What makes a packet active.
    pub rules: Rules,
    /// Verify UDP checksums. Off only where an offload leaves them unfinished (a veth between local sockets).
    pub udp_checksum: bool,
}

/// Finds the active packet in `frame` and checks everything that depends on all of its bytes.
///
/// # Errors
/// The reason under which the packet is dropped.
pub fn validate(frame: &[u8], function: Builtin, checks: Checks) -> Result<Active, Reason> {
    // XDP has classified the frame already; a frame that a peer forwarded was classified by the peer. Either way the
    // offsets used below are this worker's own.
    let Class::Active(active) = classify(frame, &checks.rules) else {
        return Err(Reason::DropMetadata);
    };
    if active.udp {
        // IP may promise more than the frame holds; then the sum can be neither checked nor made.
        let whole = active.l4 + udp_len(frame, &active) <= frame.len();
        if !whole || (checks.udp_checksum && !udp_checksum_ok(frame, &active)) {
            return Err(Reason::DropUdpChecksum);
        }
    }
    let packet = &frame[active.anep.start..active.anep.end()];
    if active.anep.checksum_at.is_some() && !anep::checksum_ok(packet) {
        return Err(Reason::DropAnepChecksum);
    }
    if active.anep.result_len < function.result_bytes() {
        return Err(Reason::DropResultRoom);
    }
    Ok(active)
}

/// Runs the function on a validated packet.
pub fn compute(frame: &mut [u8], active: &Active, function: Builtin) {
    let anep = &active.anep;
    let (head, payload) = frame.split_at_mut(anep.start + anep.header_len);
    let payload = &mut payload[..anep.payload_len()];
    let result_at = anep.result_at.unwrap_or(head.len());
    let result = &mut head[result_at..result_at + function.result_bytes()];
    function.compute(Call { payload, operand: anep.operand.unwrap_or(0), result });
}

/// Turns a computed packet round: it is marked as a result, addresses and ports change places, checksums are made new.
pub fn turn_round(frame: &mut [u8], active: &Active) {
    // A result of pktgen's is told by its ports.
    if !active.pktgen {
        frame[active.anep.start + 1] |= anep::FLAG_RESULT;
    }
    swap(frame, 0, 6, 6);
    if active.v6 {
        swap(frame, active.l3 + 8, active.l3 + 24, 16);
    } else {
        // Changing places does not change the sum: the IPv4 header checksum stays right.
        swap(frame, active.l3 + 12, active.l3 + 16, 4);
    }
    if let Some(at) = active.anep.checksum_at {
        frame[at..at + 2].fill(0);
        let sum = anep::checksum(&frame[active.anep.start..active.anep.end()]);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    if active.udp {
        swap(frame, active.l4, active.l4 + 2, 2);
        let at = active.l4 + 6;
        if frame[at..at + 2] != [0, 0] {
            frame[at..at + 2].fill(0);
            let sum = match fold_checksum(udp_sum(frame, active)) {
                // RFC 768: zero means "no checksum", so a sum of zero is sent as all ones.
                0 => 0xffff,
                sum => sum,
            };
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn swap(frame: &mut [u8], a: usize, b: usize, len: usize) {
    let (front, back) = frame.split_at_mut(b);
    front[a..a + len].swap_with_slice(&mut back[..len]);
}

/// Bytes of the UDP datagram, header included.
fn udp_len(frame: &[u8], active: &Active) -> usize {
    usize::from(u16::from_be_bytes([frame[active.l4 + 4], frame[active.l4 + 5]]))
}

fn udp_sum(frame: &[u8], active: &Active) -> u32 {
    let len = udp_len(frame, active);
    let addresses =
        if active.v6 { &frame[active.l3 + 8..active.l3 + 40] } else { &frame[active.l3 + 12..active.l3 + IPV4_BYTES] };
    let pseudo = sum_words(addresses) + 17 + len as u32;
    pseudo + sum_words(&frame[active.l4..active.l4 + len])
}

fn udp_checksum_ok(frame: &[u8], active: &Active) -> bool {
    let at = active.l4 + 6;
    if frame[at..at + 2] == [0, 0] {
        // RFC 768 allows no checksum over IPv4, RFC 8200 section 8.1 does not over IPv6.
        return !active.v6;
    }
    fold_checksum(udp_sum(frame, active)) == 0
}

#[cfg(test)]
#[path = "process_tests.rs"]
pub(crate) mod tests;

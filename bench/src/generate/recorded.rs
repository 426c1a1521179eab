//! The frames of a capture in memory, and when each of them is due.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4, PROTOCOL_UDP};

use crate::capture;

/// Most bytes of frames that are kept in memory.
const MOST_BYTES: usize = 1 << 30;
/// Both Ethernet addresses.
const ADDRESS_BYTES: usize = 12;

/// Where a frame ends in the bytes of all of them, and when it is due.
#[derive(Clone, Copy, Debug)]
struct Place {
    end: usize,
    due_ns: u64,
}

/// The frames.
#[derive(Debug)]
pub struct Recorded {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Recorded {
    /// Reads a capture, pcap or pcapng.
    ///
    /// # Errors
    /// As [`capture::read`]; or it has no frame, a frame was not captured whole or is none of Ethernet's, or all together
    /// are too large to be kept in memory.
    pub fn read(path: &Path) -> Result<Self> {
        let mut recorded = Self { bytes: Vec::new(), places: Vec::new() };
        let mut first_ns = None;
        capture::read(path, |frame| {
            let (number, kept) = (recorded.places.len() + 1, frame.bytes.len());
            ensure!(
                kept == frame.length,
                "frame {number} is not whole ({kept} of {} bytes): capture again with a larger snapshot length \
                 (`tcpdump -s 0`)",
                frame.length
            );
            ensure!(kept >= ETHERNET_BYTES, "frame {number} has {kept} bytes: too short for Ethernet");
            ensure!(
                recorded.bytes.len() + kept <= MOST_BYTES,
                "more than {} MiB of frames: split it (`editcap -c`, `tcpdump -C`)",
                MOST_BYTES >> 20
            );
            recorded.bytes.extend_from_slice(frame.bytes);
            // Frames of several queues may be written down a little out of order; they are sent in the order of the file.
            let before_ns = recorded.places.last().map_or(0, |place| place.due_ns);
            let due_ns = frame.at_ns.saturating_sub(*first_ns.get_or_insert(frame.at_ns)).max(before_ns);
            recorded.places.push(Place { end: recorded.bytes.len(), due_ns });
            Ok(())
        })?;
        ensure!(!recorded.places.is_empty(), "the capture {} has no frame", path.display());
        Ok(recorded)
    }

    /// Number of frames, at least one.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// False: there is at least one frame.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The frame at `index`, which is below [`Self::len`].
    pub fn frame(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.places[before].end);
        &self.bytes[start..self.places[index].end]
    }

    /// Length of each frame, bytes.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(|index| self.frame(index).len())
    }

    /// When the frame of this number is due by the times of the capture, ns after the first. The capture begins anew when it
    /// is over, one mean gap behind its last frame.
    pub fn due_ns(&self, number: u64) -> u64 {
        let count = self.len() as u64;
        let last_ns = self.places.last().map_or(0, |place| place.due_ns);
        let turn_ns = last_ns + last_ns / (count - 1).max(1);
        number / count * turn_ns + self.places[(number % count) as usize].due_ns
    }

    /// Gives every frame the two Ethernet addresses that `header` begins with; nothing without a header.
    pub fn address(&mut self, header: &[u8]) {
        let Some(addresses) = header.first_chunk::<ADDRESS_BYTES>() else { return };
        let mut start = 0;
        for place in &self.places {
            self.bytes[start..start + ADDRESS_BYTES].copy_from_slice(addresses);
            start = place.end;
        }
    }

    /// Whether every frame is UDP over IPv4, which is what the benchmarks' receivers count.
    ///
    /// # Errors
    /// One is not: which.
    pub fn ensure_countable(&self) -> Result<()> {
        for index in 0..self.len() {
            let frame = self.frame(index);
            let ethertype = frame[ADDRESS_BYTES..].first_chunk().copied().map(u16::from_be_bytes);
            let protocol = frame.get(ETHERNET_BYTES + 9).copied();
            ensure!(
                ethertype == Some(ETHERTYPE_IPV4) && protocol == Some(PROTOCOL_UDP),
                "frame {} is no UDP over IPv4, and the benchmarks' receivers count nothing else: leave others out \
                 (`tcpdump -r IN -w OUT 'ip and udp'`)",
                index + 1
            );
        }
        Ok(())
    }
}

/// Reads a capture for a path on which frames are counted at a receiver.
///
/// # Errors
/// As [`Recorded::read`] and [`Recorded::ensure_countable`].
pub fn read_countable(path: &Path) -> Result<Recorded> {
    let recorded = Recorded::read(path)?;
    recorded.ensure_countable().with_context(|| format!("cannot use the capture {}", path.display()))?;
    Ok(recorded)
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;

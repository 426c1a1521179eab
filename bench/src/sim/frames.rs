//! Packets and interconnect frames that exist at the moment, in slots that are used again.

use dataplane_common::wire::link::Carried;

/// What a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A packet at a node: waiting, or in service.
    #[default]
    Packet,
    /// A packet on its way to the node that shall compute it.
    Forward,
    /// A packet on its way there because that node asked for work.
    Given,
    /// A computed packet on its way back to the node of its arrival.
    Result,
    /// An idle worker asks for work.
    Request,
    /// There is none to give.
    Refusal,
    /// A node asks another one for its load.
    Probe,
    /// The load asked for.
    Answer,
}

/// A packet on its way through the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it arrived at the cluster, ns.
    pub arrived_ns: u64,
    /// When it arrived at the node that computes it, ns.
    pub queued_ns: u64,
    /// Service time on the reference node, ns.
    pub service_ns: u32,
    /// Estimated processing time at the node of arrival, ns: what every worker that holds the packet is charged.
    pub charged_ns: u32,
    /// Latency that its decision estimated, ns; 0 = none that is a time.
    pub predicted_ns: u32,
    /// Time its computation took, ns.
    pub served_ns: u32,
    /// Flow: its number among all nodes' flows.
    pub flow: u32,
    /// Number in its flow.
    pub sequence: u32,
    /// Node of arrival.
    pub ingress: u16,
    /// Length, bytes.
    pub bytes: u16,
    /// Kind.
    pub kind: u16,
    /// Class.
    pub class: u8,
    /// Life of the node of arrival in which it arrived.
    pub life: u8,
    /// Whether it counts in the statistics.
    pub is_measured: bool,
}

/// A packet, alone or in an interconnect frame, or a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The packet; of no meaning in a message.
    pub packet: Packet,
    /// Load of the sender.
    pub load: Carried,
    /// When that load was read, ns.
    pub read_ns: u64,
    /// Who sent the frame.
    pub source: u16,
    /// Where it goes, or where the packet is.
    pub destination: u16,
    /// Worker that asks for work, in a request and its answer.
    pub worker: u8,
    /// Life of the node that asks, in a request and its answer.
    pub life: u8,
    /// What the frame is.
    pub kind: Kind,
}

/// The frames.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    slots: Vec<Frame>,
    free: Vec<u32>,
}

impl Frames {
    /// Keeps a frame; its number is good until it is taken.
    pub fn put(&mut self, frame: Frame) -> u32 {
        if let Some(number) = self.free.pop() {
            self.slots[number as usize] = frame;
            return number;
        }
        self.slots.push(frame);
        (self.slots.len() - 1) as u32
    }

    /// The frame of this number.
    pub fn get(&self, number: u32) -> &Frame {
        &self.slots[number as usize]
    }

    /// The frame of this number.
    pub fn get_mut(&mut self, number: u32) -> &mut Frame {
        &mut self.slots[number as usize]
    }

    /// Takes a frame out.
    pub fn take(&mut self, number: u32) -> Frame {
        self.free.push(number);
        self.slots[number as usize]
    }

    /// Frames that exist.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut frames = Frames::default();
        let frame = |source| Frame { source, ..Frame::default() };
        let (a, b) = (frames.put(frame(1)), frames.put(frame(2)));
        assert_eq!((frames.take(a).source, frames.get(b).source), (1, 2));
        assert_eq!(frames.put(frame(3)), a);
        frames.get_mut(a).source = 4;
        assert_eq!((frames.get(a).source, frames.count()), (4, 2));
    }
}

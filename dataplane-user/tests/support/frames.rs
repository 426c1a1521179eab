//! Frames as other hosts and peers would send them, and the answers they expect.
//!
//! Offsets, lengths and checksums are this file's own arithmetic, from the RFCs and `docs/wire.md`: a mistake of the
//! product's is not repeated here.

use std::ops::Range;

/// The UDP port of ANEP.
pub const UDP_PORT: u16 = 3322;
/// The flag of an ANEP packet that nodes without its function discard.
pub const DISCARD: u8 = 0x80;
/// Bytes that the interconnect puts in front of a frame: Ethernet and its own header.
pub const OVERHEAD: usize = 86;

/// Bytes of a seal behind that.
pub const SEAL: usize = 24;

/// What lies between IP and ANEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// UDP with the right checksum.
    Udp,
    /// UDP with checksum zero: none.
    UdpWithoutChecksum,
    /// Nothing: IP protocol 107.
    Protocol107,
}

/// An active packet as its sender builds it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// VLAN tags: of two, the outer one is a service tag.
    pub vlans: usize,
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// 32-bit words of IPv4 options.
    pub ip_options: usize,
    /// IPv6 extension headers of 8 bytes.
    pub extensions: usize,
    /// What carries ANEP.
    pub carrier: Carrier,
    /// MAC addresses: destination, source.
    pub mac: [[u8; 6]; 2],
    /// Last bytes of the IP addresses: source, destination.
    pub host: [u8; 2],
    /// Precedence in the IP header, 0 to 7.
    pub class: u8,
    /// UDP ports: source, destination.
    pub port: [u16; 2],
    /// ANEP flags.
    pub flags: u8,
    /// ANEP type id.
    pub type_id: u16,
    /// ANEP options, whole words.
    pub options: Vec<u8>,
    /// Bytes behind the ANEP header.
    pub payload: Vec<u8>,
    /// Bytes behind the ANEP packet that IP and UDP count as theirs.
    pub trailing: usize,
    /// Where in `options` the checksum option's value lies.
    pub checksum_at: Option<usize>,
    /// Where in `options` the result option's value lies.
    pub result: Option<Range<usize>>,
}

impl Packet {
    /// A packet over UDP and IPv4 with 40 bytes of payload.
    pub fn new(type_id: u16) -> Self {
        Self {
            vlans: 0,
            v6: false,
            ip_options: 0,
            extensions: 0,
            carrier: Carrier::Udp,
            mac: [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]],
            host: [1, 2],
            class: 0,
            port: [40_000, UDP_PORT],
            flags: 0,
            type_id,
            options: Vec::new(),
            payload: (0..40).map(|byte| byte ^ 0x5a).collect(),
            trailing: 0,
            checksum_at: None,
            result: None,
        }
    }

    /// With `length` bytes of payload.
    pub fn payload_of(mut self, length: usize) -> Self {
        self.payload = (0..length).map(|at| (at * 7 + 3) as u8).collect();
        self
    }

    /// With another ANEP option; `value` is whole words.
    pub fn option(mut self, tag: u16, value: &[u8]) -> Self {
        assert_eq!(value.len() % 4, 0, "options are whole words");
        self.options.extend_from_slice(&tag.to_be_bytes());
        self.options.extend_from_slice(&((value.len() / 4 + 1) as u16).to_be_bytes());
        self.options.extend_from_slice(value);
        self
    }

    /// With an operand.
    pub fn operand(self, operand: u32) -> Self {
        self.option(0x8010, &operand.to_be_bytes())
    }

    /// With a key.
    pub fn key(self, key: u32) -> Self {
        self.option(0x8012, &key.to_be_bytes())
    }

    /// With room for a result of `length` bytes.
    pub fn result(self, length: usize) -> Self {
        let start = self.options.len() + 4;
        let mut packet = self.option(0x8011, &vec![0xee; length.next_multiple_of(4)]);
        packet.result = Some(start..packet.options.len());
        packet
    }

    /// With the integrity checksum over the ANEP packet.
    pub fn checksum(self) -> Self {
        let at = self.options.len() + 4;
        Self { checksum_at: Some(at), ..self.option(3, &[0; 4]) }
    }

    /// The answer its sender waits for: marked as a result, `result` filled in, everything turned round.
    pub fn answer(&self, result: &[u8]) -> Self {
        let mut packet = self.clone();
        packet.flags |= 0x40;
        packet.mac.swap(0, 1);
        packet.host.swap(0, 1);
        packet.port.swap(0, 1);
        if !result.is_empty() {
            let start = self.result.clone().map_or(0, |range| range.start);
            packet.options[start..start + result.len()].copy_from_slice(result);
        }
        packet
    }

    /// Offset of the IP header.
    pub fn l3(&self) -> usize {
        14 + 4 * self.vlans
    }

    /// Offset of the transport header, or of ANEP without one.
    pub fn l4(&self) -> usize {
        self.l3() + if self.v6 { 40 + 8 * self.extensions } else { 20 + 4 * self.ip_options }
    }

    /// Offset of the ANEP header.
    pub fn anep(&self) -> usize {
        self.l4() + if self.carrier == Carrier::Protocol107 { 0 } else { 8 }
    }

    /// Offset of the first ANEP option.
    pub fn options_at(&self) -> usize {
        self.anep() + 8
    }

    /// Offset of the checksum option's value.
    pub fn checksum_offset(&self) -> usize {
        self.options_at() + self.checksum_at.expect("the packet has a checksum option")
    }

    /// Offset of the payload.
    pub fn payload_at(&self) -> usize {
        self.options_at() + self.options.len()
    }

    /// Offset of the first byte behind the ANEP packet.
    pub fn end(&self) -> usize {
        self.payload_at() + self.payload.len()
    }

    /// The bytes on the wire.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = [self.mac[0], self.mac[1]].concat();
        for tag in 0..self.vlans {
            let outer_of_two = self.vlans == 2 && tag == 0;
            frame.extend_from_slice(if outer_of_two { &[0x88, 0xa8, 0x00, 0x64] } else { &[0x81, 0x00, 0x20, 0x07] });
        }
        frame.extend_from_slice(if self.v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
        let datagram = self.datagram();
        frame.extend_from_slice(&if self.v6 { self.ipv6(datagram.len()) } else { self.ipv4(datagram.len()) });
        frame.extend_from_slice(&datagram);
        frame
    }

    fn protocol(&self) -> u8 {
        if self.carrier == Carrier::Protocol107 { 107 } else { 17 }
    }

    fn addresses(&self) -> Vec<u8> {
        let address = |host: u8| match self.v6 {
            true => vec![0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host],
            false => vec![198, 18, 0, host],
        };
        [address(self.host[0]), address(self.host[1])].concat()
    }

    fn ipv4(&self, payload: usize) -> Vec<u8> {
        let length = 20 + 4 * self.ip_options;
        let total = ((length + payload) as u16).to_be_bytes();
        let mut header = vec![0x40 | (length / 4) as u8, self.class << 5, total[0], total[1], 0x12, 0x34, 0x40, 0, 64];
        header.extend_from_slice(&[self.protocol(), 0, 0]);
        header.extend_from_slice(&self.addresses());
        header.resize(length, 1);
        let sum = internet_checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn ipv6(&self, payload: usize) -> Vec<u8> {
        let length = ((payload + 8 * self.extensions) as u16).to_be_bytes();
        let next = if self.extensions > 0 { 60 } else { self.protocol() };
        let mut header = vec![0x60 | self.class << 1, 0, 0, 0, length[0], length[1], next, 64];
        header.extend_from_slice(&self.addresses());
        for left in (0..self.extensions).rev() {
            header.extend_from_slice(&[if left > 0 { 60 } else { self.protocol() }, 0, 1, 4, 0, 0, 0, 0]);
        }
        header
    }

    /// ANEP with the UDP header in front, if there is one.
    fn datagram(&self) -> Vec<u8> {
        let mut anep = self.anep_packet();
        anep.resize(anep.len() + self.trailing, 0xfe);
        if self.carrier == Carrier::Protocol107 {
            return anep;
        }
        let length = (8 + anep.len()) as u16;
        let ports = [self.port[0].to_be_bytes(), self.port[1].to_be_bytes()].concat();
        let mut datagram = [&ports[..], &length.to_be_bytes(), &[0, 0], &anep].concat();
        if self.carrier == Carrier::Udp {
            let pseudo = [&self.addresses()[..], &u32::from(length).to_be_bytes(), &[0, 0, 0, 17]].concat();
            let sum = match internet_checksum(&[&pseudo[..], &datagram].concat()) {
                0 => 0xffff,
                sum => sum,
            };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        datagram
    }

    fn anep_packet(&self) -> Vec<u8> {
        let header = 8 + self.options.len();
        let length = (header + self.payload.len()) as u16;
        let mut packet = vec![1, self.flags];
        packet.extend_from_slice(&self.type_id.to_be_bytes());
        packet.extend_from_slice(&((header / 4) as u16).to_be_bytes());
        packet.extend_from_slice(&length.to_be_bytes());
        packet.extend_from_slice(&self.options);
        packet.extend_from_slice(&self.payload);
        if let Some(at) = self.checksum_at {
            let sum = internet_checksum(&packet);
            packet[8 + at..8 + at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }
}

/// RFC 1071, one byte at a time.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for (at, byte) in bytes.iter().enumerate() {
        sum += if at % 2 == 0 { u64::from(*byte) << 8 } else { u64::from(*byte) };
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// `frame` with `bytes` written over it from `at` on.
pub fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Makes the IPv4 header checksum right again after a change.
pub fn with_ip_checksum(mut frame: Vec<u8>, packet: &Packet) -> Vec<u8> {
    let header = packet.l3()..packet.l4();
    frame[header.start + 10..header.start + 12].fill(0);
    let sum = internet_checksum(&frame[header.clone()]);
    frame[header.start + 10..header.start + 12].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A frame between nodes.
#[derive(Clone, Copy, Debug)]
pub struct Interconnect {
    /// MAC addresses: destination, source.
    pub mac: [[u8; 6]; 2],
    pub version: u8,
    /// 1 forward, 2 result, 3 report.
    pub kind: u8,
    pub hops: u8,
    pub flags: u8,
    pub source: u16,
    pub destination: u16,
    pub epoch: u32,
    pub sequence: u32,
    pub charged_ns: u32,
    pub position_ns: u32,
    pub type_id: u16,
    pub port: u16,
    pub flow: u16,
    pub arrival_ns: u64,
    pub flow_sequence: u32,
    pub stamp_us: u32,
    pub backlog_ns: u32,
    pub received_ns: u32,
    pub received_epoch: u16,
    /// Sixteenths of packets.
    pub queued: u16,
    pub spent_ns: u32,
    pub held: u32,
    pub generation: u32,
}

impl Interconnect {
    /// A forward of this version without a flow, all other numbers zero.
    pub const PLAIN: Self = Self {
        mac: [[0; 6]; 2],
        version: 3,
        kind: 1,
        hops: 1,
        flags: 0,
        source: 0,
        destination: 0,
        epoch: 0,
        sequence: 0,
        charged_ns: 0,
        position_ns: 0,
        type_id: 0,
        port: 0,
        flow: u16::MAX,
        arrival_ns: 0,
        flow_sequence: 0,
        stamp_us: 0,
        backlog_ns: 0,
        received_ns: 0,
        received_epoch: 0,
        queued: 0,
        spent_ns: 0,
        held: 0,
        generation: 0,
    };

    /// The frame, with `inner` behind the header.
    pub fn frame(&self, inner: &[u8]) -> Vec<u8> {
        let mut frame = [self.mac[0], self.mac[1]].concat();
        frame.extend_from_slice(&[0x88, 0xb5, self.version, self.kind, self.hops, self.flags]);
        frame.extend_from_slice(&self.source.to_be_bytes());
        frame.extend_from_slice(&self.destination.to_be_bytes());
        for word in [self.epoch, self.sequence, self.charged_ns, self.position_ns] {
            frame.extend_from_slice(&word.to_be_bytes());
        }
        for half in [inner.len() as u16, self.type_id, self.port, self.flow] {
            frame.extend_from_slice(&half.to_be_bytes());
        }
        frame.extend_from_slice(&self.arrival_ns.to_be_bytes());
        for word in [self.flow_sequence, self.stamp_us, self.backlog_ns, self.received_ns] {
            frame.extend_from_slice(&word.to_be_bytes());
        }
        frame.extend_from_slice(&self.received_epoch.to_be_bytes());
        frame.extend_from_slice(&self.queued.to_be_bytes());
        for word in [self.spent_ns, self.held, self.generation] {
            frame.extend_from_slice(&word.to_be_bytes());
        }
        frame.extend_from_slice(inner);
        frame
    }

    /// The frame of a report: its body does not count as a frame behind the header.
    pub fn report(&self, body: &Load) -> Vec<u8> {
        [self.frame(&[]), body.bytes()].concat()
    }
}

/// The keys of a seal.
#[derive(Clone, Copy, Debug)]
pub struct SealKey {
    pub number: u8,
    /// Of the tag, and of the body tag.
    pub keys: [[u64; 2]; 2],
}

impl SealKey {
    /// A frame without a seal as it is with one: this serial, and the tag of the whole body if that is covered.
    pub fn seal(&self, plain: &[u8], serial: u64, with_body: bool) -> Vec<u8> {
        let (front, body) = plain.split_at(OVERHEAD);
        let mut frame = front.to_vec();
        frame[17] |= self.number << 4;
        frame.extend_from_slice(&serial.to_be_bytes());
        let body_tag = if with_body { sip(self.keys[1], body) } else { 0 };
        frame.extend_from_slice(&body_tag.to_be_bytes());
        let tag = sip(self.keys[0], &frame[14..]);
        frame.extend_from_slice(&tag.to_be_bytes());
        frame.extend_from_slice(body);
        frame
    }

    /// What lies behind the Ethernet header of a sealed frame, without its seal, and the serial; `None` when a tag is wrong.
    pub fn open(&self, frame: &[u8], with_body: bool) -> Option<(Vec<u8>, u64)> {
        let serial = u64::from_be_bytes(frame[OVERHEAD..OVERHEAD + 8].try_into().ok()?);
        let mut plain = [&frame[..OVERHEAD], &frame[OVERHEAD + SEAL..]].concat();
        plain[17] &= 0x0f;
        (self.seal(&plain, serial, with_body) == frame).then_some((plain, serial))
    }
}

/// SipHash-2-4 by another implementation than the product's.
fn sip([k0, k1]: [u64; 2], bytes: &[u8]) -> u64 {
    use std::hash::Hasher as _;
    let mut sip = siphasher::sip::SipHasher24::new_with_keys(k0, k1);
    sip.write(bytes);
    sip.finish()
}

/// The body of a report.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub behind: u64,
    pub mean_backlog_ns: u32,
    pub received_frames: u32,
    pub interval_us: u32,
    pub workers: u16,
    pub busy_milli: u16,
    pub memory_milli: u16,
    pub limit_ns: Option<u32>,
}

impl Load {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.behind.to_be_bytes().to_vec();
        for word in [self.mean_backlog_ns, self.received_frames, self.interval_us] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        for half in [self.workers, self.busy_milli, self.memory_milli, u16::from(self.limit_ns.is_some())] {
            bytes.extend_from_slice(&half.to_be_bytes());
        }
        bytes.extend_from_slice(&self.limit_ns.unwrap_or(0).to_be_bytes());
        bytes
    }
}

//! `dataplane-bench ask`: active packets to a node, from ordinary sockets, and what comes back; for people what `ping` is.
//!
//! Each flow is a socket with one packet on its way at a time, so nothing is overloaded: an answer that does not come was
//! lost, or never made.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use dataplane_common::wire::anep::{self, UDP_PORT};
use dataplane_user::functions::{Builtin, Call};

use crate::interrupt::Interrupt;
use crate::packet::{Addresses, Carrier, Probe, Recipe, Template};

/// Largest answer.
const DATAGRAM: usize = 2048;
/// What the functions are asked with: little work.
const OPERAND: u32 = 1;

/// Options of `ask`.
#[derive(Args, Debug)]
pub struct Options {
    /// Address of the node's port, or any behind it.
    address: Ipv4Addr,
    /// UDP port of the node.
    #[arg(short, long, default_value_t = UDP_PORT)]
    port: u16,
    /// Packets, rounded up to a whole number for each flow.
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Flows: UDP source ports.
    #[arg(short, long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    flows: u16,
    /// Function (`dataplane functions` lists them).
    #[arg(long, value_name = "NAME", default_value = "crc32")]
    function: String,
    /// Bytes of payload.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(24..=1400))]
    size: u16,
    /// How long to wait for an answer, ms.
    #[arg(short, long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    wait: u32,
}

/// What came of it.
#[derive(Debug, Default)]
struct Tally {
    sent: u32,
    wrong: u32,
    times: Vec<Duration>,
}

/// Asks, and prints what came back.
///
/// # Errors
/// A packet was not answered, or wrongly; or the kernel refuses.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let asker = Asker::new(options)?;
    let sockets = (0..options.flows).map(|_| asker.socket()).collect::<Result<Vec<_>>>()?;
    let mut tally = Tally::default();
    let mut sequence = 0;
    while sequence < u64::from(options.count) {
        interrupt.check()?;
        let mut waiting = Vec::new();
        for socket in &sockets {
            let datagram = asker.question(sequence);
            match socket.send(&datagram) {
                // What an earlier packet met; this one was not sent.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => socket.send(&datagram),
                sent => sent,
            }
            .with_context(|| format!("cannot send to {}", options.address))?;
            waiting.push((socket, sequence, Instant::now()));
            tally.sent += 1;
            sequence += 1;
        }
        for (socket, sequence, sent) in waiting {
            asker.wait(socket, sequence, sent, &mut tally)?;
        }
    }
    println!("{}", describe(&mut tally));
    let answered = tally.times.len();
    ensure!(tally.wrong == 0, "{} answers are wrong", tally.wrong);
    let lost = tally.sent as usize - answered;
    ensure!(lost == 0, "{lost} of {} packets were not answered", tally.sent);
    Ok(())
}

/// What is sent and what must come back.
struct Asker {
    to: SocketAddrV4,
    function: Builtin,
    template: Template,
    wait: Duration,
}

impl Asker {
    fn new(options: &Options) -> Result<Self> {
        let name = &options.function;
        let function =
            Builtin::from_name(name).with_context(|| format!("no function {name}: see `dataplane functions`"))?;
        // The kernel makes the headers in front of ANEP; those of the recipe are cut off.
        let nowhere = Ipv4Addr::UNSPECIFIED;
        let recipe = Recipe {
            source_mac: [0; 6],
            destination_mac: [0; 6],
            vlans: Vec::new(),
            addresses: Addresses::V4 { source: nowhere, destination: nowhere },
            carrier: Carrier::Udp { source: 0, destination: options.port, checksum: false },
            type_id: function.type_id(),
            discard_unknown: true,
            operand: Some(OPERAND),
            result_bytes: function.result_bytes(),
            checksum: true,
            payload_bytes: options.size.into(),
        };
        let wait = Duration::from_millis(options.wait.into());
        Ok(Self { to: SocketAddrV4::new(options.address, options.port), function, template: recipe.template()?, wait })
    }

    fn socket(&self) -> Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("no UDP socket")?;
        socket.connect(self.to).with_context(|| format!("cannot reach {}", self.to))?;
        socket.set_read_timeout(Some(self.wait)).context("cannot set a time limit")?;
        Ok(socket)
    }

    /// The datagram's content: ANEP packet number `sequence`.
    fn question(&self, sequence: u64) -> Vec<u8> {
        self.template.frame(&Probe { sequence, scheduled_ns: 0 }).split_off(self.template.anep_at())
    }

    /// Waits for the answer to packet `sequence`. One that comes too late counts as lost and is left out.
    fn wait(&self, socket: &UdpSocket, sequence: u64, sent: Instant, tally: &mut Tally) -> Result<()> {
        let mut bytes = [0; DATAGRAM];
        while sent.elapsed() < self.wait {
            let length = match socket.recv(&mut bytes) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(()),
                // Nobody takes the packet off the interface, and the kernel has no such port.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
                Err(error) => return Err(error).context("cannot receive"),
            };
            match self.check(sequence, &bytes[..length]) {
                Answer::Right => tally.times.push(sent.elapsed()),
                Answer::Wrong => tally.wrong += 1,
                Answer::Other => continue,
            }
            return Ok(());
        }
        Ok(())
    }

    fn check(&self, sequence: u64, answer: &[u8]) -> Answer {
        let question = self.question(sequence);
        let (Some(asked), Some(got)) = (content(&question), content(answer)) else { return Answer::Wrong };
        if asked.payload.get(8..16) != got.payload.get(8..16) {
            return Answer::Other;
        }
        let (mut payload, mut result) = (asked.payload.to_vec(), vec![0; self.function.result_bytes()]);
        self.function.compute(Call { payload: &mut payload, operand: OPERAND, result: &mut result });
        let is_right = got.is_intact && got.payload == payload && got.result.starts_with(&result);
        if is_right { Answer::Right } else { Answer::Wrong }
    }
}

/// What a datagram is.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Right,
    Wrong,
    /// To another packet.
    Other,
}

struct Content<'a> {
    payload: &'a [u8],
    result: &'a [u8],
    is_intact: bool,
}

fn content(datagram: &[u8]) -> Option<Content<'_>> {
    let packet = anep::parse(datagram, 0, datagram.len()).ok()?;
    let whole = datagram.get(packet.start..packet.end())?;
    let result = packet.result_at.map_or(Some(&[][..]), |at| datagram.get(at..at + packet.result_len))?;
    let is_intact = packet.checksum_at.is_none() || anep::checksum_ok(whole);
    Some(Content { payload: whole.get(packet.header_len..)?, result, is_intact })
}

fn describe(tally: &mut Tally) -> String {
    let answered = tally.times.len();
    let mut text = format!("{} packets sent, {answered} answered, {} answers wrong", tally.sent, tally.wrong);
    tally.times.sort_unstable();
    if let (Some(least), Some(most)) = (tally.times.first(), tally.times.last()) {
        let median = tally.times[answered / 2];
        text.push_str(&format!("; round trip {least:.1?} at least, {median:.1?} median, {most:.1?} at most"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let function = "crc32".to_owned();
        Options { address: Ipv4Addr::LOCALHOST, port: UDP_PORT, count: 1, flows: 1, function, size: 64, wait: 100 }
    }

    /// What a node would answer.
    fn answer(asker: &Asker, sequence: u64) -> Vec<u8> {
        let mut bytes = asker.question(sequence);
        let packet = anep::parse(bytes.as_slice(), 0, bytes.len()).unwrap();
        let mut payload = bytes[packet.start + packet.header_len..].to_vec();
        let (at, checksum_at) = (packet.result_at.unwrap(), packet.checksum_at.unwrap());
        let mut result = [0; 4];
        asker.function.compute(Call { payload: &mut payload, operand: OPERAND, result: &mut result });
        bytes[at..at + 4].copy_from_slice(&result);
        bytes[checksum_at..checksum_at + 2].fill(0);
        let sum = anep::checksum(&bytes);
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn a_right_answer_is_told_from_a_wrong_and_from_a_late_one() {
        let asker = Asker::new(&options()).unwrap();
        let right = answer(&asker, 7);
        assert_eq!(asker.check(7, &right), Answer::Right);
        assert_eq!(asker.check(8, &right), Answer::Other);
        assert_eq!(asker.check(7, &asker.question(7)), Answer::Wrong);
        assert_eq!(asker.check(7, &right[..right.len() - 1]), Answer::Wrong);
        assert_eq!(asker.check(7, b"no packet"), Answer::Wrong);
    }

    #[test]
    fn an_unknown_function_is_refused() {
        let options = Options { function: "fortune".to_owned(), ..options() };
        assert!(Asker::new(&options).err().unwrap().to_string().contains("no function fortune"));
    }

    #[test]
    fn unanswered_packets_are_counted_and_have_no_time() {
        let mut tally = Tally { sent: 3, wrong: 1, times: vec![Duration::from_micros(30)] };
        let text = describe(&mut tally);
        assert!(text.starts_with("3 packets sent, 1 answered, 1 answers wrong; round trip 30.0µs"), "{text}");
        assert_eq!(describe(&mut Tally::default()), "0 packets sent, 0 answered, 0 answers wrong");
    }
}

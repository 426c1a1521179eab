//! Frames of a capture file, pcap or pcapng, as they are read.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// Bytes read ahead: more than the longest frame that capturing programs keep, 256 KiB, and its block around it.
const BUFFER_BYTES: usize = 1 << 20;
/// Digits behind the point in which pcapng counts time unless the file says otherwise.
const USUAL_DIGITS: u8 = 6;
const SECOND_NS: u128 = 1_000_000_000;

/// A frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it was captured, ns of the file's clock.
    pub at_ns: u64,
    /// Interface that captured it: its number in the file.
    pub interface: u32,
    /// Its bytes, as far as they were kept.
    pub bytes: &'a [u8],
    /// Bytes it had.
    pub length: usize,
}

/// An interface of a file: ticks per second of its clock, and seconds that its times are late.
#[derive(Clone, Copy, Debug)]
struct Clock {
    per_second: u128,
    offset_s: i64,
}

impl Clock {
    /// The clock of a pcapng interface, whose resolution is a power of ten, or of two with the high bit set (section 4.2 of
    /// the pcapng draft, `if_tsresol`).
    fn of(resolution: u8, offset_s: i64) -> Result<Self> {
        let exponent = u32::from(resolution & 0x7f);
        let per_second =
            if resolution & 0x80 == 0 { 10u128.checked_pow(exponent) } else { 1u128.checked_shl(exponent) };
        let per_second = per_second.filter(|ticks| *ticks <= u128::from(u64::MAX));
        Ok(Self { per_second: per_second.with_context(|| format!("a clock of resolution {resolution}"))?, offset_s })
    }

    fn ns(self, ticks: u64) -> Result<u64> {
        let ns = u128::from(ticks) * SECOND_NS / self.per_second;
        let ns = i128::try_from(ns)? + i128::from(self.offset_s) * SECOND_NS as i128;
        u64::try_from(ns).context("a time before 1970 or after 2554")
    }
}

/// Calls `each` for every frame of the capture file at `path`, in the order of the file. Returns how many interfaces it has.
///
/// # Errors
/// The file cannot be read, is no capture, ends in the middle of a frame, or was not captured on Ethernet; or `each` fails.
pub fn read(path: &Path, mut each: impl FnMut(Captured<'_>) -> Result<()>) -> Result<u32> {
    let file = File::open(path).with_context(|| format!("cannot open the capture {}", path.display()))?;
    read_from(file, &mut each).with_context(|| format!("cannot use the capture {}", path.display()))
}

fn read_from(file: impl std::io::Read + Send, each: &mut impl FnMut(Captured<'_>) -> Result<()>) -> Result<u32> {
    let mut reader = match create_reader(BUFFER_BYTES, file) {
        Ok(reader) => reader,
        Err(error) => bail!("{}", reason(&error)),
    };
    let mut state = State::default();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                state.take(&block, each)?;
                reader.consume(length);
            }
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => {
                if let Err(error) = reader.refill() {
                    bail!("{}", reason(&error));
                }
            }
            Err(error) => bail!("{}, behind {} whole frames", reason(&error), state.frames),
        }
    }
    Ok(state.interfaces_before + state.clocks.len() as u32)
}

/// What an error of the parser means for who wrote the file.
fn reason<I>(error: &PcapError<I>) -> &'static str {
    match error {
        PcapError::Eof => "the file is empty",
        PcapError::HeaderNotRecognized => "the file is neither pcap nor pcapng",
        PcapError::Incomplete(_) | PcapError::UnexpectedEof => {
            "the file ends in the middle of a block: it was cut short"
        }
        PcapError::BufferTooSmall => "a block is longer than any captured frame: the file is damaged",
        PcapError::ReadError => "reading failed",
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => "a block is malformed: the file is damaged",
    }
}

/// What later blocks need of earlier ones.
#[derive(Default)]
struct State {
    /// Clocks of the interfaces of this section of the file.
    clocks: Vec<Clock>,
    /// Interfaces of earlier sections.
    interfaces_before: u32,
    /// Frames seen.
    frames: u64,
}

impl State {
    fn take(&mut self, block: &PcapBlockOwned<'_>, each: &mut impl FnMut(Captured<'_>) -> Result<()>) -> Result<()> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                is_ethernet(header.network)?;
                let digits = if header.is_nanosecond_precision() { 9 } else { USUAL_DIGITS };
                self.clocks.push(Clock::of(digits, 0)?);
            }
            PcapBlockOwned::Legacy(frame) => {
                let clock = self.clock(0)?;
                let ticks = u128::from(frame.ts_sec) * clock.per_second + u128::from(frame.ts_usec);
                let at_ns = clock.ns(u64::try_from(ticks)?)?;
                self.frames += 1;
                each(Captured { at_ns, interface: 0, bytes: frame.data, length: frame.origlen as usize })?;
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces_before += self.clocks.len() as u32;
                self.clocks.clear();
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                is_ethernet(interface.linktype)?;
                self.clocks.push(Clock::of(interface.if_tsresol, interface.if_tsoffset)?);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(frame)) => {
                let ticks = u64::from(frame.ts_high) << 32 | u64::from(frame.ts_low);
                let at_ns = self.clock(frame.if_id)?.ns(ticks)?;
                let interface = self.interfaces_before + frame.if_id;
                self.frames += 1;
                each(Captured { at_ns, interface, bytes: frame.packet_data(), length: frame.origlen as usize })?;
            }
            PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                bail!("frame {} has no time (a simple packet block): capture again with times", self.frames + 1)
            }
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn clock(&self, interface: u32) -> Result<Clock> {
        let clock = self.clocks.get(interface as usize).copied();
        clock.with_context(|| format!("frame {} names an interface that the file does not describe", self.frames + 1))
    }
}

fn is_ethernet(link: Linktype) -> Result<()> {
    ensure!(link == Linktype::ETHERNET, "frames of link type {}: only Ethernet (1) can be read", link.0);
    Ok(())
}

#[cfg(test)]
#[path = "capture_tests.rs"]
pub(crate) mod tests;

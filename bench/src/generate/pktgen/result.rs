//! What pktgen's files say after a write or a run.

/// The outcome of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time from start to end, µs.
    pub elapsed_us: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of each, without frame check sequence.
    pub bytes: u64,
    /// Packets that the device refused.
    pub errors: u64,
}

/// The text behind the last `Result:` of a file; empty without one.
pub fn last_result(text: &str) -> &str {
    text.rfind("Result:").map_or("", |at| text[at + "Result:".len()..].trim())
}

impl Outcome {
    /// Reads the two lines `Result: OK: 114507(c114376+d130) usec, 20000 (60byte,0frags)` and
    /// `174661pps 83Mb/sec (83837280bps) errors: 0`.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = last_result(text).strip_prefix("OK:")?.trim_start();
        let (elapsed, rest) = rest.split_once('(')?;
        let (_, rest) = rest.split_once("usec,")?;
        let (packets, rest) = rest.split_once('(')?;
        let (bytes, rest) = rest.split_once("byte")?;
        let (_, errors) = rest.split_once("errors:")?;
        Some(Self {
            elapsed_us: elapsed.trim().parse().ok()?,
            packets: packets.trim().parse().ok()?,
            bytes: bytes.trim().parse().ok()?,
            errors: errors.split_whitespace().next()?.parse().ok()?,
        })
    }
}

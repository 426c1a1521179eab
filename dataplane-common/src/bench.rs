//! What the benchmarks' XDP programs (`dataplane-ebpf/src/bin/bench.rs`) and the program that loads them agree on. The
//! dataplane itself uses none of it.

/// Name of the counters' map.
pub const BENCH_COUNT: &str = "BENCH_COUNT";
/// Name of the map with the epoch and the position of the last forward.
pub const BENCH_LAST: &str = "BENCH_LAST";
/// Name of the map with the frame to send.
pub const BENCH_FRAME: &str = "BENCH_FRAME";
/// Name of the map with the times of sending.
pub const BENCH_PACE: &str = "BENCH_PACE";
/// Name of the device map of the plain redirect.
pub const BENCH_OUT: &str = "BENCH_OUT";
/// Name of the map of sockets.
pub const BENCH_XSKS: &str = "BENCH_XSKS";

/// Program that sends.
pub const GENERATE: &str = "bn_generate";
/// Program that counts and drops.
pub const DROP: &str = "bn_drop";
/// Program that sends each frame back to its sender.
pub const TX: &str = "bn_tx";
/// Program that redirects by a device map.
pub const REDIRECT: &str = "bn_redirect";
/// Program that redirects to AF_XDP sockets.
pub const SOCKET: &str = "bn_socket";

/// 8-byte words of a frame that the generator writes anew each time: Ethernet, IPv4, UDP and ANEP headers. Receivers change
/// nothing behind them.
pub const FRAME_WORDS: usize = 7;

/// Index of a counter; each is kept per CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// Frames the generator has given to the kernel to send.
    Generated = 0,
    /// UDP datagrams over IPv4 received.
    Udp = 1,
    /// Interconnect frames of kind forward received.
    Forward = 2,
    /// Other frames received.
    Other = 3,
}

/// Number of counters.
pub const COUNTERS: usize = 4;

/// Words of the value in [`BENCH_PACE`].
pub const PACE_WORDS: usize = 4;
/// Word of the time between two frames, thousandths of a nanosecond; 0: as fast as possible.
pub const PACE_GAP: usize = 0;
/// Word of the time of the first frame, ns of the monotonic clock.
pub const PACE_START: usize = 1;
/// Word of the time from the first frame to the next one, thousandths of a nanosecond. The generator adds to it.
pub const PACE_NEXT: usize = 2;
/// Word of the time after which nothing is sent any more, ns of the monotonic clock. Only looked at with a gap.
pub const PACE_END: usize = 3;

//! [`BenchObject`]: the XDP programs of the benchmarks, loaded; see `dataplane-ebpf/src/bin/bench.rs`.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use aya::maps::{Array, DevMap, Map, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{TestRun as _, TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use dataplane_common::bench::{
    BENCH_COUNT, BENCH_FRAME, BENCH_LAST, BENCH_OUT, BENCH_PACE, BENCH_XSKS, Counter, FRAME_WORDS, GENERATE, PACE_END,
    PACE_GAP, PACE_START, PACE_WORDS,
};

/// Environment variable that names the object file; else it is looked for where `cargo xtask build` puts it.
pub const OBJECT_VARIABLE: &str = "DATAPLANE_BENCH_OBJECT";

/// Offset of `ingress_ifindex` in `struct xdp_md`, and the length of that struct, bytes (`linux/bpf.h`).
const MD_INGRESS: usize = 12;
const MD_BYTES: usize = 24;

/// The loaded object. Links returned by it keep their programs attached until they are dropped.
pub struct BenchObject {
    ebpf: Ebpf,
}

/// What one load of the object has counted; see [`Counter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// UDP datagrams over IPv4.
    pub udp: u64,
    /// Interconnect frames of kind forward.
    pub forwards: u64,
}

/// When frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time between two frames, thousandths of a nanosecond; 0: as fast as possible, whatever the other two say.
    pub gap_milli: u64,
    /// Time of the first frame, ns of the monotonic clock.
    pub start_ns: u64,
    /// When sending ends: frames that could not be sent by then are not sent.
    pub end_ns: u64,
}

impl BenchObject {
    /// Loads the object: maps now, programs when they are first used.
    ///
    /// # Errors
    /// The file is not there (it is built by `cargo xtask build`), or the kernel refuses it.
    pub fn load() -> Result<Self> {
        let path = path()?;
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let ebpf = EbpfLoader::new().load(&bytes).with_context(|| format!("refused: {}", path.display()))?;
        Ok(Self { ebpf })
    }

    /// Attaches `program` in native mode. Call it in the interface's namespace. Dropping the link detaches it.
    ///
    /// # Errors
    /// The verifier or the driver refuses, or the kernel has no BPF links for XDP.
    pub fn attach(&mut self, program: &str, ifindex: u32) -> Result<FdLink> {
        let describe = || format!("cannot attach {program} in native mode to interface {ifindex}");
        let xdp = self.program(program)?;
        let id = xdp.attach_to_if_index(ifindex, XdpMode::Driver).with_context(describe)?;
        let link = xdp.take_link(id).with_context(describe)?;
        // A netlink attachment, aya's fallback, would outlive this process.
        FdLink::try_from(link).with_context(describe)
    }

    fn program(&mut self, name: &str) -> Result<&mut Xdp> {
        let program = self.ebpf.program_mut(name).with_context(|| format!("the object has no program {name}"))?;
        let program: &mut Xdp = program.try_into()?;
        if program.fd().is_err() {
            program.load().with_context(|| format!("program {name} was refused"))?;
        }
        Ok(program)
    }

    /// Takes a map out of the object, to be used beside it.
    ///
    /// # Errors
    /// There is none of this name, or it has been taken.
    pub(crate) fn take_map(&mut self, name: &str) -> Result<Map> {
        self.ebpf.take_map(name).with_context(|| format!("the object has no map {name}"))
    }

    /// A map of the object.
    ///
    /// # Errors
    /// There is none of this name, or it has been taken.
    pub(crate) fn map_mut(&mut self, name: &str) -> Result<&mut Map> {
        self.ebpf.map_mut(name).with_context(|| format!("the object has no map {name}"))
    }

    /// Where the plain redirect sends to. Call it in the interface's namespace.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set_out(&mut self, ifindex: u32) -> Result<()> {
        let mut out: DevMap<_> = self.ebpf.map_mut(BENCH_OUT).context(BENCH_OUT)?.try_into()?;
        out.set(0, ifindex, None, 0).context(BENCH_OUT)
    }

    /// Gives the frames of `queue` to an AF_XDP socket.
    ///
    /// # Errors
    /// The socket is not bound.
    pub fn set_socket(&mut self, queue: u32, fd: BorrowedFd<'_>) -> Result<()> {
        let mut sockets: XskMap<_> = self.ebpf.map_mut(BENCH_XSKS).context(BENCH_XSKS)?.try_into()?;
        sockets.set(queue, fd, 0).context(BENCH_XSKS)
    }

    /// What the receiving programs have counted.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn seen(&self) -> Result<Seen> {
        Ok(Seen { udp: self.count(Counter::Udp)?, forwards: self.count(Counter::Forward)? })
    }

    /// A counter, summed over CPUs.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn count(&self, counter: Counter) -> Result<u64> {
        let counters: PerCpuArray<_, u64> = self.ebpf.map(BENCH_COUNT).context(BENCH_COUNT)?.try_into()?;
        Ok(counters.get(&(counter as u32), 0).context(BENCH_COUNT)?.iter().sum())
    }

    /// Boot epoch and position of the last forward seen; zeros before the first one.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn last_forward(&self) -> Result<(u32, u32)> {
        let last: Array<_, u64> = self.ebpf.map(BENCH_LAST).context(BENCH_LAST)?.try_into()?;
        let word = last.get(&0, 0).context(BENCH_LAST)?;
        Ok(((word >> 32) as u32, word as u32))
    }

    /// Sends `count` times `frame` out of `ifindex` of this namespace, in the kernel, by `BPF_PROG_TEST_RUN` with live
    /// frames, `batch` at a time; returns when all are sent, or when this process is told to end. The peer interface
    /// must run XDP, or it takes none of them.
    ///
    /// # Errors
    /// The kernel has no live frames (before 5.18) or refuses.
    pub fn generate(&mut self, ifindex: u32, frame: &[u8], count: u32, batch: u32, pace: Pace) -> Result<()> {
        let head =
            frame.first_chunk::<{ FRAME_WORDS * 8 }>().context("frame shorter than what is written each time")?;
        let mut words = [0u64; FRAME_WORDS];
        for (word, bytes) in words.iter_mut().zip(head.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let mut map: Array<_, [u64; FRAME_WORDS]> = self.ebpf.map_mut(BENCH_FRAME).context(BENCH_FRAME)?.try_into()?;
        map.set(0, words, 0).context(BENCH_FRAME)?;
        let mut value = [0u64; PACE_WORDS];
        (value[PACE_GAP], value[PACE_START], value[PACE_END]) = (pace.gap_milli, pace.start_ns, pace.end_ns);
        let mut map: Array<_, [u64; PACE_WORDS]> = self.ebpf.map_mut(BENCH_PACE).context(BENCH_PACE)?.try_into()?;
        map.set(0, value, 0).context(BENCH_PACE)?;
        // `data` and `data_meta` stay 0, `data_end` is the length.
        let mut context = [0u8; MD_BYTES];
        context[4..8].copy_from_slice(&u32::try_from(frame.len())?.to_ne_bytes());
        context[MD_INGRESS..MD_INGRESS + 4].copy_from_slice(&ifindex.to_ne_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.ctx_in = Some(&context);
        options.repeat = count;
        options.attrs = TestRunAttrs::new().xdp_live_frames(batch);
        self.program(GENERATE)?.test_run(options).context("BPF_PROG_TEST_RUN with live frames")?;
        Ok(())
    }
}

/// The object file: named by [`OBJECT_VARIABLE`], or in cargo's target directory that this program lies in.
fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(OBJECT_VARIABLE) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot find out where this program lies")?;
    // target/release/dataplane-bench, or target/debug/deps/test-…
    let candidates = own.ancestors().skip(2).take(2).map(|target: &Path| target.join("bpf/bench.o"));
    match candidates.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!("the benchmarks' eBPF object is not there: run `cargo xtask build`, or set {OBJECT_VARIABLE}"),
    }
}

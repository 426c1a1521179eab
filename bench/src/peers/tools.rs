//! Contenders that are programs of others: DPDK's testpmd over net_af_xdp, and xdp-bench of xdp-tools.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::contender::{Running, Settings};
use super::lab::{FAVOURED, Lab, NEXT, TESTED};
use crate::command::{self, line};
use crate::interrupt::Interrupt;
use crate::topology::{BPFFS, Host, PORT_INTERFACE};

/// DPDK's test program.
pub const TESTPMD: &str = "dpdk-testpmd";
/// The benchmark of xdp-tools.
pub const XDP_BENCH: &str = "xdp-bench";

/// How long a program may take to attach its XDP program.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks.
const GLANCE: Duration = Duration::from_millis(20);
/// Lines of its output that an error shows.
const TAIL: usize = 3;
/// Packet buffers of testpmd: its default does not fit into memory without huge pages.
const MBUFS: u32 = 16_384;
/// Memory of testpmd, MiB.
const MEMORY_MIB: u32 = 256;

/// A mode of xdp-bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpBenchMode {
    /// `drop`.
    Drop,
    /// `tx`.
    Tx,
    /// `redirect`, by its default map.
    Redirect,
}

impl XdpBenchMode {
    /// All that are compared.
    pub const ALL: [Self; 3] = [Self::Drop, Self::Tx, Self::Redirect];

    /// Its name at the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Tx => "tx",
            Self::Redirect => "redirect",
        }
    }
}

/// A program of others that runs in the tested namespace.
struct Tool {
    child: Child,
    log: PathBuf,
}

/// Starts testpmd on the tested port: one core that forwards, one that waits for the end of its input.
///
/// # Errors
/// It does not attach to the port; the error shows its last words.
pub fn start_testpmd(lab: &Lab, settings: &Settings, mode: &str, interrupt: &Interrupt) -> Result<Box<dyn Running>> {
    let mut command = lab.cluster.enter_bound(Host::Node(TESTED), FAVOURED[0]);
    command.args(&FAVOURED[1..]).arg(TESTPMD);
    command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", &MEMORY_MIB.to_string()]);
    command.args(["--lcores", &format!("0@{},1@{}", settings.generator_cpu, settings.cpu)]);
    command.args(["--vdev", &format!("net_af_xdp0,iface={PORT_INTERFACE}"), "--"]);
    command.args(["--auto-start", "--port-topology=loop", &format!("--forward-mode={mode}")]);
    command.arg(format!("--total-num-mbufs={MBUFS}"));
    Tool::start(lab, command, "testpmd", interrupt)
}

/// Starts xdp-bench on the tested port.
///
/// # Errors
/// As [`start_testpmd`].
pub fn start_xdp_bench(lab: &Lab, mode: XdpBenchMode, interrupt: &Interrupt) -> Result<Box<dyn Running>> {
    let mut command = lab.cluster.enter_bound(Host::Node(TESTED), XDP_BENCH);
    command.args([mode.name(), "--interval", "60", PORT_INTERFACE]);
    if mode == XdpBenchMode::Redirect {
        command.arg(lab.cluster.plan().link(TESTED, NEXT).interface);
    }
    Tool::start(lab, command, "xdp-bench", interrupt)
}

impl Tool {
    fn start(lab: &Lab, mut command: Command, name: &str, interrupt: &Interrupt) -> Result<Box<dyn Running>> {
        let log = lab.cluster.directory().join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = file.try_clone().context("cannot share the log")?;
        command.process_group(0).stdin(Stdio::piped()).stdout(file).stderr(errors);
        let child = command.spawn().with_context(|| format!("cannot start: {}", line(&command)))?;
        let mut tool = Box::new(Self { child, log });
        match tool.wait_until_attached(lab, interrupt) {
            Ok(()) => Ok(tool),
            Err(error) => {
                tool.end();
                clear(lab);
                Err(error)
            }
        }
    }

    fn wait_until_attached(&mut self, lab: &Lab, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot look at a process")? {
                bail!("it ended with {status}: {}", self.last_words());
            }
            if is_attached(lab)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("it attached no XDP program within {PATIENCE:?}: {}", self.last_words());
            }
            interrupt.sleep(GLANCE)?;
        }
    }

    /// Ends it: by the end of its input, by a signal, at last by force.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        for signal in [None, Some(Signal::INT)] {
            if let (Some(signal), Some(pid)) = (signal, i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)) {
                // It may have ended meanwhile.
                let _ = kill_process(pid, signal);
            }
            let deadline = Instant::now() + END_PATIENCE;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(GLANCE);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
        lines[lines.len().saturating_sub(TAIL)..].join("; ")
    }
}

/// Whether an XDP program is attached to the tested port.
fn is_attached(lab: &Lab) -> Result<bool> {
    let mut ip = Command::new("ip");
    ip.args(["-netns", &lab.cluster.plan().name(Host::Node(TESTED)), "-json", "link", "show", PORT_INTERFACE]);
    let value: serde_json::Value = serde_json::from_str(&command::output(&mut ip)?)?;
    Ok(!value[0]["xdp"].is_null())
}

/// Puts the tested port back as it was: these programs leave their XDP program, the promiscuous mode or a directory behind
/// when they are ended.
fn clear(lab: &Lab) {
    for words in [&["xdpdrv", "off"][..], &["promisc", "off"]] {
        let mut ip = Command::new("ip");
        ip.args(["-netns", &lab.cluster.plan().name(Host::Node(TESTED)), "link", "set", "dev", PORT_INTERFACE]);
        // Nothing to take off is no failure.
        let _ = command::output(ip.args(words));
    }
    // Removes it only when it is empty: others may use libxdp, too.
    let _ = fs::remove_dir(Path::new(BPFFS).join("xdp"));
}

impl Running for Tool {
    fn pids(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    fn stop(mut self: Box<Self>, lab: &mut Lab) -> Result<()> {
        let ended = self.child.try_wait().context("cannot look at a process")?;
        self.end();
        clear(lab);
        match ended {
            Some(status) => bail!("it ended with {status}: {}", self.last_words()),
            None => Ok(()),
        }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

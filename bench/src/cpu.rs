//! Who used the CPUs while something was measured: the cluster itself, or other programs, which then are noise.

use std::fs;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Shares of all cores' time, 1 = all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShares {
    /// The nodes' processes.
    pub nodes: f64,
    /// The traffic generator.
    pub generator: f64,
    /// All other programs of this machine: what the measurement had to put up with.
    pub others: f64,
    /// Taken away by the host of this virtual machine.
    pub stolen: f64,
}

impl CpuShares {
    /// Applies `f` to each share of both.
    fn zip(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            nodes: f(self.nodes, other.nodes),
            generator: f(self.generator, other.generator),
            others: f(self.others, other.others),
            stolen: f(self.stolen, other.stolen),
        }
    }

    /// The mean of several measurements.
    pub fn mean(all: &[Self]) -> Self {
        let sum = all.iter().fold(Self::default(), |sum, shares| sum.zip(*shares, |a, b| a + b));
        let count = all.len().max(1) as f64;
        sum.zip(Self::default(), |a, _| a / count)
    }
}

/// CPU time used up to one moment, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// All programs and interrupts.
    busy: u64,
    idle: u64,
    stolen: u64,
    /// The processes asked for.
    ours: u64,
}

impl CpuTimes {
    /// Reads the counters of this machine and of the processes `pids`.
    ///
    /// # Errors
    /// One of the processes is gone, or the kernel writes what this function does not know.
    pub fn take(pids: &[u32]) -> Result<Self> {
        let machine = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let mut times = parse_machine(&machine).context("not understood: /proc/stat")?;
        for pid in pids {
            let path = format!("/proc/{pid}/stat");
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            times.ours += parse_process(&text).with_context(|| format!("not understood: {path}"))?;
        }
        Ok(times)
    }

    /// Shares between `self` and the later `end`, in which the generator used `generator_ns`.
    pub fn shares_until(&self, end: &Self, generator_ns: u64) -> CpuShares {
        let busy = end.busy.saturating_sub(self.busy);
        let stolen = end.stolen.saturating_sub(self.stolen);
        let all = busy + stolen + end.idle.saturating_sub(self.idle);
        let nodes = end.ours.saturating_sub(self.ours);
        let generator = generator_ns as f64 / 1e9 * rustix::param::clock_ticks_per_second() as f64;
        let others = (busy as f64 - nodes as f64 - generator).max(0.0);
        let share = |ticks: f64| if all == 0 { 0.0 } else { ticks / all as f64 };
        CpuShares {
            nodes: share(nodes as f64),
            generator: share(generator),
            others: share(others),
            stolen: share(stolen as f64),
        }
    }
}

/// The first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_machine(text: &str) -> Option<CpuTimes> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers = line.split_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = numbers[..] else { return None };
    Some(CpuTimes { busy: user + nice + system + irq + softirq, idle: idle + iowait, stolen, ours: 0 })
}

/// User and system time of `/proc/PID/stat` (proc(5)): fields 14 and 15. The second field, the program's name in
/// parentheses, may hold anything.
fn parse_process(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(|number| number.parse::<u64>().ok());
    Some(times.next()?? + times.next()??)
}

/// CPU time of all living threads of a process, ns, as the scheduler counts it (`Documentation/scheduler/sched-stats.rst`). What
/// the kernel does in interrupts on top of a thread is in that thread's time, unless the kernel was built to count it apart.
///
/// # Errors
/// The process is gone, or the kernel has no `schedstat`.
pub fn process_ns(pid: u32) -> Result<u64> {
    let directory = format!("/proc/{pid}/task");
    let mut ns = 0;
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {directory}"))? {
        let path = entry.with_context(|| format!("cannot list {directory}"))?.path().join("schedstat");
        // A thread may have ended since it was listed.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        ns += parse_schedstat(&text).with_context(|| format!("not understood: {}", path.display()))?;
    }
    Ok(ns)
}

/// The first field of `/proc/PID/task/TID/schedstat`: time on the CPU, ns.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// What disturbed a measurement, as shares of all cores' time, 1 = all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Other programs.
    pub others: f64,
    /// Taken away by the host of this virtual machine.
    pub stolen: f64,
}

/// Watches what disturbs a measurement. Interrupts are left out, because packets are received in them.
#[derive(Debug)]
pub struct NoiseWatch {
    ours: Vec<u32>,
    ticks: u64,
    machine: CpuTimes,
    since: Instant,
}

impl NoiseWatch {
    /// Begins; `ours` are the processes of the measurement.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn begin(ours: &[u32]) -> Result<Self> {
        let (ticks, machine) = (ticks_of_others(ours)?, CpuTimes::take(&[])?);
        Ok(Self { ours: ours.to_vec(), ticks, machine, since: Instant::now() })
    }

    /// Noise since then. Programs that began and ended meanwhile count when their parent has waited for them.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn end(&self) -> Result<Noise> {
        let ticks = ticks_of_others(&self.ours)?.saturating_sub(self.ticks);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let all = self.since.elapsed().as_secs_f64() * rustix::param::clock_ticks_per_second() as f64 * cores as f64;
        let others = if all > 0.0 { ticks as f64 / all } else { 0.0 };
        let machine = self.machine.shares_until(&CpuTimes::take(&[])?, 0);
        // A program that ends while the processes are being read appears with all the time of its life.
        Ok(Noise { others: others.min(machine.others), stolen: machine.stolen })
    }
}

fn ticks_of_others(ours: &[u32]) -> Result<u64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let Some(pid) = entry.context("cannot list /proc")?.file_name().to_str().and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if ours.contains(&pid) {
            continue;
        }
        // One may have ended since it was listed.
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        ticks += parse_family(&text).unwrap_or(0);
    }
    Ok(ticks)
}

/// User and system time of a process and of the children it has waited for (proc(5), fields 14 to 17); 0 for threads of
/// the kernel.
fn parse_family(text: &str) -> Option<u64> {
    /// Process id of the parent of all threads of the kernel.
    const KERNEL_THREADS: u64 = 2;
    let (_, fields) = text.rsplit_once(')')?;
    let fields = fields.split_whitespace().collect::<Vec<_>>();
    if fields.get(1)?.parse() == Ok(KERNEL_THREADS) {
        return Some(0);
    }
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_process_and_its_ended_children() {
        let process = |parent| format!("42 (a) b (c) S {parent} 42 42 0 -1 4194560 1 2 3 4 500 60 7 8 20 0 1 0 9 1 2");
        assert_eq!(parse_family(&process(1)), Some(575));
        assert_eq!(parse_family(&process(2)), Some(0));
        assert_eq!(parse_family("42"), None);
    }

    #[test]
    fn a_threads_time_is_the_first_field() {
        assert_eq!(parse_schedstat("123456789 42 7\n"), Some(123_456_789));
        assert_eq!(parse_schedstat(""), None);
        assert!(process_ns(std::process::id()).unwrap() > 0 && process_ns(u32::MAX).is_err());
    }

    #[test]
    fn noise_is_a_share() {
        let watch = NoiseWatch::begin(&[std::process::id()]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let noise = watch.end().unwrap();
        assert!((0.0..=1.0).contains(&noise.others) && (0.0..=1.0).contains(&noise.stolen), "{noise:?}");
    }

    #[test]
    fn the_kernels_lines_are_read_by_position() {
        let machine = parse_machine("cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(machine, CpuTimes { busy: 73, idle: 450, stolen: 8, ours: 0 });
        let process = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 500 60 0 0 20 0 1 0 9 1 2";
        assert_eq!(parse_process(process), Some(560));
        assert_eq!(parse_process("42"), None);
    }

    #[test]
    fn this_process_uses_time() {
        let before = CpuTimes::take(&[std::process::id()]).unwrap();
        let started = std::time::Instant::now();
        while started.elapsed().as_millis() < 100 {
            std::hint::spin_loop();
        }
        let shares = before.shares_until(&CpuTimes::take(&[std::process::id()]).unwrap(), 0);
        assert!(shares.nodes > 0.0 && shares.nodes <= 1.0, "{shares:?}");
        assert!(CpuTimes::take(&[u32::MAX]).is_err());
    }

    #[test]
    fn what_is_left_over_is_other_programs() {
        let start = CpuTimes::default();
        let end = CpuTimes { busy: 60, idle: 30, stolen: 10, ours: 20 };
        let shares = start.shares_until(&end, 0);
        assert!((shares.nodes - 0.2).abs() < 1e-9 && (shares.others - 0.4).abs() < 1e-9);
        assert!((shares.stolen - 0.1).abs() < 1e-9);
        assert_eq!(CpuShares::mean(&[shares, shares]), shares);
    }
}

//! `cargo xtask vm`: other kernels and real NIC drivers, in a virtual machine without disk and network.
//!
//! ```text
//!  this machine                          guest (QEMU)
//!  Debian's kernel packages ───────────► kernel, modules             one file system in memory
//!  dataplane, dataplane-bench, tests ──► at the same paths
//!  ip, ethtool, bpftool, … ────────────► with their libraries
//!                      ◄─ console ────── /init: mount, insmod, job, power off
//! ```
//!
//! | file | what it is for |
//! |---|---|
//! | `archive` | Debian packages, unpacked and never installed |
//! | `kernel`, `modules` | which kernel a series means; which modules are loaded, in which order |
//! | `cpio`, `image` | the guest's file system |
//! | `job`, `guest/` | what runs in the guest |
//! | `qemu` | the emulator and its command line |
//! | `protocol` | what the guest says about the run itself |
//!
//! Nothing outlives this process, however it ends: QEMU is killed with it, its network namespace has no name, and the
//! guest's file system is a file without a name. Kernels stay unpacked in the target directory.

mod archive;
mod cpio;
mod image;
mod job;
mod kernel;
mod modules;
mod protocol;
mod qemu;

use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::image::Image;
use self::job::{Choice, Job};
use self::kernel::Kernel;
use self::modules::Modules;
use self::protocol::Event;
use self::qemu::{Acceleration, Emulator, Guest, Nic};
use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::test::output::Results;
use crate::{build, sh};

/// Modules that the jobs use.
const MODULES: [&str; 6] = ["veth", "pktgen", "sch_netem", "bridge", "tun", "virtio_pci"];
/// Those that not every kernel has.
const OPTIONAL_MODULES: [&str; 1] = ["xsk_diag"];
/// The archive's own busybox, whatever the machine's path to it is.
const BUSYBOX: &str = "/vm/busybox";
/// How long a guest that does nothing may take under KVM before KVM counts as broken.
const KVM_PATIENCE: Duration = Duration::from_secs(20);
/// What QEMU says when the host cannot run the guest's code.
const KVM_FAILURES: [&str; 3] = ["KVM internal error", "kvm_buf_set_msrs", "failed to initialize kvm"];

/// What pktgen can be run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// The kernel's packet generator against the dataplane, and against what it can be compared with.
    Pktgen,
}

/// Options of `vm`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("job").required(true))]
pub struct Options {
    /// Kernel: a series such as 6.1, 6.12 or 7.3, whose newest release is taken, or a release in full.
    #[arg(long, value_name = "VERSION", required_unless_present = "list")]
    kernel: Option<String>,
    /// Run the tests that depend on the kernel (XDP and namespaces) and, with a NIC, a node on it.
    #[arg(long, group = "job")]
    test: bool,
    /// Open a shell on the guest's console; Ctrl-A X ends the guest.
    #[arg(long, group = "job")]
    shell: bool,
    /// Run a benchmark. Under emulation only ratios mean anything.
    #[arg(long, value_enum, group = "job")]
    bench: Option<Benchmark>,
    /// List the kernels that Debian's mirror has.
    #[arg(long, group = "job")]
    list: bool,
    /// NIC of the guest: two of them, joined. With veth there is none, only what the tests make themselves.
    #[arg(long, value_enum, default_value_t = Nic::Veth)]
    nic: Nic,
    /// With --test: only tests whose name contains this.
    #[arg(long, conflicts_with_all = ["shell", "bench", "list"])]
    filter: Option<String>,
    /// With --test: all tests, also in an emulated guest, where that takes hours.
    #[arg(long, conflicts_with_all = ["shell", "bench", "list", "filter"])]
    all: bool,
    /// Time after which the guest is killed, s.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
    /// KVM or emulation.
    #[arg(long, value_enum, default_value_t = Acceleration::Auto)]
    accel: Acceleration,
    /// CPUs of the guest.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Main memory of the guest, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// Ask the mirror for a newer kernel of the series than the one that is unpacked.
    #[arg(long)]
    update: bool,
}

impl Options {
    fn job(&self, emulated: bool) -> Job {
        match (self.test, self.bench) {
            (true, _) => Job::Test(Choice { filter: self.filter.clone(), is_short: emulated && !self.all }),
            (false, Some(Benchmark::Pktgen)) => Job::Bench,
            (false, None) => Job::Shell,
        }
    }
}

/// Directory of everything that guests need and a build does not.
fn directory(paths: &Paths) -> PathBuf {
    paths.target.join("vm")
}

/// Runs a guest and returns its status.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    let scratch = directory(paths).join("scratch");
    if options.list {
        let _lock = setup::lock(paths)?;
        println!("{}", kernel::list(&scratch)?);
        return Ok(ExitCode::SUCCESS);
    }
    let series = options.kernel.as_deref().context("--kernel is missing")?;
    setup::ensure_guest(paths)?;
    let (kernel, emulator) = {
        let _lock = setup::lock(paths)?;
        let kernel = kernel::ensure(series, &directory(paths).join("kernels"), &scratch, options.update)?;
        (kernel, Emulator::ensure(options.nic, &directory(paths).join("qemu"), &scratch)?)
    };
    build::release(paths, Scope::Test, &["dataplane-user", "dataplane-bench"])?;
    let machine = Machine { paths, options, kernel: &kernel, emulator: &emulator };
    let acceleration = machine.acceleration()?;
    let job = options.job(acceleration != Acceleration::Kvm);
    let initrd = machine.initrd(&job)?;
    let taps = machine.taps();
    println!(
        "guest: Linux {}, {}, {} CPUs, {} MiB, NIC {}{}",
        kernel.release,
        if acceleration == Acceleration::Kvm { "KVM" } else { "emulated (TCG), so that times mean nothing" },
        options.cpus,
        options.memory,
        options.nic.name(),
        if taps { " on tap devices" } else { "" }
    );
    if let Job::Test(choice) = &job
        && choice.is_short
        && choice.filter.is_none()
    {
        println!("an emulated guest takes hours for all tests (--all, or --filter TEXT for others); chosen are:");
        choice.names().iter().for_each(|name| println!("  {name}"));
    }
    let guest = machine.guest(&initrd.path, acceleration, job == Job::Shell);
    let mut command = emulator.command(&guest, taps);
    if job == Job::Shell {
        sh::run(&mut command)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::default();
    let end = sh::watch(&mut command, Some(Duration::from_secs(options.timeout)), |line| {
        println!("{line}");
        report.line(line);
        ControlFlow::Continue(())
    })?;
    if end == sh::End::TimeWasUp {
        report.findings.push(format!("the guest did not end within {} s (--timeout) and was killed", options.timeout));
    }
    Ok(report.conclude(matches!(job, Job::Test(_))))
}

/// What a guest is made of.
struct Machine<'a> {
    paths: &'a Paths,
    options: &'a Options,
    kernel: &'a Kernel,
    emulator: &'a Emulator,
}

impl Machine<'_> {
    fn guest<'a>(&'a self, initrd: &'a Path, acceleration: Acceleration, interactive: bool) -> Guest<'a> {
        let Options { nic, cpus, memory: memory_mib, .. } = *self.options;
        Guest { kernel: self.kernel, initrd, nic, acceleration, cpus, memory_mib, interactive }
    }

    /// Whether the NICs are joined by tap devices.
    fn taps(&self) -> bool {
        if self.options.nic != Nic::Virtio {
            return false;
        }
        match qemu::taps_are_refused() {
            None => true,
            Some(reason) => {
                eprintln!("vm: one queue for each NIC, since there are no tap devices: {reason}");
                false
            }
        }
    }

    /// What the guest runs by. Whether KVM works shows only when a guest does.
    fn acceleration(&self) -> Result<Acceleration> {
        if self.options.accel != Acceleration::Auto {
            return Ok(self.options.accel);
        }
        let refusal = match qemu::kvm_is_refused() {
            Some(reason) => Some(reason),
            None => self.try_kvm()?,
        };
        Ok(match refusal {
            None => Acceleration::Kvm,
            Some(reason) => {
                eprintln!("vm: no KVM: {reason}");
                Acceleration::Tcg
            }
        })
    }

    /// Runs a guest that only boots; returns why it did not.
    fn try_kvm(&self) -> Result<Option<String>> {
        let initrd = self.initrd(&Job::Nothing)?;
        let guest = Guest { nic: Nic::Veth, ..self.guest(&initrd.path, Acceleration::Kvm, false) };
        let (mut is_up, mut complaint) = (false, None);
        let end = sh::watch(&mut self.emulator.command(&guest, false), Some(KVM_PATIENCE), |line| {
            is_up |= matches!(Event::parse(line), Some(Event::Begin(_)));
            let is_failure = KVM_FAILURES.iter().any(|failure| line.contains(failure));
            if is_failure {
                complaint = Some(line.to_owned());
            }
            if is_up || is_failure { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((!is_up).then(|| complaint.unwrap_or_else(|| format!("a guest did not come up ({end:?})"))))
    }

    /// Writes the guest's file system for a job.
    fn initrd(&self, job: &Job) -> Result<Initrd> {
        let mut image = Image::default();
        for directory in ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/etc", "/var"] {
            image.directory(directory);
        }
        image.busybox()?;
        let modules = Modules::read(&self.kernel.modules)?;
        let mut names = Vec::new();
        if *job != Job::Nothing {
            names.extend(MODULES);
            names.extend(OPTIONAL_MODULES.into_iter().filter(|name| modules.has(name)));
            names.push(self.options.nic.name());
        }
        let mut order = String::new();
        for path in modules.closure(&names)? {
            let name = modules::name_of(&path);
            image.content(&format!("/vm/modules/{name}"), 0o644, modules.content(&path)?);
            order.push_str(&format!("{name}\n"));
        }
        image.content("/vm/modules/order", 0o644, order.into());
        job::install(&mut image, job, self.options.nic, self.paths)?;
        Initrd::write(&image, &directory(self.paths))
    }
}

impl Image {
    fn busybox(&mut self) -> Result<()> {
        let path = crate::privilege::find_program("busybox").context("the guest needs busybox: not installed")?;
        self.program(&path)?;
        self.copy_as(BUSYBOX, &path);
        Ok(())
    }
}

/// A file without a name, which another process of this user opens through this one.
struct Initrd {
    path: PathBuf,
    _file: File,
}

impl Initrd {
    fn write(image: &Image, directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let name = directory.join(format!("initrd.{}", std::process::id()));
        let describe = || format!("cannot create {}", name.display());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name).with_context(describe)?;
        fs::remove_file(&name).with_context(describe)?;
        image.write(&file)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok(Self { path: path.into(), _file: file })
    }
}

/// What a guest has said so far.
#[derive(Default)]
struct Report {
    results: Results,
    is_up: bool,
    /// A run of tests has begun and not been closed.
    in_phase: bool,
    status: Option<i32>,
    findings: Vec<String>,
}

impl Report {
    fn line(&mut self, line: &str) {
        match Event::parse(line) {
            Some(Event::Begin(_)) => self.is_up = true,
            Some(Event::Phase(kind)) => {
                self.close_phase();
                self.results.start(kind);
                self.in_phase = true;
            }
            Some(Event::End(status)) => {
                self.close_phase();
                self.status = Some(status);
            }
            None => self.results.line(line),
        }
    }

    fn close_phase(&mut self) {
        if std::mem::take(&mut self.in_phase) {
            self.results.finish(true);
        }
    }

    /// Prints what came of it, as `cargo xtask test` does.
    fn conclude(mut self, is_test: bool) -> ExitCode {
        self.close_phase();
        match self.status {
            None if !self.is_up => self.findings.push("the guest did not come up".to_owned()),
            None => self.findings.push("the guest ended before its job did".to_owned()),
            Some(0) => {}
            Some(status) => self.findings.push(format!("the guest's job ended with status {status}")),
        }
        let total = self.results.total();
        if is_test {
            self.findings.extend(self.results.findings());
            if total.is_empty() {
                self.findings.push("no test ran in the guest".to_owned());
            }
            println!("\n{}", self.results.table(&job::KINDS));
        }
        for name in self.results.failures() {
            println!("failed: {name}");
        }
        for finding in &self.findings {
            println!("FAIL: {finding}");
        }
        if is_test {
            println!("{} passed, {} failed", total.passed, total.failed + self.findings.len());
        }
        if total.failed + self.findings.len() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! The generator as a child process in the generator's namespace of a cluster.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::account::Report;
use super::generator::{Event, GeneratorPlan};
use crate::command::line;
use crate::interrupt::Interrupt;
use crate::topology::{Cluster, Host};

/// Real-time priority of the generator: it sleeps nearly all the time, and must not wait for a node's work when it wakes.
const PRIORITY: &str = "20";
/// How much longer than planned a run may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `plan` in `cluster` by the program `dataplane-bench` at `program`, shows its progress, and returns its outcome.
///
/// # Errors
/// The generator cannot be started, fails (the error shows what it said) or hangs; or this process was interrupted. In
/// each case it no longer runs.
pub fn run(
    cluster: &Cluster,
    program: &Path,
    plan: &GeneratorPlan,
    interrupt: &Interrupt,
    mut on_progress: impl FnMut(&Event),
) -> Result<Report> {
    let mut running = Running::start(cluster, program, plan)?;
    loop {
        match running.next(interrupt)? {
            Event::Report(report) => return Ok(*report),
            progress @ Event::Progress { .. } => on_progress(&progress),
        }
    }
}

/// A generator at work, for callers that do something to the cluster meanwhile. Dropping it ends it.
pub struct Running {
    session: Session,
    deadline: Instant,
    line: String,
}

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// The plan cannot be written, or the program not be started.
    pub fn start(cluster: &Cluster, program: &Path, plan: &GeneratorPlan) -> Result<Self> {
        let file = cluster.directory().join("traffic.json");
        fs::write(&file, serde_json::to_vec_pretty(plan)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = cluster.enter_bound(Host::Generator, "chrt");
        command.args(["--fifo", PRIORITY]).arg(program).arg("generate").arg(&file);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let line = line(&command);
        let child = command.spawn().with_context(|| format!("cannot start: {line}"))?;
        let deadline = Instant::now() + plan.workload.warm_up + plan.workload.measured + plan.quiet + PATIENCE;
        Ok(Self { session: Session::new(child)?, deadline, line })
    }

    /// Waits for what it says next.
    ///
    /// # Errors
    /// It fails or hangs, or this process was interrupted.
    pub fn next(&mut self, interrupt: &Interrupt) -> Result<Event> {
        loop {
            match self.session.events.recv_timeout(Duration::from_millis(20)) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let complaint = self.session.complaint();
                    bail!("the generator ended without a report: {}\n{complaint}", self.line);
                }
            }
            interrupt.check()?;
            if Instant::now() > self.deadline {
                bail!("the generator hangs: {}", self.line);
            }
        }
    }

    /// Waits until this time of the schedule has passed.
    ///
    /// # Errors
    /// As [`Self::next`]; or the generator has ended before.
    pub fn wait_until(&mut self, elapsed: Duration, interrupt: &Interrupt) -> Result<()> {
        loop {
            match self.next(interrupt)? {
                Event::Progress { elapsed_ns, .. } if Duration::from_nanos(elapsed_ns) >= elapsed => return Ok(()),
                Event::Progress { .. } => {}
                Event::Report(_) => bail!("the generator ended before {elapsed:?} had passed"),
            }
        }
    }

    /// Waits for its report.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn finish(mut self, interrupt: &Interrupt) -> Result<Report> {
        loop {
            if let Event::Report(report) = self.next(interrupt)? {
                return Ok(*report);
            }
        }
    }
}

/// The running child. Dropping it ends it.
struct Session {
    child: Child,
    events: Receiver<Event>,
    errors: Option<JoinHandle<String>>,
}

impl Session {
    fn new(mut child: Child) -> Result<Self> {
        let stdout = child.stdout.take().context("BUG: no pipe from the generator")?;
        let stderr = child.stderr.take().context("BUG: no pipe from the generator")?;
        let (sender, events) = mpsc::channel();
        thread::spawn(move || read_events(stdout, &sender));
        let errors = Some(thread::spawn(move || read_errors(stderr)));
        Ok(Self { child, events, errors })
    }

    /// What it wrote to its standard error; waits for its end.
    fn complaint(&mut self) -> String {
        let _ = self.child.wait();
        self.errors.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_events(output: ChildStdout, events: &Sender<Event>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // What is no event is left out; a missing report is noticed as such.
        if let Ok(event) = serde_json::from_str(&line)
            && events.send(event).is_err()
        {
            return;
        }
    }
}

fn read_errors(mut errors: ChildStderr) -> String {
    let mut text = String::new();
    let _ = errors.read_to_string(&mut text);
    text.trim_end().to_owned()
}

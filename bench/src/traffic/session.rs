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
    let file = cluster.directory().join("traffic.json");
    fs::write(&file, serde_json::to_vec_pretty(plan)?).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = cluster.enter_bound(Host::Generator, "chrt");
    command.args(["--fifo", PRIORITY]).arg(program).arg("generate").arg(&file);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot start: {}", line(&command)))?;
    let mut session = Session::new(child)?;
    let deadline = Instant::now() + plan.workload.warm_up + plan.workload.measured + plan.quiet + PATIENCE;
    loop {
        match session.events.recv_timeout(Duration::from_millis(20)) {
            Ok(Event::Report(report)) => return Ok(*report),
            Ok(progress) => on_progress(&progress),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let complaint = session.complaint();
                bail!("the generator ended without a report: {}\n{complaint}", line(&command));
            }
        }
        interrupt.check()?;
        if Instant::now() > deadline {
            bail!("the generator hangs: {}", line(&command));
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

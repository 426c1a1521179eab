//! A generator as a child process in a namespace of a cluster.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::{Offer, Offered};
use crate::command::line;
use crate::interrupt::Interrupt;
use crate::topology::{Cluster, Host};

/// How long a generator may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one may take to end.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks.
const GLANCE: Duration = Duration::from_millis(2);

/// Numbers the plans of this process.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A line of the generator's output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Everything is prepared; sending begins.
    Ready,
    /// It has ended.
    Offered(Offered),
}

impl Event {
    /// Writes it to the standard output, as [`Offering`] reads it.
    ///
    /// # Errors
    /// Nobody reads the output any more.
    pub fn print(self) -> Result<()> {
        let mut line = serde_json::to_vec(&self)?;
        line.push(b'\n');
        let mut output = std::io::stdout().lock();
        output.write_all(&line).and_then(|()| output.flush()).context("nobody reads the output")
    }
}

/// A running generator. Dropping it ends it.
pub struct Offering {
    child: Child,
    events: Receiver<Event>,
    plan: PathBuf,
}

impl Offering {
    /// Starts `offer` in the generator's namespace, by the program `dataplane-bench` at `program`, and waits until it sends.
    /// Call it from a thread that lives as long as the generator shall.
    ///
    /// # Errors
    /// It cannot be started, or ends before it is ready (the error says what it said).
    pub fn start(cluster: &Cluster, program: &Path, offer: &Offer, interrupt: &Interrupt) -> Result<Self> {
        let name = format!("offer-{}.json", SERIAL.fetch_add(1, Ordering::Relaxed));
        let plan = cluster.directory().join(name);
        fs::write(&plan, serde_json::to_vec(offer)?).with_context(|| format!("cannot write {}", plan.display()))?;
        // With the largest share of its CPU that an ordinary program can have; one that came before all others would shut
        // them out, since it never sleeps.
        let mut command = cluster.enter_bound(Host::Generator, "nice");
        command
            .args(["-n", "-20", "taskset", "--cpu-list", &offer.cpu.to_string()])
            .arg(program)
            .arg("offer")
            .arg(&plan);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start: {}", line(&command)))?;
        let (sender, events) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read_events(stdout, &sender));
        }
        let mut offering = Self { child, events, plan };
        offering.wait_until_ready(interrupt).with_context(|| line(&command))?;
        Ok(offering)
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<()> {
        match self.next(PATIENCE, interrupt)? {
            Some(Event::Ready) => Ok(()),
            Some(Event::Offered(_)) => bail!("BUG: a generator ended before it began"),
            None => bail!("the generator was not ready within {PATIENCE:?}"),
        }
    }

    /// The next event within `patience`; `None` without one.
    fn next(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<Option<Event>> {
        let deadline = Instant::now() + patience;
        loop {
            match self.events.recv_timeout(GLANCE) {
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Disconnected) => bail!("the generator ended: {}", self.complaint()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            interrupt.check()?;
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// What it wrote to its standard error; waits for its end.
    fn complaint(&mut self) -> String {
        let _ = self.child.wait();
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut text);
        }
        let text = text.trim();
        if text.is_empty() { "it said nothing".to_owned() } else { text.to_owned() }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until every frame is sent.
    ///
    /// # Errors
    /// It fails, or takes longer than `patience`.
    pub fn wait(mut self, patience: Duration, interrupt: &Interrupt) -> Result<Offered> {
        match self.next(patience, interrupt)? {
            Some(Event::Offered(offered)) => Ok(offered),
            Some(Event::Ready) => bail!("BUG: a generator began twice"),
            None => bail!("the generator did not end within {patience:?}"),
        }
    }

    /// Ends it before everything is sent.
    ///
    /// # Errors
    /// It had ended by itself with an error.
    pub fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot look at the generator")?
            && !status.success()
        {
            bail!("the generator ended with {status}: {}", self.complaint());
        }
        self.end();
        Ok(())
    }

    /// Asks it to end, so that pktgen can clear up, and kills it if it does not.
    fn end(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(GLANCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
        // It goes with the cluster's directory at the latest.
        let _ = fs::remove_file(&self.plan);
    }
}

fn read_events(output: ChildStdout, events: &Sender<Event>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // What is no event is left out; a missing one is noticed as such.
        if let Ok(event) = serde_json::from_str(&line)
            && events.send(event).is_err()
        {
            return;
        }
    }
}

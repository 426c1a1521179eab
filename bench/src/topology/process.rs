//! One `dataplane run` in a namespace, as a child of this process: started, waited for, stopped or killed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::line;
use crate::interrupt::Interrupt;

/// How long a node may take to attach its programs and start its workers: in an emulated guest, a while.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long a node may take to end after it was told to.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks at a process.
const GLANCE: Duration = Duration::from_millis(5);
/// Lines of a log that an error shows.
const LOG_TAIL: usize = 20;

/// What a node prints when it works.
const READY: &str = "ready";

/// A running node. Dropping it kills the process.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    log: PathBuf,
}

impl NodeProcess {
    /// Starts `command` and waits until it prints `ready`. Everything else it says goes to the file `log`.
    ///
    /// # Errors
    /// It cannot be started, ends, or is not ready in time (the error then shows the end of the log); or this process
    /// was interrupted. In each case nothing is left running.
    pub fn start(mut command: Command, log: &Path, interrupt: &Interrupt) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = file.try_clone().context("cannot share the log")?;
        // A group of its own: Ctrl-C reaches this process alone, which then stops the nodes one by one.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("cannot start: {}", line(&command)))?;
        let (sender, ready) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || copy_output(stdout, file, &sender));
        }
        let mut node = Self { child, log: log.to_owned() };
        node.wait_until_ready(&ready, interrupt).with_context(|| line(&command))?;
        Ok(node)
    }

    fn wait_until_ready(&mut self, ready: &Receiver<()>, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            match ready.recv_timeout(GLANCE) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().context("cannot wait for the node")?;
                    bail!("the node ended before it was ready ({status}):\n{}", self.log_tail());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            interrupt.check()?;
            if Instant::now() >= deadline {
                bail!("the node was not ready within {START_PATIENCE:?}:\n{}", self.log_tail());
            }
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with what the node said.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("cannot look at the node")?.is_none())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("BUG: a child without an id")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal process {}", self.child.id()))
    }

    /// Asks it to end (SIGINT) and waits for that.
    ///
    /// # Errors
    /// It had ended before, ends with an error, or does not end in time; then it is killed.
    pub fn stop(mut self) -> Result<()> {
        self.ask_to_stop()?;
        self.wait_for_stop()
    }

    /// The first half of [`Self::stop`], so that several nodes can end at the same time.
    ///
    /// # Errors
    /// It had ended before.
    pub fn ask_to_stop(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot look at the node")? {
            bail!("the node had ended by itself ({status}):\n{}", self.log_tail());
        }
        self.signal(Signal::INT)
    }

    /// The second half of [`Self::stop`].
    ///
    /// # Errors
    /// It ends with an error, or does not end in time; then it is killed.
    pub fn wait_for_stop(mut self) -> Result<()> {
        match wait(&mut self.child, STOP_PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the node ended with {status}:\n{}", self.log_tail()),
            None => bail!("the node did not end within {STOP_PATIENCE:?} of SIGINT:\n{}", self.log_tail()),
        }
    }

    /// Kills it (SIGKILL): what a crash looks like.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> Result<()> {
        // Fails only when the process has ended already.
        let _ = self.child.kill();
        self.child.wait().context("cannot wait for the killed node")?;
        Ok(())
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().collect::<Vec<_>>();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n");
        if tail.is_empty() { format!("({} is empty)", self.log.display()) } else { tail }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a child at most `patience`.
fn wait(child: &mut Child, patience: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the node")? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(GLANCE);
    }
}

/// Copies the output to the log and says when the line `ready` comes. Ends with the output.
fn copy_output(output: ChildStdout, mut log: File, ready: &Sender<()>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // Without a log the node runs on all the same, and nobody may be waiting any more.
        let _ = writeln!(log, "{line}");
        if line.trim() == READY {
            let _ = ready.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, name: &str) -> Result<NodeProcess> {
        let log = std::env::temp_dir().join(format!("dpt-{}-{name}.log", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let node = NodeProcess::start(command, &log, &Interrupt::never());
        let _ = fs::remove_file(log);
        node
    }

    #[test]
    fn a_node_is_started_once_it_says_so_and_stops_when_asked() {
        let script = "trap 'exit 0' INT; echo ready; while :; do sleep 0.01; done";
        let mut node = start(script, "orderly").unwrap();
        assert!(node.is_running().unwrap());
        node.stop().unwrap();
    }

    #[test]
    fn a_node_that_ends_early_shows_its_complaint() {
        let error = format!("{:#}", start("echo no such interface >&2; exit 2", "early").unwrap_err());
        assert!(error.contains("exit status: 2") && error.contains("no such interface"), "{error}");
    }

    #[test]
    fn an_end_with_an_error_is_one() {
        let script = "trap 'exit 7' INT; echo ready; while :; do sleep 0.01; done";
        let error = start(script, "failing").unwrap().stop().unwrap_err();
        assert!(error.to_string().contains("exit status: 7"), "{error}");
    }

    #[test]
    fn dropping_a_node_leaves_no_process() {
        let node = start("echo ready; exec sleep 60", "dropped").unwrap();
        let pid = node.pid();
        drop(node);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

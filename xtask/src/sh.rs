//! Runs other programs: prints each command before it starts, and the whole command line again when it fails.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a command's output must be quiet before its end is looked for.
const QUIET: Duration = Duration::from_millis(100);

/// The command as one line that a shell accepts: directory, environment, program, arguments.
pub fn line(command: &Command) -> String {
    let mut words = Vec::new();
    if let Some(directory) = command.get_current_dir() {
        words.push(format!("cd {} &&", quote(directory.as_os_str())));
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quote(value)));
        }
    }
    words.push(quote(command.get_program()));
    words.extend(command.get_args().map(quote));
    words.join(" ")
}

/// Runs the command with this terminal's input and output; anything but success is an error.
pub fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start: {}", line(command)))?;
    check(command, status)
}

/// Runs the command and returns what it printed; its errors go to this terminal.
pub fn output(command: &mut Command) -> Result<String> {
    announce(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start: {}", line(command)))?;
    check(command, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("not UTF-8: output of {}", line(command)))
}

/// Asks a question by exit status: neither announced nor shown, and a program that is missing answers no.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs the command, hands over each line of its output and errors in the order they were written, and returns its
/// status, whatever it is. What the command leaves running may hold the output open: after the command's end, only
/// lines that are already there are read.
pub fn stream(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<ExitStatus> {
    let end = watch(command, None, |line| {
        on_line(line);
        ControlFlow::Continue(())
    })?;
    match end {
        End::Ended(status) => Ok(status),
        End::Stopped | End::TimeWasUp => bail!("BUG: nothing stops {}", line(command)),
    }
}

/// How a watched command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Ended(ExitStatus),
    /// It was killed, as the reader of its lines wanted.
    Stopped,
    /// It was killed when its time was up.
    TimeWasUp,
}

/// As [`stream`], and kills the command after `limit`, or when `on_line` breaks.
pub fn watch(
    command: &mut Command,
    limit: Option<Duration>,
    mut on_line: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<End> {
    let started = Instant::now();
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot share a pipe")?).stderr(writer);
    let mut child = spawn(command)?;
    // The command holds two write ends: without them here, the end of the output is the end of its writers.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || send_lines(reader, &sender));
    let mut status = None;
    loop {
        match lines.recv_timeout(QUIET) {
            Ok(line) if on_line(&line).is_break() => {
                kill(&mut child, command)?;
                return Ok(End::Stopped);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) if status.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {
                status = child.try_wait().with_context(|| format!("cannot wait for: {}", line(command)))?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if status.is_none() && limit.is_some_and(|limit| started.elapsed() >= limit) {
            kill(&mut child, command)?;
            return Ok(End::TimeWasUp);
        }
    }
    match status {
        Some(status) => Ok(End::Ended(status)),
        None => child.wait().map(End::Ended).with_context(|| format!("cannot wait for: {}", line(command))),
    }
}

/// Kills the child, which may have ended meanwhile, and waits for its end.
fn kill(child: &mut Child, command: &Command) -> Result<()> {
    child.kill().and_then(|()| child.wait()).with_context(|| format!("cannot end: {}", line(command)))?;
    Ok(())
}

/// Sends each line until nobody writes or nobody listens any more.
fn send_lines(reader: impl Read, lines: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
        if lines.send(line).is_err() {
            return;
        }
        bytes.clear();
    }
}

/// Starts the command and does not wait for it.
pub fn spawn(command: &mut Command) -> Result<Child> {
    announce(command);
    command.spawn().with_context(|| format!("cannot start: {}", line(command)))
}

/// Becomes the command: signals reach it directly and its exit status is ours. Returns only when it cannot start.
pub fn exec(command: &mut Command) -> Result<Infallible> {
    announce(command);
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start: {}", line(command)))
}

fn announce(command: &Command) {
    eprintln!("+ {}", line(command));
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{status}: {}", line(command));
    }
    Ok(())
}

/// Quotes a word for a POSIX shell, or for bash where it holds control characters.
pub fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    if word.chars().any(|c| c.is_ascii_control()) {
        let escape = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
            c => c.to_string(),
        };
        return format!("$'{}'", word.chars().map(escape).collect::<String>());
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("cargo");
        command.args(["build", "two words", "it's", ""]).env("FLAGS", "-a -b").current_dir("/tmp");
        assert_eq!(line(&command), r"cd /tmp && FLAGS='-a -b' cargo build 'two words' 'it'\''s' ''");
    }

    #[test]
    fn control_characters_are_visible() {
        assert_eq!(quote(OsStr::new("-L\u{1f}it's")), r"$'-L\x1fit\'s'");
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "exit status: 3: sh -c 'exit 3'");
    }

    #[test]
    fn a_stream_keeps_the_order_of_output_and_errors() {
        let mut lines = Vec::new();
        let script = "echo one; echo two >&2; printf three";
        let status = stream(Command::new("sh").args(["-c", script]), |line| lines.push(line.to_owned())).unwrap();
        assert!(status.success());
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_stream_does_not_wait_for_what_the_command_left_running() {
        let mut lines = Vec::new();
        let started = Instant::now();
        let status = stream(Command::new("sh").args(["-c", "sleep 20 & echo $!"]), |line| lines.push(line.to_owned()));
        assert!(status.unwrap().success());
        assert!(started.elapsed() < Duration::from_secs(10));
        run(Command::new("kill").args(&lines)).unwrap();
    }

    #[test]
    fn a_watched_command_is_killed_when_its_time_is_up_or_a_line_says_so() {
        let endless = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo first; exec sleep 1000"]);
            command
        };
        let go_on = |_: &str| ControlFlow::Continue(());
        assert_eq!(watch(&mut endless(), Some(Duration::from_millis(300)), go_on).unwrap(), End::TimeWasUp);
        let stop = |line: &str| if line == "first" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        assert_eq!(watch(&mut endless(), None, stop).unwrap(), End::Stopped);
    }
}

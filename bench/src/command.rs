//! Runs other programs; a failure carries the whole command line and what the program complained about.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// The command as one line for people: program and arguments, separated by spaces.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The command that this process runs: the program without its directory, and its arguments but for where the results go.
pub fn own_line() -> String {
    without_place(std::env::args())
}

fn without_place(words: impl Iterator<Item = String>) -> String {
    const PLACE: &str = "--out";
    let mut kept = Vec::new();
    let mut is_place = false;
    for (index, word) in words.enumerate() {
        if index == 0 {
            kept.push(Path::new(&word).file_name().map_or(word.clone(), |name| name.display().to_string()));
        } else if !is_place && word != PLACE && !word.starts_with("--out=") {
            kept.push(word.clone());
        }
        is_place = !is_place && word == PLACE;
    }
    kept.join(" ")
}

/// Runs the command and returns what it printed.
///
/// # Errors
/// The command cannot be started, does not end with success, or prints something that is not UTF-8.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start: {}", line(command)))?;
    finish(command, output)
}

/// Runs the command with `input` as its standard input and returns what it printed.
///
/// # Errors
/// As [`output`].
pub fn output_of_input(command: &mut Command, input: &str) -> Result<String> {
    let describe = |what: &str| format!("{what}: {}", line(command));
    let (cannot_start, cannot_feed) = (describe("cannot start"), describe("cannot write to"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(cannot_start)?;
    // Small inputs only: a pipe holds 64 KiB, so writing all before reading cannot block for ever.
    let fed = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().context(cannot_feed.clone())?;
    let printed = finish(command, output)?;
    fed.context(cannot_feed)?;
    Ok(printed)
}

fn finish(command: &Command, output: Output) -> Result<String> {
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}\n{}", output.status, line(command), complaint.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("not UTF-8: output of {}", line(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_complaint() {
        let error = output(Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.starts_with("exit status: 3: sh -c echo no such luck"), "{error}");
        assert!(error.ends_with("\nno such luck"), "{error}");
    }

    #[test]
    fn where_results_go_is_no_part_of_the_command() {
        let line = |words: &[&str]| without_place(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(line(&["/a/bench", "demo", "--out", "/tmp/x", "--seed", "3"]), "bench demo --seed 3");
        assert_eq!(line(&["bench", "demo", "--sweep", "--out=/tmp/x"]), "bench demo --sweep");
    }

    #[test]
    fn input_reaches_the_command() {
        assert_eq!(output_of_input(&mut Command::new("cat"), "text").unwrap(), "text");
        assert!(output_of_input(Command::new("sh").args(["-c", "exit 1"]), "text").is_err());
    }
}

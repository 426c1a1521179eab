//! `cargo xtask bench instructions`: how many instructions decisions and the way through a worker take, counted by
//! callgrind, and how large the XDP programs are. Counts have no noise, so a change of a percent is a change of the program.
//!
//! What is counted is in the bench targets `instructions` of `dataplane-common` and `dataplane-user`. They call a function named
//! [`MARK`] in front of each piece of work and behind it, callgrind writes its counts down at every call, and every other of
//! these counts belongs to a piece of work.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::{build, privilege, sh};

/// Format of the file.
const SCHEMA: &str = "dataplane.instructions/1";
/// Packages with a bench target of the name [`TARGET`].
const PACKAGES: [&str; 2] = ["dataplane-common", "dataplane-user"];
const TARGET: &str = "instructions";
/// The one of them that describes the XDP programs when it is asked with this argument.
const DESCRIBES_PROGRAMS: (&str, &str) = ("dataplane-user", "xdp");
/// As callgrind names it.
const MARK: &str = "*::counted::mark*";

/// Options of `bench instructions`.
#[derive(Args)]
pub struct Options {
    /// File of an earlier run to compare with; fails when anything has grown by more than the tolerance.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// By how much a count may grow, percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    tolerance: f64,
    /// Only what has this in its name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Where to write the counts [default: bench/instructions.json in the target directory].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Counts by name: instructions of one unit of work, or what the kernel says of a program.
type Counts = BTreeMap<String, f64>;

/// Counts, prints the table, writes the file, and says whether everything kept to the tolerance.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    let before = options.compare.as_deref().map(read).transpose()?;
    setup::ensure(paths, Scope::Test)?;
    setup::ensure_valgrind(paths)?;
    build::object(paths, false)?;
    let scratch = paths.target.join(format!("callgrind-{}", std::process::id()));
    let mut counts = Counts::new();
    for package in PACKAGES {
        let executable = executable(paths, package)?;
        fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
        let counted = count(&executable, &scratch);
        // A failure to count is what is told.
        let _ = fs::remove_dir_all(&scratch);
        counts.extend(counted?);
        if package == DESCRIBES_PROGRAMS.0 {
            counts.extend(describe_programs(paths, &executable)?);
        }
    }
    let wanted = |name: &str| name.contains(&options.filter);
    counts.retain(|name, _| wanted(name));
    let before = before.map(|counts| counts.into_iter().filter(|(name, _)| wanted(name)).collect::<Counts>());
    ensure!(!counts.is_empty(), "--filter {}: nothing that is counted has this in its name", options.filter);
    print!("{}", table(&counts, before.as_ref()));
    let path = options.out.clone().unwrap_or_else(|| paths.target.join("bench/instructions.json"));
    write(&path, &counts)?;
    println!("wrote {}", path.display());
    let grown = before.map(|before| grown(&counts, &before, options.tolerance)).unwrap_or_default();
    for line in &grown {
        println!("FAIL: {line}");
    }
    Ok(if grown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds a package's bench target and returns its executable.
fn executable(paths: &Paths, package: &str) -> Result<PathBuf> {
    let mut command = build::cargo(paths, "bench");
    command.args(["--no-run", "--message-format=json-render-diagnostics", "--package", package, "--bench", TARGET]);
    let messages = sh::output(&mut command)?;
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("no message of cargo's: {line}"))?;
        if message["target"]["name"] == TARGET
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(path.into());
        }
    }
    bail!("cargo built no bench target {TARGET} of {package}")
}

/// Runs it under callgrind, whose files go to `directory`.
fn count(executable: &Path, directory: &Path) -> Result<Counts> {
    let out = directory.join("out");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(format!("--dump-before={MARK}")).arg(executable);
    let announced = sh::output(&mut command)?;
    let units = parse_lines(&announced)?;
    let mut counts = Counts::new();
    for (index, (name, units)) in units.into_iter().enumerate() {
        // Files are numbered from 1, and the odd ones hold what came in front of a piece of work.
        let path = directory.join(format!("out.{}", 2 * index + 2));
        let text = fs::read_to_string(&path)
            .with_context(|| format!("callgrind wrote no {}: does it know the function {MARK}?", path.display()))?;
        let total = parse_total(&text).with_context(|| format!("{} has no totals", path.display()))?;
        let each = total as f64 / units.max(1) as f64;
        // Of several counts of one name, the least.
        let least = counts.entry(name).or_insert(each);
        *least = each.min(*least);
    }
    Ok(counts)
}

/// What the kernel says of the XDP programs; needs root.
fn describe_programs(paths: &Paths, executable: &Path) -> Result<Counts> {
    let mut command = privilege::command("env")?;
    for (name, path) in build::environment(paths) {
        command.arg(format!("{name}={}", path.display()));
    }
    let described = sh::output(command.arg(executable).arg(DESCRIBES_PROGRAMS.1))?;
    Ok(parse_lines(&described)?.into_iter().map(|(name, count)| (name, count as f64)).collect())
}

/// Lines of a name and a whole number.
fn parse_lines(text: &str) -> Result<Vec<(String, u64)>> {
    let parse = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    text.lines().map(|line| parse(line).with_context(|| format!("no name and number: {line}"))).collect()
}

/// The sum that a file of callgrind's ends with: instructions since the file before.
fn parse_total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

fn read(path: &Path) -> Result<Counts> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("cannot compare with {}", path.display()))
}

fn parse(text: &str) -> Result<Counts> {
    let value: Value = serde_json::from_str(text).context("no JSON")?;
    let schema = value["schema"].as_str().unwrap_or("none");
    ensure!(schema == SCHEMA, "format {schema}, expected {SCHEMA}");
    serde_json::from_value(value["counts"].clone()).context("no counts")
}

fn write(path: &Path, counts: &Counts) -> Result<()> {
    let describe = || format!("cannot write {}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(describe)?;
    }
    let compiler = sh::output(Command::new("rustc").arg("--version"))?;
    let value = json!({"schema": SCHEMA, "compiler": compiler.trim(), "counts": counts});
    fs::write(path, serde_json::to_vec_pretty(&value)?).with_context(describe)
}

/// Growth of a count, percent; anything is infinitely more than nothing.
fn growth(before: f64, now: f64) -> f64 {
    if now == before { 0.0 } else { (now / before - 1.0) * 100.0 }
}

/// What has grown by more than so many percent, and what is no longer counted.
fn grown(counts: &Counts, before: &Counts, tolerance: f64) -> Vec<String> {
    let look = |(name, before): (&String, &f64)| match counts.get(name) {
        None => Some(format!("{name} is no longer counted")),
        Some(now) if growth(*before, *now) > tolerance => {
            Some(format!("{name}: {now:.1}, {:.1} % more than {before:.1}", growth(*before, *now)))
        }
        Some(_) => None,
    };
    before.iter().filter_map(look).collect()
}

fn table(counts: &Counts, before: Option<&Counts>) -> String {
    let width = counts.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (name, now) in counts {
        let mut line = format!("{name:width$} {now:>12.1}");
        if let Some(before) = before {
            line.push_str(&match before.get(name) {
                Some(before) => format!(" {before:>12.1} {:>+8.1} %", growth(*before, *now)),
                None => format!(" {:>12} {:>10}", "new", ""),
            });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, f64)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn names_come_with_whole_numbers() {
        assert_eq!(parse_lines("a/b 256\nc 0\n").unwrap(), [("a/b".to_owned(), 256), ("c".to_owned(), 0)]);
        assert!(parse_lines("a\n").is_err() && parse_lines("a 1.5\n").is_err());
    }

    #[test]
    fn callgrind_ends_its_files_with_a_sum() {
        assert_eq!(parse_total("version: 1\nevents: Ir\nfn=(1) x\n1 5\ntotals: 12345\n"), Some(12_345));
        assert_eq!(parse_total("events: Ir\n"), None);
    }

    #[test]
    fn growth_beyond_the_tolerance_and_what_is_missing_fail() {
        let before = counts(&[("a", 100.0), ("b", 100.0), ("c", 0.0), ("d", 5.0)]);
        let now = counts(&[("a", 100.5), ("b", 102.0), ("c", 0.0), ("e", 7.0)]);
        let found = grown(&now, &before, 1.0);
        assert_eq!(found, ["b: 102.0, 2.0 % more than 100.0", "d is no longer counted"]);
        let text = table(&now, Some(&before));
        assert!(text.contains("+2.0 %") && text.contains("new"), "{text}");
        assert!(grown(&counts(&[("c", 1.0)]), &counts(&[("c", 0.0)]), 50.0).len() == 1);
    }

    #[test]
    fn only_files_of_this_format_are_compared_with() {
        let text = json!({"schema": SCHEMA, "counts": {"a": 1.5}}).to_string();
        assert_eq!(parse(&text).unwrap(), counts(&[("a", 1.5)]));
        assert!(parse("{}").unwrap_err().to_string().contains("format none"));
    }
}

//! Rules about files: their length, and where `unsafe` may stand.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::source;

/// Longest file in lines, its tests not counted.
const LINES: usize = 600;

/// The crate whose `unsafe` is confined, and the places it is confined to.
const CONFINED: &str = "dataplane-user/src";
const UNSAFE_PLACES: [&str; 3] = ["dataplane-user/src/xsk/", "dataplane-user/src/maps/", "dataplane-user/src/sys/"];

/// The file that forbids `unsafe` for the crate that decides.
const CORE: &str = "dataplane-common/src/lib.rs";

/// Checks every Rust file of the tree.
pub fn check(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut wrong = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
        wrong.extend(violations(&name, &text));
    }
    if !wrong.is_empty() {
        bail!("\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// Finds Rust files below a directory, outside hidden ones and those that cargo writes.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let describe = || format!("cannot list {}", directory.display());
    for entry in fs::read_dir(directory).with_context(describe)? {
        let entry = entry.with_context(describe)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().with_context(describe)?;
        if kind.is_dir() && !name.starts_with('.') && !path.join("CACHEDIR.TAG").exists() {
            collect(&path, files)?;
        } else if kind.is_file() && name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// What one file, named from the root of the tree, does against the rules.
fn violations(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines = source::lines_without_tests(text);
    if lines > LINES && !is_test_file(name) {
        wrong.push(format!("{name}: {lines} lines without tests, at most {LINES}"));
    }
    let is_confined = name.starts_with(CONFINED) && !UNSAFE_PLACES.iter().any(|place| name.starts_with(place));
    if is_confined {
        let code = source::code_only(text);
        let lines = code.lines().enumerate().filter(|(_, line)| source::has_word(line, "unsafe"));
        let places = UNSAFE_PLACES.join(" and ");
        wrong.extend(lines.map(|(at, _)| format!("{name}:{}: `unsafe` stands only under {places}", at + 1)));
    }
    if name == CORE && !source::code_only(text).contains("#![forbid(unsafe_code)]") {
        wrong.push(format!("{name}: #![forbid(unsafe_code)] is missing"));
    }
    wrong
}

/// Whether a file holds the tests of the one beside it.
fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.ends_with("_tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_named_unless_they_are_tests() {
        let text = "fn a() {}\n".repeat(LINES + 1);
        assert_eq!(violations("bench/src/a.rs", &text), ["bench/src/a.rs: 601 lines without tests, at most 600"]);
        assert!(violations("bench/src/a.rs", &"\n".repeat(LINES)).is_empty());
        assert!(violations("bench/src/a/tests.rs", &text).is_empty());
        assert!(violations("bench/src/a_tests.rs", &text).is_empty());
    }

    #[test]
    fn unsafe_is_confined_in_one_crate() {
        let text = "// unsafe in a comment\nfn a() {\n    unsafe { b() }\n}\n";
        let wrong = violations("dataplane-user/src/worker.rs", text);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("dataplane-user/src/worker.rs:3: "), "{wrong:?}");
        assert!(violations("dataplane-user/src/xsk/ring.rs", text).is_empty());
        assert!(violations("dataplane-user/src/maps/mmap.rs", text).is_empty());
        assert!(violations("dataplane-ebpf/src/main.rs", text).is_empty());
    }

    #[test]
    fn the_core_forbids_unsafe() {
        assert_eq!(violations(CORE, "//! #![forbid(unsafe_code)]\n").len(), 1);
        assert!(violations(CORE, "#![no_std]\n#![forbid(unsafe_code)]\n").is_empty());
    }
}

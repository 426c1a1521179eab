//! What the running compiler says of itself: the toolchain's other parts must match it exactly.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::sh;

/// The running compiler.
#[derive(Debug, PartialEq, Eq)]
pub struct Rustc {
    /// Release number, such as `1.95.0`.
    pub release: String,
    /// Major version of the LLVM inside it.
    pub llvm: u32,
    /// Its directory.
    pub sysroot: PathBuf,
}

impl Rustc {
    /// Asks the `rustc` that cargo will run.
    pub fn ask() -> Result<Self> {
        let ask = |option: &[&str]| -> Result<String> {
            let mut command = Command::new("rustc");
            let output =
                command.args(option).output().with_context(|| format!("cannot start: {}", sh::line(&command)))?;
            anyhow::ensure!(output.status.success(), "{}: {}", output.status, sh::line(&command));
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?);
        let (release, llvm) = parse_version(&ask(&["-vV"])?)?;
        Ok(Self { release, llvm, sysroot })
    }

    /// The standard library's source, as `-Z build-std` looks for it.
    pub fn library(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib/src/rust/library")
    }
}

/// Release and LLVM's major version from the output of `rustc -vV`.
fn parse_version(text: &str) -> Result<(String, u32)> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .with_context(|| format!("`rustc -vV` prints no `{name}`"))
    };
    let llvm = field("LLVM version")?;
    let major = llvm.split('.').next().and_then(|major| major.parse().ok());
    Ok((field("release")?.to_owned(), major.with_context(|| format!("not an LLVM version: {llvm}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_release_and_llvm() {
        let text = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n\
                    release: 1.95.0\nLLVM version: 22.1.2";
        assert_eq!(parse_version(text).unwrap(), ("1.95.0".to_owned(), 22));
    }

    #[test]
    fn says_what_is_missing() {
        let error = parse_version("release: 1.95.0").unwrap_err();
        assert_eq!(error.to_string(), "`rustc -vV` prints no `LLVM version`");
    }
}

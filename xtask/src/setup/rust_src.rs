//! The standard library's source, of exactly the running compiler: `-Z build-std=core` compiles `core` for BPF from it.
//!
//! rustup has it; where rustup cannot download, Debian's package of the same version does. The package is unpacked in
//! the target directory, nothing is installed system-wide.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt::{self, PrivateApt};
use super::missing;
use super::rustc::Rustc;
use crate::{privilege, sh};

/// Time limit of rustup in seconds: where its server cannot be reached it does not give up by itself.
const RUSTUP_SECONDS: &str = "45";
/// Suite whose `rust-src` follows the stable compiler, keeping earlier versions.
const SUITE: &str = "trixie-backports";
const PACKAGE: &str = "rust-src";

/// Puts the source into the compiler's sysroot unless it is there. `scratch` is for downloads and removed at the end.
pub fn ensure(rustc: &Rustc, scratch: &Path) -> Result<()> {
    let library = rustc.library();
    if is_complete(&library) {
        return Ok(());
    }
    let what = format!("rust-src {} in {}", rustc.release, library.display());
    missing(&what, "`core` is compiled for BPF from source", "asking rustup, then Debian");
    if from_rustup(&library) {
        return Ok(());
    }
    from_debian(&rustc.release, &library, scratch).with_context(|| {
        format!(
            "cannot get rust-src {0}: run `rustup component add rust-src`, or copy the directory `library` of the \
             source of rustc {0} to {1}",
            rustc.release,
            library.display()
        )
    })
}

/// Whether the source is there: what `build-std` compiles, and the lock file it resolves by.
fn is_complete(library: &Path) -> bool {
    library.join("core/Cargo.toml").is_file() && library.join("Cargo.lock").is_file()
}

/// Tries the ordinary way. rustup may also believe that the component is installed when its files are gone, so the
/// files decide.
fn from_rustup(library: &Path) -> bool {
    if privilege::find_program("rustup").is_none() {
        return false;
    }
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", RUSTUP_SECONDS, "rustup", "component", "add", PACKAGE]);
    if let Err(error) = sh::run(&mut command) {
        eprintln!("setup: rustup did not deliver within {RUSTUP_SECONDS} s: {error:#}");
    }
    is_complete(library)
}

/// Takes the library out of Debian's package and puts it at `library`.
fn from_debian(release: &str, library: &Path, scratch: &Path) -> Result<()> {
    let mirrors = apt::mirrors()?;
    if mirrors.is_empty() {
        bail!("this machine's apt has no Debian mirror");
    }
    let mut errors = Vec::new();
    for mirror in &mirrors {
        match from_mirror(mirror, release, library, scratch) {
            Ok(()) => return Ok(()),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    bail!("{}", errors.join("; "))
}

fn from_mirror(mirror: &apt::Source, release: &str, library: &Path, scratch: &Path) -> Result<()> {
    remove(scratch)?;
    let apt = PrivateApt::create(&scratch.join("apt"), mirror, SUITE)?;
    sh::run(apt.command("apt-get").arg("update"))?;
    let table = sh::output(apt.command("apt-cache").args(["madison", PACKAGE]))?;
    let version = apt::find_version(&table, release)
        .with_context(|| format!("{SUITE} has no {PACKAGE} {release}; it has:\n{}", table.trim_end()))?;
    sh::run(apt.command("apt-get").arg("download").arg(format!("{PACKAGE}={version}")).current_dir(scratch))?;
    let package = single(scratch, |name| name.starts_with(PACKAGE) && name.ends_with(".deb"))?;
    let tree = scratch.join("tree");
    sh::run(Command::new("dpkg").arg("-x").arg(package).arg(&tree))?;
    let source = single(&tree.join("usr/src"), |name| name.starts_with("rustc-"))?.join("library");
    install(&source, library)?;
    remove(scratch)
}

/// Copies `source` beside its destination and renames it into place: an interrupt leaves no half tree there. Another
/// tree's xtask may share the compiler: whoever comes first wins.
fn install(source: &Path, library: &Path) -> Result<()> {
    if !is_complete(source) {
        bail!("{} holds no standard library", source.display());
    }
    let parent = library.parent().context("the library's directory has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let fresh = parent.join(format!("library.{}", std::process::id()));
    sh::run(Command::new("cp").arg("-a").arg(source).arg(&fresh))?;
    if !is_complete(library) {
        remove(library)?;
    }
    match fs::rename(&fresh, library) {
        Err(_) if is_complete(library) => remove(&fresh),
        result => result.with_context(|| format!("cannot rename {} to {}", fresh.display(), library.display())),
    }
}

/// The one entry of `directory` whose name is `wanted`.
fn single(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    match found.as_slice() {
        [path] => Ok(path.clone()),
        _ => bail!("expected one match in {}, found {}", directory.display(), found.len()),
    }
}

/// Removes a directory that may not be there.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installing_replaces_a_half_tree_and_refuses_a_wrong_one() {
        let directory = std::env::temp_dir().join(format!("xtask-rust-src-{}", std::process::id()));
        let (source, library) = (directory.join("source"), directory.join("sysroot/rust/library"));
        fs::create_dir_all(source.join("core")).unwrap();
        fs::create_dir_all(library.join("half")).unwrap();
        assert!(install(&source, &library).is_err());
        fs::write(source.join("core/Cargo.toml"), "[package]").unwrap();
        fs::write(source.join("Cargo.lock"), "version = 4").unwrap();
        install(&source, &library).unwrap();
        assert!(is_complete(&library) && !library.join("half").exists());
        install(&source, &library).unwrap();
        assert_eq!(fs::read_dir(library.parent().unwrap()).unwrap().count(), 1);
        remove(&directory).unwrap();
        remove(&directory).unwrap();
    }
}

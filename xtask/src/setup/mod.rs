//! `cargo xtask setup`: installs what is missing, says why it is needed, and does nothing when nothing is missing.
//!
//! Every other command calls [`ensure`] with the scope it needs.

pub mod apt;
mod linker;
pub mod mlrsearch;
mod packages;
pub mod rust_src;
mod rustc;

use std::fs::{self, File, TryLockError};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::paths::Paths;
use crate::{privilege, sh};

/// Where the kernel keeps pinned maps and programs.
const BPFFS: &str = "/sys/fs/bpf";

/// What the machine must be able to do. Each scope includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scope {
    /// Compile the eBPF object and `dataplane`: rust-src, bpf-linker.
    Object,
    /// Compile the whole workspace: what `bench` needs to link libbpf.
    Build,
    /// Run a node and look at it: iproute2, ethtool, bpftool, util-linux, the BPF file system.
    Run,
    /// Run the tests and the demonstration.
    Test,
    /// Compare with programs of others: DPDK, xdp-tools.
    Peers,
}

/// Options of `setup`.
#[derive(Args)]
pub struct Options {
    /// What the machine must be able to do.
    #[arg(long, value_enum, default_value_t = Scope::Test)]
    scope: Scope,
}

/// Sets the machine up and says that it is ready.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    ensure(paths, options.scope)?;
    println!("setup: this machine has all that the scope `{}` needs", format!("{:?}", options.scope).to_lowercase());
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that everything of `scope` is there. Concurrent callers wait for each other; quiet when there is nothing
/// to do.
pub fn ensure(paths: &Paths, scope: Scope) -> Result<()> {
    fs::create_dir_all(&paths.target).with_context(|| format!("cannot create {}", paths.target.display()))?;
    let _lock = lock(paths)?;
    packages::ensure(scope)?;
    let rustc = rustc::Rustc::ask()?;
    rust_src::ensure(&rustc, &paths.target.join("rust-src"))?;
    linker::ensure(&rustc, paths)?;
    if scope >= Scope::Run {
        mount_bpffs()?;
    }
    Ok(())
}

/// Makes sure that everything is there that a virtual machine takes besides what its job does.
pub fn ensure_guest(paths: &Paths) -> Result<()> {
    fs::create_dir_all(&paths.target).with_context(|| format!("cannot create {}", paths.target.display()))?;
    let _lock = lock(paths)?;
    packages::ensure_guest()
}

/// Makes sure that valgrind is there.
pub fn ensure_valgrind(paths: &Paths) -> Result<()> {
    let _lock = lock(paths)?;
    packages::ensure_valgrind()
}

/// Takes the lock that is held until the returned file is closed: one process at a time changes what others find.
pub fn lock(paths: &Paths) -> Result<File> {
    let path = paths.target.join("xtask.lock");
    let describe = || format!("cannot lock {}", path.display());
    let file = File::create(&path).with_context(describe)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("setup: another xtask is setting this machine up, waiting for it ({})", path.display());
            file.lock().with_context(describe)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(describe),
    }
    Ok(file)
}

/// Mounts the BPF file system where an init system has not done it.
fn mount_bpffs() -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    if has_bpffs(&mounts) {
        return Ok(());
    }
    missing(&format!("a BPF file system on {BPFFS}"), "maps and links are pinned there", "mounting it");
    sh::run(privilege::command("mount")?.args(["-t", "bpf", "bpf", BPFFS]))
        .context("without a BPF file system no map can be pinned")
}

/// Whether a table of mounts has the BPF file system at its place.
fn has_bpffs(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some(BPFFS) && fields.next() == Some("bpf")
    })
}

/// Says what is missing, why it is needed, and what happens now.
fn missing(what: &str, why: &str, action: &str) {
    eprintln!("setup: missing {what} ({why}): {action}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bpf_file_system_is_known_by_place_and_type() {
        assert!(has_bpffs("proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw,mode=700 0 0\n"));
        assert!(!has_bpffs("sysfs /sys sysfs rw 0 0\nbpf /mnt bpf rw 0 0\n"));
        assert!(!has_bpffs("tmpfs /sys/fs/bpf tmpfs rw 0 0\n"));
    }

    #[test]
    fn a_scope_includes_the_ones_before_it() {
        assert!(Scope::Object < Scope::Build && Scope::Build < Scope::Run && Scope::Run < Scope::Test);
        assert!(Scope::Test < Scope::Peers);
    }
}

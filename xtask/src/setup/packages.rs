//! Programs and libraries of the system: looked for by what they provide, installed by Debian's names.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Scope, missing};
use crate::{privilege, sh};

/// How often an installation is tried: a mirror may be in the middle of an update, or another apt may hold the lock.
const TRIES: u32 = 3;

/// How to see that something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// A program of this name.
    Program(&'static str),
    /// A library that pkg-config knows by this name.
    Library(&'static str),
}

/// One thing that must be there.
struct Need {
    probe: Probe,
    package: &'static str,
    why: &'static str,
    scope: Scope,
}

const fn need(scope: Scope, probe: Probe, package: &'static str, why: &'static str) -> Need {
    Need { probe, package, why, scope }
}

/// Everything that is not Rust.
const NEEDS: [Need; 15] = [
    need(Scope::Object, Probe::Program("cc"), "gcc", "links every Rust program"),
    need(Scope::Build, Probe::Program("make"), "make", "builds libbpf, which bench links"),
    need(Scope::Build, Probe::Program("pkg-config"), "pkg-config", "finds the libraries that libbpf needs"),
    need(Scope::Build, Probe::Library("libelf"), "libelf-dev", "libbpf reads object files with it"),
    need(Scope::Build, Probe::Library("zlib"), "zlib1g-dev", "libelf reads compressed sections with it"),
    need(Scope::Run, Probe::Program("ip"), "iproute2", "makes links and namespaces"),
    need(Scope::Run, Probe::Program("ethtool"), "ethtool", "sets queues and offloads of an interface"),
    need(Scope::Run, Probe::Program("bpftool"), "bpftool", "shows programs and maps"),
    need(Scope::Run, Probe::Program("mount"), "mount", "mounts the BPF file system"),
    need(Scope::Run, Probe::Program("nsenter"), "util-linux", "enters a namespace without hiding /sys/fs/bpf"),
    need(Scope::Run, Probe::Program("setsid"), "util-linux", "starts a node that outlives its terminal"),
    need(Scope::Run, Probe::Program("setpriv"), "util-linux", "drops capabilities, ends children with their parent"),
    need(Scope::Test, Probe::Program("taskset"), "util-linux", "pins measured programs to cores"),
    need(Scope::Peers, Probe::Program("dpdk-testpmd"), "dpdk-dev", "DPDK's test program, which is compared with"),
    need(Scope::Peers, Probe::Program("xdp-bench"), "xdp-tools", "benchmark of XDP, which is compared with"),
];

/// What a virtual machine is made of; no scope includes it.
const GUEST_NEEDS: [Need; 8] = [
    need(Scope::Run, Probe::Program("qemu-system-x86_64"), "qemu-system-x86", "emulates the machine"),
    need(Scope::Run, Probe::Program("busybox"), "busybox-static", "first program of the guest"),
    need(Scope::Run, Probe::Program("depmod"), "kmod", "finds out what kernel modules depend on"),
    need(Scope::Run, Probe::Program("xz"), "xz-utils", "unpacks kernel modules"),
    need(Scope::Run, Probe::Program("strip"), "binutils", "makes the guest's programs small"),
    need(Scope::Run, Probe::Program("unshare"), "util-linux", "gives the emulator a network namespace"),
    need(Scope::Run, Probe::Program("setpriv"), "util-linux", "ends the emulator with its maker"),
    need(Scope::Run, Probe::Program("ip"), "iproute2", "joins the guest's NICs"),
];

/// What counts instructions; no scope includes it.
const VALGRIND: Need = need(Scope::Run, Probe::Program("valgrind"), "valgrind", "counts instructions");

/// Installs what `scope` needs and the machine lacks.
pub fn ensure(scope: Scope) -> Result<()> {
    let needs = NEEDS.iter().filter(|need| need.scope <= scope).collect::<Vec<_>>();
    ensure_all(&needs)
}

/// Installs valgrind where it is missing.
pub fn ensure_valgrind() -> Result<()> {
    ensure_all(&[&VALGRIND])
}

/// Installs what a virtual machine needs and this one lacks.
pub fn ensure_guest() -> Result<()> {
    ensure_all(&GUEST_NEEDS.iter().collect::<Vec<_>>())
}

fn ensure_all(needs: &[&'static Need]) -> Result<()> {
    let lacking = lacking(needs);
    if lacking.is_empty() {
        return Ok(());
    }
    if privilege::find_program("apt-get").is_none() {
        let table = lacking.iter().map(|need| format!("\n  {:12} {}", need.package, need.why)).collect::<String>();
        bail!("this machine has no apt-get: install what Debian calls{table}");
    }
    for need in &lacking {
        missing(need.package, need.why, "installing it with apt-get");
    }
    let packages = lacking.iter().map(|need| need.package).collect::<BTreeSet<_>>();
    install(&packages)?;
    if let Some(need) = self::lacking(needs).first() {
        bail!("{} is installed, yet {:?} is not found", need.package, need.probe);
    }
    Ok(())
}

fn lacking(needs: &[&'static Need]) -> Vec<&'static Need> {
    needs.iter().filter(|need| !is_there(need.probe)).copied().collect()
}

fn is_there(probe: Probe) -> bool {
    match probe {
        Probe::Program(name) => privilege::find_program(name).is_some(),
        Probe::Library(name) => sh::succeeds(Command::new("pkg-config").args(["--exists", name])),
    }
}

/// Installs the packages; reads the package lists again only after a failure.
fn install(packages: &BTreeSet<&str>) -> Result<()> {
    let mut attempt = 1;
    loop {
        let result = sh::run(apt_get()?.args(["install", "-y", "--no-install-recommends"]).args(packages));
        let Err(error) = result else {
            return Ok(());
        };
        if attempt == TRIES {
            return Err(error).with_context(|| format!("apt-get failed {TRIES} times"));
        }
        if attempt > 1 {
            thread::sleep(Duration::from_secs(5));
        }
        if let Err(error) = sh::run(apt_get()?.arg("update")) {
            eprintln!("setup: {error:#}");
        }
        attempt += 1;
    }
}

/// apt-get as root, asking nothing and waiting for another apt. The variable is set by `env`, since `sudo` may drop it.
fn apt_get() -> Result<Command> {
    let mut command = privilege::command("env")?;
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-oDPkg::Lock::Timeout=120", "-oAcquire::Retries=3"]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_asked_for_after_pkg_config() {
        let place = |probe| NEEDS.iter().position(|need| need.probe == probe).unwrap();
        assert!(place(Probe::Program("pkg-config")) < place(Probe::Library("libelf")));
    }

    #[test]
    fn a_program_is_found_and_a_missing_library_is_not() {
        assert!(is_there(Probe::Program("sh")));
        assert!(!is_there(Probe::Library("no-such-library-anywhere")));
    }
}

//! QEMU: which one, with which acceleration, and the command line of a guest.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::archive::{Archive, place};
use super::kernel::Kernel;
use crate::privilege;

/// The emulator's program; Debian's package is `qemu-system-x86`.
const PROGRAM: &str = "qemu-system-x86_64";
/// Debian's packages of one QEMU.
const PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"];
/// Where Debian's packages put the firmware that QEMU itself does not bring.
const FIRMWARE: [&str; 2] = ["/usr/share/seabios", "/usr/lib/ipxe/qemu"];
/// Queue pairs of a virtio NIC: one for each worker. With more, the driver takes one for each CPU in addition when an XDP
/// program is attached, receives on these too, and the node has no worker for what arrives there.
const VIRTIO_QUEUES: u32 = 2;

/// A node switches the kernel's measurement of run times on and off, for which the kernel patches its own code by way of
/// breakpoints. A CPU that QEMU translates may meet one after it was removed, and the kernel dies of it (`Oops: int3`). With the
/// measurement on from the start nothing is patched.
const NO_PATCHING: &str = " sysctl.kernel.bpf_stats_enabled=1";

/// Gives QEMU a network namespace without a name, which ends with it: two tap devices with several queues on a bridge
/// that says nothing by itself.
const TAPS: &str = "set -e
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link add bridge type bridge stp_state 0 mcast_snooping 0
ip link set bridge up
for tap in tap0 tap1; do
    ip tuntap add dev $tap mode tap multi_queue
    ip link set $tap master bridge up
done
exec \"$@\"";

/// Network interface of the guest besides the ones that it makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Nic {
    /// None: pairs of virtual interfaces in the guest.
    Veth,
    /// Two virtio NICs with several queues, joined.
    Virtio,
    /// Two Intel 82576 NICs, joined.
    Igb,
    /// Two Intel 82574L NICs, joined.
    E1000e,
}

impl Nic {
    /// Name in options and of the driver's module.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Virtio => "virtio_net",
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
        }
    }

    /// MAC addresses of the two.
    pub const MACS: [&str; 2] = ["52:54:00:12:00:01", "52:54:00:12:00:02"];
}

/// Whether the host's processor runs the guest's code itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Acceleration {
    /// KVM where it works, which is tried, else TCG.
    Auto,
    /// The processor runs it.
    Kvm,
    /// QEMU translates it, each of the guest's CPUs in a thread.
    Tcg,
    /// QEMU translates it, all of the guest's CPUs in one thread: half as fast, for a guest that dies of `Oops: int3`.
    TcgSingle,
}

/// A QEMU that can be started.
pub struct Emulator {
    program: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    arguments: Vec<PathBuf>,
}

/// A guest.
pub struct Guest<'a> {
    /// What it boots.
    pub kernel: &'a Kernel,
    /// The archive with its first file system.
    pub initrd: &'a Path,
    /// Its NICs.
    pub nic: Nic,
    /// Never [`Acceleration::Auto`].
    pub acceleration: Acceleration,
    /// CPUs.
    pub cpus: u32,
    /// Main memory, MiB.
    pub memory_mib: u32,
    /// The console is this terminal, and the kernel says what it does.
    pub interactive: bool,
}

impl Emulator {
    /// The installed QEMU; where that does not know the NIC, the one of the release's backports, unpacked into `tree`.
    ///
    /// # Errors
    /// Neither knows the NIC, or the newer one does not run here.
    pub fn ensure(nic: Nic, tree: &Path, scratch: &Path) -> Result<Self> {
        let program = privilege::find_program(PROGRAM).with_context(|| format!("{PROGRAM} is not installed"))?;
        let installed = Self { program, environment: Vec::new(), arguments: Vec::new() };
        if installed.knows(nic) {
            return Ok(installed);
        }
        if !tree.is_dir() {
            eprintln!("vm: the installed QEMU has no {}: unpacking the one of the backports", nic.name());
            unpack(tree, scratch)?;
        }
        let newer = Self::in_tree(tree);
        if !newer.knows(nic) {
            bail!("neither the installed QEMU nor {} has a {} NIC", newer.program.display(), nic.name());
        }
        Ok(newer)
    }

    fn in_tree(tree: &Path) -> Self {
        let own = tree.join("usr/share/qemu");
        let places = [own].into_iter().chain(FIRMWARE.map(PathBuf::from));
        Self {
            program: tree.join("usr/bin").join(PROGRAM),
            // Its modules, not those of the installed one.
            environment: vec![("QEMU_MODULE_DIR", tree.join("usr/lib/x86_64-linux-gnu/qemu"))],
            arguments: places.flat_map(|place| [PathBuf::from("-L"), place]).collect(),
        }
    }

    fn knows(&self, nic: Nic) -> bool {
        let device = match nic {
            Nic::Veth => return true,
            Nic::Virtio => "virtio-net-pci",
            Nic::Igb | Nic::E1000e => nic.name(),
        };
        let mut command = Command::new(&self.program);
        command.envs(self.environment.iter().cloned());
        // It succeeds for any name; only for one that it knows it has options to list.
        let output = command.args(["-device", &format!("{device},help")]).stdin(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&format!("{device} options")))
    }

    /// The command that runs a guest until it ends; its console is the command's input and output. QEMU is killed when
    /// the thread that starts it ends, whatever way.
    pub fn command(&self, guest: &Guest<'_>, taps: bool) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nice", "-n", "5"]);
        if taps {
            command.args(["unshare", "--net", "sh", "-c", TAPS, "sh"]);
        }
        command.arg(&self.program).envs(self.environment.iter().cloned()).args(&self.arguments);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-machine", "q35", "-display", "none"]);
        command.args(match guest.acceleration {
            Acceleration::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Acceleration::Tcg | Acceleration::Auto => ["-accel", "tcg,thread=multi", "-cpu", "max"],
            Acceleration::TcgSingle => ["-accel", "tcg,thread=single", "-cpu", "max"],
        });
        command.args(["-smp", &guest.cpus.to_string(), "-m", &guest.memory_mib.to_string()]);
        command.args(["-serial", if guest.interactive { "mon:stdio" } else { "stdio" }]);
        command.arg("-kernel").arg(&guest.kernel.image).arg("-initrd").arg(guest.initrd);
        let loudness = if guest.interactive { "" } else { " quiet loglevel=3" };
        let patches = if guest.acceleration == Acceleration::Kvm { "" } else { NO_PATCHING };
        let append = format!("console=ttyS0 panic=-1 mitigations=off random.trust_cpu=on{loudness}{patches}");
        command.args(["-append", &append]);
        command.args(network(guest.nic, taps));
        command
    }
}

fn unpack(tree: &Path, scratch: &Path) -> Result<()> {
    let archive = Archive::open(scratch)?;
    let suite = format!("{}-backports", codename()?);
    place(&archive.unpack(&PACKAGES.map(|package| format!("{package}/{suite}")))?, tree)
}

/// Debian's name for the running release: packages of another one may not fit its libraries.
fn codename() -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release has no VERSION_CODENAME")?.trim_matches('"').to_owned())
}

/// Two NICs and what joins them. On tap devices a virtio NIC has several queues; on QEMU's own hub only one. The others
/// share packets out to their queues themselves.
fn network(nic: Nic, taps: bool) -> Vec<String> {
    let device = match nic {
        Nic::Veth => return Vec::new(),
        // Only a device behind the platform's memory translation is offered zero copy by the kernel.
        Nic::Virtio => "virtio-net-pci,disable-legacy=on,iommu_platform=on",
        Nic::Igb | Nic::E1000e => nic.name(),
    };
    let queues = if taps { format!(",mq=on,vectors={}", 2 * VIRTIO_QUEUES + 2) } else { String::new() };
    let mut words = Vec::new();
    for (index, mac) in Nic::MACS.iter().enumerate() {
        let back_end = if taps {
            format!("tap,id=net{index},ifname=tap{index},script=no,downscript=no,queues={VIRTIO_QUEUES}")
        } else {
            format!("hubport,id=net{index},hubid=0")
        };
        words.extend(["-netdev".to_owned(), back_end]);
        // A slot of its own: a NIC with virtual functions takes the numbers behind its own for them.
        words.extend(["-device".to_owned(), format!("pcie-root-port,id=port{index},chassis={}", index + 1)]);
        words.extend(["-device".to_owned(), format!("{device},netdev=net{index},bus=port{index},mac={mac}{queues}")]);
    }
    words
}

/// Why this process cannot make tap devices and a bridge; `None` when it can.
pub fn taps_are_refused() -> Option<String> {
    match privilege::is_root() {
        Ok(true) => {}
        _ => return Some("not root".to_owned()),
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", TAPS, "sh", "true"]);
    let output = command.stdin(Stdio::null()).output().ok()?;
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Why KVM cannot be used, as far as that shows without a guest; `None` when nothing speaks against it.
pub fn kvm_is_refused() -> Option<String> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.err().map(|error| format!("/dev/kvm: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sh;

    fn line(nic: Nic, taps: bool, interactive: bool) -> String {
        let kernel = Kernel { release: "6.12".to_owned(), image: "/k".into(), modules: "/m".into() };
        let emulator = Emulator::in_tree(Path::new("/tree"));
        let initrd = Path::new("/i");
        let acceleration = Acceleration::Tcg;
        let guest = Guest { kernel: &kernel, initrd, nic, acceleration, cpus: 2, memory_mib: 512, interactive };
        sh::line(&emulator.command(&guest, taps))
    }

    #[test]
    fn a_guest_ends_with_its_maker_and_has_no_device_that_was_not_asked_for() {
        let line = line(Nic::Veth, false, false);
        assert!(line.contains("setpriv --pdeathsig KILL") && line.contains("-nodefaults"), "{line}");
        assert!(!line.contains("-netdev") && line.contains("quiet") && line.contains("-serial stdio"), "{line}");
    }

    #[test]
    fn several_queues_need_tap_devices() {
        let line = |taps| line(Nic::Virtio, taps, true);
        assert!(line(true).contains("queues=2 ") && line(true).contains("mq=on,vectors=6"), "{}", line(true));
        assert!(line(false).contains("hubport,id=net1,hubid=0") && !line(false).contains("mq=on"), "{}", line(false));
        assert!(!line(false).contains("unshare") && line(false).contains("mon:stdio"), "{}", line(false));
    }

    #[test]
    fn an_unpacked_emulator_keeps_to_its_own_modules() {
        let line = line(Nic::Igb, false, false);
        assert!(line.contains("QEMU_MODULE_DIR=/tree/usr/lib/x86_64-linux-gnu/qemu"), "{line}");
        assert!(line.contains("igb,netdev=net0,bus=port0,mac=52:54:00:12:00:01"), "{line}");
    }
}

//! What an operator can do about a system call that failed while the node was set up: errno and operation → cause and
//! next step.
//!
//! Pure: looks nothing up, so what it may name (interface, MTU, path) comes in a [`Context`]. The causes are those of
//! the kernel's own checks; the messages it writes for them go to the kernel log or to nobody.

use std::fmt;
use std::io;

use crate::config::{Mode, ZeroCopy};

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Loading the XDP programs.
    LoadObject,
    /// Creating a map.
    CreateMap,
    /// Attaching an XDP program to an interface.
    AttachXdp {
        /// Where it was to run; [`Mode::Auto`] when both ways failed.
        mode: Mode,
    },
    /// `socket(AF_XDP)`.
    OpenXsk,
    /// Binding an AF_XDP socket to a queue.
    BindXsk {
        /// What was asked for.
        zero_copy: ZeroCopy,
    },
    /// Registering packet memory.
    RegisterUmem,
    /// Pinning a map.
    PinMap,
    /// Mounting the BPF file system.
    MountBpffs,
    /// Entering a network namespace.
    OpenNetns,
    /// Pinning a worker to its CPU.
    PinThread,
    /// Raising `RLIMIT_MEMLOCK`.
    RaiseMemlock,
}

/// What the caller knows and the advice may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context<'a> {
    /// The interface.
    pub interface: Option<&'a str>,
    /// The interface it sits on, of a VLAN, or the one it is part of, of a bond's or team's member.
    pub parent: Option<&'a str>,
    /// The interface's MTU.
    pub mtu: Option<u32>,
    /// The queue.
    pub queue: Option<u32>,
    /// The pin, mount point or namespace.
    pub path: Option<&'a str>,
    /// The CPU.
    pub cpu: Option<u32>,
}

impl<'a> Context<'a> {
    fn interface(&self) -> &'a str {
        self.interface.unwrap_or("DEV")
    }

    fn path(&self) -> &'a str {
        self.path.unwrap_or("PATH")
    }
}

/// A cause and a next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Why it failed.
    pub why: String,
    /// What to do.
    pub todo: String,
}

impl Advice {
    fn new(why: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { why: why.into(), todo: todo.into() }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  why: {}\n  do:  {}", self.why, self.todo)
    }
}

/// The kernel's own ENOTSUPP. It is not meant to reach user space, does, and has no text there.
const ENOTSUPP: i32 = 524;

/// All that a node needs while it starts; its workers need none of it.
const CAPABILITIES: &str = "cap_bpf, cap_perfmon, cap_net_admin and cap_net_raw";

/// Cause and next step of `errno`, which `operation` failed with.
pub fn advice(operation: Operation, errno: i32, context: &Context<'_>) -> Advice {
    let known = match operation {
        Operation::LoadObject => load_object(errno),
        Operation::CreateMap => create_map(errno),
        Operation::AttachXdp { mode } => attach_xdp(errno, mode, context),
        Operation::OpenXsk => open_xsk(errno),
        Operation::BindXsk { zero_copy } => bind_xsk(errno, zero_copy, context),
        Operation::RegisterUmem => register_umem(errno),
        Operation::PinMap => pin_map(errno, context),
        Operation::MountBpffs => mount_bpffs(errno, context),
        Operation::OpenNetns => open_netns(errno, context),
        Operation::PinThread => pin_thread(errno, context),
        Operation::RaiseMemlock => raise_memlock(errno),
    };
    known.unwrap_or_else(|| other(operation, errno))
}

/// Without a capability: which, and how to get it.
fn needs(what: &str, capability: &str) -> Advice {
    Advice::new(
        format!("{what} needs {capability}"),
        format!("run as root, or give the service {CAPABILITIES} (systemd: AmbientCapabilities=)"),
    )
}

/// The oldest series of kernels on which the programs are known to load.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// What a refusal by the verifier means on the kernel of this release, if that is an older one than the oldest.
fn too_old(release: &str) -> Option<Advice> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    let (oldest_major, oldest_minor) = OLDEST_KERNEL;
    ((major, minor) < OLDEST_KERNEL).then(|| {
        Advice::new(
            format!(
                "this kernel is {release}; the programs need {oldest_major}.{oldest_minor}: older verifiers follow more of their \
                 paths"
            ),
            format!(
                "boot Linux {oldest_major}.{oldest_minor} or newer: Debian 12 has it"
            ),
        )
    })
}

/// The release of the running kernel; empty where /proc does not say it.
fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn load_object(errno: i32) -> Option<Advice> {
    if matches!(errno, libc::EACCES | libc::E2BIG | libc::EINVAL)
        && let Some(advice) = too_old(&kernel_release())
    {
        return Some(advice);
    }
    Some(match errno {
        libc::EPERM => needs("loading an XDP program", "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"),
        libc::EACCES => Advice::new(
            "the kernel's verifier refused the program; without CAP_PERFMON it refuses all that read packets at computed \
             offsets",
            "run as root or add cap_perfmon; if that is there, report it with `bpftool -d prog loadall` and `uname -r`",
        ),
        libc::EINVAL => Advice::new(
            "the kernel does not know an instruction, helper or program option that the object uses",
            "compare `uname -r` with the oldest supported kernel; if it is newer, report the verifier's log",
        ),
        libc::E2BIG => Advice::new(
            "the program is more than this kernel's verifier follows: the policies of the functions together, or the kernel is old",
            "let the [[function]]s use fewer different policies: any one of them fits a supported kernel",
        ),
        libc::ENOSYS => Advice::new("the kernel has no BPF", "run a kernel with CONFIG_BPF_SYSCALL=y"),
        ENOTSUPP => Advice::new(
            "the kernel, or its JIT for this CPU, lacks a feature that the program uses",
            "check that `sysctl net.core.bpf_jit_enable` is 1, or run a newer kernel",
        ),
        libc::ENOMEM => out_of_memory(),
        _ => return None,
    })
}

fn create_map(errno: i32) -> Option<Advice> {
    Some(match errno {
        // Kernels before 5.11 count maps as locked memory and answer EPERM when it runs out.
        libc::EPERM => {
            let Advice { why, todo } = needs("creating a map", "CAP_BPF and CAP_NET_ADMIN");
            Advice::new(why, format!("{todo}; before Linux 5.11 also set LimitMEMLOCK=infinity"))
        }
        libc::EINVAL => Advice::new(
            "the kernel does not know the map's type or one of its flags",
            "compare `uname -r` with the oldest supported kernel",
        ),
        libc::E2BIG => Advice::new(
            "the map has more entries than this kernel allows, or the request is from a newer one",
            "use smaller node ids, which size the load table, or run a newer kernel",
        ),
        libc::ENOMEM => out_of_memory(),
        libc::ENOSYS => Advice::new("the kernel has no BPF", "run a kernel with CONFIG_BPF_SYSCALL=y"),
        _ => return None,
    })
}

fn attach_xdp(errno: i32, mode: Mode, context: &Context<'_>) -> Option<Advice> {
    let dev = context.interface();
    Some(match errno {
        libc::EPERM => needs("attaching an XDP program", "CAP_NET_ADMIN and CAP_BPF"),
        libc::ENODEV => no_such_interface(dev),
        libc::EBUSY => Advice::new(
            format!("another XDP program holds {dev}"),
            format!("`bpftool net list dev {dev}` shows it; stop its owner, or `ip link set dev {dev} xdp off`"),
        ),
        libc::EEXIST => Advice::new(
            format!("an XDP program is attached to {dev} in the other mode, or to the bond or team {dev} belongs to"),
            format!("`bpftool net list` shows it; detach it: `ip link set dev {dev} xdpgeneric off`, or xdpdrv"),
        ),
        libc::EOPNOTSUPP | ENOTSUPP => unsupported(mode, context),
        libc::ERANGE => mtu_too_large(context),
        libc::ENOSPC => Advice::new(
            format!(
                "a veth needs at least as many receive queues as its peer has transmit queues, and {dev} has fewer"
            ),
            format!("ethtool -L {dev} rx N, with N the peer's tx as `ethtool -l PEER` shows it; or mode = \"skb\""),
        ),
        libc::ENOTCONN => Advice::new(format!("the other end of the veth {dev} is gone"), "create the pair again"),
        libc::ENOMEM => Advice::new(
            format!("the driver of {dev} finds no free transmit queues for XDP, or no memory"),
            format!("halve the queues: `ethtool -l {dev}` shows them, `ethtool -L {dev} combined N` sets them"),
        ),
        libc::EINVAL => refused_by_driver(context),
        libc::ENETDOWN => down(dev),
        _ => return None,
    })
}

/// What drivers answer EINVAL to; which of it they mean, they do not say.
fn refused_by_driver(context: &Context<'_>) -> Advice {
    let (dev, mtu) = (context.interface(), of_mtu(context));
    Advice::new(
        format!(
            "the driver of {dev} refuses: LRO or GRO-HW is on, the MTU{mtu} is too large, or (virtio) the host lacks \
             any_header_sg; or the kernel, before 5.9, has no XDP links"
        ),
        format!(
            "ethtool -K {dev} lro off rx-gro-hw off; ip link set dev {dev} mtu 1500; `dmesg` may say more; \
             or mode = \"skb\""
        ),
    )
}

/// The interface cannot run XDP in this mode.
fn unsupported(mode: Mode, context: &Context<'_>) -> Advice {
    let dev = context.interface();
    if mode == Mode::Skb {
        let why = format!("{dev} runs no XDP program, not even behind its driver");
        return Advice::new(why, "name the interface that the packets arrive at first, as `ip -d link` shows it");
    }
    match context.parent {
        Some(parent) => Advice::new(
            format!("{dev} is a VLAN of {parent} or a member of it, and has no native XDP of its own"),
            format!("write interface = \"{parent}\" (VLAN tags are parsed), or mode = \"skb\" (slower)"),
        ),
        None => Advice::new(
            format!(
                "{dev} has no native XDP: its driver lacks it, or it is a VLAN or team, or (virtio) offloads are on"
            ),
            format!("name the parent that `ip -d link show {dev}` shows behind @, or write mode = \"skb\" (slower)"),
        ),
    }
}

fn mtu_too_large(context: &Context<'_>) -> Advice {
    let dev = context.interface();
    Advice::new(
        format!(
            "in native XDP a packet fits one page: the MTU of {dev}{}, or of a veth's other end, is above about 3500",
            of_mtu(context)
        ),
        format!("ip link set dev {dev} mtu 1500 (a veth: at both ends), or mode = \"skb\""),
    )
}

fn of_mtu(context: &Context<'_>) -> String {
    context.mtu.map(|mtu| format!(" ({mtu})")).unwrap_or_default()
}

fn open_xsk(errno: i32) -> Option<Advice> {
    Some(match errno {
        libc::EPERM => needs("an AF_XDP socket", "CAP_NET_RAW"),
        libc::EAFNOSUPPORT => Advice::new(
            "the kernel has no AF_XDP sockets",
            "run a kernel with CONFIG_XDP_SOCKETS=y (`zcat /proc/config.gz`)",
        ),
        libc::EMFILE => out_of_files(),
        libc::ENOMEM | libc::ENOBUFS => out_of_memory(),
        _ => return None,
    })
}

fn bind_xsk(errno: i32, zero_copy: ZeroCopy, context: &Context<'_>) -> Option<Advice> {
    let dev = context.interface();
    let queue = context.queue.map_or_else(|| "this queue".to_owned(), |queue| format!("queue {queue}"));
    Some(match errno {
        libc::EPERM => needs("an AF_XDP socket", "CAP_NET_RAW"),
        libc::ENODEV => no_such_interface(dev),
        libc::ENETDOWN => down(dev),
        libc::EBUSY => Advice::new(
            format!("{queue} of {dev} has an AF_XDP socket already, of another process or of one that just ended"),
            "see whose it is with `dataplane status`, `bpftool net list` or (where the kernel tells) `ss --xdp -p`, and stop \
             it; a socket that was just closed is gone in a moment",
        ),
        libc::EINVAL => Advice::new(
            format!("{dev} has no {queue}, or its driver refuses zero copy for it"),
            format!(
                "have as many [workers] cpus as `ethtool -l {dev}` shows queues (`ethtool -L {dev} combined N` changes \
                 them); if they agree, zero_copy = \"off\""
            ),
        ),
        libc::EOPNOTSUPP | ENOTSUPP if zero_copy == ZeroCopy::Off => Advice::new(
            format!("{dev} cannot share packet memory that another interface uses in zero-copy mode"),
            "write the same zero_copy for every [[port]] and [[link]]",
        ),
        libc::EOPNOTSUPP | ENOTSUPP => Advice::new(
            format!("the driver of {dev} has no zero copy, or not the one that this worker's first interface has"),
            "write zero_copy = \"off\", for every [[port]] and [[link]] if they differ",
        ),
        libc::ENOMEM | libc::ENOBUFS => out_of_memory(),
        _ => return None,
    })
}

fn register_umem(errno: i32) -> Option<Advice> {
    Some(match errno {
        libc::ENOBUFS => Advice::new(
            "packet memory is locked memory, and RLIMIT_MEMLOCK allows less",
            "set LimitMEMLOCK=infinity (systemd) or `ulimit -l unlimited`, or lower [workers] frames",
        ),
        libc::EINVAL => Advice::new(
            "the kernel refuses the size or alignment of packet memory",
            "write frame_size = 2048, or 4096 if pages have that size (`getconf PAGE_SIZE`)",
        ),
        libc::ENOMEM => out_of_memory(),
        libc::EPERM => needs("an AF_XDP socket", "CAP_NET_RAW"),
        _ => return None,
    })
}

fn pin_map(errno: i32, context: &Context<'_>) -> Option<Advice> {
    let path = context.path();
    Some(match errno {
        libc::EPERM | libc::EACCES => Advice::new(
            format!("{path} is not on a BPF file system, or this user may not write there"),
            "mount one with `mount -t bpf bpf /sys/fs/bpf`, and run as root or as its owner",
        ),
        libc::EEXIST => Advice::new(
            format!("{path} is there already: a node of this name runs, or left its maps behind"),
            "see `dataplane status`; if no such node runs, remove the directory that holds the pin",
        ),
        libc::ENOENT => Advice::new(format!("the directory of {path} does not exist"), "mount -t bpf bpf /sys/fs/bpf"),
        libc::EROFS => {
            Advice::new(format!("{path} is on a read-only mount, as in many containers"), "mount /sys/fs/bpf writable")
        }
        _ => return None,
    })
}

fn mount_bpffs(errno: i32, context: &Context<'_>) -> Option<Advice> {
    let path = context.path();
    Some(match errno {
        libc::EPERM => Advice::new(
            "mounting a file system needs CAP_SYS_ADMIN",
            format!("mount it once as root: mount -t bpf bpf {path}"),
        ),
        libc::ENODEV => Advice::new("the kernel has no BPF file system", "run a kernel with CONFIG_BPF_SYSCALL=y"),
        libc::ENOENT | libc::ENOTDIR => Advice::new(
            format!("the mount point {path} is not a directory"),
            "use /sys/fs/bpf; where it is missing, mount sysfs: mount -t sysfs sysfs /sys",
        ),
        libc::EBUSY => Advice::new(format!("{path} is mounted already"), format!("see what it is: findmnt {path}")),
        _ => return None,
    })
}

fn open_netns(errno: i32, context: &Context<'_>) -> Option<Advice> {
    let path = context.path();
    Some(match errno {
        libc::ENOENT => Advice::new(
            format!("there is no network namespace {path}"),
            "`ip netns list` shows them, `ip netns add NAME` creates one",
        ),
        libc::EPERM | libc::EACCES => {
            Advice::new("entering a network namespace needs CAP_SYS_ADMIN in it and here", "run as root")
        }
        libc::EINVAL => Advice::new(
            format!("{path} is not a network namespace, as when its mount is gone"),
            "create it again: `ip netns delete NAME`, `ip netns add NAME`",
        ),
        libc::EMFILE => out_of_files(),
        _ => return None,
    })
}

fn pin_thread(errno: i32, context: &Context<'_>) -> Option<Advice> {
    let cpu = context.cpu.map_or_else(|| "the CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    Some(match errno {
        libc::EINVAL => Advice::new(
            format!("{cpu} does not exist, is offline, or is not among the CPUs this process may use"),
            "`taskset -p $$` and /sys/devices/system/cpu/online show which; correct [workers] cpus, or the cpuset",
        ),
        libc::EPERM => needs("pinning a thread of another user", "CAP_SYS_NICE"),
        _ => return None,
    })
}

fn raise_memlock(errno: i32) -> Option<Advice> {
    Some(match errno {
        libc::EPERM => Advice::new(
            "raising the limit of locked memory needs CAP_SYS_RESOURCE",
            "set it from outside: LimitMEMLOCK=infinity (systemd), `ulimit -l unlimited`, --ulimit memlock=-1 (docker)",
        ),
        _ => return None,
    })
}

fn no_such_interface(dev: &str) -> Advice {
    Advice::new(
        format!("there is no interface {dev} in this network namespace"),
        "`ip link` shows those there are; with `ip netns exec NAME` in front, those of another namespace",
    )
}

fn down(dev: &str) -> Advice {
    Advice::new(format!("{dev} is down"), format!("ip link set dev {dev} up"))
}

fn out_of_memory() -> Advice {
    Advice::new(
        "the kernel found no memory, or the cgroup's limit is reached",
        "`free -m` and the unit's MemoryMax show how much there is; lower [workers] frames",
    )
}

fn out_of_files() -> Advice {
    Advice::new("the process has as many open files as it may", "raise the limit: LimitNOFILE= (systemd), `ulimit -n`")
}

/// The system's text and where to look further.
fn other(operation: Operation, errno: i32) -> Advice {
    let manual = match operation {
        Operation::LoadObject | Operation::CreateMap | Operation::AttachXdp { .. } | Operation::PinMap => "man 2 bpf",
        Operation::OpenXsk | Operation::BindXsk { .. } | Operation::RegisterUmem => {
            "https://docs.kernel.org/networking/af_xdp.html"
        }
        Operation::MountBpffs => "man 2 mount",
        Operation::OpenNetns => "man 2 setns",
        Operation::PinThread => "man 2 sched_setaffinity",
        Operation::RaiseMemlock => "man 2 setrlimit",
    };
    let text = match errno {
        ENOTSUPP => "not supported by this kernel or driver (os error 524)".to_owned(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    };
    Advice::new(text, format!("see {manual}, and `dmesg` for what the kernel says"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_too_old_is_named_and_another_one_is_not_blamed() {
        for old in ["5.10.0-30-amd64", "5.15.0", "6.0.9"] {
            let advice = too_old(old).unwrap();
            assert!(advice.why.contains(old) && advice.todo.contains("Linux 6.1 or newer"), "{advice:?}");
        }
        for other in ["6.1.0-50-amd64", "6.12.117+deb13-amd64", "7.3.4", "6.18-rc1", "", "linux"] {
            assert_eq!(too_old(other), None, "{other}");
        }
    }

    const CONTEXT: Context<'static> = Context {
        interface: Some("eth7"),
        parent: None,
        mtu: Some(9000),
        queue: Some(3),
        path: Some("/sys/fs/bpf/dataplane/n1"),
        cpu: Some(5),
    };
    const NATIVE: Operation = Operation::AttachXdp { mode: Mode::Native };
    const AUTO_COPY: Operation = Operation::BindXsk { zero_copy: ZeroCopy::Auto };
    const OPERATIONS: [Operation; 15] = [
        Operation::LoadObject,
        Operation::CreateMap,
        NATIVE,
        Operation::AttachXdp { mode: Mode::Skb },
        Operation::AttachXdp { mode: Mode::Auto },
        Operation::OpenXsk,
        AUTO_COPY,
        Operation::BindXsk { zero_copy: ZeroCopy::On },
        Operation::BindXsk { zero_copy: ZeroCopy::Off },
        Operation::RegisterUmem,
        Operation::PinMap,
        Operation::MountBpffs,
        Operation::OpenNetns,
        Operation::PinThread,
        Operation::RaiseMemlock,
    ];

    #[test]
    fn each_known_errno_names_its_cause_and_the_next_step() {
        let cases: &[(Operation, i32, &str, &str)] = &[
            (Operation::LoadObject, libc::EPERM, "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN", "run as root"),
            (Operation::LoadObject, libc::EACCES, "verifier", "uname -r"),
            (Operation::LoadObject, libc::EINVAL, "does not know", "oldest supported"),
            (Operation::LoadObject, libc::E2BIG, "more than this kernel's verifier", "fewer different policies"),
            (Operation::LoadObject, ENOTSUPP, "JIT", "bpf_jit_enable"),
            (Operation::CreateMap, libc::EPERM, "CAP_BPF", "LimitMEMLOCK"),
            (Operation::CreateMap, libc::E2BIG, "more entries", "smaller node ids"),
            (Operation::CreateMap, libc::ENOMEM, "memory", "frames"),
            (NATIVE, libc::EPERM, "CAP_NET_ADMIN", "AmbientCapabilities"),
            (NATIVE, libc::EOPNOTSUPP, "no native XDP", "mode = \"skb\""),
            (NATIVE, ENOTSUPP, "no native XDP", "mode = \"skb\""),
            (NATIVE, libc::ENOMEM, "transmit queues", "ethtool -L eth7 combined"),
            (NATIVE, libc::ERANGE, "(9000)", "ip link set dev eth7 mtu 1500"),
            (NATIVE, libc::EINVAL, "LRO or GRO-HW", "ethtool -K eth7 lro off"),
            (NATIVE, libc::EBUSY, "another XDP program holds eth7", "bpftool net list dev eth7"),
            (NATIVE, libc::EEXIST, "other mode", "bpftool net list"),
            (NATIVE, libc::ENODEV, "no interface eth7", "ip link"),
            (NATIVE, libc::ENOSPC, "receive queues", "ethtool -L eth7 rx N"),
            (NATIVE, libc::ENOTCONN, "other end", "create"),
            (Operation::OpenXsk, libc::EPERM, "CAP_NET_RAW", "cap_net_raw"),
            (Operation::OpenXsk, libc::EAFNOSUPPORT, "no AF_XDP", "CONFIG_XDP_SOCKETS"),
            (AUTO_COPY, libc::EBUSY, "queue 3 of eth7", "ss --xdp"),
            (AUTO_COPY, libc::EINVAL, "eth7 has no queue 3", "ethtool -l eth7"),
            (AUTO_COPY, libc::EOPNOTSUPP, "no zero copy", "zero_copy = \"off\""),
            (AUTO_COPY, libc::ENODEV, "no interface eth7", "ip link"),
            (AUTO_COPY, libc::ENETDOWN, "eth7 is down", "ip link set dev eth7 up"),
            (
                Operation::BindXsk { zero_copy: ZeroCopy::Off },
                libc::EOPNOTSUPP,
                "share packet memory",
                "same zero_copy",
            ),
            (Operation::RegisterUmem, libc::ENOBUFS, "RLIMIT_MEMLOCK", "LimitMEMLOCK=infinity"),
            (Operation::RegisterUmem, libc::EINVAL, "size or alignment", "frame_size"),
            (Operation::PinMap, libc::EPERM, "not on a BPF file system", "mount -t bpf"),
            (Operation::PinMap, libc::EEXIST, "/sys/fs/bpf/dataplane/n1 is there already", "dataplane status"),
            (Operation::PinMap, libc::ENOENT, "does not exist", "mount -t bpf"),
            (Operation::MountBpffs, libc::EPERM, "CAP_SYS_ADMIN", "mount -t bpf"),
            (Operation::MountBpffs, libc::ENODEV, "no BPF file system", "CONFIG_BPF_SYSCALL"),
            (Operation::MountBpffs, libc::EBUSY, "mounted already", "findmnt"),
            (Operation::OpenNetns, libc::ENOENT, "no network namespace", "ip netns list"),
            (Operation::OpenNetns, libc::EPERM, "CAP_SYS_ADMIN", "root"),
            (Operation::OpenNetns, libc::EINVAL, "not a network namespace", "ip netns add"),
            (Operation::PinThread, libc::EINVAL, "CPU 5", "[workers] cpus"),
            (Operation::RaiseMemlock, libc::EPERM, "CAP_SYS_RESOURCE", "LimitMEMLOCK=infinity"),
        ];
        for (operation, errno, why, todo) in cases {
            let advice = advice(*operation, *errno, &CONTEXT);
            assert!(advice.why.contains(why), "{operation:?} {errno}: {advice}");
            assert!(advice.todo.contains(todo), "{operation:?} {errno}: {advice}");
        }
    }

    #[test]
    fn a_child_interface_is_sent_to_its_parent() {
        let context = Context { interface: Some("vlan3"), parent: Some("eth0"), ..Context::default() };
        let native = advice(NATIVE, libc::EOPNOTSUPP, &context);
        assert_eq!(native.why, "vlan3 is a VLAN of eth0 or a member of it, and has no native XDP of its own");
        assert_eq!(native.todo, "write interface = \"eth0\" (VLAN tags are parsed), or mode = \"skb\" (slower)");
    }

    #[test]
    fn skb_mode_is_not_advised_to_who_has_it() {
        let skb = advice(Operation::AttachXdp { mode: Mode::Skb }, libc::EOPNOTSUPP, &CONTEXT);
        assert!(!skb.todo.contains("skb"), "{skb}");
    }

    #[test]
    fn an_unknown_errno_gives_the_system_text_and_where_to_look() {
        let found = advice(Operation::MountBpffs, libc::ELOOP, &Context::default());
        assert!(found.why.contains("symbolic links"), "{found}");
        assert_eq!(found.todo, "see man 2 mount, and `dmesg` for what the kernel says");
        assert!(advice(Operation::PinThread, ENOTSUPP, &CONTEXT).why.contains("524"));
    }

    #[test]
    fn every_operation_has_two_lines_of_advice_for_every_errno_with_and_without_context() {
        for operation in OPERATIONS {
            for errno in -1..=ENOTSUPP + 1 {
                for context in [CONTEXT, Context::default()] {
                    let shown = advice(operation, errno, &context).to_string();
                    assert_eq!(shown.lines().count(), 2, "{operation:?} {errno}: {shown}");
                    assert!(shown.lines().all(|line| line.len() > "  why: ".len()), "{shown}");
                }
            }
        }
    }
}

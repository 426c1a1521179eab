//! Facts of the machine that a result belongs to: a number without them means little.

use std::fs;
use std::thread;

use serde::Serialize;

/// The machine and what runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Version of the running kernel.
    pub kernel: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Main memory, MiB.
    pub memory_mib: u64,
    /// Whether this is a virtual machine, as the processor says.
    pub virtual_machine: bool,
    /// The kernel's clock source.
    pub clock_source: String,
    /// Load average over the last minute before the run: what else was going on.
    pub load_average: String,
    /// Version of this program.
    pub version: String,
}

impl Environment {
    /// Looks at this machine. What cannot be found out is `unknown`, or 0.
    pub fn take() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let memory_kib = field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let or_unknown = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("unknown").to_owned();
        Self {
            kernel: or_unknown(Some(read("/proc/sys/kernel/osrelease").trim())),
            cpu: or_unknown(field(&cpuinfo, "model name")),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            virtual_machine: field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            clock_source: or_unknown(Some(
                read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim(),
            )),
            load_average: or_unknown(read("/proc/loadavg").split(' ').next()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let virtual_machine = if self.virtual_machine { ", virtual machine" } else { "" };
        let (cpu, cores, kernel) = (&self.cpu, self.cores, &self.kernel);
        format!("{cpu}, {cores} cores{virtual_machine}, Linux {kernel}")
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let environment = Environment::take();
        assert_ne!(environment.kernel, "unknown");
        assert!(environment.cores > 0 && environment.memory_mib > 0);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t: 17\nmodel name\t: Some CPU: fast\n";
        assert_eq!(field(text, "model name"), Some("Some CPU: fast"));
        assert_eq!(field(text, "name"), None);
    }
}

//! Which kernel modules the guest loads, in which order, from the files that `depmod` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::sh;

/// The modules of one kernel.
pub struct Modules {
    directory: PathBuf,
    /// Path below the directory and paths of what it depends on, by name.
    files: BTreeMap<String, (String, Vec<String>)>,
    builtin: Vec<String>,
}

impl Modules {
    /// Reads `modules.dep` and `modules.builtin` in `directory`.
    pub fn read(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Self::parse(directory, &read("modules.dep")?, &read("modules.builtin")?))
    }

    /// Each line of `modules.dep` is `path: path…`, what a module needs directly or not, to be loaded from the last to the
    /// first; each line of `modules.builtin` is a path.
    fn parse(directory: &Path, dependencies: &str, builtin: &str) -> Self {
        let mut files = BTreeMap::new();
        for line in dependencies.lines() {
            if let Some((path, needs)) = line.split_once(':') {
                let needs = needs.split_whitespace().map(str::to_owned).collect();
                files.insert(name_of(path), (path.to_owned(), needs));
            }
        }
        Self { directory: directory.to_owned(), files, builtin: builtin.lines().map(name_of).collect() }
    }

    /// Whether the kernel has it, inside or as a module.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(&normal(name)) || self.builtin.contains(&normal(name))
    }

    /// Paths of the files to load for `names`, each after what it depends on and each once. What is built in needs none.
    ///
    /// # Errors
    /// The kernel lacks one.
    pub fn closure(&self, names: &[&str]) -> Result<Vec<String>> {
        let mut order = Vec::new();
        for name in names {
            let Some((path, needs)) = self.files.get(&normal(name)) else {
                if self.builtin.contains(&normal(name)) {
                    continue;
                }
                bail!("the kernel in {} has no module {name}", self.directory.display());
            };
            for path in needs.iter().rev().chain([path]) {
                if !order.contains(path) {
                    order.push(path.clone());
                }
            }
        }
        Ok(order)
    }

    /// The content of a module's file, as the kernel takes it.
    ///
    /// # Errors
    /// The file is not there, or the program that its compression asks for.
    pub fn content(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.directory.join(path);
        let program = match file.extension().and_then(|extension| extension.to_str()) {
            Some("xz") => "xz",
            Some("zst") => "zstd",
            Some("gz") => "gzip",
            _ => return fs::read(&file).with_context(|| format!("cannot read {}", file.display())),
        };
        let mut command = Command::new(program);
        command.arg("-dc").arg(&file).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("cannot start: {}", sh::line(&command)))?;
        if !output.status.success() {
            bail!("{}: {}", output.status, sh::line(&command));
        }
        Ok(output.stdout)
    }
}

/// A module's name: that of its file, before the first dot, with underscores.
pub fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    normal(file.split('.').next().unwrap_or(file))
}

/// The kernel takes `-` and `_` in a module's name for the same.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        let dependencies = "kernel/net/core/failover.ko.xz:\n\
                            kernel/drivers/net/net_failover.ko.xz: kernel/net/core/failover.ko.xz\n\
                            kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/net/net_failover.ko.xz \
                            kernel/net/core/failover.ko.xz\n\
                            kernel/drivers/i2c/algos/i2c-algo-bit.ko:\n\
                            kernel/drivers/net/igb.ko: kernel/drivers/i2c/algos/i2c-algo-bit.ko\n";
        Modules::parse(Path::new("/lib/modules/6.12"), dependencies, "kernel/drivers/virtio/virtio_pci.ko\n")
    }

    #[test]
    fn a_module_comes_after_all_it_depends_on_and_only_once() {
        let order = modules().closure(&["virtio-net", "net_failover", "igb"]).unwrap();
        let names = order.iter().map(|path| name_of(path)).collect::<Vec<_>>();
        assert_eq!(names, ["failover", "net_failover", "virtio_net", "i2c_algo_bit", "igb"]);
    }

    #[test]
    fn what_is_built_in_needs_no_file() {
        let modules = modules();
        assert!(modules.has("virtio_pci") && modules.has("i2c_algo_bit") && !modules.has("pktgen"));
        assert!(modules.closure(&["virtio-pci"]).unwrap().is_empty());
    }

    #[test]
    fn a_module_that_the_kernel_lacks_is_named() {
        let error = modules().closure(&["pktgen"]).unwrap_err().to_string();
        assert_eq!(error, "the kernel in /lib/modules/6.12 has no module pktgen");
    }
}

//! Where things are: the tree, the target directory, and what this crate puts into it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Directories of one run.
pub struct Paths {
    /// Root of the workspace.
    pub root: PathBuf,
    /// Cargo's target directory: `CARGO_TARGET_DIR`, or `target/` in the root.
    pub target: PathBuf,
}

impl Paths {
    /// The tree that cargo started this program from, or, started by hand, the one that it was compiled in.
    pub fn find() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().context("xtask does not lie inside a workspace")?.to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(directory) => std::path::absolute(directory).context("CARGO_TARGET_DIR")?,
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// Where `cargo install` puts the tools of the build.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The linker of the eBPF object.
    pub fn bpf_linker(&self) -> PathBuf {
        self.tools().join("bin/bpf-linker")
    }

    /// Source of the eBPF programs: a workspace of its own.
    pub fn ebpf(&self) -> PathBuf {
        self.root.join("dataplane-ebpf")
    }

    /// Cargo's target directory for the eBPF programs.
    pub fn ebpf_target(&self) -> PathBuf {
        self.target.join("ebpf")
    }

    /// The finished eBPF object.
    pub fn object(&self) -> PathBuf {
        self.target.join("bpf/dataplane.o")
    }

    /// The finished eBPF object of the benchmarks.
    pub fn bench_object(&self) -> PathBuf {
        self.target.join("bpf/bench.o")
    }

    /// Python environment with the package MLRsearch.
    pub fn mlrsearch(&self) -> PathBuf {
        self.target.join("mlrsearch")
    }

    /// A program built with the release profile.
    pub fn release(&self, program: &str) -> PathBuf {
        self.target.join("release").join(program)
    }

    /// Logs of nodes that run in the background.
    pub fn logs(&self) -> PathBuf {
        self.target.join("run")
    }

    /// Cargo, started at the root of the tree, with the target directory of this run.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }
}

//! bpf-linker, built against the LLVM inside the running compiler.
//!
//! bpf-linker reads the compiler's bitcode, so both must have the same LLVM. The compiler's own libLLVM exports the
//! whole C API: linking against it needs no LLVM package and cannot mismatch. A bpf-linker found on `PATH` is not used:
//! it does not say which LLVM it has, and a wrong one shows only as unreadable bitcode.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::missing;
use super::rustc::Rustc;
use crate::paths::Paths;
use crate::sh;

const VERSION: &str = "0.13.0";

/// Builds bpf-linker into the tools directory unless the one there starts and was built for this compiler.
pub fn ensure(rustc: &Rustc, paths: &Paths) -> Result<()> {
    let tools = paths.tools();
    let stamp = tools.join("bpf-linker.stamp");
    let built_for = format!("bpf-linker {VERSION}, rustc {}, {}\n", rustc.release, rustc.sysroot.display());
    let is_current = fs::read_to_string(&stamp).is_ok_and(|text| text == built_for);
    if is_current && sh::succeeds(Command::new(paths.bpf_linker()).arg("--version")) {
        return Ok(());
    }
    let why = format!("links the eBPF object, with the LLVM {} of rustc {}", rustc.llvm, rustc.release);
    missing(&format!("bpf-linker {VERSION}"), &why, "building it, about a minute");
    install(rustc, &tools)?;
    sh::run(Command::new(paths.bpf_linker()).arg("--version")).context("the bpf-linker just built does not start")?;
    fs::write(&stamp, built_for).with_context(|| format!("cannot write {}", stamp.display()))
}

fn install(rustc: &Rustc, tools: &Path) -> Result<()> {
    let (directory, library) = find_llvm(rustc)?;
    let llvm = tools.join("llvm");
    let link = llvm.join("lib/libLLVM.so");
    fs::create_dir_all(llvm.join("lib")).with_context(|| format!("cannot create {}", llvm.display()))?;
    if link.is_symlink() {
        fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    symlink(&library, &link).with_context(|| format!("cannot create {}", link.display()))?;

    let build = tools.join("build");
    let flags = [format!("-L{}", llvm.join("lib").display()), format!("-Clink-arg=-Wl,-rpath,{}", directory.display())];
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force", "--no-default-features"])
        .args(["--features", &format!("llvm-{}", rustc.llvm)])
        .arg("--root")
        .arg(tools)
        .arg("--target-dir")
        .arg(&build)
        .env("LLVM_PREFIX", &llvm)
        // Separated by 0x1f, as cargo wants it: paths may hold spaces.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    sh::run(&mut command)?;
    fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))
}

/// The compiler's libLLVM and the directory in which the dynamic linker finds it.
fn find_llvm(rustc: &Rustc) -> Result<(PathBuf, PathBuf)> {
    let directory = rustc.sysroot.join("lib");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let name = choose_llvm(names, rustc.llvm)
        .with_context(|| format!("no shared libLLVM {} in {}", rustc.llvm, directory.display()))?;
    Ok((directory.clone(), directory.join(name)))
}

/// The library's name among those of a directory: `libLLVM.so.22.1-rust-1.95.0-stable`. Next to it lies a linker script
/// of a few bytes, `libLLVM-22-rust-1.95.0-stable.so`, which the dynamic linker cannot load.
fn choose_llvm(names: impl Iterator<Item = String>, major: u32) -> Option<String> {
    let prefix = format!("libLLVM.so.{major}");
    names
        .filter(|name| name.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-'])))
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_chosen_and_not_its_linker_script() {
        let names = ["libLLVM-22-rust-1.95.0-stable.so", "libLLVM.so.22.1-rust-1.95.0-stable", "librustc_driver-61.so"];
        let choose = |major| choose_llvm(names.iter().map(|name| (*name).to_owned()), major);
        assert_eq!(choose(22).as_deref(), Some(names[1]));
        assert_eq!(choose(2), None);
        assert_eq!(choose(23), None);
    }
}

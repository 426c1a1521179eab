//! Embeds the eBPF object that `cargo xtask build` made. Without one the crate builds all the same: a plain `cargo build`
//! needs neither bpf-linker nor root, and `dataplane run` then asks for `--object FILE`.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(embedded_object)");
    println!("cargo::rerun-if-env-changed=DATAPLANE_BPF_OBJECT");
    let object = env::var_os("DATAPLANE_BPF_OBJECT").map_or_else(default_object, PathBuf::from);
    println!("cargo::rerun-if-changed={}", object.display());
    if object.is_file() {
        println!("cargo::rustc-cfg=embedded_object");
        println!("cargo::rustc-env=DATAPLANE_BPF_OBJECT={}", object.display());
    }
}

/// Where `cargo xtask build` puts it: `<target>/bpf/dataplane.o`.
fn default_object() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(&manifest).join("../target"), PathBuf::from);
    target.join("bpf/dataplane.o")
}

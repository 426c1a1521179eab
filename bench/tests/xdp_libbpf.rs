//! libbpf, which bpftool and other tools are built on, opens and loads the very object that aya loads.

mod support;

use std::path::PathBuf;
use std::process::Command;

use dataplane_bench::command;
use dataplane_common::maps;
use libbpf_rs::{MapCore as _, ObjectBuilder};
use support::lacks_root;

fn object() -> PathBuf {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/bpf/dataplane.o");
    std::env::var_os("DATAPLANE_BPF_OBJECT").map_or_else(default, PathBuf::from)
}

#[test]
fn libbpf_opens_and_loads_the_object() {
    if lacks_root() {
        return;
    }
    let object = ObjectBuilder::default().open_file(object()).unwrap().load().unwrap();
    let programs: Vec<_> = object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    assert_eq!(programs.len(), 4, "{programs:?}");
    for name in ["dp_ingress", "dp_link", "dp_sink", "dp_pass"] {
        assert!(programs.iter().any(|program| program == name), "{name} in {programs:?}");
    }
    for name in maps::ALL {
        assert!(object.maps().any(|map| map.name() == name), "{name}");
    }
}

#[test]
fn bpftool_loads_the_object() {
    if lacks_root() {
        return;
    }
    let dir = format!("/sys/fs/bpf/dpt-{}-load", std::process::id());
    let mut load = Command::new("bpftool");
    let loaded = command::output(load.args(["prog", "loadall"]).arg(object()).arg(&dir));
    let names: Vec<_> = std::fs::read_dir(&dir)
        .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    let _ = std::fs::remove_dir_all(&dir);
    loaded.unwrap();
    assert_eq!(names.len(), 4, "{names:?}");
}

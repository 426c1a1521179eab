//! Opens our eBPF object and a node's pinned maps with libbpf: what we build is readable by the tools everyone has.
//!
//! Rows are printed by the field names of the object's own BTF, not by this program's structs, so a difference between
//! the two shows.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use dataplane_common::maps as names;
use dataplane_user::node::embedded_object;
use libbpf_rs::btf::types::{Array, Int, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::{HasSize as _, MapCore as _, MapFlags, MapHandle, MapType, ObjectBuilder, OpenObject};

use crate::topology::{BPFFS, pins};
use crate::traffic::wire::OBJECT_VARIABLE;

/// Value of each map that holds structs.
const STRUCTS: [(&str, &str); 7] = [
    (names::LOAD_TABLE, "LoadRow"),
    (names::WORKERS, "WorkerRow"),
    (names::QUEUES, "QueueRow"),
    (names::FUNCTIONS, "FunctionRow"),
    (names::PEERS, "PeerRow"),
    (names::INTERFACES, "InterfaceRow"),
    (names::META, "MetaRow"),
];

/// Options of `maps`.
#[derive(Args, Debug)]
pub struct Options {
    /// Node whose pinned maps to read; without it only the object is looked at.
    #[arg(short, long)]
    node: Option<String>,
    /// Map whose rows to print.
    #[arg(short, long, default_value = names::LOAD_TABLE)]
    map: String,
    /// Object file; else $DATAPLANE_BPF_OBJECT, else the one inside this program.
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Where bpffs is mounted.
    #[arg(long, value_name = "DIR", default_value = BPFFS)]
    bpffs: PathBuf,
}

/// Prints what libbpf finds.
///
/// # Errors
/// libbpf refuses the object or a pin.
pub fn run(options: &Options) -> Result<()> {
    let bytes = object_bytes(options)?;
    print!("{}", describe_object(&bytes)?);
    if rustix::process::geteuid().is_root() {
        let programs = load(&bytes)?;
        println!("\nlibbpf loads it: the kernel has verified {}", programs.join(", "));
    } else {
        println!("\nnot root: opened, not loaded");
    }
    if let Some(node) = &options.node {
        print!("\n{}", describe_pins(&options.bpffs, node, &options.map, &bytes)?);
    }
    Ok(())
}

fn object_bytes(options: &Options) -> Result<Vec<u8>> {
    match options.object.clone().or_else(|| std::env::var_os(OBJECT_VARIABLE).map(PathBuf::from)) {
        Some(path) => fs::read(&path).with_context(|| format!("cannot read {}", path.display())),
        None => Ok(embedded_object()
            .context("no object inside this program: run `cargo xtask build`, or name one with --object")?
            .to_vec()),
    }
}

fn open(bytes: &[u8]) -> Result<OpenObject> {
    // The name becomes part of the name of the map with read-only data.
    ObjectBuilder::default().name("dataplane")?.open_memory(bytes).context("libbpf does not open the object")
}

/// Opens an object with libbpf and lists its programs and maps.
///
/// # Errors
/// libbpf refuses it.
pub fn describe_object(bytes: &[u8]) -> Result<String> {
    let object = open(bytes)?;
    let mut text = String::from("programs\n");
    for program in object.progs() {
        let (name, section) = (program.name().to_string_lossy(), program.section().to_string_lossy());
        let _ = writeln!(text, "  {name:<16} {:?}, section {section}", program.prog_type());
    }
    text.push_str("\nmaps                type            key  value  entries\n");
    for map in object.maps() {
        let name = map.name().to_string_lossy();
        let kind = format!("{:?}", map.map_type());
        let _ = writeln!(
            text,
            "  {name:<16}  {kind:<14} {:>4} {:>6} {:>8}",
            map.key_size(),
            map.value_size(),
            map.max_entries()
        );
    }
    Ok(text)
}

/// Loads an object with libbpf: makes its maps and has the kernel verify its programs. Nothing is attached or pinned, and
/// everything goes away again. Returns the programs.
///
/// # Errors
/// libbpf or the kernel refuses it.
pub fn load(bytes: &[u8]) -> Result<Vec<String>> {
    let object = open(bytes)?.load().context("libbpf does not load the object")?;
    Ok(object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect())
}

/// Opens every pinned map of a node with libbpf and prints the rows in use of one of them.
///
/// # Errors
/// The node has no pins, or libbpf does not open one.
pub fn describe_pins(bpffs: &Path, node: &str, map: &str, object: &[u8]) -> Result<String> {
    let directory = pins(bpffs, node);
    ensure!(directory.is_dir(), "no pins at {}: is the node running?", directory.display());
    let mut text = format!("pinned at {}\n", directory.display());
    for name in names::ALL {
        let path = directory.join(name);
        let pinned =
            MapHandle::from_pinned_path(&path).with_context(|| format!("libbpf does not open {}", path.display()))?;
        let kind = format!("{:?}", pinned.map_type());
        let _ = writeln!(text, "  {name:<16}  {kind:<14} {:>8} entries", pinned.max_entries());
        if name == map {
            text.push_str(&rows(&pinned, name, object)?);
        }
    }
    ensure!(names::ALL.contains(&map), "no map {map}; there are {}", names::ALL.join(", "));
    Ok(text)
}

/// The rows of a pinned map that are not all zero, by the field names of the object's BTF.
fn rows(pinned: &MapHandle, name: &str, object: &[u8]) -> Result<String> {
    let Some((_, value)) = STRUCTS.iter().find(|(map, _)| *map == name) else {
        bail!("{name} does not hold structs; these do: {}", STRUCTS.map(|(map, _)| map).join(", "));
    };
    let btf = Btf::from_raw(name, object)?.context("the object has no BTF")?;
    let layout = Layout::of(&btf, value)?;
    ensure!(
        layout.bytes == pinned.value_size() as usize,
        "{value} has {} bytes in the object and {} in the pinned map: they are of different versions",
        layout.bytes,
        pinned.value_size()
    );
    let mut text = String::new();
    for key in pinned.keys() {
        let Some(row) = pinned.lookup(&key, MapFlags::ANY)? else { continue };
        if pinned.map_type() == MapType::Array && row.iter().all(|byte| *byte == 0) {
            continue;
        }
        let key = number(&key).map_or_else(|| format!("{key:02x?}"), |key| key.to_string());
        let _ = writeln!(text, "    [{key}] {}", layout.show(&row));
    }
    Ok(text)
}

/// A field of a struct.
struct Field {
    name: String,
    offset: usize,
    bytes: usize,
    /// Elements of an array; printed as bytes.
    is_array: bool,
}

/// Where the fields of a struct lie, as BTF says.
struct Layout {
    bytes: usize,
    fields: Vec<Field>,
}

impl Layout {
    fn of(btf: &Btf<'_>, name: &str) -> Result<Self> {
        let layout: Struct<'_> = btf.type_by_name(name).with_context(|| format!("no struct {name} in the BTF"))?;
        let mut fields = Vec::new();
        for member in layout.iter() {
            let MemberAttr::Normal { offset } = member.attr else { bail!("{name} has a bit field") };
            let field = member.name.context("a field without a name")?.to_string_lossy().into_owned();
            let kind: BtfType<'_> = btf.type_by_id(member.ty).with_context(|| format!("{name}.{field}: no type"))?;
            let (bytes, is_array) = size(btf, kind).with_context(|| format!("{name}.{field}"))?;
            // BTF counts bits.
            fields.push(Field { name: field, offset: offset as usize / 8, bytes, is_array });
        }
        Ok(Self { bytes: layout.size(), fields })
    }

    /// `name=value` of each field, reserved ones left out.
    fn show(&self, row: &[u8]) -> String {
        let fields = self.fields.iter().filter(|field| !field.name.starts_with("reserved"));
        let show = |field: &Field| {
            let bytes = row.get(field.offset..field.offset + field.bytes).unwrap_or_default();
            match number(bytes) {
                Some(value) if !field.is_array => format!("{}={value}", field.name),
                _ => {
                    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
                    format!("{}={}", field.name, hex.join(":"))
                }
            }
        };
        fields.map(show).collect::<Vec<_>>().join(" ")
    }
}

/// Bytes of a type, and whether it is an array.
fn size(btf: &Btf<'_>, kind: BtfType<'_>) -> Result<(usize, bool)> {
    let kind = kind.skip_mods_and_typedefs();
    if let Ok(int) = Int::try_from(kind) {
        return Ok((usize::from(int.bits) / 8, false));
    }
    let Ok(array) = Array::try_from(kind) else { bail!("neither an integer nor an array") };
    let element: BtfType<'_> = btf.type_by_id(array.ty()).context("elements without a type")?;
    let (bytes, _) = size(btf, element)?;
    Ok((bytes * array.capacity(), true))
}

/// A native-endian unsigned number of 1, 2, 4 or 8 bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [a] => Some(a.into()),
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => bytes.try_into().ok().map(u64::from_ne_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shown_by_name_without_what_is_reserved() {
        let field = |name: &str, offset, bytes, is_array| Field { name: name.to_owned(), offset, bytes, is_array };
        let layout = Layout {
            bytes: 12,
            fields: vec![
                field("workers", 0, 2, false),
                field("reserved1", 2, 2, false),
                field("mac", 4, 4, true),
                field("epoch", 8, 4, false),
            ],
        };
        let mut row = [0u8; 12];
        row[..2].copy_from_slice(&3u16.to_ne_bytes());
        row[4..8].copy_from_slice(&[2, 0, 0, 0x1f]);
        row[8..].copy_from_slice(&77u32.to_ne_bytes());
        assert_eq!(layout.show(&row), "workers=3 mac=02:00:00:1f epoch=77");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(describe_object(b"no ELF file").is_err());
    }
}

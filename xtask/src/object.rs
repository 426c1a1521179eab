//! Reads an eBPF object back and checks what the kernel and libbpf will ask of it, so that a wrong build fails here and
//! not at load time.
//!
//! Layout: ELF-64, <https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html>; every offset comes from the file
//! and is checked against its length.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};

/// Longest name the kernel keeps whole: `BPF_OBJ_NAME_LEN`, less the final zero.
const NAME_LENGTH: usize = 15;

const MACHINE_BPF: u16 = 247;
const SECTION_SYMBOLS: u32 = 2;
const SYMBOL_OBJECT: u8 = 1;
const SYMBOL_FUNCTION: u8 = 2;
const SYMBOL_SIZE: usize = 24;
const BINDING_GLOBAL: u8 = 1;
/// Section of the functions that programs call: not programs themselves.
const SUBPROGRAMS: &str = ".text";
const MAPS: &str = ".maps";
const LEGACY_MAPS: &str = "maps";

/// What an object holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    programs: Vec<String>,
    maps: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "programs {}; maps {}", self.programs.join(", "), self.maps.join(", "))
    }
}

/// Checks an object. `legacy_maps` says that maps may be declared in the section that libbpf refuses.
pub fn check(file: &[u8], legacy_maps: bool) -> Result<Summary> {
    let elf = Elf::parse(file)?;
    for (name, why) in [
        (".BTF", "the types of the maps"),
        (".BTF.ext", "the source lines of the programs"),
        ("license", "which the kernel compares with the helpers that are called"),
    ] {
        elf.section(name).with_context(|| format!("section {name} is missing: {why}"))?;
    }
    if !legacy_maps && elf.section(LEGACY_MAPS).is_some() {
        bail!("section {LEGACY_MAPS} holds maps of the old kind, which libbpf and bpftool refuse: use #[btf_map]");
    }
    let mut summary = Summary { programs: Vec::new(), maps: Vec::new() };
    for symbol in elf.symbols()? {
        match (symbol.kind, symbol.section) {
            (SYMBOL_FUNCTION, section) if section != SUBPROGRAMS && symbol.is_global => {
                summary.programs.push(symbol.name)
            }
            (SYMBOL_OBJECT, MAPS) => summary.maps.push(symbol.name),
            _ => {}
        }
    }
    ensure!(!summary.programs.is_empty(), "there is no program in it");
    for name in summary.programs.iter().chain(&summary.maps) {
        let length = name.len();
        ensure!(length <= NAME_LENGTH, "the name {name} has {length} characters: the kernel keeps {NAME_LENGTH}");
    }
    Ok(summary)
}

/// One line of the section table.
struct Section<'a> {
    name: &'a str,
    kind: u32,
    /// Index of the section with its strings.
    link: usize,
    content: &'a [u8],
}

struct Symbol<'a> {
    name: String,
    kind: u8,
    is_global: bool,
    section: &'a str,
}

struct Elf<'a> {
    sections: Vec<Section<'a>>,
}

impl<'a> Elf<'a> {
    fn parse(file: &'a [u8]) -> Result<Self> {
        ensure!(file.get(..6) == Some(b"\x7fELF\x02\x01"), "not a little-endian 64-bit ELF file");
        let machine = u16_at(file, 0x12)?;
        ensure!(machine == MACHINE_BPF, "made for machine {machine}, not for BPF ({MACHINE_BPF})");
        let table = u64_at(file, 0x28)?;
        let entry_size = usize::from(u16_at(file, 0x3a)?);
        let count = usize::from(u16_at(file, 0x3c)?);
        let names = usize::from(u16_at(file, 0x3e)?);

        let entry = |index: usize| bytes_at(file, table.saturating_add(index.saturating_mul(entry_size)), entry_size);
        let names = content(file, entry(names)?)?;
        let mut sections = Vec::with_capacity(count);
        for index in 0..count {
            let header = entry(index)?;
            sections.push(Section {
                name: string_at(names, u32_at(header, 0)?)?,
                kind: u32_at(header, 4)?,
                link: u32_at(header, 40)? as usize,
                content: content(file, header)?,
            });
        }
        Ok(Self { sections })
    }

    fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name)
    }

    fn symbols(&self) -> Result<Vec<Symbol<'a>>> {
        let table = self.sections.iter().find(|section| section.kind == SECTION_SYMBOLS).context("no symbol table")?;
        let strings = self.sections.get(table.link).context("the symbol table names no strings")?.content;
        let mut symbols = Vec::new();
        for entry in table.content.chunks_exact(SYMBOL_SIZE) {
            let info = entry[4];
            // Undefined and absolute symbols have no section.
            let section = self.sections.get(usize::from(u16_at(entry, 6)?)).map_or("", |section| section.name);
            symbols.push(Symbol {
                name: string_at(strings, u32_at(entry, 0)?)?.to_owned(),
                kind: info & 0xf,
                is_global: info >> 4 == BINDING_GLOBAL,
                section,
            });
        }
        Ok(symbols)
    }
}

/// The bytes of the section that `header` describes; none where it has no bytes in the file.
fn content<'a>(file: &'a [u8], header: &[u8]) -> Result<&'a [u8]> {
    const NO_BYTES: u32 = 8;
    if u32_at(header, 4)? == NO_BYTES {
        return Ok(&[]);
    }
    bytes_at(file, u64_at(header, 24)?, u64_at(header, 32)?)
}

fn bytes_at(bytes: &[u8], offset: usize, length: usize) -> Result<&[u8]> {
    let end = offset.checked_add(length);
    end.and_then(|end| bytes.get(offset..end)).with_context(|| format!("cut off: {length} bytes at {offset:#x}"))
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N]> {
    Ok(bytes_at(bytes, offset, N)?.try_into()?)
}

fn u16_at(bytes: &[u8], offset: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(array_at(bytes, offset)?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(array_at(bytes, offset)?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Result<usize> {
    Ok(usize::try_from(u64::from_le_bytes(array_at(bytes, offset)?))?)
}

fn string_at(strings: &[u8], offset: u32) -> Result<&str> {
    let rest = strings.get(offset as usize..).with_context(|| format!("no string at {offset:#x}"))?;
    let end = rest.iter().position(|byte| *byte == 0).context("a string without end")?;
    Ok(std::str::from_utf8(&rest[..end])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 64;
    const PROGRAM_BITS: u32 = 1;

    /// Writes an object of the named sections, each empty, and of the given symbols: (name, kind, section index).
    fn object(sections: &[&str], symbols: &[(&str, u8, u16)]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut intern = |name: &str| {
            let offset = strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            offset
        };
        let table = symbols
            .iter()
            .flat_map(|(name, kind, section)| {
                let mut entry = [0; SYMBOL_SIZE];
                entry[..4].copy_from_slice(&intern(name).to_le_bytes());
                entry[4] = BINDING_GLOBAL << 4 | kind;
                entry[6..8].copy_from_slice(&section.to_le_bytes());
                entry
            })
            .collect::<Vec<u8>>();
        let names = sections.iter().map(|name| intern(name)).collect::<Vec<_>>();

        let mut file = vec![0; HEADER];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x12..0x14].copy_from_slice(&MACHINE_BPF.to_le_bytes());
        let symbols_at = file.len();
        file.extend(&table);
        let strings_at = file.len();
        file.extend(&strings);
        let count = sections.len() as u16 + 2;
        let headers_at = file.len() as u64;
        file[0x28..0x30].copy_from_slice(&headers_at.to_le_bytes());
        file[0x3a..0x3c].copy_from_slice(&(HEADER as u16).to_le_bytes());
        file[0x3c..0x3e].copy_from_slice(&count.to_le_bytes());
        file[0x3e..0x40].copy_from_slice(&(count - 1).to_le_bytes());
        let mut header = |name: u32, kind: u32, offset: usize, size: usize| {
            let mut header = [0; HEADER];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            header[40..44].copy_from_slice(&u32::from(count - 1).to_le_bytes());
            file.extend(header);
        };
        for name in names {
            header(name, PROGRAM_BITS, HEADER, 0);
        }
        header(0, SECTION_SYMBOLS, symbols_at, table.len());
        header(0, PROGRAM_BITS, strings_at, strings.len());
        file
    }

    const SECTIONS: [&str; 6] = ["xdp", ".BTF", ".BTF.ext", "license", ".maps", ".text"];

    fn refusal(file: &[u8]) -> String {
        check(file, false).unwrap_err().to_string()
    }

    #[test]
    fn lists_programs_and_maps_and_leaves_out_what_they_call() {
        let symbols = [
            ("ingress", SYMBOL_FUNCTION, 0),
            ("memcpy", SYMBOL_FUNCTION, 5),
            ("LOAD_TABLE", SYMBOL_OBJECT, 4),
            ("LICENSE", SYMBOL_OBJECT, 3),
            ("undefined", SYMBOL_FUNCTION, 0xfff1),
        ];
        let summary = check(&object(&SECTIONS, &symbols[..4]), false).unwrap();
        assert_eq!(summary.to_string(), "programs ingress; maps LOAD_TABLE");
        assert!(check(&object(&SECTIONS, &symbols), false).is_ok());
    }

    #[test]
    fn a_missing_section_is_named() {
        for missing in [".BTF", ".BTF.ext", "license"] {
            let sections = SECTIONS.map(|name| if name == missing { "other" } else { name });
            let error = refusal(&object(&sections, &[("ingress", SYMBOL_FUNCTION, 0)]));
            assert!(error.starts_with(&format!("section {missing} is missing")), "{error}");
        }
    }

    #[test]
    fn names_may_have_fifteen_characters() {
        let with = |name| object(&SECTIONS, &[("ingress", SYMBOL_FUNCTION, 0), (name, SYMBOL_OBJECT, 4)]);
        assert!(check(&with("FIFTEEN_LETTERS"), false).is_ok());
        assert!(refusal(&with("SIXTEEN_LETTERS_")).contains("has 16 characters"));
    }

    #[test]
    fn maps_of_the_old_kind_are_refused_unless_asked_for() {
        let sections = SECTIONS.map(|name| if name == ".text" { "maps" } else { name });
        let file = object(&sections, &[("ingress", SYMBOL_FUNCTION, 0)]);
        assert!(refusal(&file).contains("old kind"));
        assert!(check(&file, true).is_ok());
    }

    #[test]
    fn an_object_without_a_program_is_refused() {
        assert_eq!(refusal(&object(&SECTIONS, &[])), "there is no program in it");
    }

    #[test]
    fn a_file_cut_off_anywhere_is_refused_and_never_read_past_its_end() {
        let file = object(&SECTIONS, &[("ingress", SYMBOL_FUNCTION, 0)]);
        for length in 0..file.len() {
            assert!(check(&file[..length], false).is_err(), "accepted {length} of {} bytes", file.len());
        }
    }

    #[test]
    fn wild_offsets_are_errors() {
        let file = object(&SECTIONS, &[("ingress", SYMBOL_FUNCTION, 0)]);
        for at in 0..file.len() {
            let mut file = file.clone();
            file[at] = 0xff;
            // Any answer will do; reading outside the file would panic.
            let _ = check(&file, false);
        }
    }

    #[test]
    fn other_machines_are_refused() {
        let mut file = object(&SECTIONS, &[]);
        file[0x12] = 62;
        assert_eq!(refusal(&file), "made for machine 62, not for BPF (247)");
    }
}

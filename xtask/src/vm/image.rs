//! The guest's first file system: programs of this machine at the paths that they have here, with the libraries they need.
//!
//! Paths are kept because programs hold some of them: a library's, that of a program which a test starts, the object's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::cpio::Archive;
use crate::{privilege, sh};

/// What lies at a path.
enum Entry {
    Directory,
    Symlink(String),
    Content {
        permissions: u32,
        bytes: Vec<u8>,
    },
    /// A file of this machine, read when the archive is written.
    Copy(PathBuf),
}

/// A file system in the making. Parents come into being by themselves.
#[derive(Default)]
pub struct Image {
    /// By absolute path: in this order, a parent comes before what lies in it.
    entries: BTreeMap<PathBuf, Entry>,
}

impl Image {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str) {
        self.insert(Path::new(path), Entry::Directory);
    }

    /// Adds a file with this content.
    pub fn content(&mut self, path: &str, permissions: u32, bytes: Vec<u8>) {
        self.insert(Path::new(path), Entry::Content { permissions, bytes });
    }

    /// Adds a file of this machine at another path.
    pub fn copy_as(&mut self, path: &str, source: &Path) {
        self.insert(Path::new(path), Entry::Copy(source.to_owned()));
    }

    /// Adds a file of this machine at its own path; links of directories on the way are added as they are.
    ///
    /// # Errors
    /// It is not there.
    pub fn copy(&mut self, path: &Path) -> Result<()> {
        let describe = || format!("cannot take {} into the guest", path.display());
        let parent = path.parent().with_context(describe)?;
        let name = path.file_name().with_context(describe)?;
        let mut place = PathBuf::from("/");
        for component in parent.components() {
            let Component::Normal(part) = component else { continue };
            let next = place.join(part);
            if fs::symlink_metadata(&next).with_context(describe)?.is_symlink() {
                let target = fs::read_link(&next).with_context(describe)?;
                self.insert(&next, Entry::Symlink(target.to_string_lossy().into_owned()));
            }
            place = fs::canonicalize(&next).with_context(describe)?;
        }
        let source = fs::canonicalize(path).with_context(describe)?;
        self.insert(&place.join(name), Entry::Copy(source));
        Ok(())
    }

    /// Adds a program of this machine and the libraries that the dynamic linker says it needs.
    ///
    /// # Errors
    /// It is not there, or lacks a library.
    pub fn program(&mut self, path: &Path) -> Result<()> {
        self.copy(path)?;
        let mut command = Command::new("ldd");
        command.arg(path).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot start: {}", sh::line(&command)))?;
        for library in parse_libraries(&String::from_utf8_lossy(&output.stdout))
            .with_context(|| format!("{} does not run here", path.display()))?
        {
            self.copy(&library)?;
        }
        Ok(())
    }

    /// Adds an installed program.
    ///
    /// # Errors
    /// It is not installed.
    pub fn installed(&mut self, name: &str) -> Result<()> {
        let path = privilege::find_program(name).with_context(|| format!("the guest needs {name}: not installed"))?;
        self.program(&path)
    }

    fn insert(&mut self, path: &Path, entry: Entry) {
        for parent in path.ancestors().skip(1).filter(|parent| parent.parent().is_some()) {
            self.entries.entry(parent.to_owned()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Writes it as the archive that the kernel unpacks.
    ///
    /// # Errors
    /// A file cannot be read, or the archive not be written.
    pub fn write(&self, output: &File) -> Result<()> {
        let mut archive = Archive::new(BufWriter::new(output));
        for (path, entry) in &self.entries {
            let name = path.to_string_lossy();
            let written = match entry {
                Entry::Directory => archive.directory(&name),
                Entry::Symlink(target) => archive.symlink(&name, target),
                Entry::Content { permissions, bytes } => archive.file(&name, *permissions, bytes),
                Entry::Copy(source) => {
                    let describe = || format!("cannot read {}", source.display());
                    let permissions = fs::metadata(source).with_context(describe)?.permissions().mode() & 0o777;
                    archive.file(&name, permissions, &fs::read(source).with_context(describe)?)
                }
            };
            written.with_context(|| format!("cannot write {name} to the guest's file system"))?;
        }
        let mut output = archive.finish().context("cannot write the guest's file system")?;
        output.flush().context("cannot write the guest's file system")
    }
}

/// The files in what `ldd` prints: `name => path (address)` or `path (address)`. A static program has none.
///
/// # Errors
/// One is not found.
fn parse_libraries(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        anyhow::ensure!(!line.ends_with("not found"), "the library {line}");
        let path = line.split_once("=>").map_or(line, |(_, path)| path.trim());
        if path.starts_with('/')
            && let Some((path, _)) = path.split_once(" (")
        {
            libraries.push(path.into());
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_dynamic_linker_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libelf.so.1", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_libraries(text).unwrap(), expected);
        assert!(parse_libraries("\tnot a dynamic executable\n").unwrap().is_empty());
        assert!(parse_libraries("\tlibgone.so.1 => not found\n").unwrap_err().to_string().contains("libgone.so.1"));
    }

    #[test]
    fn parents_come_first_and_links_of_directories_stay_links() {
        let base = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        let base = fs::create_dir_all(&base).and_then(|()| fs::canonicalize(&base)).unwrap();
        fs::create_dir_all(base.join("usr/lib")).unwrap();
        fs::write(base.join("usr/lib/libx.so.1.2"), "code").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2", base.join("usr/lib/libx.so.1")).unwrap();
        std::os::unix::fs::symlink("usr/lib", base.join("lib")).unwrap();
        let mut image = Image::default();
        image.copy(&base.join("lib/libx.so.1")).unwrap();
        assert!(image.copy(&base.join("lib/liby.so.1")).is_err());
        let found = image.entries.iter().filter_map(|(path, entry)| {
            let path = path.strip_prefix(&base).ok()?.to_str()?;
            Some(match entry {
                Entry::Directory => format!("{path}/"),
                Entry::Symlink(target) => format!("{path} -> {target}"),
                Entry::Copy(source) => format!("{path} = {}", source.strip_prefix(&base).ok()?.display()),
                Entry::Content { .. } => path.to_owned(),
            })
        });
        let found = found.collect::<Vec<_>>();
        assert_eq!(found, ["/", "lib -> usr/lib", "usr/", "usr/lib/", "usr/lib/libx.so.1 = usr/lib/libx.so.1.2"]);
        fs::remove_dir_all(base).unwrap();
    }
}

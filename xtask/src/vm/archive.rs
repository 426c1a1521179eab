//! Debian packages that are unpacked into the target directory and never installed: kernels, and a newer QEMU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::setup::apt::{self, PrivateApt};
use crate::setup::rust_src::remove;
use crate::sh;

/// Releases whose kernels can be had. The machine's own release comes first in any case.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];

/// The packages of the machine's Debian mirror: each release, and what is backported to it.
pub struct Archive {
    apt: PrivateApt,
    directory: PathBuf,
}

impl Archive {
    /// Reads the mirror's lists into `directory`, which is made afresh, and removed with this value. One process at a time.
    ///
    /// # Errors
    /// The machine's apt has no Debian mirror, or it does not answer.
    pub fn open(directory: &Path) -> Result<Self> {
        remove(directory)?;
        let mirrors = apt::mirrors()?;
        let mirror = mirrors.first().context("this machine's apt has no Debian mirror: no kernel can be had")?;
        let suites = RELEASES.map(|release| format!("{release} {release}-backports")).join(" ");
        let apt = PrivateApt::create(&directory.join("apt"), mirror, &suites)?;
        if let Err(error) = sh::run(apt.command("apt-get").args(["--quiet=2", "update"])) {
            // A release that the mirror no longer has must not hide the others.
            eprintln!("vm: {error:#}");
        }
        Ok(Self { apt, directory: directory.to_owned() })
    }

    /// Names of the packages that match a regular expression.
    pub fn search(&self, expression: &str) -> Result<Vec<String>> {
        let text = sh::output(self.apt.command("apt-cache").args(["search", "--names-only", expression]))?;
        Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    /// Names of the packages that `package` depends on; of alternatives, all.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let text = sh::output(self.apt.command("apt-cache").args(["show", "--no-all-versions", package]))?;
        Ok(parse_dependencies(&text))
    }

    /// Downloads the packages (`NAME`, or `NAME/SUITE`) and unpacks them over each other. The tree is returned; it is to be
    /// renamed to its place, so that an interrupt leaves no half one there.
    pub fn unpack(&self, packages: &[String]) -> Result<PathBuf> {
        let (downloads, tree) = (self.directory.join("download"), self.directory.join("tree"));
        for directory in [&downloads, &tree] {
            remove(directory)?;
            fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let mut download = self.apt.command("apt-get");
        sh::run(download.args(["--quiet=2", "download"]).args(packages).current_dir(&downloads))?;
        let mut unpacked = 0;
        for entry in fs::read_dir(&downloads).with_context(|| format!("cannot list {}", downloads.display()))? {
            sh::run(Command::new("dpkg-deb").arg("-x").arg(entry?.path()).arg(&tree))?;
            unpacked += 1;
        }
        if unpacked != packages.len() {
            bail!("apt-get delivered {unpacked} of {} packages: {}", packages.len(), packages.join(" "));
        }
        Ok(tree)
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory) {
            eprintln!("warning: {error:#}");
        }
    }
}

/// Puts an unpacked tree into its place.
pub fn place(tree: &Path, place: &Path) -> Result<()> {
    let parent = place.parent().context("BUG: a place without a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::rename(tree, place).with_context(|| format!("cannot rename {} to {}", tree.display(), place.display()))
}

/// The names in the field `Depends` of what `apt-cache show` prints.
fn parse_dependencies(text: &str) -> Vec<String> {
    let field = text.lines().find_map(|line| line.strip_prefix("Depends:")).unwrap_or_default();
    let names = field.split([',', '|']).filter_map(|entry| entry.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_versions_and_with_alternatives() {
        let text = "Package: linux-image-7.3\nDepends: dracut | initramfs-tools (>= 0.120), linux-binary-7.3 (= 7.3-1)\n\
                    Description: x\n";
        assert_eq!(parse_dependencies(text), ["dracut", "initramfs-tools", "linux-binary-7.3"]);
        assert!(parse_dependencies("Package: x\n").is_empty());
    }
}

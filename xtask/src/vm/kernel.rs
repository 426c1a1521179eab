//! Debian's kernels: which there are, which one a series means, and where its parts lie once it is unpacked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::archive::{Archive, place};
use crate::sh;

/// Packages of ordinary kernels for this machine's processor.
const PATTERN: &str = "^linux-image-[0-9].*-amd64$";
const PREFIX: &str = "linux-image-";
/// What follows the version in a release.
const FLAVOUR: &str = "-amd64";
/// Other flavours, for clouds and real time, end in the same word.
const OTHER_FLAVOURS: [&str; 2] = ["-cloud-amd64", "-rt-amd64"];
/// Newer kernels lie in packages of their own, which the image depends on.
const PARTS: [&str; 3] = ["linux-base-", "linux-binary-", "linux-modules-"];

/// An unpacked kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Its release, as `uname -r` says it.
    pub release: String,
    /// The compressed image.
    pub image: PathBuf,
    /// Its modules, with `modules.dep`.
    pub modules: PathBuf,
}

/// The newest kernel of `series` among those unpacked below `directory`; else, or with `update`, the newest that the
/// mirror has, which is then unpacked. `scratch` is for downloads. One process at a time.
///
/// # Errors
/// There is no such kernel: the error lists those that there are.
pub fn ensure(series: &str, directory: &Path, scratch: &Path, update: bool) -> Result<Kernel> {
    if !update && let Some(release) = choose(&unpacked(directory), series) {
        return Kernel::find(&directory.join(&release), &release);
    }
    let archive = Archive::open(scratch)?;
    let offered = offered(&archive)?;
    let Some(release) = choose(&offered, series) else {
        bail!("Debian's mirror has no kernel {series} (--kernel); it has: {}", describe(&offered));
    };
    let tree = directory.join(&release);
    if !tree.is_dir() {
        unpack(&archive, &release, &tree)?;
    }
    Kernel::find(&tree, &release)
}

/// The series that the mirror has, and the newest release of each, one a line.
pub fn list(scratch: &Path) -> Result<String> {
    let archive = Archive::open(scratch)?;
    let offered = offered(&archive)?;
    let lines = by_series(&offered).into_iter().map(|(series, release)| format!("{series:5} {release}"));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn offered(archive: &Archive) -> Result<Vec<String>> {
    let names = archive.search(PATTERN)?;
    let ordinary = names.iter().filter(|name| !OTHER_FLAVOURS.iter().any(|flavour| name.ends_with(flavour)));
    Ok(ordinary.filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect())
}

fn unpacked(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(FLAVOUR)).collect()
}

/// Downloads, unpacks and indexes a kernel, and puts it into its place.
fn unpack(archive: &Archive, release: &str, tree: &Path) -> Result<()> {
    let image = format!("{PREFIX}{release}");
    let mut packages = vec![image.clone()];
    let parts = archive.dependencies(&image)?;
    packages.extend(parts.into_iter().filter(|name| PARTS.iter().any(|part| *name == format!("{part}{release}"))));
    let fresh = archive.unpack(&packages)?;
    let kernel = Kernel::find(&fresh, release)?;
    // The package runs this when it is installed. Its argument is the directory that holds `lib/modules`.
    let base = kernel.modules.ancestors().nth(3).context("BUG: modules without a base")?;
    sh::run(Command::new("depmod").arg("-b").arg(base).arg(release))?;
    place(&fresh, tree)
}

impl Kernel {
    /// Finds the parts in an unpacked tree; Debian has moved them more than once.
    fn find(tree: &Path, release: &str) -> Result<Self> {
        let modules = [tree.join("lib/modules"), tree.join("usr/lib/modules")].map(|place| place.join(release));
        let modules = modules.into_iter().find(|place| place.is_dir());
        let modules = modules.with_context(|| format!("{} holds no modules of {release}", tree.display()))?;
        let images = [tree.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
        let image = images.into_iter().find(|place| place.is_file());
        let image = image.with_context(|| format!("{} holds no image of {release}", tree.display()))?;
        Ok(Self { release: release.to_owned(), image, modules })
    }
}

/// The newest release of a series, or the one that is named in full.
fn choose(releases: &[String], series: &str) -> Option<String> {
    let of_series = releases.iter().filter(|release| is_of(release, series));
    of_series.max_by_key(|release| numbers(release)).cloned()
}

fn is_of(release: &str, series: &str) -> bool {
    release.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

/// All numbers in a release, in their order: releases of one flavour compare as these do.
fn numbers(release: &str) -> Vec<u64> {
    let version = release.strip_suffix(FLAVOUR).unwrap_or(release);
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The newest release of each series, oldest series first.
fn by_series(releases: &[String]) -> Vec<(String, &str)> {
    let mut newest = BTreeMap::new();
    for release in releases {
        let numbers = numbers(release);
        let Some([major, minor]) = numbers.first_chunk::<2>().copied() else { continue };
        let entry = newest.entry((major, minor)).or_insert(release);
        if self::numbers(entry) < numbers {
            *entry = release;
        }
    }
    newest.into_iter().map(|((major, minor), release)| (format!("{major}.{minor}"), release.as_str())).collect()
}

fn describe(releases: &[String]) -> String {
    let series = by_series(releases).into_iter().map(|(series, release)| format!("{series} ({release})"));
    let text = series.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASES: [&str; 7] = [
        "6.1.0-47-amd64",
        "6.1.0-50-amd64",
        "6.12.90+deb12.1-amd64",
        "6.12.95+deb12-amd64",
        "6.12.117+deb13-amd64",
        "6.12.90+deb12-amd64",
        "7.3.4+deb13-amd64",
    ];

    fn releases() -> Vec<String> {
        RELEASES.map(str::to_owned).to_vec()
    }

    #[test]
    fn a_series_means_its_newest_release_by_number() {
        let choose = |series| choose(&releases(), series);
        assert_eq!(choose("6.12").as_deref(), Some("6.12.117+deb13-amd64"));
        assert_eq!(choose("6.1").as_deref(), Some("6.1.0-50-amd64"));
        assert_eq!(choose("6.12.90").as_deref(), Some("6.12.90+deb12.1-amd64"));
        assert_eq!(choose("6.12.95+deb12-amd64").as_deref(), Some("6.12.95+deb12-amd64"));
        assert_eq!(choose("6"), choose("6.12"));
        assert_eq!(choose("7.4"), None);
    }

    #[test]
    fn what_can_be_had_is_listed_by_series() {
        let expected = "6.1 (6.1.0-50-amd64), 6.12 (6.12.117+deb13-amd64), 7.3 (7.3.4+deb13-amd64)";
        assert_eq!(describe(&releases()), expected);
        assert_eq!(describe(&[]), "none");
    }

    #[test]
    fn a_kernel_is_found_where_either_layout_has_it() {
        let base = std::env::temp_dir().join(format!("xtask-kernel-{}", std::process::id()));
        let old = base.join("old");
        fs::create_dir_all(old.join("lib/modules/6.1")).unwrap();
        assert!(Kernel::find(&old, "6.1").unwrap_err().to_string().contains("no image of 6.1"));
        fs::create_dir_all(old.join("boot")).unwrap();
        fs::write(old.join("boot/vmlinuz-6.1"), "").unwrap();
        assert_eq!(Kernel::find(&old, "6.1").unwrap().image, old.join("boot/vmlinuz-6.1"));
        let new = base.join("new");
        fs::create_dir_all(new.join("usr/lib/modules/7.3")).unwrap();
        fs::write(new.join("usr/lib/modules/7.3/vmlinuz"), "").unwrap();
        let kernel = Kernel::find(&new, "7.3").unwrap();
        assert_eq!((kernel.modules.clone(), kernel.image), (kernel.modules.clone(), kernel.modules.join("vmlinuz")));
        fs::remove_dir_all(base).unwrap();
    }
}

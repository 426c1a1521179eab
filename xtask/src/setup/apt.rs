//! Reads a package from the machine's own Debian mirror through a private apt configuration: its lists, cache and
//! sources lie in one directory, so the machine's apt neither sees nor keeps anything of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// One entry of apt's sources: binary packages, enabled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// A key ring, or a key; lines joined by `\n`.
    signed_by: Option<String>,
}

/// The machine's sources that are Debian's own archive, from every file that apt reads.
pub fn mirrors() -> Result<Vec<Source>> {
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let Some(codename) = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")) else {
        return Ok(Vec::new());
    };
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let parse = match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => parse_deb822,
            Some("list") => parse_one_line,
            _ => continue,
        };
        sources.extend(parse(&fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?));
    }
    sources.retain(|source| is_archive(source, codename.trim_matches('"')));
    Ok(sources)
}

/// Whether a source is the main archive of the running release. Security updates have another tree, and other vendors
/// who use Debian's code names have other components.
fn is_archive(source: &Source, codename: &str) -> bool {
    source.suites.iter().any(|suite| suite == codename) && source.components.iter().any(|component| component == "main")
}

/// Reads the `.sources` format: paragraphs of `Name: value`, continued by lines that start with a space.
fn parse_deb822(text: &str) -> Vec<Source> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    lines.split(|line| line.trim().is_empty()).filter_map(parse_paragraph).collect()
}

fn parse_paragraph(lines: &[&str]) -> Option<Source> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            let (_, value) = fields.last_mut()?;
            value.push('\n');
            value.push_str(line.trim());
        } else {
            let (name, value) = line.split_once(':')?;
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let words = |name: &str| field(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let enabled = field("enabled").is_none_or(|value| value.eq_ignore_ascii_case("yes"));
    (enabled && words("types").iter().any(|kind| kind == "deb")).then(|| Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: field("signed-by").map(str::to_owned),
    })
}

/// Reads the `.list` format: `deb [options] uri suite component…` on one line.
fn parse_one_line(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim().strip_prefix("deb")?;
    if !line.starts_with([' ', '\t', '[']) {
        return None;
    }
    let (options, rest) = match line.trim_start().strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", line),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by: options.split_whitespace().find_map(|option| option.strip_prefix("signed-by=")).map(str::to_owned),
    })
}

/// An apt that knows one suite of one mirror.
pub struct PrivateApt {
    directory: PathBuf,
}

impl PrivateApt {
    /// Makes the configuration in `directory`: the mirror's `suite`, and trust in the mirror's own key.
    pub fn create(directory: &Path, mirror: &Source, suite: &str) -> Result<Self> {
        for part in ["sources", "lists/partial", "cache/archives/partial"] {
            let part = directory.join(part);
            fs::create_dir_all(&part).with_context(|| format!("cannot create {}", part.display()))?;
        }
        let file = directory.join("sources/private.sources");
        fs::write(&file, write_deb822(mirror, suite)).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self { directory: directory.to_path_buf() })
    }

    /// One of apt's programs under this configuration. It gives up on a silent server. Apt's own user could not write
    /// here, so apt does not change to it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, value) in [
            ("Dir::Etc::SourceList", PathBuf::from("/dev/null")),
            ("Dir::Etc::SourceParts", self.directory.join("sources")),
            ("Dir::State::Lists", self.directory.join("lists")),
            ("Dir::Cache", self.directory.join("cache")),
        ] {
            command.arg(format!("-o{name}={}", value.display()));
        }
        command.arg("-oAPT::Sandbox::User=root");
        command.args(["-oAcquire::Retries=3", "-oAcquire::http::Timeout=30", "-oAcquire::https::Timeout=30"]);
        command
    }
}

/// The mirror's `suite` in the `.sources` format.
fn write_deb822(mirror: &Source, suite: &str) -> String {
    let mut text = format!("Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n", mirror.uris.join(" "));
    if let Some(key) = &mirror.signed_by {
        text.push_str(&format!("Signed-By: {}\n", key.replace('\n', "\n ")));
    }
    text
}

/// The first version in `apt-cache madison`'s table that packages exactly `release`.
pub fn find_version<'a>(madison: &'a str, release: &str) -> Option<&'a str> {
    madison.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).find(|version| packages(version, release))
}

/// Whether a Debian version is one of the upstream `release`: an epoch may stand before it; after it, a repack mark, a
/// revision or nothing.
fn packages(version: &str, release: &str) -> bool {
    let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
    upstream.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '-', '~']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, suites: &[&str], components: &[&str], signed_by: Option<&str>) -> Source {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let signed_by = signed_by.map(str::to_owned);
        Source { uris: own(&[uri]), suites: own(suites), components: own(components), signed_by }
    }

    #[test]
    fn reads_paragraphs_with_comments_and_continued_fields() {
        let text = "Types: deb deb-src\n# a comment inside\nURIs: http://mirror.test/debian\nSuites: bookworm\n \
                    bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/a.gpg\n\n\n\
                    Types: deb\nURIs: http://mirror.test/off\nSuites: bookworm\nComponents: main\nEnabled: no\n\n\
                    Types: deb-src\nURIs: http://mirror.test/src\nSuites: bookworm\nComponents: main\n";
        let expected = source(
            "http://mirror.test/debian",
            &["bookworm", "bookworm-updates"],
            &["main"],
            Some("/usr/share/keyrings/a.gpg"),
        );
        assert_eq!(parse_deb822(text), [expected]);
    }

    #[test]
    fn an_embedded_key_survives_reading_and_writing() {
        let key = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINB\n";
        let text = format!("Types: deb\nURIs: http://m.test/d\nSuites: x\nComponents: main\n{key}");
        let sources = parse_deb822(&text);
        let written = write_deb822(&sources[0], "x");
        assert_eq!(parse_deb822(&written), sources);
        assert!(written.contains("\n .\n mQINB\n"), "{written}");
    }

    #[test]
    fn reads_one_line_entries() {
        let text = "# comment\ndeb http://mirror.test/debian bookworm main contrib # end\n\
                    deb-src http://mirror.test/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] https://other.test/apt stable main\n\
                    debug x y z\ndeb http://short\n";
        assert_eq!(
            parse_one_line(text),
            [
                source("http://mirror.test/debian", &["bookworm"], &["main", "contrib"], None),
                source("https://other.test/apt", &["stable"], &["main"], Some("/k.gpg")),
            ]
        );
    }

    #[test]
    fn the_archive_is_told_from_security_and_from_other_vendors() {
        let archive =
            |suites: &[&str], components: &[&str]| is_archive(&source("u", suites, components, None), "bookworm");
        assert!(archive(&["bookworm", "bookworm-updates"], &["main"]));
        assert!(!archive(&["bookworm-security"], &["main"]));
        assert!(!archive(&["bookworm"], &["stable"]));
        assert!(!archive(&["nodistro"], &["main"]));
    }

    #[test]
    fn a_version_matches_its_whole_release_only() {
        assert!(packages("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(packages("1:1.95.0-1", "1.95.0"));
        assert!(packages("1.95.0", "1.95.0"));
        assert!(!packages("1.95.01-1", "1.95.0"));
        assert!(!packages("1.95.0.1-1", "1.95.0"));
        assert!(!packages("11.95.0-1", "1.95.0"));
    }

    #[test]
    fn finds_the_version_in_the_table() {
        let table = " rust-src | 1.96.1+dfsg1-2~bpo13+1 | http://m.test trixie-backports/main amd64 Packages\n \
                     rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://m.test trixie-backports/main amd64 Packages\n";
        assert_eq!(find_version(table, "1.95.0"), Some("1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(find_version(table, "1.95.1"), None);
        assert_eq!(find_version("", "1.95.0"), None);
    }
}

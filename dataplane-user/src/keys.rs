//! The cluster's secret: the key file, the keys that are derived from it, and how a running node follows the file.
//!
//! A line of the file is the number of a key (1 to 15) and 32 bytes in hexadecimal; `#` begins a comment. The first key signs,
//! both verify. From each secret HKDF-SHA256 (RFC 5869) derives one key for every purpose and cluster, so that neither the
//! keys of two purposes nor those of two clusters with the same file have anything to do with each other.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use anyhow::{Context, Result, bail};
use dataplane_common::seal::{KEY_ROWS, KeyRow};
use hkdf::Hkdf;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::maps::Tables;

/// Keys that may be in use at once: one that signs, and the one before or after it.
const LIVE_KEYS: usize = 2;
/// Length of a secret, bytes.
const SECRET_BYTES: usize = 32;
/// Longest key file, bytes.
const MAX_BYTES: u64 = 1 << 16;
/// What the derived keys are for: separates them from those of any other use of the same file.
const HEADER_PURPOSE: &str = "interconnect header";
const BODY_PURPOSE: &str = "interconnect body";

/// One line of the key file. Its secret is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    number: u8,
    bytes: [u8; SECRET_BYTES],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.number)
    }
}

impl Secret {
    /// The secret `bytes` under `number`, 1 to 15.
    pub const fn new(number: u8, bytes: [u8; SECRET_BYTES]) -> Self {
        Self { number, bytes }
    }

    /// Its number.
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// `N` bytes of key for `purpose` in the cluster of that name (RFC 5869 with SHA-256).
    ///
    /// # Errors
    /// When `N` is above 8160, the most that HKDF gives.
    pub fn derive<const N: usize>(&self, purpose: &str, cluster: &str) -> Result<[u8; N]> {
        let mut key = [0; N];
        let hkdf = Hkdf::<Sha256>::new(Some(b"dataplane"), &self.bytes);
        // The length in front keeps "ab" + "c" and "a" + "bc" apart.
        let length = (purpose.len() as u64).to_be_bytes();
        let expanded = hkdf.expand_multi_info(&[&length, purpose.as_bytes(), cluster.as_bytes()], &mut key);
        expanded.map_err(|error| anyhow::anyhow!("BUG: a key of {N} bytes: {error}"))?;
        Ok(key)
    }

    fn row(&self, cluster: &str) -> Result<KeyRow> {
        let words = |purpose| -> Result<[u64; 2]> {
            let bytes = u128::from_le_bytes(self.derive(purpose, cluster)?);
            Ok([bytes as u64, (bytes >> 64) as u64])
        };
        Ok(KeyRow { header: words(HEADER_PURPOSE)?, body: words(BODY_PURPOSE)?, valid: 1, ..KeyRow::default() })
    }
}

/// A line for a key file, with a fresh secret.
///
/// # Errors
/// When the kernel gives no random numbers, or `number` is not 1 to 15.
pub fn fresh_line(number: u8) -> Result<String> {
    check_number(number.into())?;
    let mut bytes = [0u8; SECRET_BYTES];
    let given = getrandom(&mut bytes, GetRandomFlags::empty()).context("the kernel gives no random numbers")?;
    if given != SECRET_BYTES {
        bail!("the kernel gave {given} random bytes of {SECRET_BYTES}");
    }
    Ok(format!("{number} {}\n", bytes.map(|byte| format!("{byte:02x}")).concat()))
}

/// Reads a key file: one or two secrets, the first of which signs.
///
/// # Errors
/// The file cannot be read, others than its owner may read it, or a line is wrong: what, why, and what to do.
pub fn read(path: &Path) -> Result<Vec<Secret>> {
    let shown = path.display();
    let open = || format!("cannot read the key file {shown}\n  do:  `dataplane key new > FILE`, and chmod 600 FILE");
    let file = File::open(path).with_context(open)?;
    let metadata = file.metadata().with_context(open)?;
    if !metadata.is_file() {
        bail!("the key file {shown} is no regular file");
    }
    if metadata.mode() & 0o077 != 0 {
        bail!(
            "the key file {shown} is open to others\n  why: its mode is {:03o}, and whoever reads it can speak for every node\n  do:  chmod 600 {shown}, and use a new key if it was read",
            metadata.mode() & 0o777
        );
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).with_context(open)?;
    parse(&text).with_context(|| format!("the key file {shown} is wrong"))
}

fn parse(text: &str) -> Result<Vec<Secret>> {
    let mut secrets: Vec<Secret> = Vec::new();
    for (index, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let secret = parse_line(line).with_context(|| format!("line {index}"))?;
        if secrets.iter().any(|known| known.number == secret.number) {
            bail!("line {index}: there is a key {} before\n  do:  give each key a number of its own", secret.number);
        }
        secrets.push(secret);
    }
    match secrets.len() {
        0 => bail!("it has no key\n  do:  `dataplane key new` prints a line"),
        1..=LIVE_KEYS => Ok(secrets),
        many => bail!(
            "it has {many} keys\n  why: one signs, and the one before or after it may verify too\n  do:  remove the oldest"
        ),
    }
}

fn parse_line(line: &str) -> Result<Secret> {
    let (number, digits) = line
        .split_once(char::is_whitespace)
        .context("a key is its number and 64 hexadecimal digits with a space between them")?;
    let number = check_number(number.parse().context("the number of a key is 1 to 15")?)?;
    let digits = digits.trim();
    if digits.len() != 2 * SECRET_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        bail!("a secret is {} hexadecimal digits, not these {} characters", 2 * SECRET_BYTES, digits.chars().count());
    }
    let mut bytes = [0; SECRET_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair)?, 16)?;
    }
    Ok(Secret { number, bytes })
}

fn check_number(number: u32) -> Result<u8> {
    match u8::try_from(number) {
        Ok(number @ 1..=15) => Ok(number),
        _ => bail!("the number of a key is 1 to 15: frames have four bits for it, and 0 means no key"),
    }
}

/// The rows of `KEYS` for these secrets in `cluster`; the first one signs.
///
/// # Errors
/// As [`Secret::derive`].
pub fn rows(secrets: &[Secret], cluster: &str) -> Result<[KeyRow; KEY_ROWS]> {
    let mut rows = [KeyRow::default(); KEY_ROWS];
    for secret in secrets {
        rows[usize::from(secret.number) % KEY_ROWS] = secret.row(cluster)?;
    }
    rows[0].signing = secrets.first().map_or(0, |secret| secret.number.into());
    Ok(rows)
}

/// Makes these the keys of a node. A frame that is sealed or checked meanwhile finds the old key or the new one, unless a
/// number gets another secret: then it may be lost.
pub fn write(tables: &Tables, rows: &[KeyRow; KEY_ROWS]) {
    let set = |number: u32, offset: usize, word: u64| tables.keys.row(number).word(offset).store(word, Release);
    let valid = offset_of!(KeyRow, valid);
    let write_row = |number: u32, row: &KeyRow| {
        let words = [row.header, row.body].concat();
        let same = |(at, word): (usize, &u64)| tables.keys.row(number).word(8 * at).load(Relaxed) == *word;
        if !words.iter().enumerate().all(same) {
            set(number, valid, 0);
            words.iter().enumerate().for_each(|(at, word)| set(number, 8 * at, *word));
        }
        set(number, valid, row.valid);
    };
    // What signs next is there before it signs, and what signed goes after it has.
    let numbered = || (0..).zip(rows).skip(1);
    numbered().filter(|(_, row)| row.valid != 0).for_each(|(number, row)| write_row(number, row));
    set(0, offset_of!(KeyRow, signing), rows[0].signing);
    numbered().filter(|(_, row)| row.valid == 0).for_each(|(number, row)| write_row(number, row));
}

/// What tells that a file is another one, or has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
    mode: u32,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            mode: metadata.mode(),
        }
    }

    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// The keys of a running node, which follow their file.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    cluster: String,
    tables: Arc<Tables>,
    seen: Option<Stamp>,
}

impl Follower {
    /// Reads the file and makes its keys those of the node with these tables.
    ///
    /// # Errors
    /// As [`read`].
    pub fn start(path: &Path, cluster: &str, tables: Arc<Tables>) -> Result<Self> {
        let mut follower = Self { path: path.to_owned(), cluster: cluster.to_owned(), tables, seen: None };
        follower.seen = Stamp::at(path);
        follower.load()?;
        Ok(follower)
    }

    fn load(&self) -> Result<Vec<Secret>> {
        let secrets = read(&self.path)?;
        write(&self.tables, &rows(&secrets, &self.cluster)?);
        Ok(secrets)
    }

    /// Takes the keys of the file over if it has changed since the last look. Says what came of it; after a failure the node
    /// keeps the keys it has.
    pub fn look(&mut self) -> Option<Result<Vec<Secret>>> {
        // Before the file is read: a change in between is seen next time.
        let stamp = Stamp::at(&self.path);
        if stamp == self.seen {
            return None;
        }
        self.seen = stamp;
        Some(self.load())
    }

    /// As [`Follower::look`], and tells the operator on standard error.
    pub fn look_and_tell(&mut self) {
        let line = match self.look() {
            None => return,
            Some(Ok(secrets)) => format!("keys: {secrets:?} of {}; the first one signs", self.path.display()),
            Some(Err(error)) => format!("warning: the keys stay as they were: {error:#}"),
        };
        // That nobody can read it is no reason to end.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;

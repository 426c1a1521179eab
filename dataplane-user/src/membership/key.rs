//! The key file, and the keys made of it.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Most keys that are live at a time: the present one, and the last or the next one while the nodes change over.
const MAX_KEYS: usize = 2;
/// Longest key file, bytes.
const MAX_FILE_BYTES: u64 = 4096;
/// What the keys are for (BLAKE3 `derive_key`: "hardcoded, globally unique, and application-specific").
const CONTEXT: &str = "dataplane 2026-11-30 membership datagrams";

/// The keys that tags of membership are made with.
///
/// They are derived from those of the key file and the name of the cluster, so a tag of another cluster, or of another use of the
/// same file, is a wrong one.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The first one makes tags, all of them are accepted.
    derived: Vec<[u8; KEY_BYTES]>,
    is_secret: bool,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} of a file: {})", self.derived.len(), self.is_secret)
    }
}

/// Why a key file cannot be used.
#[derive(Debug)]
pub struct KeyFileError {
    path: PathBuf,
    what: String,
    why: &'static str,
    todo: String,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key file {} {}\n  why: {}\n  do:  {}", self.path.display(), self.what, self.why, self.todo)
    }
}

impl std::error::Error for KeyFileError {}

impl Key {
    /// No secret: tags tell damage and other clusters, but anyone can make them.
    pub fn without_secret(cluster: &str) -> Self {
        Self { derived: vec![derive(&[], cluster)], is_secret: false }
    }

    /// The keys of `path` for this cluster. The file holds one or two keys of 64 hexadecimal digits, each on a line of its own;
    /// empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it holds something else.
    pub fn from_file(path: &Path, cluster: &str) -> Result<Self, KeyFileError> {
        const NEW: &str = "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > FILE";
        let failed = |what: String, why, todo: &str| KeyFileError {
            path: path.to_owned(),
            what,
            why,
            todo: todo.replace("FILE", &path.display().to_string()),
        };
        let unreadable = |error: std::io::Error| {
            failed(
                format!("cannot be read: {error}"),
                "[membership] key_file names it",
                "correct it, or make one: umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > FILE",
            )
        };
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode();
        if mode & 0o077 != 0 {
            let what = format!("may be used by others (mode {:03o})", mode & 0o777);
            return Err(failed(what, "who reads it can join the cluster and take packets", "chmod 600 FILE"));
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Option<Vec<_>> = lines.map(parse).collect();
        const WHY: &str =
            "a key is 64 hexadecimal digits on a line; the first is used, a second one is accepted as well";
        match keys {
            None => Err(failed("holds a line that is no key".to_owned(), WHY, NEW)),
            Some(keys) if keys.is_empty() || keys.len() > MAX_KEYS => {
                Err(failed(format!("holds {} keys, not 1 or 2", keys.len()), WHY, NEW))
            }
            Some(keys) => Ok(Self { derived: keys.iter().map(|key| derive(key, cluster)).collect(), is_secret: true }),
        }
    }

    /// True when the keys come from a file.
    pub const fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// The keys that are accepted; the first one makes tags.
    pub(super) fn accepted(&self) -> &[[u8; KEY_BYTES]] {
        &self.derived
    }
}

/// The key of a cluster, of one of the file.
fn derive(key: &[u8], cluster: &str) -> [u8; KEY_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    // The length goes first, so that no key and name run into another pair.
    hasher.update(&[key.len() as u8]).update(key).update(cluster.as_bytes());
    *hasher.finalize().as_bytes()
}

fn parse(line: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    if line.len() != 2 * KEY_BYTES || !line.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(name: &str, text: &str, mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("dataplane-key-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn one_or_two_keys_are_read_and_bound_to_the_cluster() {
        let (one, two) = ("0f".repeat(32), "A5".repeat(32));
        let path = file("good", &format!("# now\n{one}\n\n  {two}\n"), 0o600);
        let key = Key::from_file(&path, "blue").unwrap();
        assert_eq!((key.accepted().len(), key.is_secret()), (2, true));
        assert_ne!(key.accepted()[0], [0x0f; 32], "derived");
        assert_ne!(key, Key::from_file(&path, "green").unwrap());
        assert!(!format!("{key:?}").contains("0f0f"));
        fs::remove_file(path).unwrap();
        assert_ne!(Key::without_secret("blue"), Key::without_secret("green"));
        assert!(!Key::without_secret("blue").is_secret());
    }

    #[test]
    fn bad_files_say_what_to_do() {
        let key = "00".repeat(32);
        let three = format!("{key}\n{key}\n{key}\n");
        for (name, text, mode, says) in [
            ("open", key.as_str(), 0o640, "chmod 600"),
            ("empty", "# nothing\n", 0o600, "holds 0 keys"),
            ("three", three.as_str(), 0o600, "holds 3 keys"),
            ("short", "00ff", 0o600, "no key"),
            ("other", &"x".repeat(64), 0o600, "no key"),
        ] {
            let path = file(name, text, mode);
            let error = Key::from_file(&path, "blue").unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("\n  do:  "), "{name}: {error}");
            fs::remove_file(path).unwrap();
        }
        let error = Key::from_file(Path::new("/nowhere/key"), "blue").unwrap_err().to_string();
        assert!(error.contains("cannot be read") && error.contains("/nowhere/key"), "{error}");
    }
}

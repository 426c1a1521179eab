//! The keys of membership, made of those of the cluster.

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::keys;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// What the keys are for: separates them from those of any other use of the key file.
const PURPOSE: &str = "membership datagrams";
/// What the key of a cluster without a secret is for (BLAKE3 `derive_key`: "hardcoded, globally unique, and application-specific").
const NO_SECRET: &str = "dataplane 2026-11-30 membership datagrams without a secret";

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

impl Key {
    /// No secret: tags tell damage and other clusters, but anyone can make them.
    pub fn without_secret(cluster: &str) -> Self {
        Self { derived: vec![blake3::derive_key(NO_SECRET, cluster.as_bytes())], is_secret: false }
    }

    /// The keys of the file `path` ([`keys`]) for this cluster.
    ///
    /// # Errors
    /// As [`keys::read`].
    pub fn from_file(path: &Path, cluster: &str) -> Result<Self> {
        let secrets = keys::read(path)?;
        let derived = secrets.iter().map(|secret| secret.derive(PURPOSE, cluster)).collect::<Result<_>>()?;
        Ok(Self { derived, is_secret: true })
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_or_two_keys_are_read_and_bound_to_the_cluster() {
        let path = std::env::temp_dir().join(format!("dataplane-member-key-{}", std::process::id()));
        let (one, two) = ("0f".repeat(32), "A5".repeat(32));
        fs::write(&path, format!("# now\n1 {one}\n\n  2 {two}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let key = Key::from_file(&path, "blue").unwrap();
        assert_eq!((key.accepted().len(), key.is_secret()), (2, true));
        assert_ne!(key.accepted()[0], [0x0f; 32], "derived");
        assert_ne!(key, Key::from_file(&path, "green").unwrap());
        assert!(!format!("{key:?}").contains("0f0f"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(format!("{:#}", Key::from_file(&path, "blue").unwrap_err()).contains("chmod 600"));
        fs::remove_file(path).unwrap();
        assert_ne!(Key::without_secret("blue"), Key::without_secret("green"));
        assert!(!Key::without_secret("blue").is_secret());
    }
}

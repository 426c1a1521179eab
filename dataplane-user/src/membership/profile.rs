//! What a member tells the others of itself.

use std::net::IpAddr;

/// Most links of a profile: as many as a node has interfaces.
pub const MAX_LINKS: usize = 16;
/// Most functions of a profile.
pub const MAX_FUNCTIONS: usize = 64;
/// Longest name in a profile, bytes.
pub const MAX_NAME_BYTES: usize = 32;

/// What a member tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Name of the node.
    pub name: String,
    /// Version of its maps and frames ([`ABI_VERSION`](dataplane_common::maps::ABI_VERSION)).
    pub abi: u32,
    /// Its workers.
    pub workers: u16,
    /// It takes no more work because it is about to stop.
    pub draining: bool,
    /// Its ends of links, at most [`MAX_LINKS`].
    pub links: Vec<LinkEnd>,
    /// Its functions, at most [`MAX_FUNCTIONS`]: type id and [`name_hash`].
    pub functions: Vec<(u16, u32)>,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    /// Name of the segment the interface is on. Two members reach each other where both name the same.
    pub segment: String,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// IP address of the interface, if it has one.
    pub address: Option<IpAddr>,
}

impl Profile {
    /// The end on `segment`.
    pub fn link(&self, segment: &str) -> Option<&LinkEnd> {
        self.links.iter().find(|link| link.segment == segment)
    }
}

/// A function's name in 32 bits (FNV-1a, `draft-eastlake-fnv`): tells that two nodes mean different functions by one type id, for
/// a warning.
pub fn name_hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hash_as_published() {
        // Test vectors of the FNV draft.
        assert_eq!(name_hash(""), 0x811c_9dc5);
        assert_eq!(name_hash("a"), 0xe40c_292c);
        assert_eq!(name_hash("foobar"), 0xbf9c_f968);
    }
}

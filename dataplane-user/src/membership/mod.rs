//! Who belongs to the cluster: members find each other, notice who is gone and tell each other what they are.
//!
//! Liveness is SWIM with suspicion and gossip ("SWIM: Scalable Weakly-consistent Infection-style Process Group Membership
//! Protocol", Das, Gupta, Motivala, DSN 2002), by the `foca` crate, over one UDP socket on the management network. It takes about
//! half a second to notice a death; reports on the interconnect notice a silent peer within a few intervals, and no decision
//! waits for membership.
//!
//! | file | what it knows |
//! |---|---|
//! | `identity.rs` | who a member is to SWIM, and which of two with one address is the present one |
//! | `profile.rs` | what a member tells the others of itself: links, functions, workers |
//! | `codec.rs` | both of them and SWIM's messages as bytes |
//! | `seal.rs` | the envelope: tag, replay window, what is refused |
//! | `key.rs` | the key file |
//! | `engine.rs` | the state machine: datagrams and time in, datagrams and events out; no socket, no clock |
//! | `agent.rs` | the thread with the socket |
//!
//! A profile is sent to every member until it has said that it took it, so a new one (draining, for example) reaches all in one
//! round trip when nothing is lost, and within [`engine::PUSH_AGAIN_NS`] of the first datagram that is not.

mod agent;
mod codec;
pub mod engine;
mod identity;
mod key;
mod profile;
mod seal;

use std::net::SocketAddr;

pub use agent::{Membership, View};
pub use engine::Refused;
pub use identity::Identity;
pub use key::Key;
pub use profile::{LinkEnd, MAX_FUNCTIONS, MAX_LINKS, MAX_NAME_BYTES, Profile, name_hash};
pub use seal::{Refusal, Refusals};

/// What a node needs to take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The node's id.
    pub node: u16,
    /// Tells this start of the node from earlier ones, in serial arithmetic (RFC 1982).
    pub epoch: u32,
    /// Address of the socket. Others send there, so it may not be a wildcard; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Addresses of members to ask for the others. Asked for ever, so that none of them needs to be there first.
    pub join: Vec<SocketAddr>,
    /// Members with an id from here on are refused: tables have no row for them.
    pub max_nodes: u16,
    /// Key of the cluster.
    pub key: Key,
    /// What the node tells the others.
    pub profile: Profile,
}

/// A member as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's id.
    pub node: u16,
    /// Its boot epoch.
    pub epoch: u32,
    /// Its address on the management network.
    pub address: SocketAddr,
    /// What it tells of itself.
    pub profile: Profile,
}

/// What happens to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is there. A restarted node goes down first, then comes up with its new epoch.
    Up(Member),
    /// It tells something new of itself.
    Changed(Member),
    /// It left, was restarted, or does not answer any more.
    Down(Member),
}

//! The state machine of membership: datagrams and time in, datagrams and events out. It has no socket and no clock, so tests
//! drive it by hand.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut};
use foca::{
    AccumulatingRuntime, Codec as _, Config, Foca, NoCustomBroadcast, OwnedNotification, PeriodicParams, Timer,
};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::codec::{self, Codec};
use super::identity::Identity;
use super::profile::Profile;
use super::seal::{Kind, MAX_DATAGRAM_BYTES, OVERHEAD_BYTES, Refusal, Refusals, Seal};
use super::{Event, Member, Settings};

/// A profile that nobody has confirmed is sent again after this time, ns.
pub const PUSH_AGAIN_NS: u64 = 50_000_000;
/// Seeds that are no members are asked again after this time, ns.
const JOIN_AGAIN_NS: u64 = 500_000_000;
/// A node that was refused because of its id tries again after this time, ns.
const REFUSED_NS: u64 = 2_000_000_000;
/// How often a leaving member says so to each of the others: a lost one costs them the time that noticing a death takes.
const LEAVE_TIMES: usize = 3;

/// A moment by both clocks: the monotonic one for timers, the other to compare with those of other members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time, ns.
    pub mono_ns: u64,
    /// Time since 1970, µs.
    pub wall_us: u64,
}

/// Why a node is not let into the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Who has the node's id.
    pub holder: Identity,
    /// Who said so.
    pub by: SocketAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder, by } = self;
        write!(
            f,
            "the cluster does not let this node in: {} is node {} already\n  why: {by} says so; every node of a cluster has an id of its own\n  do:  change [node] id here, or stop the other one; this node tries again by itself",
            holder.address, holder.node
        )
    }
}

/// Another member as SWIM knows it.
#[derive(Clone, Debug)]
struct Known {
    identity: Identity,
    profile: Option<Profile>,
    /// Its revision; 0 before the first.
    revision: u32,
    /// Revision of our profile that it has.
    taken: u32,
    /// When ours is sent again, ns.
    push_ns: u64,
    /// [`Event::Up`] was told and [`Event::Down`] was not.
    is_told: bool,
}

impl Known {
    fn new(identity: Identity) -> Self {
        Self { identity, profile: None, revision: 0, taken: 0, push_ns: 0, is_told: false }
    }

    /// True while one of the two does not have the other's present profile.
    const fn wants_push(&self, revision: u32) -> bool {
        self.taken != revision || self.profile.is_none()
    }

    fn member(&self) -> Option<Member> {
        let Identity { node, epoch, address, .. } = self.identity;
        Some(Member { node, epoch, address, profile: self.profile.clone()? })
    }
}

/// See the module.
pub struct Engine {
    foca: Foca<Identity, Codec, StdRng, NoCustomBroadcast>,
    runtime: AccumulatingRuntime<Identity>,
    /// Timers of `foca` by time, in the order they were set.
    timers: BTreeMap<(u64, u64), Timer<Identity>>,
    timer_count: u64,
    seal: Seal,
    seeds: Vec<SocketAddr>,
    join_ns: u64,
    max_nodes: u16,
    profile: Profile,
    revision: u32,
    known: BTreeMap<SocketAddr, Known>,
    refused: Option<(Refused, u64)>,
    refusals: Arc<Refusals>,
    events: VecDeque<Event>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    now: Moment,
}

impl Engine {
    /// A member at `address`, which is that of its socket. It asks the seeds at its first [`Engine::poll`].
    pub fn new(settings: &Settings, address: SocketAddr, refusals: Arc<Refusals>, now: Moment) -> Self {
        let identity = Identity { node: settings.node, epoch: settings.epoch, life: 0, address };
        Self {
            foca: begin(identity, now),
            runtime: AccumulatingRuntime::new(),
            timers: BTreeMap::new(),
            timer_count: 0,
            seal: Seal::new(settings.key.clone(), settings.node, settings.epoch, now.wall_us),
            seeds: settings.join.iter().copied().filter(|seed| *seed != address).collect(),
            join_ns: 0,
            max_nodes: settings.max_nodes,
            profile: settings.profile.clone(),
            revision: 1,
            known: BTreeMap::new(),
            refused: None,
            refusals,
            events: VecDeque::new(),
            out: VecDeque::new(),
            now,
        }
    }

    /// Takes a datagram that came from `from`. What does not hold changes nothing but a counter.
    pub fn handle(&mut self, now: Moment, from: SocketAddr, datagram: &[u8]) {
        self.now = now;
        if let Err(refusal) = self.take(from, datagram) {
            self.refusals.add(refusal);
        }
        self.settle();
    }

    /// Does what is due and returns when it wants to be called again, monotonic ns.
    pub fn poll(&mut self, now: Moment) -> u64 {
        self.now = now;
        if self.refused.is_some_and(|(_, until_ns)| now.mono_ns >= until_ns) {
            self.refused = None;
            self.join_ns = now.mono_ns;
        }
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now.mono_ns) {
            let timer = entry.remove();
            // A late timer is an error to foca, which goes on; a process that was stopped has some.
            let _ = self.foca.handle_timer(timer, &mut self.runtime);
            self.settle();
        }
        if self.refused.is_none() {
            self.join();
            self.push_profile();
        }
        self.settle();
        self.next_ns()
    }

    /// Tells the others something new of this node.
    pub fn set_profile(&mut self, now: Moment, profile: Profile) {
        self.now = now;
        if profile != self.profile {
            self.profile = profile;
            self.revision = self.revision.wrapping_add(1).max(1);
            self.known.values_mut().for_each(|known| known.push_ns = 0);
            self.push_profile();
        }
    }

    /// Tells the others that this node leaves. Nothing may be handled after that.
    pub fn leave(&mut self, now: Moment) {
        self.now = now;
        for _ in 0..LEAVE_TIMES {
            for address in self.known.keys().copied().collect::<Vec<_>>() {
                self.send(address, Kind::Leave, &[]);
            }
        }
        // The rest hears it from SWIM. Encoding into memory does not fail.
        let _ = self.foca.leave_cluster(&mut self.runtime);
        self.settle();
    }

    /// What has happened to members since the last call.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A datagram to send, and where to.
    pub fn next_datagram(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    /// Members that were told to be up.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.known.values().filter(|known| known.is_told).filter_map(Known::member)
    }

    /// Why this node is not let in at present.
    pub fn refused(&self) -> Option<Refused> {
        self.refused.map(|(refused, _)| refused)
    }

    fn me(&self) -> Identity {
        *self.foca.identity()
    }

    fn next_ns(&self) -> u64 {
        if let Some((_, until_ns)) = self.refused {
            return until_ns;
        }
        let pushes = self.known.values().filter(|known| known.wants_push(self.revision)).map(|known| known.push_ns);
        let timer = self.timers.first_key_value().map(|((at_ns, _), _)| *at_ns);
        let join = if self.seeds.is_empty() { u64::MAX } else { self.join_ns };
        pushes.chain(timer).fold(join, u64::min)
    }

    /// Greets the seeds that are no members, which also mends a cluster that was cut in two.
    fn join(&mut self) {
        if self.now.mono_ns < self.join_ns {
            return;
        }
        self.join_ns = self.now.mono_ns + JOIN_AGAIN_NS;
        for seed in self.seeds.clone() {
            if !self.known.contains_key(&seed) {
                let _ = self.foca.announce(Identity::unknown(seed), &mut self.runtime);
            }
        }
    }

    /// Sends our profile to members that have not confirmed it.
    fn push_profile(&mut self) {
        let (now_ns, revision) = (self.now.mono_ns, self.revision);
        let mut due = Vec::new();
        for (address, known) in &mut self.known {
            if known.wants_push(revision) && known.push_ns <= now_ns {
                known.push_ns = now_ns + PUSH_AGAIN_NS;
                due.push((*address, known.revision));
            }
        }
        for (address, theirs) in due {
            let mut payload = Vec::new();
            payload.put_u32(revision);
            payload.put_u32(theirs);
            codec::put_profile(&mut payload, &self.profile);
            self.send(address, Kind::Profile, &payload);
        }
    }

    fn send(&mut self, to: SocketAddr, kind: Kind, payload: &[u8]) {
        let datagram = self.seal.seal(kind, payload, self.now.wall_us);
        self.out.push_back((to, datagram));
    }

    fn take(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), Refusal> {
        let opened = self.seal.open(datagram, self.now.wall_us)?;
        let mut payload = opened.payload;
        if opened.kind == Kind::Conflict {
            let holder = codec::identity(&mut payload).map_err(|_| Refusal::Malformed)?;
            self.refuse_me(holder, from);
            return Ok(());
        }
        // While refused, this node takes no part.
        if self.refused.is_some() {
            return Ok(());
        }
        self.check_id(opened.node, from)?;
        match opened.kind {
            Kind::Swim => self.take_swim((opened.node, opened.epoch, from), payload),
            Kind::Profile => self.take_profile((opened.epoch, from), payload),
            Kind::Taken => {
                let revision = payload.try_get_u32().map_err(|_| Refusal::Malformed)?;
                if let Some(known) = self.of_boot(from, opened.epoch) {
                    known.taken = revision;
                }
                Ok(())
            }
            Kind::Leave => {
                if let Some(known) = self.of_boot(from, opened.epoch) {
                    let down = foca::Member::down(known.identity);
                    let _ = self.foca.apply_many([down].into_iter(), true, &mut self.runtime);
                }
                Ok(())
            }
            Kind::Conflict => Ok(()),
        }
    }

    /// The member at `address`, if it is in boot `epoch`.
    fn of_boot(&mut self, address: SocketAddr, epoch: u32) -> Option<&mut Known> {
        self.known.get_mut(&address).filter(|known| known.identity.epoch == epoch)
    }

    /// Refuses a sender whose node id is another's, and tells it so.
    fn check_id(&mut self, node: u16, from: SocketAddr) -> Result<(), Refusal> {
        let me = self.me();
        let holder = if node == me.node { Some(me) } else { self.holder(node) };
        if let Some(holder) = holder.filter(|holder| holder.address != from) {
            let mut payload = Vec::new();
            codec::put_identity(&mut payload, &holder);
            self.send(from, Kind::Conflict, &payload);
            return Err(Refusal::Conflict);
        }
        if node >= self.max_nodes { Err(Refusal::Conflict) } else { Ok(()) }
    }

    /// The member that was told to be `node`.
    fn holder(&self, node: u16) -> Option<Identity> {
        self.known.values().find(|known| known.is_told && known.identity.node == node).map(|known| known.identity)
    }

    /// Another member has this node's id. Who is not a member yet gives way; of two that are, because a cluster was cut in two and
    /// is whole again, the one that started later.
    fn refuse_me(&mut self, holder: Identity, by: SocketAddr) {
        let me = self.me();
        let is_mine = holder.node == me.node && holder.address != me.address;
        let is_member = self.known.values().any(|known| known.is_told);
        let is_elder = me.epoch.wrapping_sub(holder.epoch) as i32 > 0
            || me.epoch == holder.epoch
                && (holder.address.ip(), holder.address.port()) < (me.address.ip(), me.address.port());
        if !is_mine || self.refused.is_some() || is_member && !is_elder {
            return;
        }
        // Leaving is final to SWIM, so the next try is made under a later life.
        for address in self.known.keys().copied().collect::<Vec<_>>() {
            self.send(address, Kind::Leave, &[]);
        }
        let _ = self.foca.leave_cluster(&mut self.runtime);
        self.settle();
        self.foca = begin(foca::Identity::renew(&me).unwrap_or(me), self.now);
        self.timers.clear();
        let told: Vec<_> = std::mem::take(&mut self.known).into_values().filter(|known| known.is_told).collect();
        self.events.extend(told.iter().filter_map(Known::member).map(Event::Down));
        self.refused = Some((Refused { holder, by }, self.now.mono_ns + REFUSED_NS));
    }

    fn take_swim(&mut self, (node, epoch, from): (u16, u32, SocketAddr), payload: &[u8]) -> Result<(), Refusal> {
        let header = Codec.decode_header(payload).map_err(|_| Refusal::Malformed)?;
        if (header.src.node, header.src.epoch, header.src.address) != (node, epoch, from) {
            return Err(Refusal::Malformed);
        }
        match self.foca.handle_data(payload, &mut self.runtime) {
            Err(foca::Error::Decode(_) | foca::Error::MalformedPacket | foca::Error::DataTooBig) => {
                Err(Refusal::Malformed)
            }
            // What else foca reports are states of the cluster, from which it recovers.
            _ => Ok(()),
        }
    }

    fn take_profile(&mut self, (epoch, from): (u32, SocketAddr), mut payload: &[u8]) -> Result<(), Refusal> {
        let revision = payload.try_get_u32().map_err(|_| Refusal::Malformed)?;
        let taken = payload.try_get_u32().map_err(|_| Refusal::Malformed)?;
        let profile = codec::profile(&mut payload).map_err(|_| Refusal::Malformed)?;
        // One that SWIM has not introduced yet sends it again.
        let Some(known) = self.of_boot(from, epoch) else { return Ok(()) };
        known.taken = taken;
        let is_newer = known.profile.is_none() || revision.wrapping_sub(known.revision) as i32 > 0;
        if is_newer {
            (known.profile, known.revision) = (Some(profile), revision);
            let changed = if known.is_told { known.member() } else { None };
            match changed {
                Some(member) => self.events.push_back(Event::Changed(member)),
                None => self.tell(from),
            }
        }
        let taken = self.known.get(&from).map_or(revision, |known| known.revision);
        self.send(from, Kind::Taken, &taken.to_be_bytes());
        Ok(())
    }

    /// Tells that a member is up, if its profile is known and no other one has its node id.
    fn tell(&mut self, address: SocketAddr) {
        let me = self.me().node;
        let Some(known) = self.known.get(&address) else { return };
        let node = known.identity.node;
        if known.is_told || node == me || node >= self.max_nodes || self.holder(node).is_some() {
            return;
        }
        if let Some(known) = self.known.get_mut(&address)
            && let Some(member) = known.member()
        {
            known.is_told = true;
            self.events.push_back(Event::Up(member));
        }
    }

    /// A member is gone; one that waited for its node id has its turn.
    fn lose(&mut self, address: SocketAddr) {
        let Some(gone) = self.known.remove(&address).filter(|known| known.is_told) else { return };
        self.events.extend(gone.member().map(Event::Down));
        let node = gone.identity.node;
        let next = self.known.values().find(|known| known.identity.node == node).map(|known| known.identity.address);
        if let Some(next) = next {
            self.tell(next);
        }
    }

    /// Takes what foca has said: what to send, when to wake it, what happened to members.
    fn settle(&mut self) {
        while let Some((to, payload)) = self.runtime.to_send() {
            self.send(to.address, Kind::Swim, &payload);
        }
        while let Some((after, timer)) = self.runtime.to_schedule() {
            self.timer_count += 1;
            let at_ns = self.now.mono_ns + after.as_nanos() as u64;
            self.timers.insert((at_ns, self.timer_count), timer);
        }
        while let Some(notification) = self.runtime.to_notify() {
            match notification {
                OwnedNotification::MemberUp(identity) => self.meet(identity),
                OwnedNotification::MemberDown(identity) => self.lose(identity.address),
                OwnedNotification::Rename(_, identity) => self.rename(identity),
                _ => {}
            }
        }
    }

    /// SWIM has found a member.
    fn meet(&mut self, identity: Identity) {
        self.known.entry(identity.address).or_insert_with(|| Known::new(identity));
        self.push_profile();
    }

    /// A later life is at a known address: the same boot goes on, another one begins from nothing.
    fn rename(&mut self, identity: Identity) {
        let Some(known) = self.known.get_mut(&identity.address) else { return };
        if (known.identity.node, known.identity.epoch) == (identity.node, identity.epoch) {
            known.identity = identity;
        } else {
            self.lose(identity.address);
            self.meet(identity);
        }
    }
}

/// SWIM for a member that knows no other one.
fn begin(identity: Identity, now: Moment) -> Foca<Identity, Codec, StdRng, NoCustomBroadcast> {
    // Which member is probed next need only differ between nodes.
    let seed = u64::from(identity.node) << 32 ^ u64::from(identity.epoch) ^ now.mono_ns;
    Foca::new(identity, swim(), StdRng::seed_from_u64(seed), Codec)
}

/// Settings of SWIM for a cluster on one management network. The first four are those under which simulated clusters noticed a
/// death after 0.5 s (p99 0.75 s) without false ones; `foca`'s own formula for `max_transmissions` gives 1 or 2 for small clusters,
/// and then one lost datagram loses the answer to a suspicion.
fn swim() -> Config {
    let periodic = |ms, num_members| {
        Some(PeriodicParams {
            frequency: Duration::from_millis(ms),
            num_members: NonZeroUsize::new(num_members).unwrap_or(NonZeroUsize::MIN),
        })
    };
    Config {
        probe_period: Duration::from_millis(100),
        probe_rtt: Duration::from_millis(30),
        suspect_to_down_after: Duration::from_millis(300),
        max_transmissions: NonZeroU8::new(10).unwrap_or(NonZeroU8::MAX),
        num_indirect_probes: NonZeroUsize::new(3).unwrap_or(NonZeroUsize::MIN),
        // A node whose clock was set back across a restart is let in after this time at the latest.
        remove_down_after: Some(Duration::from_secs(60)),
        max_packet_size: NonZeroUsize::new(MAX_DATAGRAM_BYTES - OVERHEAD_BYTES).unwrap_or(NonZeroUsize::MAX),
        notify_down_members: true,
        periodic_announce: periodic(2_000, 1),
        periodic_announce_to_down_members: periodic(2_000, 1),
        periodic_gossip: periodic(20, 3),
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;

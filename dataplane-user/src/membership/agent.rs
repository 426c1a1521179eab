//! The thread with the socket: gives the engine datagrams and time, and its events to who asked for them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};

use super::engine::{Engine, Moment, Refused};
use super::profile::Profile;
use super::seal::Refusals;
use super::{Event, Member, Settings};
use crate::worker::monotonic_ns;

/// Longest wait for a datagram: what is asked of the thread waits no longer.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// Room for a datagram: one longer than any of ours is seen to be too long.
const ROOM: usize = 2_048;

/// What is known of the cluster at a moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The other members.
    pub members: Vec<Member>,
    /// Why this node is not let in at present.
    pub refused: Option<Refused>,
}

/// What thread and owner share.
#[derive(Debug)]
struct Shared {
    view: Mutex<View>,
    /// A profile that the thread has not taken over yet.
    profile: Mutex<Option<Profile>>,
    stop: AtomicBool,
    leave: AtomicBool,
    refusals: Arc<Refusals>,
}

/// A running member. Dropping it is a death to the others; [`Membership::leave`] is the polite way.
#[derive(Debug)]
pub struct Membership {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Opens the socket and starts the thread, which asks the seeds until it is answered. Events come through the receiver, which
    /// may be dropped by who does not care for them.
    ///
    /// # Errors
    /// The socket cannot be had, with what to do.
    pub fn start(settings: Settings) -> Result<(Self, Receiver<Event>)> {
        let bind = settings.bind;
        if bind.ip().is_unspecified() {
            bail!(
                "[membership] bind = \"{bind}\" is a wildcard\n  why: the other members send to this address\n  do:  write the node's address on the management network"
            );
        }
        let socket = UdpSocket::bind(bind).with_context(|| {
            format!(
                "cannot open the socket of membership at {bind}\n  why: [membership] bind names it\n  do:  write an address of this node (`ip address show`) and a port that nothing else uses (`ss -ulpn`)"
            )
        })?;
        let address = socket.local_addr().context("the socket of membership has no address")?;
        let shared = Arc::new(Shared {
            view: Mutex::default(),
            profile: Mutex::default(),
            stop: AtomicBool::new(false),
            leave: AtomicBool::new(false),
            refusals: Arc::default(),
        });
        let engine = Engine::new(&settings, address, Arc::clone(&shared.refusals), now());
        let (events, receiver) = channel();
        let mut agent = Agent { engine, socket, shared: Arc::clone(&shared), events };
        let thread = thread::Builder::new().name("membership".into()).spawn(move || agent.run())?;
        Ok((Self { address, shared, thread: Some(thread) }, receiver))
    }

    /// Address of the socket.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is known of the cluster now.
    pub fn view(&self) -> View {
        lock(&self.shared.view).clone()
    }

    /// Datagrams refused so far.
    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.shared.refusals
    }

    /// Tells the others something new of this node.
    pub fn set_profile(&self, profile: Profile) {
        *lock(&self.shared.profile) = Some(profile);
    }

    /// True when the thread has ended although nobody stopped it.
    pub fn is_broken(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Tells the others that this node leaves, then stops.
    ///
    /// # Errors
    /// When the thread had panicked.
    pub fn leave(mut self) -> thread::Result<()> {
        self.shared.leave.store(true, Release);
        self.end()
    }

    fn end(&mut self) -> thread::Result<()> {
        self.shared.stop.store(true, Release);
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

struct Agent {
    engine: Engine,
    socket: UdpSocket,
    shared: Arc<Shared>,
    events: Sender<Event>,
}

impl Agent {
    fn run(&mut self) {
        let mut room = [0; ROOM];
        while !self.shared.stop.load(Acquire) {
            if let Some(profile) = lock(&self.shared.profile).take() {
                self.engine.set_profile(now(), profile);
            }
            let next_ns = self.engine.poll(now());
            self.settle();
            let wait = Duration::from_nanos(next_ns.saturating_sub(now().mono_ns)).min(MAX_WAIT);
            // A timeout of zero would mean none.
            let waits = self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(100))));
            match waits.and_then(|()| self.socket.recv_from(&mut room)) {
                Ok((length, from)) => self.engine.handle(now(), from, &room[..length]),
                Err(error) if is_state(&error) => {}
                // The interface may be down for a while; the loop must not spin meanwhile.
                Err(_) => thread::sleep(MAX_WAIT),
            }
            self.settle();
        }
        if self.shared.leave.load(Acquire) {
            self.engine.leave(now());
            self.settle();
        }
    }

    /// Sends what is to be sent and tells what has happened.
    fn settle(&mut self) {
        while let Some((to, datagram)) = self.engine.next_datagram() {
            // A datagram that cannot be sent is a lost one, which SWIM is made for.
            let _ = self.socket.send_to(&datagram, to);
        }
        let mut has_changed = lock(&self.shared.view).refused != self.engine.refused();
        while let Some(event) = self.engine.next_event() {
            has_changed = true;
            let _ = self.events.send(event);
        }
        if has_changed {
            let view = View { members: self.engine.members().collect(), refused: self.engine.refused() };
            *lock(&self.shared.view) = view;
        }
    }
}

/// No datagram in time, a signal, or an earlier one that reached nobody (ICMP).
fn is_state(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused | HostUnreachable)
}

fn now() -> Moment {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment { mono_ns: monotonic_ns(), wall_us: wall.as_micros() as u64 }
}

/// What is behind these locks is replaced whole, so a thread that panicked has left nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;

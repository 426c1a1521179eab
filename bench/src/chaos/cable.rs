//! [`Cable`]: a box between two interfaces of one namespace.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use aya::maps::{Array, MapData};
use aya::programs::links::FdLink;
use dataplane_common::chaos::{CHAOS_RULE, Direction, KINDS, QUEUES, RULE_WORDS, rule_index};

use super::impairment::{Chaos, nanoseconds};
use super::relay::{Relay, Shared};
use super::tally::Tally;
use crate::interrupt::Interrupt;
use crate::object::BenchObject;

/// How long frames in the thread's hands may need to be gone, besides the time they were to be delayed.
const SETTLE_PATIENCE: Duration = Duration::from_secs(2);

/// Where a box is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace, as a file.
    pub namespace: PathBuf,
    /// Its two interfaces; [`Direction::Forth`] comes in at the first.
    pub interfaces: [String; 2],
    /// Queues of each, at most [`QUEUES`].
    pub queues: u32,
    /// Number of the cable: cables with different numbers draw different frames from one seed.
    pub number: u32,
}

/// A box in a cable. It hands everything on until it is told otherwise. Dropping it cuts the cable.
pub struct Cable {
    number: u64,
    rules: Array<MapData, [u64; RULE_WORDS]>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    // The programs run as long as both live.
    links: Vec<FdLink>,
    _object: BenchObject,
}

impl std::fmt::Debug for Cable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cable").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What the thread hands to the cable once it works.
pub(super) struct Opened {
    /// The rules.
    pub rules: Array<MapData, [u64; RULE_WORDS]>,
    /// What cable and thread share.
    pub shared: Arc<Shared>,
    /// The attached programs.
    pub links: Vec<FdLink>,
    /// What they belong to.
    pub object: BenchObject,
}

impl Cable {
    /// Puts a box between the interfaces. The other ends of both must be veths that run XDP, or take no frames until they do.
    ///
    /// # Errors
    /// Namespace or interfaces are not there, the object is not built, or the kernel refuses programs or sockets.
    pub fn open(place: &Place) -> Result<Self> {
        let queues = place.queues as usize;
        ensure!((1..=QUEUES).contains(&queues), "{queues} queues: a cable has 1 to {QUEUES}");
        let (sender, opened) = mpsc::sync_channel(1);
        let (number, place) = (u64::from(place.number), place.clone());
        // Namespaces belong to threads, so the thread that relays also opens everything.
        let thread = thread::Builder::new()
            .name("cable".to_owned())
            .spawn(move || relay(&place, &sender))
            .context("cannot start the cable's thread")?;
        let opened = opened.recv().context("BUG: the cable's thread panicked")??;
        let Opened { rules, shared, links, object } = opened;
        Ok(Self { number, rules, shared, thread: Some(thread), links, _object: object })
    }

    /// Says what shall happen from now on to frames of the named kinds in one direction.
    ///
    /// # Errors
    /// The shares are more than all frames, or the map cannot be written.
    pub fn apply_to(&mut self, direction: Direction, chaos: &Chaos) -> Result<()> {
        chaos.check()?;
        for kind in chaos.kinds.iter() {
            self.shared.set_delay(direction, kind, nanoseconds(chaos.delay_by));
            let rule = chaos.rule(self.number << 1 | u64::from(direction as u32), kind);
            self.rules.set(rule_index(direction, kind), rule.0, 0).context(CHAOS_RULE)?;
        }
        Ok(())
    }

    /// Says the same for both directions.
    ///
    /// # Errors
    /// As [`Self::apply_to`].
    pub fn apply(&mut self, chaos: &Chaos) -> Result<()> {
        Direction::ALL.into_iter().try_for_each(|direction| self.apply_to(direction, chaos))
    }

    /// What has happened in one direction. Frames on their way through the box may be in it by half.
    ///
    /// # Errors
    /// The counts cannot be read, or the thread has ended.
    pub fn tally(&self, direction: Direction) -> Result<Tally> {
        if let Some(failure) = self.shared.failure() {
            bail!("the cable's thread has ended: {failure}");
        }
        self.shared.tally(direction)
    }

    /// As [`Self::tally`], once the thread holds no frame of that direction.
    ///
    /// # Errors
    /// As [`Self::tally`]; or frames keep coming, or are held for too long; or this process was interrupted.
    pub fn settled(&self, direction: Direction, interrupt: &Interrupt) -> Result<Tally> {
        let longest_ns = (0..KINDS).map(|kind| self.shared.delay_ns(direction, kind)).max().unwrap_or(0);
        let deadline = Instant::now() + SETTLE_PATIENCE + Duration::from_nanos(longest_ns);
        loop {
            let tally = self.tally(direction)?;
            if tally.is_settled() {
                return Ok(tally);
            }
            ensure!(Instant::now() < deadline, "the cable still holds frames: {tally:?}");
            interrupt.sleep(Duration::from_millis(2))?;
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // First the programs, so that nothing more comes.
        self.links.clear();
        self.shared.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("warning: BUG: the thread of a cable panicked");
        }
    }
}

/// The thread: opens the box, says so, and relays until it is stopped.
fn relay(place: &Place, sender: &SyncSender<Result<Opened>>) {
    let describe = || format!("cannot put a box between {}", place.interfaces.join(" and "));
    match Relay::open(place).with_context(describe) {
        Ok((mut relay, opened)) => {
            let shared = Arc::clone(&opened.shared);
            if sender.send(Ok(opened)).is_ok()
                && let Err(error) = relay.run()
            {
                shared.fail(format!("{error:#}"));
            }
        }
        // Whoever waited is gone when this fails.
        Err(error) => drop(sender.send(Err(error))),
    }
}

/// The file of a namespace that `ip netns` made.
pub fn namespace(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

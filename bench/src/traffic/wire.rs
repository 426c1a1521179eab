//! The generator's ends of the ports: one packet memory, one AF_XDP socket per port, arrival times by an XDP program.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use aya::programs::links::FdLink;
use dataplane_common::maps::{INTERFACE_PORT, InterfaceRow, Params, socket_slot};
use dataplane_common::meta::{METADATA_BYTES, Metadata};
use dataplane_user::node::embedded_object;
use dataplane_user::sys::NetDevice;
use dataplane_user::worker::monotonic_ns;
use dataplane_user::xdp::{Mode, Object, Sizes};
use dataplane_user::xsk::{Batch, Kick, Umem, UmemConfig, Xsk, XskConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Name of the program that stamps the arrival time.
const SINK: &str = "dp_sink";
/// Entries of each ring. At some thousand packets a second this is more than the longest pause of the generator.
const RING: u32 = 2048;
/// Frames taken from a socket at once.
const BATCH: usize = 64;

/// How often the kernel is asked to take a frame.
const SEND_TRIES: u32 = 10_000;

/// Environment variable that names the eBPF object; else the one inside this program is used.
pub const OBJECT_VARIABLE: &str = "DATAPLANE_BPF_OBJECT";

/// A frame that came back.
pub struct Received<'a> {
    /// Index of the port it came in by.
    pub port: usize,
    /// When the XDP program saw it, ns of the monotonic clock; `None` for a frame that has not passed it.
    pub arrival_ns: Option<u64>,
    /// The frame.
    pub bytes: &'a [u8],
}

/// The sockets. Dropping it detaches the programs.
pub struct Wire {
    umem: Umem,
    sockets: Vec<Xsk>,
    incoming: Batch,
    outgoing: Batch,
    // The programs run as long as both live.
    _links: Vec<FdLink>,
    _object: Object,
}

impl Wire {
    /// Opens a socket on queue 0 of each interface of this namespace and attaches the program.
    ///
    /// # Errors
    /// An interface is not there, or the kernel refuses.
    pub fn open(interfaces: &[String]) -> Result<Self> {
        let ports = u32::try_from(interfaces.len())?;
        // A frame can be in each ring of each socket.
        let frames = ports * 4 * RING;
        let mut umem = Umem::new(&UmemConfig { frames, ..UmemConfig::default() }).context("packet memory")?;
        let sizes = Sizes { nodes: 1, workers: 1, interfaces: ports, functions: 1 };
        let mut object = with_object(|bytes| Ok(Object::load(bytes, Params::DEFAULT, sizes)?))?;
        let mut sockets = Vec::new();
        let mut links = Vec::new();
        for (index, name) in (0..).zip(interfaces) {
            let device = NetDevice::find(name).with_context(|| format!("interface {name}"))?;
            let config = XskConfig {
                rx_size: RING,
                tx_size: RING,
                fill_size: RING,
                completion_size: RING,
                ..XskConfig::new(device.index, 0)
            };
            let mut socket = Xsk::open(&mut umem, &config).with_context(|| format!("socket on {name}"))?;
            socket.refill(&mut umem);
            object.set_interface(device.index, InterfaceRow { index, kind: INTERFACE_PORT })?;
            object.set_socket(socket_slot(index, 0), socket.as_fd())?;
            links.push(object.attach(SINK, device.index, Mode::Native).with_context(|| format!("{SINK} on {name}"))?);
            sockets.push(socket);
        }
        let (incoming, outgoing) = (Batch::new(BATCH), Batch::new(1));
        Ok(Self { umem, sockets, incoming, outgoing, _links: links, _object: object })
    }

    /// Lays a frame out by `write`, to be sent by [`Self::send`].
    ///
    /// # Errors
    /// No frame is free or it is too small; or the last one was not sent.
    pub fn prepare(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<()> {
        if self.umem.available() == 0 {
            self.recycle();
        }
        let mut frame = self.umem.allocate().context("every frame is on its way: the kernel does not send")?;
        if let Err(error) = frame.set_len(bytes) {
            self.umem.release(frame);
            return Err(error).context("frame too long for the packet memory");
        }
        write(self.umem.bytes_mut(&mut frame));
        if let Err(full) = self.outgoing.push(frame) {
            self.umem.release(full.0);
            bail!("BUG: a frame was prepared while another one waited to be sent");
        }
        Ok(())
    }

    /// Sends the prepared frame out of a port. In copy mode it is on its way when this returns.
    ///
    /// # Errors
    /// The interface is down or gone, or the kernel does not take the frame however often it is asked.
    pub fn send(&mut self, port: usize) -> Result<()> {
        let socket = &mut self.sockets[port];
        for _ in 0..SEND_TRIES {
            // First the sent frames: with a full completion ring the kernel sends nothing more.
            socket.complete(&mut self.umem);
            socket.transmit(&mut self.umem, &mut self.outgoing);
            match socket.kick_tx()? {
                state @ (Kick::LinkDown | Kick::Unbound) => bail!("port {port} does not send: {state:?}"),
                Kick::Idle | Kick::Woken | Kick::Again | Kick::Busy | Kick::NoBuffers => {}
            }
            if self.outgoing.is_empty() && socket.levels().tx == 0 {
                return Ok(());
            }
        }
        bail!("port {port} does not send: the kernel takes no frame")
    }

    /// Hands over every frame that has come in. Returns how many.
    pub fn receive(&mut self, mut on_frame: impl FnMut(&Received<'_>)) -> usize {
        let mut received = 0;
        for (port, socket) in self.sockets.iter_mut().enumerate() {
            received += socket.receive(&mut self.umem, &mut self.incoming);
            while let Some(frame) = self.incoming.pop() {
                let metadata = self.umem.metadata(&frame, METADATA_BYTES);
                let metadata = metadata.and_then(<[u8]>::first_chunk::<METADATA_BYTES>).and_then(Metadata::parse);
                let arrival_ns = metadata.map(|metadata| metadata.arrival_ns(monotonic_ns()));
                on_frame(&Received { port, arrival_ns, bytes: self.umem.bytes(&frame) });
                self.umem.release(frame);
            }
        }
        if received > 0 {
            self.recycle();
        }
        received
    }

    /// Sleeps until a frame has come in, or `patience` is over.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, patience: Duration) -> Result<()> {
        let mut events = self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect::<Vec<_>>();
        let timeout = Timespec::try_from(patience).context("BUG: a time that the kernel cannot count")?;
        match poll(&mut events, Some(&timeout)) {
            // The caller looks at what has come in, whatever ended the wait.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for frames"),
        }
    }

    /// Whether a receive ring is half full, so that it must be looked at whatever else is to be done.
    pub fn is_filling(&self) -> bool {
        self.sockets.iter().any(|socket| socket.levels().rx > RING / 2)
    }

    /// Frames that the kernel had to drop in front of the sockets.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn dropped(&self) -> Result<u64> {
        let mut dropped = 0;
        for socket in &self.sockets {
            let statistics = socket.statistics()?;
            dropped += statistics.rx_dropped + statistics.rx_ring_full;
        }
        Ok(dropped)
    }

    fn recycle(&mut self) {
        for socket in &mut self.sockets {
            socket.complete(&mut self.umem);
            socket.refill(&mut self.umem);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.outgoing.release_all(&mut self.umem);
        self.incoming.release_all(&mut self.umem);
    }
}

/// Calls `use_it` with the eBPF object.
fn with_object<T>(use_it: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    if let Some(path) = std::env::var_os(OBJECT_VARIABLE) {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", Path::new(&path).display()))?;
        return use_it(&bytes);
    }
    use_it(embedded_object().context("this program was built without an eBPF object: run `cargo xtask build` first")?)
}

//! The few system calls that no library wraps safely. Like `xsk` and `maps`, a place where `unsafe` is allowed.

mod netdev;
mod packet;
mod udp;

pub use netdev::NetDevice;
pub use packet::PacketSocket;
pub use udp::{BulkSocket, MOST};

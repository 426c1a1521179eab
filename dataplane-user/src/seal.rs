//! Seals of the frames that leave from user space: a worker's forwards, results, marks and requests, and the node's reports.
//! What a seal is, is in [`dataplane_common::seal`].

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use dataplane_common::seal::{self, KeyRow, SealRow};
use dataplane_common::wire::link::{Header, Kind};

use crate::maps::Tables;

/// Seals frames with the key that the tables name at the moment, under serials that XDP programs and all threads draw from
/// the same counters.
#[derive(Debug)]
pub struct Sealer {
    tables: Arc<Tables>,
    auth: u32,
}

impl Sealer {
    /// A sealer for a node with these tables and this [`Params::auth`](dataplane_common::maps::Params::auth).
    pub fn new(tables: Arc<Tables>, auth: u32) -> Self {
        Self { tables, auth }
    }

    /// Bytes that a seal adds to a frame of `kind`.
    #[inline]
    pub const fn bytes(&self, kind: Kind) -> usize {
        seal::seal_bytes(self.auth, kind)
    }

    /// Seals a frame if those of its kind are sealed. `frame` begins with the interconnect header, written; room for the seal
    /// follows, then the body up to the end.
    ///
    /// Without a key the frame stays as it is, and its receiver refuses it; a running node always has one.
    pub fn seal(&self, header: &Header, frame: &mut [u8]) {
        if !seal::is_sealed(self.auth, header.kind) {
            return;
        }
        let number = self.tables.keys.row(0).word(offset_of!(KeyRow, signing)).load(Acquire);
        let row = self.tables.keys.row((number % seal::KEY_ROWS as u64) as u32);
        let word = |offset: usize| row.word(offset).load(Relaxed);
        if word(offset_of!(KeyRow, valid)) == 0 {
            return;
        }
        let (header_at, body_at) = (offset_of!(KeyRow, header), offset_of!(KeyRow, body));
        let key = KeyRow {
            header: [word(header_at), word(header_at + 8)],
            body: [word(body_at), word(body_at + 8)],
            ..KeyRow::default()
        };
        let issued = self.tables.seals.row(header.destination.into()).word(offset_of!(SealRow, issued));
        let serial = issued.fetch_add(1, Relaxed) + 1;
        // The caller has left room for the seal.
        let _ = seal::seal(frame, number as u8, &key, serial, seal::covers_body(self.auth, header.kind));
    }
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;

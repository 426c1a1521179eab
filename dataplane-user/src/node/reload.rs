//! A running node takes another configuration, and other programs, without losing a packet.
//!
//! The programs' parameters are constants, so a configuration is a new pair of programs: they are loaded onto the maps that the
//! running ones use, and put in their place by `BPF_LINK_UPDATE`, which leaves no moment without a program. Whatever is in rings,
//! in the air or at a peer stays where it is: tables, sockets and workers go on.
//!
//! Order: what can be refused comes before anything changes ([`Node::prepare`]). Then programs, function rows, workers, control
//! thread ([`Node::take`]). Meanwhile a packet may meet the new programs and the old rows, or new rows and old settings of its
//! worker; every such pair is safe, because the new parameters allow the old policies too, and a policy that some parameters do
//! not have decides "here".

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, bail};
use dataplane_common::maps::{FunctionRow, Params, function_slot};

use super::{LINK_PROGRAM, Node, PORT_PROGRAM, Reload, program_of, programs, show_policy, with_advice};
use crate::advice;
use crate::config::{self, Change, Config};
use crate::maps::tables::{pair, set};
use crate::worker::monotonic_ns;
use crate::xdp::{Mode, Object};

/// A configuration that a node can take, its programs accepted by the verifier.
pub struct Prepared {
    config: Config,
    change: Change,
    object: Object,
    params: Params,
}

impl Node {
    /// Checks that this node can go on with `config` and the programs of `object`, and loads them. Nothing changes yet.
    ///
    /// # Errors
    /// Something differs that needs a restart, or the object is refused.
    pub fn prepare(&self, config: Config, object: &[u8]) -> Result<Prepared> {
        let change = Change::between(&self.config, &config);
        if !change.fixed.is_empty() {
            bail!(
                "a running node cannot change {}\n  why: its sockets, its threads, the size of its tables or other nodes depend on it\n  do:  take that back, or stop the node and start it again",
                change.fixed.join(", ")
            );
        }
        let mut params = config.params(self.epoch);
        // For as long as the rows of functions name them.
        params.policies |= self.config.params(self.epoch).policies;
        let refused = || with_advice(advice::Operation::LoadObject);
        let mut object = Object::load_again(object, params, self.sizes, self.pins.dir()).map_err(refused())?;
        for program in [LINK_PROGRAM, PORT_PROGRAM] {
            object.load_program(program).map_err(refused())?;
        }
        Ok(Prepared { config, change, object, params })
    }

    /// Goes on with what was prepared; tells in a line what changed.
    ///
    /// # Errors
    /// An interface did not take its new program and has none now, or the process may open no more files. The node must be
    /// stopped.
    pub fn take(&mut self, prepared: Prepared) -> Result<String> {
        let Prepared { config, change, mut object, params } = prepared;
        for interface in &mut self.interfaces {
            let Some(link) = interface.link.take() else { continue };
            let mode = if interface.mode == config::Mode::Skb { Mode::Skb } else { Mode::Native };
            let (name, ifindex) = (&interface.device.name, interface.device.index);
            let replaced = object.replace(program_of(interface.kind), (ifindex, mode), link);
            interface.link = Some(replaced.with_context(|| format!("{name} did not take its new program"))?);
        }
        self.write_functions(&config);
        for (worker, live) in (0..).zip(&self.settings) {
            live.store(Arc::new(self.settings(&config, worker, params)));
        }
        show_policy(&self.tables, &config);
        let (programs, log) = (programs(&mut object, &config)?, object.log());
        // The old programs go with their object; their maps stay with the new one.
        self.object = object;
        let old = std::mem::replace(&mut self.config, config.clone());
        if let Some(reloads) = &self.reloads {
            // A thread that has ended is noticed by whoever looks after the node.
            let _ = reloads.send(Reload { old, new: config, programs, log });
        }
        Ok(match change.live.as_slice() {
            [] => "the configuration is the same; its programs were loaded anew".to_owned(),
            changed => format!("changed {}", changed.join(", ")),
        })
    }

    /// Tells whoever asked how a reload ended.
    pub fn answer_reload(&self, is_taken: bool, text: &str) {
        self.tables.show_reload(monotonic_ns(), is_taken, text);
    }

    /// Writes what the configuration says of the functions over what it said before; what is measured stays.
    fn write_functions(&self, config: &Config) {
        for (index, function) in (0..).zip(&config.functions) {
            for worker in 0..self.sizes.workers {
                let row = self.tables.functions.row(function_slot(index, worker));
                let high = |offset| row.word(offset).load(Relaxed) >> 32;
                let units = high(offset_of!(FunctionRow, limit_ns)) as u32;
                set(row, offset_of!(FunctionRow, limit_ns), pair(function.limit_ns, units));
                let flags = function.flags(config.interconnect.transport);
                set(row, offset_of!(FunctionRow, order), pair(function.order.id(), flags));
                let policy = function.policy as u32;
                // The other half is the home that the present policy has chosen.
                if row.word(offset_of!(FunctionRow, policy)).load(Relaxed) as u32 != policy {
                    set(row, offset_of!(FunctionRow, policy), pair(policy, 0));
                }
            }
        }
    }
}

//! The workers' measurements, on their way to the function rows.

use std::mem::offset_of;
use std::sync::Arc;

use anyhow::Result;
use dataplane_common::maps::{FunctionRow, function_slot};

use super::empty_samples;
use crate::maps::Tables;
use crate::maps::tables::{pair, set};
use crate::samples::{Exchange, FunctionSamples, Samples};

/// Gathers the workers' measurements and shows their quantiles in the function rows.
pub(super) struct Publisher {
    tables: Arc<Tables>,
    exchanges: Vec<Arc<Exchange>>,
    /// All measurements so far, by worker.
    totals: Vec<Samples>,
    spare: Vec<Option<Samples>>,
}

impl Publisher {
    pub(super) fn new(tables: Arc<Tables>, exchanges: Vec<Arc<Exchange>>, functions: usize) -> Result<Self> {
        let sets = |_| empty_samples(functions);
        let totals = (0..exchanges.len()).map(sets).collect::<Result<Vec<_>>>()?;
        let spare = (0..exchanges.len()).map(sets).map(|set| set.map(Some)).collect::<Result<Vec<_>>>()?;
        Ok(Self { tables, exchanges, totals, spare })
    }

    pub(super) fn publish(&mut self) {
        for (worker, exchange) in self.exchanges.iter().enumerate() {
            if let Some(mut used) = exchange.collect() {
                for (index, samples) in used.iter_mut().enumerate() {
                    let total = &mut self.totals[worker][index];
                    total.add(samples);
                    samples.clear();
                    show(&self.tables, function_slot(index as u32, worker as u32), total);
                }
                self.spare[worker] = Some(used);
            }
            if let Some(empty) = self.spare[worker].take() {
                self.spare[worker] = exchange.lay_out(empty);
            }
        }
    }
}

fn show(tables: &Tables, slot: u32, samples: &FunctionSamples) {
    let service = |quantile| u32::try_from(samples.service_ns.value_at_quantile(quantile)).unwrap_or(u32::MAX);
    let error = |quantile| u32::try_from(samples.error_milli.value_at_quantile(quantile)).unwrap_or(u32::MAX);
    let row = tables.functions.row(slot);
    set(row, offset_of!(FunctionRow, service_p50_ns), pair(service(0.5), service(0.99)));
    set(row, offset_of!(FunctionRow, error_p50_milli), pair(error(0.5), error(0.99)));
}

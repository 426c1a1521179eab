//! The settings of the policies: one flat list of whole numbers with names, units and defaults.
//!
//! A name here is a key of `[policy]` in the configuration and of the simulator's command line. Sources of the defaults are
//! with the policies that use them.

use crate::decay::Rate;
use crate::load::saturate;

macro_rules! settings {
    ($($name:ident = $default:literal, $unit:ident, $least:literal ..= $most:literal, $help:literal;)*) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub struct Tuning {
            $(#[doc = $help] pub $name: u32,)*
        }

        impl Tuning {
            /// What policies run with unless told otherwise.
            pub const DEFAULT: Self = Self { $($name: $default,)* };

            /// Every setting.
            pub const ALL: &'static [Setting] = &[
                $(Setting {
                    name: stringify!($name),
                    default: $default,
                    unit: Unit::$unit,
                    least: $least,
                    most: $most,
                    help: $help,
                },)*
            ];

            /// The setting of this name.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut u32> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

/// What a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Thousandths of one.
    Milli,
    /// Nanoseconds.
    Ns,
    /// One of a few names; the documentation of the setting says which number is which.
    Choice,
}

/// One setting, described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: u32,
    /// What it counts.
    pub unit: Unit,
    /// Smallest value that makes sense.
    pub least: u32,
    /// Largest value that makes sense.
    pub most: u32,
    /// One line for people.
    pub help: &'static str,
}

settings! {
    sample = 8, Count, 0 ..= 64, "Nodes a decision looks at when there are more than 16 peers; 0 looks at all.";
    choices = 2, Count, 1 ..= 64, "Nodes that jsq-d looks at.";
    erl = 0, Choice, 0 ..= 3, "How sent work is added to a report: ack, add, drain or off.";
    discipline = 0, Choice, 0 ..= 2, "Order of service in a worker: fifo, shortest or class.";
    price_milli = 2000, Milli, 0 ..= 100_000, "Sooner: weight of the CPU time a redirect burns, at the utilisation of the cluster.";
    damping_milli = 200, Milli, 0 ..= 1_000, "Sooner: weight of the packets that a longer queue delays.";
    relax_milli = 50_000, Milli, 1 ..= 1_000_000, "Sooner: time in which a load forgets a report, in mean service times.";
    gain_milli = 1000, Milli, 0 ..= 100_000, "Sooner: how much own packets in flight say about those of others.";
    spread_milli = 4000, Milli, 0 ..= 100_000, "Sooner: nodes within this many median errors of the best are equals; with fewer than 16 peers within less.";
    threshold_milli = 700, Milli, 1 ..= 1_000, "Thresholds: load from which a node is over.";
    recovery_milli = 500, Milli, 0 ..= 1_000, "Thresholds: load at which it is no longer.";
    step_milli = 200, Milli, 0 ..= 1_000, "Thresholds: share of the way to the mean load that the adaptive threshold goes (1/5, 1/10, 1/15).";
    over = 0, Choice, 0 ..= 1, "Thresholds: a node that is over gets half its share, or none.";
    adjust_on = 0, Choice, 0 ..= 1, "Thresholds: the adaptive threshold moves when a node goes over, or also when it recovers.";
    cpu_milli = 1000, Milli, 0 ..= 1_000, "Thresholds, tri-state, dish: weight of the busy share in a node's load.";
    memory_milli = 0, Milli, 0 ..= 1_000, "Thresholds, tri-state, dish: weight of the packet memory in use.";
    queue_milli = 0, Milli, 0 ..= 1_000, "Tri-state, dish: weight of the run queue, against queue_full.";
    queue_full = 16, Count, 1 ..= 1_000_000, "Tri-state, dish: packets per worker that count as a full run queue.";
    busy_milli = 500, Milli, 0 ..= 1_000, "Tri-state: load from which a node gets half a share.";
    full_milli = 800, Milli, 0 ..= 1_000, "Tri-state: load from which it gets none.";
    flood_milli = 3000, Milli, 1_000 ..= 1_000_000, "Type-burst: a function floods when its rate is this many times its long-term rate.";
    calm_milli = 1500, Milli, 1_000 ..= 1_000_000, "Type-burst: and no longer when it is below this many times.";
    flood_share_milli = 300, Milli, 0 ..= 1_000, "Type-burst: and has at least this share of all packets.";
    response_milli = 1000, Milli, 0 ..= 1_000_000, "DSS: weight K_r of the measured response time.";
    load_milli = 0, Milli, 0 ..= 1_000_000, "DSS: weight K_l of the reported load.";
    max_response_ns = 5_000_000, Ns, 1_000 ..= 4_000_000_000, "DSS: a node that leaves a packet unanswered for this long is unavailable.";
    hold_ns = 1_000_000_000, Ns, 0 ..= 4_000_000_000, "DSS: an unavailable node is tried again after this time.";
    target_high_ns = 50_000_000, Ns, 1 ..= 4_000_000_000, "SLA: response time promised to the highest class.";
    target_middle_ns = 100_000_000, Ns, 1 ..= 4_000_000_000, "SLA: response time promised to the middle class.";
    target_low_ns = 400_000_000, Ns, 1 ..= 4_000_000_000, "SLA: response time promised to the lowest class.";
    depth = 3, Count, 1 ..= 16, "PHRW: nodes of highest weight among which a reactive packet takes the fastest.";
    plan_ns = 10_000_000, Ns, 100_000 ..= 4_000_000_000, "Placing policies: time between two plans.";
    memory_share_milli = 100, Milli, 0 ..= 1_000, "WARD: share of all keys' data that one node's memory holds.";
    miss_ns = 100_000, Ns, 0 ..= 1_000_000_000, "WARD: what fetching data that is not in memory costs.";
    renewal_milli = 500, Milli, 0 ..= 1_000, "Histogram: weight of the newest interval in the histogram.";
    imbalance_milli = 1200, Milli, 1_000 ..= 1_000_000, "DISH: slots move when the busiest node has this many times the mean.";
    rif_quantile_milli = 840, Milli, 0 ..= 1_000, "Prequal: nodes above this quantile of requests in flight are hot.";
    probes = 3, Count, 1 ..= 16, "Prequal: probes a packet.";
    peak_milli = 100_000, Milli, 1_000 ..= 100_000_000, "Peak-EWMA: time in which a response time is forgotten, in mean service times.";
    early_milli = 1000, Milli, 0 ..= 10_000, "Sooner: weight of the time for which a result would wait for earlier ones of its flow.";
}

impl Tuning {
    /// How fast a load forgets a report where packets take `service_ns` on average.
    #[inline(always)]
    pub const fn relaxation(&self, service_ns: u32) -> Rate {
        Rate::of(saturate(service_ns as u64 * self.relax_milli as u64 / 1000))
    }

    /// Time in which a response time is forgotten where packets take `service_ns` on average, ns.
    #[inline(always)]
    pub const fn peak_forget_ns(&self, service_ns: u32) -> u32 {
        saturate(service_ns as u64 * self.peak_milli as u64 / 1000)
    }
}

/// [`Tuning::discipline`]: in order of arrival.
pub const FIFO: u32 = 0;
/// [`Tuning::discipline`]: shortest estimated processing time first, with ageing.
pub const SHORTEST: u32 = 1;
/// [`Tuning::discipline`]: highest class first.
pub const CLASS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_bounds_and_names_lead_to_them() {
        let mut tuning = Tuning::DEFAULT;
        assert_eq!(size_of::<Tuning>(), 4 * Tuning::ALL.len());
        for setting in Tuning::ALL {
            assert!(setting.least <= setting.default && setting.default <= setting.most, "{}", setting.name);
            assert!(setting.help.ends_with('.'), "{}", setting.name);
            assert_eq!(tuning.get_mut(setting.name).copied(), Some(setting.default), "{}", setting.name);
        }
        assert_eq!(tuning.get_mut("nonsense"), None);
    }
}

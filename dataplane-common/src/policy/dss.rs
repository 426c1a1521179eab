//! `dss`: dynamic server selection by a composite metric (Tomić, FERIT Osijek 2018; Tomić and Žagar, Tehnički vjesnik 25(4)
//! 2018; Tomić, Žagar and Martinović, Telecommunication Systems 71(1) 2019). This node is the client, all nodes are servers.
//!
//! ```text
//! M_i = K_r · R_i · (1 + K_l · L_i)                     the node with the least M takes all packets
//! i is unavailable for hold_ns when packets were sent to it and none came back for max_response_ns
//! ```
//! `R` is the measured response time ([`response_ns`]), `L` the reported load from 0 to 1 ([`crate::plan::load_milli`]),
//! `K_r` = `response_milli`, `K_l` = `load_milli`. That the metric weighs these two is published; its form and `M`'s unit,
//! time, are a reconstruction. `R` contains the load already, so `K_l` is 0 unless told otherwise: a load beside it counts
//! twice. `K_r` = 0 makes all nodes equal and the first of them the head: a fixed preference. Administrative penalties are
//! left out.
//!
//! One slot of the 4096 goes to another node each turn, in rotation: like the published client, it measures every server, or
//! one that had a bad moment would be avoided for ever. What is unanswered is looked at once a turn, so a node is found
//! unavailable at most two turns after `max_response_ns`. Cost: one slot and one row.

use super::{Decision, Homes, Job, Needs, Policy, placed::drawn};
use crate::load::{LoadView, saturate};
use crate::maps::{MAX_NODES, Params};
use crate::plan::{Board, HERE, Member, Plan, SLOTS, load_milli};
use crate::tuning::Tuning;

/// See the module.
pub struct Dss;

impl Policy for Dss {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS).and(Needs::RESULTS);
    type Plan = Ranking;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        drawn(job, params, loads)
    }
}

/// Whether a node answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing says that it does not.
    #[default]
    Answers,
    /// Packets went there and none has come back since.
    Silent { since_ns: u64 },
    /// It has been silent for too long.
    Unavailable { until_ns: u64 },
}

/// What has gone to a node and come back, and what follows.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    sent: u32,
    completed: u32,
    state: State,
}

impl Account {
    /// Brings the account up to date. Packets outstanding say nothing by themselves: results may be lost.
    fn update(&mut self, member: &Member, now_ns: u64, tuning: &Tuning) {
        let sent = member.completed.wrapping_add(member.outstanding);
        let (has_answered, was_asked) = (member.completed != self.completed, sent != self.sent);
        (self.sent, self.completed) = (sent, member.completed);
        self.state = match self.state {
            State::Unavailable { until_ns } if now_ns < until_ns => self.state,
            _ if has_answered || member.is_self => State::Answers,
            State::Silent { since_ns } if now_ns.saturating_sub(since_ns) >= u64::from(tuning.max_response_ns) => {
                State::Unavailable { until_ns: now_ns.saturating_add(u64::from(tuning.hold_ns)) }
            }
            State::Silent { .. } => self.state,
            _ if was_asked => State::Silent { since_ns: now_ns },
            _ => State::Answers,
        };
    }

    fn is_available(&self) -> bool {
        !matches!(self.state, State::Unavailable { .. })
    }
}

/// The slow half: the account of every node, and whose turn it is to be measured.
pub struct Ranking {
    accounts: [Account; MAX_NODES],
    measured: usize,
}

impl Default for Ranking {
    fn default() -> Self {
        Self { accounts: [Account::default(); MAX_NODES], measured: 0 }
    }
}

impl Ranking {
    fn is_available(&self, member: &Member) -> bool {
        member.is_live && self.accounts.get(usize::from(member.node)).is_some_and(Account::is_available)
    }

    /// The available node with the least metric; the first of equals.
    fn head<B: Board>(&self, board: &B, tuning: &Tuning) -> Option<u16> {
        (0..board.members())
            .map(|index| board.member(index))
            .filter(|member| self.is_available(member))
            .min_by_key(|member| metric(member, tuning))
            .map(|member| member.node)
    }

    /// The next available node that is not the head.
    fn next_measured<B: Board>(&mut self, board: &B, head: u16) -> Option<u16> {
        for _ in 0..board.members() {
            self.measured = (self.measured + 1) % board.members();
            let member = board.member(self.measured);
            if member.node != head && self.is_available(&member) {
                return Some(member.node);
            }
        }
        None
    }
}

impl Plan for Ranking {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        for index in 0..board.members() {
            let member = board.member(index);
            if let Some(account) = self.accounts.get_mut(usize::from(member.node)) {
                account.update(&member, board.now_ns(), tuning);
            }
        }
        let head = self.head(board, tuning).unwrap_or(HERE);
        let first = self.next_measured(board, head).unwrap_or(head);
        board.place(0, first);
        for slot in 1..SLOTS {
            board.place(slot, head);
        }
    }
}

/// The metric of a node, in ns / 1000: only the order matters.
fn metric(member: &Member, tuning: &Tuning) -> u64 {
    let response = u64::from(response_ns(member)) * u64::from(tuning.response_milli) / 1000;
    let load = u64::from(load_milli(member, tuning).min(1000));
    response.saturating_mul(1000 + load * u64::from(tuning.load_milli) / 1000)
}

/// The response time of a node, ns: as measured, or else, as for a node that no packet was sent to, its backlog and one packet
/// of the mean size of those that wait there.
pub(super) fn response_ns(member: &Member) -> u32 {
    if member.response_ns != 0 {
        return member.response_ns;
    }
    let backlog = u64::from(member.backlog_ns);
    saturate(backlog + (backlog * 1000).checked_div(u64::from(member.queued_milli)).unwrap_or(0))
}

#[cfg(test)]
#[path = "dss_tests.rs"]
mod tests;

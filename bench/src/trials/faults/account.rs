//! Where every packet of a trial ended, by the counters of the node of arrival, and what a trial promises.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dataplane_common::reason::{Effect, Reason, Stage};
use serde::Serialize;

use super::fault::{Fault, VICTIM};
use crate::status::Status;
use crate::traffic::Counts;

/// What the node of arrival says of its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Packets that ended under a name, here or at a peer: by the name of the reason, those that occurred.
    pub named: BTreeMap<String, u64>,
    /// Packets sent to each peer that neither came back in any form nor have a name there: in flight for ever.
    pub in_flight: BTreeMap<u16, i64>,
    /// Packets sent to peers.
    pub forwarded: u64,
    /// Packets placed anew.
    pub again: u64,
    /// Results dropped because the packet had been answered.
    pub late: u64,
}

impl Account {
    /// Draws it up from the node of arrival and its peers, when nothing waits anywhere.
    ///
    /// # Errors
    /// It does not know one of its peers.
    pub fn new(status: &Status, peers: &[Status]) -> Result<Self> {
        let ends = |reason: &&Reason| match (reason.stage(), reason.effect()) {
            (Stage::Port | Stage::Worker, Effect::Drop) => true,
            (Stage::Port, Effect::Pass) => **reason != Reason::PassNotActive,
            _ => matches!(
                reason,
                Reason::MarkTaken
                    | Reason::MarkEnded
                    | Reason::DropLinkPort
                    | Reason::DropLinkNoSocket
                    | Reason::DropLinkHeadroom
            ),
        };
        let named = Reason::ALL.iter().filter(ends).map(|reason| (reason.name().to_owned(), status.count(*reason)));
        let ring = ("ring_dropped".to_owned(), status.ledger.ring_dropped);
        let mut named: BTreeMap<_, _> = named.chain([ring]).filter(|(_, count)| *count > 0).collect();
        let mut in_flight = BTreeMap::new();
        for there in peers {
            let (here, id) = (status.node.id, there.node.id);
            let peer = status.peer(id).with_context(|| format!("node {here} does not know node {id}"))?;
            let dropped = dropped_silently(there);
            if dropped > 0 {
                named.insert(format!("dropped by node {id}"), dropped);
            }
            let missing = peer.sent_frames.wrapping_sub(peer.completed_frames) as i64;
            in_flight.insert(id, missing - dropped as i64);
        }
        Ok(Self {
            named,
            in_flight,
            forwarded: status.count(Reason::Redirected) + status.count(Reason::SentForward),
            again: status.count(Reason::SeenAgain),
            late: status.count(Reason::DropLinkDuplicate),
        })
    }

    /// Packets that ended under a name.
    pub fn named(&self) -> u64 {
        self.named.values().sum()
    }

    /// Packets in flight for ever, to all peers.
    pub fn in_flight(&self) -> i64 {
        self.in_flight.values().sum()
    }

    /// Packets that did not come back and have no name. What a lossless function sends away are copies, so neither what was in
    /// flight nor what has another name more than there are losses says anything of its packets.
    pub fn unaccounted(&self, counts: &Counts, lossless: bool) -> i64 {
        let without_name = counts.lost() as i64 - self.named() as i64;
        if lossless { without_name.max(0) } else { without_name - self.in_flight() }
    }
}

/// Forwarded packets that a node dropped, in its rings or behind them, without telling the node of arrival.
fn dropped_silently(status: &Status) -> u64 {
    let drops = |reason: &&Reason| {
        let of_link = matches!(reason, Reason::DropLinkType | Reason::DropLinkNoSocket | Reason::DropLinkHeadroom);
        of_link || (reason.stage(), reason.effect()) == (Stage::Worker, Effect::Drop)
    };
    let dropped: u64 = Reason::ALL.iter().filter(drops).map(|reason| status.count(*reason)).sum();
    (dropped + status.ledger.ring_dropped).saturating_sub(status.count(Reason::NoteMarkSent))
}

/// What a trial promised and did not keep.
pub(super) fn broken(
    fault: Fault,
    lossless: bool,
    (counts, account): (&Counts, &Account),
    box_dropped: u64,
) -> Vec<String> {
    let mut broken = Vec::new();
    let mut check = |holds: bool, text: String| {
        if !holds {
            broken.push(text);
        }
    };
    let (lost, in_flight) = (counts.lost(), account.in_flight());
    check(counts.duplicated == 0, format!("{} packets came back more than once", counts.duplicated));
    let wrong = counts.corrupt + counts.results_wrong + counts.misdelivered + counts.foreign;
    check(wrong == 0, format!("{wrong} packets came back damaged, wrong, at another port, or were never sent"));
    let unaccounted = account.unaccounted(counts, lossless);
    check(unaccounted == 0, format!("{unaccounted} packets have no name: {counts:?}, {account:?}"));
    if lossless {
        check(lost == 0, format!("{lost} packets of a lossless function were lost: {:?}", account.named));
        return broken;
    }
    check(in_flight <= account.forwarded as i64, format!("{in_flight} of {} sent are missing", account.forwarded));
    if fault.loses_frames() {
        let text = format!("{in_flight} packets were lost between the nodes, and the boxes dropped {box_dropped}");
        check(in_flight == box_dropped as i64, text);
    } else {
        let expected = |node: u16| fault == Fault::Kill && node == VICTIM;
        for (node, count) in account.in_flight.iter().filter(|(node, _)| !expected(**node)) {
            check(*count == 0, format!("{count} packets were lost on the way to node {node} and back"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::status;

    fn account(counts: &[(Reason, u64)], sent: u64) -> Account {
        let peers = [status(2, &[], &[]), status(3, &[], &[])];
        Account::new(&status(1, counts, &[(2, sent, 0), (3, 0, 0)]), &peers).unwrap()
    }

    fn counts(sent: u64, received: u64) -> Counts {
        Counts { sent, received, ..Counts::default() }
    }

    #[test]
    fn losses_are_named_or_were_in_flight() {
        let found = account(&[(Reason::DropOverload, 2), (Reason::MarkTaken, 1), (Reason::Redirected, 9)], 5);
        assert_eq!((found.named(), found.in_flight(), found.forwarded), (3, 5, 9));
        assert_eq!(found.unaccounted(&counts(100, 92), false), 0);
        assert_eq!(found.unaccounted(&counts(100, 97), true), 0, "copies are no packets");
        assert_eq!(found.unaccounted(&counts(100, 91), false), 1);
        assert!(Account::new(&status(1, &[], &[]), &[status(2, &[], &[])]).is_err());
    }

    #[test]
    fn what_a_peer_dropped_has_a_name_once() {
        let peer = status(2, &[(Reason::DropTxFull, 4), (Reason::NoteMarkSent, 1)], &[]);
        let here = status(1, &[(Reason::MarkTaken, 1)], &[(2, 5, 0)]);
        let found = Account::new(&here, &[peer]).unwrap();
        assert_eq!((found.named(), found.in_flight()), (4, 2));
    }

    #[test]
    fn a_killed_node_may_lose_what_it_had_and_nobody_else() {
        let found = account(&[(Reason::Redirected, 9)], 5);
        let kept = |fault, dropped| broken(fault, false, (&counts(100, 95), &found), dropped).is_empty();
        assert!(kept(Fault::Kill, 0));
        assert!(kept(Fault::Cut, 5) && !kept(Fault::Cut, 4));
        assert!(!kept(Fault::Stop, 0) && !kept(Fault::Reports, 0));
    }

    #[test]
    fn lossless_functions_lose_and_repeat_nothing() {
        let found = account(&[], 5);
        let kept = |counts: Counts| broken(Fault::Kill, true, (&counts, &found), 0).is_empty();
        assert!(kept(counts(100, 100)));
        assert!(!kept(counts(100, 99)));
        assert!(!kept(Counts { duplicated: 1, ..counts(100, 100) }));
        assert!(!kept(Counts { results_wrong: 1, ..counts(100, 100) }));
    }
}

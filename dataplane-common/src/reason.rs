//! The one list of what can happen to a frame: counter index, name and help text of every verdict and drop.
//!
//! XDP programs, workers, `status`, the ledger, tests and `docs/counters.md` all read it. A frame that is *seen* ends in
//! exactly one counter of the same stage whose effect is not [`Effect::Note`]; [`crate::ledger`] checks that.

/// Where a counter is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// XDP program on a port.
    Port,
    /// XDP program on an interconnect link.
    Link,
    /// Worker thread.
    Worker,
    /// Control thread.
    Control,
}

/// What a counter says about the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The frame entered the stage.
    Seen,
    /// It went to the kernel's network stack, untouched.
    Pass,
    /// It went on to another node.
    Redirect,
    /// It went on to a worker of this node.
    Queue,
    /// It was put on a transmit ring or out of a port.
    Send,
    /// It ended here because it was consumed for its purpose.
    Consume,
    /// It ended here because something is wrong with it or with this node.
    Drop,
    /// It says something about a frame that another counter disposes of.
    Note,
}

macro_rules! reasons {
    ($($variant:ident, $stage:ident, $effect:ident, $name:literal, $help:literal;)*) => {
        /// Counter index: what happened to a frame and why. See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $help] $variant,)*
        }

        impl Reason {
            /// Every reason, in counter order.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// Stable name, as metrics and JSON print it.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(Reason::$variant => $help,)* }
            }

            /// Where it is counted.
            pub const fn stage(self) -> Stage {
                match self { $(Reason::$variant => Stage::$stage,)* }
            }

            /// What it says about the frame.
            pub const fn effect(self) -> Effect {
                match self { $(Reason::$variant => Effect::$effect,)* }
            }
        }
    };
}

reasons! {
    SeenPort, Port, Seen, "port_seen", "Frames that arrived at a port.";
    PassNotActive, Port, Pass, "pass_not_active", "Not an active packet: left to the kernel stack.";
    PassFragment, Port, Pass, "pass_fragment", "Fragment of a UDP or protocol 107 packet: left to the kernel stack.";
    PassUnknownType, Port, Pass, "pass_unknown_type", "Active, type id not known here, sender allows forwarding as ordinary traffic.";
    PassResult, Port, Pass, "pass_result", "Result of another node, on its way to whoever asked: left to the kernel stack.";
    PassNoSocket, Port, Pass, "pass_no_socket", "Active, but no worker's socket is bound to this queue: left to the kernel stack (fail open).";
    DropAnepTruncated, Port, Drop, "drop_anep_truncated", "Fewer bytes than an ANEP header has.";
    DropAnepVersion, Port, Drop, "drop_anep_version", "ANEP version is not 1.";
    DropAnepHeaderShort, Port, Drop, "drop_anep_header_short", "ANEP header length below 2 words.";
    DropAnepHeaderPastEnd, Port, Drop, "drop_anep_header_past_end", "ANEP header length beyond the packet length.";
    DropAnepPacketPastFrame, Port, Drop, "drop_anep_packet_past_frame", "ANEP packet length beyond what UDP, IP or the frame delivered.";
    DropAnepOptionLength, Port, Drop, "drop_anep_option_length", "ANEP option of length 0, too short for its type, or past the header.";
    DropAnepOptionUnknown, Port, Drop, "drop_anep_option_unknown", "Unknown ANEP option that asks for discard.";
    DropAnepOptionsLimit, Port, Drop, "drop_anep_options_limit", "More than 8 ANEP options or a header longer than 256 bytes.";
    DropUnknownType, Port, Drop, "drop_unknown_type", "Type id not known here and the sender asks for discard.";
    DropOperandMissing, Port, Drop, "drop_operand_missing", "The function needs an operand option and the packet has none.";
    DropServiceLimit, Port, Drop, "drop_service_limit", "Declared cost of the packet's work above the function's limit.";
    DropGroupSource, Port, Drop, "drop_group_source", "Active packet from a group address (MAC or IP): an answer would reach many.";
    DropIpChecksum, Port, Drop, "drop_ip_checksum", "Active packet whose IPv4 header checksum is wrong.";
    DropUdpLength, Port, Drop, "drop_udp_length", "UDP length below 8 or beyond the IP payload.";
    DropHeadroom, Port, Drop, "drop_headroom", "The driver left no room in front of the frame for metadata.";
    Redirected, Port, Redirect, "redirected", "Sent to another node, as the policy decided.";
    LocalQueued, Port, Queue, "local_queued", "Given to this node's worker.";
    NoteTrailing, Port, Note, "note_trailing_bytes", "Active packets shorter than the datagram that carried them; the tail is ignored.";
    NoteTooLong, Port, Note, "note_too_long_to_forward", "Kept here because the link's MTU has no room for the interconnect header.";
    NoteNoCredit, Port, Note, "note_no_credit", "Kept here because the node the policy chose takes no more work for now.";
    DropOverload, Port, Drop, "drop_overload", "Refused because more work waits here than the node takes ([workers] backlog_limit).";
    NoteUnreachable, Port, Note, "note_unreachable", "Kept here because the node the policy chose has no link, or there is no room for the interconnect header.";

    SeenLink, Link, Seen, "link_seen", "Frames that arrived on an interconnect link.";
    PassLink, Link, Pass, "pass_link", "Not an interconnect frame: left to the kernel stack.";
    DropLinkTruncated, Link, Drop, "drop_link_truncated", "Interconnect frame shorter than it says, or a report without content.";
    DropLinkVersion, Link, Drop, "drop_link_version", "Interconnect frame of another version.";
    DropLinkKind, Link, Drop, "drop_link_kind", "Interconnect frame of unknown kind.";
    DropLinkHops, Link, Drop, "drop_link_hops", "Interconnect frame with no hop or too many.";
    DropLinkDestination, Link, Drop, "drop_link_destination", "Interconnect frame for another node.";
    DropLinkSource, Link, Drop, "drop_link_source", "Interconnect frame from a node that is not a peer.";
    DropLinkType, Link, Drop, "drop_link_type", "Forwarded packet whose function this node does not have.";
    DropLinkPort, Link, Drop, "drop_link_port", "Result for a port this node does not have.";
    DropLinkNoSocket, Link, Drop, "drop_link_no_socket", "Forwarded packet on a queue without a worker's socket.";
    DropLinkHeadroom, Link, Drop, "drop_link_headroom", "The driver left no room in front of the frame for metadata.";
    DropLinkDuplicate, Link, Drop, "drop_link_duplicate", "Result of a packet kept here whose result has come already, or which is being computed again.";
    DropLinkUnsealed, Link, Drop, "drop_link_unsealed", "Interconnect frame without a seal, of a kind that must have one.";
    DropLinkKey, Link, Drop, "drop_link_key", "Interconnect frame sealed under a key number that this node does not have.";
    DropLinkTag, Link, Drop, "drop_link_tag", "Interconnect frame whose seal is wrong: altered, or sealed by a stranger or in another cluster.";
    DropLinkStaleBoot, Link, Drop, "drop_link_stale_boot", "Genuine interconnect frame whose sender did not know this boot of this node: recorded in an earlier one, or sent before the two had heard of each other.";
    DropLinkBody, Link, Drop, "drop_link_body", "Genuine interconnect header in front of another body than it was sealed with.";
    DropLinkReplay, Link, Drop, "drop_link_replay", "Genuine interconnect frame that was taken before, is too late to tell, or is of a boot of its sender that is over.";
    DropReportOld, Link, Drop, "drop_report_old", "Report older than one already taken.";
    ReportTaken, Link, Consume, "report_taken", "Load reports taken.";
    ForwardQueued, Link, Queue, "forward_queued", "Forwarded packets given to this node's worker.";
    ResultQueued, Link, Queue, "result_queued", "Results, and marks of packets without one, that came back before their turn, given to this node's worker to hold.";
    ResultReturned, Link, Send, "result_returned", "Results given to the device of the port their packet arrived at.";
    PullQueued, Link, Queue, "pull_queued", "Requests of idle peers for work, given to this node's worker.";
    MarkTaken, Link, Consume, "mark_taken", "Word of peers that a packet of an ordered flow was dropped there and nothing will come back.";
    UndoneTaken, Link, Consume, "undone_taken", "Word of peers that a packet kept here was not computed there: it is placed anew.";
    NotePiggyback, Link, Note, "note_piggyback", "Forwards and results whose load was newer than the one known, and was taken.";
    NoteLate, Link, Note, "note_late_result", "Results sent on after one that arrived after them: their turn had been given up.";

    SeenLocal, Worker, Seen, "worker_local", "Packets of this node's ports taken by a worker.";
    SeenForwarded, Worker, Seen, "worker_forwarded", "Packets of other nodes taken by a worker.";
    SeenAgain, Worker, Seen, "worker_again", "Packets of lossless functions placed anew, because the node they were sent to did not answer or did not compute them.";
    SeenResult, Worker, Seen, "worker_result", "Results and marks of other nodes that came before their turn, taken by a worker.";
    SeenPull, Worker, Seen, "worker_pull", "Requests of idle peers for work taken by a worker.";
    DropMetadata, Worker, Drop, "drop_metadata", "Frame without valid metadata of the XDP program, or a forwarded one that holds no active packet.";
    DropUdpChecksum, Worker, Drop, "drop_udp_checksum", "UDP checksum wrong, zero over IPv6, or of a datagram that is not whole.";
    DropAnepChecksum, Worker, Drop, "drop_anep_checksum", "ANEP integrity checksum wrong.";
    DropResultRoom, Worker, Drop, "drop_result_room", "No result option, or one too small for the function's result.";
    DropForwardLimit, Worker, Drop, "drop_forward_limit", "Forwarded packet whose declared cost is above the function's limit here.";
    DropStopping, Worker, Drop, "drop_stopping", "Not computed: the node is stopping.";
    DropNoWay, Worker, Drop, "drop_no_way", "Result for a node that is no peer any more.";
    DropTxFull, Worker, Drop, "drop_tx_full", "The transmit ring stayed full.";
    SentResult, Worker, Send, "sent_result", "Results sent out of a port of this node.";
    SentForward, Worker, Send, "sent_forward", "Packets sent to another node by a worker: it decided so, or the node was idle and had asked for work.";
    PullAnswered, Worker, Consume, "pull_answered", "Requests for work that were given a packet.";
    PullRefused, Worker, Consume, "pull_refused", "Requests for work in vain: nothing waited here whose move gains anything.";
    NotePullSent, Worker, Note, "note_pull_sent", "Requests for work sent to peers because a worker was idle.";
    MarkEnded, Worker, Consume, "mark_ended", "As mark_taken, but before the packet's turn in its flow.";
    NoteOutOfOrder, Worker, Note, "note_out_of_order", "Results sent out of the order of their flow: one before them did not come in time, or came when it had been given up, or there was no room to hold them.";
    NoteMarkSent, Worker, Note, "note_mark_sent", "Forwarded packets without a result on its way home of which the node of arrival was told: dropped, or answered directly.";
    NoteKept, Worker, Note, "note_kept", "Packets of lossless functions kept until their result is there.";
    NoteKeptFull, Worker, Note, "note_kept_full", "Packets of lossless functions computed here because there was no room to keep them.";
    SentHome, Worker, Send, "sent_home", "Results sent back to the node of arrival.";

    ReportSent, Control, Send, "report_sent", "Load reports sent, one for each peer.";
    DropReportUnsent, Control, Drop, "drop_report_unsent", "Load reports that the kernel refused to send: link down, or no memory.";
    DropMemberMalformed, Control, Drop, "drop_member_malformed", "Membership datagrams that are none of this protocol, or whose content is not what it should be.";
    DropMemberVersion, Control, Drop, "drop_member_version", "Membership datagrams of another version.";
    DropMemberNoKey, Control, Drop, "drop_member_no_key", "Membership datagrams of a node without a key file where this one has one, or the other way round.";
    DropMemberTag, Control, Drop, "drop_member_tag", "Membership datagrams with a wrong tag: another key, another cluster, or altered on the way.";
    DropMemberClock, Control, Drop, "drop_member_clock", "Membership datagrams whose sender's clock differs by more than 10 s, or old ones sent again.";
    DropMemberReplayed, Control, Drop, "drop_member_replayed", "Membership datagrams that came twice, or long after later ones.";
    DropMemberConflict, Control, Drop, "drop_member_conflict", "Membership datagrams of a second node with an id that is taken, or with an id not below max_nodes.";
}

/// Number of reasons.
pub const REASONS: usize = Reason::ALL.len();
/// Counters per worker in the worker counter map: [`REASONS`] rounded up, so that workers share no cache line.
pub const REASON_STRIDE: usize = 128;

const _: () = assert!(REASONS <= REASON_STRIDE);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::format;
    use std::vec::Vec;

    #[test]
    fn names_are_unique_and_say_their_effect() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), REASONS);
        for reason in Reason::ALL {
            assert_eq!(reason.effect() == Effect::Drop, reason.name().starts_with("drop_"), "{reason:?}");
            assert_eq!(reason.effect() == Effect::Pass, reason.name().starts_with("pass_"), "{reason:?}");
            assert!(reason.help().ends_with('.'), "{reason:?}");
        }
    }

    #[test]
    fn the_documentation_lists_every_counter() {
        let document = include_str!("../../docs/counters.md");
        let rows: Vec<_> = document.lines().skip_while(|line| !line.starts_with("| name |")).skip(2).collect();
        let expected: Vec<_> = Reason::ALL
            .iter()
            .map(|reason| {
                let (stage, effect) = (format!("{:?}", reason.stage()), format!("{:?}", reason.effect()));
                let (stage, effect) = (stage.to_lowercase(), effect.to_lowercase());
                format!("| {} | {stage} | {effect} | {} |", reason.name(), reason.help())
            })
            .collect();
        assert_eq!(rows, expected, "docs/counters.md is not what reason.rs says");
    }

    #[test]
    fn index_is_position() {
        for (at, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
    }
}

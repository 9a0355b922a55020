//! What happened, counted: one number per thing that can happen to a frame or a connection.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counts since the host began. They wrap after 2^64.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Every counter with its name, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// What each counts, in the same order: its documentation, in Markdown.
            pub fn meanings() -> impl Iterator<Item = &'static str> {
                [$(concat!($($doc),+).trim_ascii(),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Frames handed in.
    frames_in,
    /// Frames handed to the device.
    frames_out,
    /// Frames dropped because they made no sense; `malformed` counts them by reason.
    frames_malformed,
    /// Frames or packets that were not for us.
    not_ours,
    /// Frames of a VLAN (IEEE 802.1Q): we are in none. A tag with a priority alone is no VLAN.
    vlan_unknown,
    /// Packets of a protocol that we do not speak.
    protocol_unknown,
    /// Frames that came to another shard than the one they are for, and were handed over.
    handed_over,
    /// Frames that another shard has handed over.
    taken_over,
    /// Messages to other shards that were lost for want of room, such as frames handed over.
    messages_lost,
    /// Times that a part of a limit went from this shard to another that had less left of it.
    limits_moved,
    /// TCP segments and UDP datagrams whose checksum was wrong.
    checksum_errors,
    /// TCP segments taken in.
    segments_in,
    /// TCP segments sent, large ones counted as one.
    segments_out,
    /// UDP datagrams taken in; those that came joined are one.
    datagrams_in,
    /// UDP datagrams sent; those that the device cuts from one are one.
    datagrams_out,
    /// UDP datagrams for which there is no socket.
    datagrams_unheard,
    /// UDP datagrams dropped because their socket's queue was full (knob `udp.receive_bytes`).
    datagrams_over_limit,
    /// UDP datagrams dropped, or refused to their sender, because no page was free for them.
    datagrams_without_page,
    /// UDP flows begun by datagrams that no socket heard.
    udp_flows,
    /// UDP datagrams dropped because there were as many flows as may be.
    udp_flows_over_limit,
    /// Fragments sent of UDP datagrams that were larger than their path's MTU.
    fragments_out,
    /// ICMP errors sent because a port has no socket (RFC 1122 §4.1.3.1).
    ports_unreachable,
    /// ICMP errors sent because of an option, an extension header or a protocol that we do not
    /// process (RFC 1122 §3.2.2, RFC 4443 §3.4).
    header_problems,
    /// Segments sent again.
    retransmits,
    /// Retransmission timeouts.
    timeouts,
    /// Fast recoveries begun.
    fast_recoveries,
    /// Segments sent to learn of a lost tail (RFC 8985 §7).
    loss_probes,
    /// Recoveries that were not needed, and whose reduction was undone (RFC 4015).
    recoveries_undone,
    /// ACKs that told of data which arrived twice (RFC 2883).
    duplicate_sacks,
    /// Congestion windows reduced because the peer saw marks (RFC 3168).
    ecn_reductions,
    /// Zero-window probes sent.
    window_probes,
    /// Keepalive probes sent.
    keepalive_probes,
    /// Times that a connection on which nothing moved came to rest (knob `compact_after`).
    rested,
    /// Segments outside the receive window (RFC 9293 §3.10.7.4, first step).
    out_of_window,
    /// Segments dropped for an old timestamp (RFC 7323 §5).
    paws_rejected,
    /// Segments without the timestamp they should carry (RFC 7323 §3.2).
    timestamp_missing,
    /// Acknowledgements of what was never sent, or too old (RFC 5961 §5).
    unacceptable_acks,
    /// RST in the window but not at its edge (RFC 5961 §3).
    challenged_resets,
    /// SYN on a synchronized connection (RFC 5961 §4).
    challenged_syns,
    /// Challenge ACKs not sent because of their limit.
    challenges_suppressed,
    /// Segments beyond RCV.NXT that were kept.
    out_of_order,
    /// Segments that repeated what had arrived.
    duplicates,
    /// Data dropped because no page was free; the peer will send it again.
    receive_pool_empty,
    /// Out-of-order data dropped because of the bound on ranges.
    assembler_full,
    /// Connections opened by us.
    active_opens,
    /// Connections opened by peers.
    passive_opens,
    /// Connections that reached ESTABLISHED.
    established,
    /// Attempts that failed before ESTABLISHED.
    failed_opens,
    /// Connections ended by the peer's RST.
    resets_received,
    /// RSTs sent for connections.
    resets_sent,
    /// RSTs sent to segments that belong to no connection.
    resets_to_strangers,
    /// Answers to strangers not sent because of their limit.
    replies_suppressed,
    /// Connections given up after retransmitting in vain.
    connections_timed_out,
    /// Writes that took less than the send buffer had room for, because pages were short.
    writes_short_of_pages,
    /// Writers that have waited for pages and got a notice to go on, each for a turn of its own.
    page_turns,
    /// Scans of all connections for their fair shares of the pages.
    share_scans,
    /// Notices to a writer that it can write again, because of acknowledgements.
    writers_woken,
    /// Bytes that send buffers share with the application, whole chunks at a time.
    adopted_bytes,
    /// Times that the windows allowed a segment, nothing was fresh, and the source had more;
    /// counted once it comes.
    buffer_misses,
    /// Connections asked to take back what was written and never sent, because memory was short.
    asked_back_for_memory,
    /// Connections asked to take back what is beyond their send buffer's size, because their peer
    /// had taken nothing for a while.
    asked_back_for_stall,
    /// Bytes that were taken back so from connections whose peer had kept its window closed.
    taken_back_closed_window_bytes,
    /// Bytes that were taken back so from connections whose peer took next to nothing.
    taken_back_slow_bytes,
    /// Connections reset because memory was short and the peer had kept its window closed.
    reset_for_memory_closed_window,
    /// Connections reset because memory was short and the peer took next to nothing of what was
    /// left to send when the user had closed.
    reset_for_memory_orphan,
    /// Connections reset because memory was short and the peer took next to nothing.
    reset_for_memory_slow,
    /// Orphans reset because the peer took next to nothing for the time of the knob
    /// `timeout.orphan`.
    orphans_timed_out,
    /// Orphans reset because there were too many: of each, nothing had moved for longest.
    orphans_over_limit,
    /// Orphans in FIN-WAIT-2 that became records at once, because half as many as there may be were
    /// whole.
    fin_wait_2_hurried,
    /// Records of orphans in FIN-WAIT-2 that lasted their time: the peer's FIN has not come.
    fin_wait_2_expired,
    /// Records of orphans in FIN-WAIT-2 evicted, or never kept, because the table was full.
    fin_wait_2_evicted,
    /// Segments for such records that were not heard: there were too many connections, or too many
    /// of the records had one already. They are not among those taken in.
    fin_wait_2_unheard,
    /// Handshakes that wait in the SYN cache.
    syn_cache_added,
    /// SYN-cache entries made beyond the cache's limit, for SYNs that a TIME-WAIT record let
    /// through.
    syn_cache_over_limit,
    /// SYN-cache entries that expired.
    syn_cache_expired,
    /// SYN-cache entries that expired after three SYN, ACKs, because the cache was full.
    syn_cache_expired_early,
    /// SYNs answered with a cookie because the SYN cache was full.
    cookies_sent,
    /// Connections established from a cookie.
    cookies_accepted,
    /// ACKs that looked like a cookie and were none.
    cookies_rejected,
    /// SYNs held until their listener's user judges them.
    syns_held,
    /// SYNs dropped because as many waited for a verdict as may.
    syns_held_over_limit,
    /// Held SYNs that their senders reset, or that no verdict came for in time.
    syns_held_ended,
    /// SYNs admitted by their listener's user.
    syns_admitted,
    /// SYNs refused by their listener's user.
    syns_refused,
    /// SYNs, and ACKs that would have completed a handshake, ignored because the accept queue was
    /// full.
    accept_overflows,
    /// Connections refused because there were too many.
    connections_over_limit,
    /// Connections that entered TIME-WAIT.
    time_wait_entered,
    /// TIME-WAIT records that came from the process that this one has taken over from.
    time_wait_inherited,
    /// TIME-WAIT records that lasted their time.
    time_wait_expired,
    /// TIME-WAIT records evicted, or never kept, because the table was full.
    time_wait_evicted,
    /// Connections whose TIME-WAIT kept nothing, by configuration.
    time_wait_skipped,
    /// TIME-WAIT records that ended because a new connection took their place: before their time,
    /// or before it was seen that this was over.
    time_wait_reused,
    /// TIME-WAIT records ended because the peer has taken them over.
    time_wait_taken_over,
    /// Connections whose TIME-WAIT we took over from a peer that closed first: RSTs sent for it.
    time_wait_swapped,
    /// Takeovers of TIME-WAIT that came to nothing, because no record could be kept or no RST sent:
    /// at least one end waits as without the takeover.
    time_wait_swaps_failed,
    /// Connections that entered TIME-WAIT because both ends have agreed that we hold it.
    time_wait_agreed,
    /// Connections that closed without TIME-WAIT here, because the peer holds it by agreement.
    time_wait_by_peer,
    /// Agreements on which end holds TIME-WAIT: as a client accepted, as a server proved.
    negotiation_agreed,
    /// Connections refused, by RST, because the peer does not negotiate, or wishes otherwise.
    negotiation_refused,
    /// Connections that we opened without the agreement that we asked for.
    negotiation_fallen_back,
    /// Connections that we opened by a SYN that did not ask, since SYNs that asked were not
    /// answered; a part of `negotiation_fallen_back`.
    negotiation_unheard,
    /// Active opens that did not ask because of that.
    negotiation_not_asked,
    /// SYNs that a TIME-WAIT record let through (RFC 6191).
    time_wait_reopened,
    /// SYNs refused because of a TIME-WAIT record: not beyond the old connection (RFC 6191), or
    /// come when as many others waited in the SYN cache as there may be records. (A cookie cannot
    /// promise the ISN.)
    time_wait_refused,
    /// RSTs ignored by a TIME-WAIT record (RFC 1337).
    time_wait_resets_ignored,
    /// FINs that restarted a TIME-WAIT.
    time_wait_restarted,
    /// Segments from which a TIME-WAIT record learnt nothing, and which were not answered.
    time_wait_ignored,
    /// Other segments that were unacceptable to a TIME-WAIT record: among them SYNs with ACK, and
    /// SYNs that it would have let through but that no listener hears.
    time_wait_challenged,
    /// Local ports passed over by active opens because they are in TIME-WAIT to that destination.
    ports_in_time_wait,
    /// Active opens that found no port.
    ports_exhausted,
    /// ARP packets and neighbour advertisements by which another host claimed an address of ours.
    address_conflicts,
    /// Times that an address of ours was defended against such a claim (RFC 5227 §2.4).
    address_defences,
    /// ICMP errors that named no segment or datagram of ours (RFC 5927).
    icmp_rejected,
    /// ICMP errors delivered to a connection or a UDP socket.
    icmp_accepted,
    /// Path MTUs lowered by ICMP.
    path_mtu_lowered,
    /// Path MTUs lowered because large segments vanished (RFC 4821 §7.7).
    path_black_holes,
    /// Segments larger than others that arrived, or did not: they probed the path (RFC 4821).
    path_probes,
    /// Echo replies sent.
    echo_replies,
    /// Fragmented packets put together.
    reassembled,
    /// Fragmented packets dropped: overlap, bound, time.
    reassembly_failed,
    /// Replies dropped while they waited for the hardware address of their neighbour: it did not
    /// answer, or a newer reply or another neighbour took their room (RFC 4861 §7.2.2).
    neighbour_drops,
    /// Packets dropped because there was no route or the neighbour did not answer.
    unreachable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_listed_once_with_its_value() {
        let counters = Counters { frames_in: 3, unreachable: 9, ..Counters::default() };
        let listed: std::vec::Vec<_> = counters.iter().collect();
        assert_eq!(listed.first(), Some(&("frames_in", 3)));
        assert_eq!(listed.last(), Some(&("unreachable", 9)));
        assert_eq!(listed.len() * 8, size_of::<Counters>());
    }
}

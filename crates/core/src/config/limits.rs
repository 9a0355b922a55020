//! Bounds on memory and on work.

use super::PageSize;
use super::group::group;

group! {
    /// Bounds: nothing grows past them; reaching one is counted.
    Limits {
        /// Connections with a control block, at most; no more than 2^25.
        connections: usize = 1 << 20, "connections", "ours";
        /// Half-open passive connections kept as state, no more than 2^25; beyond it SYN cookies.
        /// SYNs that a TIME-WAIT record lets through (RFC 6191) are kept beside them, no more than
        /// there may be records. While this many are kept, each is given up after 7 s.
        syn_cache: usize = 4096, "connections", "ours";
        /// SYNs that wait for the verdict of their listener's user. Beyond it the oldest goes of
        /// which the user was not told; where the user was told of all, a new one is dropped.
        held_syns: usize = 4096, "SYNs", "ours";
        /// TIME-WAIT records; beyond it the oldest goes.
        time_wait: usize = 1 << 20, "records", "ours";
        /// Peers remembered that answered only a SYN without the option that negotiates TIME-WAIT.
        unheard_peers: usize = 1024, "peers", "ours";
        /// Connections with a control block and without a user, which still close. Beyond it the
        /// one goes on which nothing has moved for longest. Those that wait for the peer's FIN
        /// become records, and at once while there are half as many as this. A host keeps as many
        /// of those records as of TIME-WAIT's.
        orphans: usize = 65_536, "connections", "ours";
        /// Pages of 4 KiB for send and receive buffers together, and for what is charged to them; a
        /// small one of 1 KiB counts a quarter, a large one of 16 KiB four.
        pages: usize = 1 << 18, "pages", "ours";
        /// What is sent lies in pages of 1, 4 and 16 KiB (auto), or of 512 bytes, which are then
        /// what limits.pages counts.
        page: PageSize = PageSize::Auto, "", "ours; Cohen & Cohen 2002 §4";
        /// UDP sockets at a time.
        udp_sockets: usize = 65_536, "sockets", "ours";
        /// UDP flows at a time: sockets made for datagrams that no other socket hears.
        udp_flows: usize = 16_384, "flows", "ours";
        /// Receive window promised to all peers together; no more than pages can hold.
        receive_window_bytes: u64 = 1 << 30, "bytes", "ours";
        /// Packets one connection may emit before the others have their turn, if they are no more
        /// than 128 KiB; those counted that the device cuts out of a large segment.
        frames_per_turn: usize = 64, "packets", "ours";
        /// Answers to strangers (RST, ICMP errors).
        replies_per_second: u32 = 1000, "packets a second", "Linux (icmp_msgs_per_sec)";
        /// Challenge ACKs, all connections together.
        challenge_acks_per_second: u32 = 1000, "ACKs a second", "RFC 5961 §7; Linux";
        /// Entries in the neighbour cache.
        neighbours: usize = 4096, "entries", "ours";
        /// Frames waiting for neighbours, all together.
        neighbour_queue: usize = 256, "frames", "ours";
        /// Packets being reassembled from fragments.
        reassemblies: usize = 16, "packets", "ours";
        /// Path MTUs remembered.
        path_mtus: usize = 1024, "entries", "ours";
    }
}

/// The greatest number of a slot, but for the highest bit, which is set in an entry of the SYN
/// cache.
pub const SLOTS_MAX: usize = 1 << 26;

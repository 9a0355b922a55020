//! Where the fields of a [`Connection`](super::Connection) lie today. A segment in and a segment
//! out touch nearly all of it, so it is small before it is in order: what few connections need is
//! in boxes, and none of them is there while a connection is calm.
//!
//! ```text
//!   bytes   0  state, notices, blocked, what is due          8
//!           8  options, RST, trouble                        24
//!          32  hash, ports                                  12
//!          48  deadlines                                    64
//!         112  shape; of Synchronized:
//!         112    what is due, ECN, TIME-WAIT's holder       14
//!         128    timestamps, last heard                     24
//!         152    RCV.NXT, MSS                                6
//!         160    ACKs owed                                  32
//!         192    receive window                             48
//!         240    receive buffer                             32
//!         272    FIN, disorder                              16
//!         288    sequence space, windows, MSS, scale, SACK  36
//!         324    FIN, probes, timer                          4
//!         328    congestion window, its usage               20
//!         348    urgent, told by FIN, recovery              20
//!         368    silent since, last sent                    16
//!         384    send buffer                                48
//!         432    what is in flight                          16
//!         448    RTT                                        40
//!         488    reordering of the path                      8
//!         496    rate of the path                           24
//!         520    source                                      8
//!         528    retransmissions, timeouts                   8
//!         536
//! ```
//!
//! The compiler checks every row.

use core::mem::offset_of;

use super::{Common, Connection, Shape, Synchronized};

impl Connection {
    /// What lies behind them is asked for only where something is sent again.
    pub(crate) const CALM_BYTES: usize =
        offset_of!(Connection, shape) + offset_of!(Synchronized, send.retransmits);
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Connection, common) == 0);
    assert!(offset_of!(Common, state) == 0);
    assert!(offset_of!(Common, options) == 8);
    assert!(offset_of!(Common, identity) == 32);
    assert!(offset_of!(Common, deadlines) == 48);
    assert!(offset_of!(Connection, shape) == 112);
    // The compiler may move fields of an enum's variant; it has no more than this one.
    assert!(size_of::<Shape>() == size_of::<Synchronized>());
    const fn at(offset: usize) -> usize {
        offset_of!(Connection, shape) + offset
    }
    assert!(at(offset_of!(Synchronized, probe_due)) == 112);
    assert!(at(offset_of!(Synchronized, stamps)) == 128);
    assert!(at(offset_of!(Synchronized, recv.nxt)) == 152);
    assert!(at(offset_of!(Synchronized, recv.ack)) == 160);
    assert!(at(offset_of!(Synchronized, recv.window)) == 192);
    assert!(at(offset_of!(Synchronized, recv.buffer)) == 240);
    assert!(at(offset_of!(Synchronized, recv.fin)) == 272);
    assert!(at(offset_of!(Synchronized, send.una)) == 288);
    assert!(at(offset_of!(Synchronized, send.fin_queued)) == 324);
    assert!(at(offset_of!(Synchronized, send.congestion)) == 328);
    assert!(at(offset_of!(Synchronized, send.urgent)) == 348);
    assert!(at(offset_of!(Synchronized, send.silent_since)) == 368);
    assert!(at(offset_of!(Synchronized, send.buffer)) == 384);
    assert!(at(offset_of!(Synchronized, send.sent)) == 432);
    assert!(at(offset_of!(Synchronized, send.rtt)) == 448);
    assert!(at(offset_of!(Synchronized, send.reordering)) == 488);
    assert!(at(offset_of!(Synchronized, send.pair)) == 496);
    assert!(at(offset_of!(Synchronized, send.source)) == 520);
    assert!(at(offset_of!(Synchronized, send.retransmits)) == 528);
    assert!(size_of::<Connection>() == 544);
};

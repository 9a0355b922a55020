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
//!         128    how much has passed                       16
//!         144    timestamps, last heard                     24
//!         168    RCV.NXT, MSS                                6
//!         176    ACKs owed                                  32
//!         208    receive window                             48
//!         256    receive buffer                             32
//!         288    FIN, disorder                              16
//!         304    sequence space, windows, MSS, scale, SACK  36
//!         340    FIN, probes, timer                          4
//!         344    congestion window, its usage               20
//!         364    told by FIN, recovery                      12
//!         376    silent since, last sent                    16
//!         392    send buffer                                48
//!         440    what is in flight                          16
//!         456    RTT                                        40
//!         496    reordering of the path                      8
//!         504    rate of the path                           24
//!         528    what few have                               8
//!         536
//! ```
//!
//! The compiler checks every row.

use core::mem::offset_of;

use super::{Common, Connection, Shape, Synchronized};

impl Connection {
    /// A segment of a calm connection touches all of it, and nothing in the boxes.
    pub(crate) const CALM_BYTES: usize = size_of::<Connection>();
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
    assert!(at(offset_of!(Synchronized, passed)) == 128);
    assert!(at(offset_of!(Synchronized, stamps)) == 144);
    assert!(at(offset_of!(Synchronized, recv.nxt)) == 168);
    assert!(at(offset_of!(Synchronized, recv.ack)) == 176);
    assert!(at(offset_of!(Synchronized, recv.window)) == 208);
    assert!(at(offset_of!(Synchronized, recv.buffer)) == 256);
    assert!(at(offset_of!(Synchronized, recv.fin)) == 288);
    assert!(at(offset_of!(Synchronized, send.una)) == 304);
    assert!(at(offset_of!(Synchronized, send.fin_queued)) == 340);
    assert!(at(offset_of!(Synchronized, send.congestion)) == 344);
    assert!(at(offset_of!(Synchronized, send.told_by_fin)) == 364);
    assert!(at(offset_of!(Synchronized, send.silent_since)) == 376);
    assert!(at(offset_of!(Synchronized, send.buffer)) == 392);
    assert!(at(offset_of!(Synchronized, send.sent)) == 440);
    assert!(at(offset_of!(Synchronized, send.rtt)) == 456);
    assert!(at(offset_of!(Synchronized, send.reordering)) == 496);
    assert!(at(offset_of!(Synchronized, send.pair)) == 504);
    assert!(at(offset_of!(Synchronized, send.rare)) == 528);
    assert!(size_of::<Connection>() == 536);
};

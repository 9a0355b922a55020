//! Where the fields of a [`Connection`](super::Connection) lie today. A segment in and a segment
//! out touch nearly all of it, so it is small before it is in order: what few connections need is
//! in boxes, and none of them is there while a connection is calm.
//!
//! ```text
//!   bytes   0  state, notices, what is due         8
//!           8  options, RST, trouble              24
//!          32  hash, ports                        12
//!          48  deadlines                          64
//!         112  shape; of Synchronized:
//!         112    what is due, ECN, blocked        14
//!         128    timestamps, last heard           24
//!         152    RCV.NXT, MSS                      6
//!         160    ACKs owed, receive window        80
//!         240    receive buffer                   32
//!         272    FIN, disorder                    16
//!         288    sequence space, windows          36
//!         324    flags, usage, congestion window  24
//!         348    urgent, told by FIN, recovery    20
//!         368    silent since, last sent          16
//!         384    send buffer                      48
//!         432    what is in flight, RTT           64
//!         496    rate of the path                 24
//!         520    source                            8
//!         528    retransmissions, timeouts         8
//! ```

use core::mem::offset_of;

use super::{Connection, Synchronized};

impl Connection {
    /// What lies behind them is asked for only where something is sent again.
    pub(crate) const CALM_BYTES: usize =
        offset_of!(Connection, shape) + offset_of!(Synchronized, send.retransmits);
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    // Budgets, of cache lines at most: what comes has room.
    const SHAPE: usize = offset_of!(Connection, shape);
    assert!(size_of::<Connection>() <= 576);
    assert!(offset_of!(Connection, common.deadlines) <= 64);
    assert!(SHAPE <= 192);
    assert!(SHAPE + offset_of!(Synchronized, recv) <= 256);
    assert!(SHAPE + offset_of!(Synchronized, send) <= 384);
    assert!(size_of::<Connection>() - Connection::CALM_BYTES <= 64);
};

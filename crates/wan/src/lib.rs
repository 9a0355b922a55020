//! `lightwait-wan`: a delay router. Two devices are joined by an emulated link in each direction.
//!
//! ```text
//!  device A ──▶ Link a→b ──▶ device B
//!           ◀── Link b→a ◀──
//! ```
//!
//! The router works on frames: ARP and neighbour discovery pass as well. A loop polls without rest
//! and releases each packet when it is due, so that the distances between packets stay as they were
//! (Aron & Druschel 1999, "Delay Router"). Each direction has a loop on a thread of its own, or one
//! has both ([`Threads`]). The router reports how late each packet left. It can
//! also release packets only at intervals, to show the bursts that result.
//!
//! [`Router`] moves the frames; [`LinkText`], [`Profile`] and [`Steps`] describe the links; and
//! [`Report`] has the results.
#![forbid(unsafe_code)]

mod flows;
mod lateness;
mod link_text;
mod profile;
mod report;
mod router;
mod steps;

pub use flows::FlowSnapshot;
pub use lateness::Lateness;
pub use link_text::{DescriptionError, LinkText};
pub use profile::{BUILT_IN, Profile};
pub use report::{LATE, Report, WayReport};
pub use router::{
    Change, Ends, Live, RECEIVE_BUFFER_BYTES, Release, Router, Snapshot, Threads, WaySnapshot,
};
pub use steps::{Step, Steps};

/// A direction through the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From device A to device B.
    AToB,
    /// From device B to device A.
    BToA,
}

impl Way {
    /// Both directions.
    pub const ALL: [Way; 2] = [Way::AToB, Way::BToA];
}

//! `lightwait-wan`: a delay router. Two devices are joined by an emulated link in each direction.
//!
//! ```text
//!  device A ──▶ Link a→b ──▶ device B
//!           ◀── Link b→a ◀──
//! ```
//!
//! It works on frames: ARP and neighbour discovery pass as well. A loop that looks at all times
//! releases each packet when it is due, so that the distances between packets stay as they were
//! (Aron & Druschel 1999, "Delay Router"), and reports how late each was in truth. It can be made
//! to look at intervals only, to show the bursts that come of it.
//!
//! [`Router`] moves the frames, [`LinkText`], [`Profile`] and [`Steps`] say what the links are
//! like, and [`Report`] tells what became of the packets.
#![forbid(unsafe_code)]

mod lateness;
mod link_text;
mod profile;
mod report;
mod router;
mod steps;

pub use lateness::Lateness;
pub use link_text::{DescriptionError, LinkText};
pub use profile::{BUILT_IN, Profile};
pub use report::{LATE, Report, WayReport};
pub use router::{Live, Release, Router, Snapshot, WaySnapshot};
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
    /// Both.
    pub const ALL: [Way; 2] = [Way::AToB, Way::BToA];
}

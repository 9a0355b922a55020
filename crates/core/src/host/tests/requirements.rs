//! Tests of what the RFCs require and no other test shows; `specs/` says which test is for which
//! requirement.

mod cubic;
pub(super) mod errors;
mod new_reno;
mod opening;
mod receiving;
mod recovery;
mod resets;
mod sack;
mod segments;
mod sending;
mod timestamps;

//! What the RFCs require and no other test shows; `specs/` says which of these is for what.

mod errors;
mod opening;
mod receiving;
mod recovery;
mod resets;
mod segments;
mod sending;
mod timestamps;

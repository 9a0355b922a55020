//! The list of plans with the one that the page adds.

pub(crate) mod scaling;

//! The limits of a server: connections, of all and of each client; the memory that they use; and
//! the progress that their peers must make.

pub(crate) mod admission;
pub(crate) mod eviction;
pub(crate) mod memory;
pub(crate) mod progress;

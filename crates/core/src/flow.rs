//! What wire, IP, TCP and UDP share: sequence numbers, timestamps, the two ends of a flow and the
//! shard that owns it, hashes under this process's secret.

pub(crate) mod hasher;
#[doc(hidden)]
pub mod keyed;
pub mod seq;
pub(crate) mod stamp;
pub mod steering;
pub mod tuple;

#[doc(hidden)]
pub use hasher::TupleHasher;
pub use seq::Seq;
pub use steering::Steering;
pub use tuple::Tuple;

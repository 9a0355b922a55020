//! What wire, IP and TCP share: sequence numbers, timestamps, the two ends of a connection and the
//! shard that owns it, hashes under this process's secret.

pub mod keyed;
pub mod seq;
pub(crate) mod stamp;
pub mod steering;
pub mod tuple;

pub use seq::Seq;
pub use steering::Steering;
pub use tuple::Tuple;

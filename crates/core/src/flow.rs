//! What wire, IP and TCP share: sequence numbers, timestamps, the two ends of a connection, hashes
//! under this process's secret.

pub mod keyed;
pub mod seq;
pub(crate) mod stamp;
pub mod tuple;

pub use seq::Seq;
pub use tuple::Tuple;

//! Why a write took less than it was given.

/// What the writer of a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Nothing.
    No,
    /// Room in the send buffer, which acknowledgements make.
    ForRoom,
    /// Pages, which others hold: it waits in the host's line.
    ForPages,
    /// Nothing any more: it has waited for pages, and the next write may take some.
    InTurn,
}

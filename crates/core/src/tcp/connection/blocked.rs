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
    /// As [`Blocked::ForRoom`], with a place in the line: since it came there, all that it had was
    /// acknowledged, and who holds nothing gets a page.
    Drained,
    /// Nothing any more: it has waited for pages, and the next write may take some.
    InTurn,
}

impl Blocked {
    /// True if it has a place in the host's line for pages.
    pub fn is_in_line(self) -> bool {
        matches!(self, Blocked::ForPages | Blocked::Drained)
    }
}

//! What pages are for, and how much room is left for each purpose.

/// The purpose of a page. It decides how much of the limit the page may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Text to be sent, of a connection that holds pages for such already.
    More,
    /// Text to be sent, of a connection that holds none.
    First,
    /// Text received.
    Receive,
}

/// How much of the limit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Less than three quarters.
    Plenty,
    /// Three quarters or more: all that is not needed now should go.
    Scarce,
    /// A connection that holds pages gets no more.
    Full,
}

/// Whether there is room for one connection more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRoom {
    /// Yes.
    Enough,
    /// Yes, but a holder that needs none should go.
    Little,
    /// No, unless a holder goes.
    None,
}

/// The direction of a small page's text. Free ones are kept apart: one that text was received in is
/// still in the processor's caches, one that text was sent from has long left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Text received.
    Receive,
    /// Text to be sent.
    Send,
}

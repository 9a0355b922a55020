//! The body of a response that is in memory, and stays there for others.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::{Chunk, Sink};
use crate::Pending;
use crate::connection::replay::Origin;

/// Bytes that are kept in memory. The transport shares them where it can.
pub(super) struct Kept {
    bytes: Bytes,
    sink: Option<Rc<dyn Sink>>,
}

/// The bytes of a body, to be read again: they are still there.
struct Again(Bytes);

impl Origin for Again {
    fn read(&self, offset: u64, length: usize) -> Pending<io::Result<Bytes>> {
        let bytes = self.0.slice(offset as usize..offset as usize + length);
        Box::pin(std::future::ready(Ok(bytes)))
    }
}

/// Fewer bytes are copied by the transport in any case
/// ([`Control::adopt`](crate::Control::adopt)).
const SHARED_FROM: usize = 16 << 10;

impl Kept {
    pub(super) fn new(bytes: Bytes) -> Kept {
        Kept { bytes, sink: None }
    }

    pub(super) fn set_sink(&mut self, sink: Rc<dyn Sink>) {
        self.sink = Some(sink);
    }

    /// The bytes that were not taken.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Takes all bytes, if there are any.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(sink) = self.sink.as_ref().filter(|_| bytes.len() >= SHARED_FROM) {
            let origin: Rc<dyn Origin> = Rc::new(Again(bytes.clone()));
            sink.hand_over(Chunk::shared(bytes.clone()), &origin, 0);
        }
        (!bytes.is_empty()).then_some(bytes)
    }
}

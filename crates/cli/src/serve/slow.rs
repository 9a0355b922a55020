//! `--file-delay`: a file source that delays each read, as a slow disk would. For tests.

use std::io;
use std::time::Duration;

use lightwait_http::path::RelativePath;
use lightwait_http::source::{Entries, FileSource, Metadata, OpenError, Opened, ReadBuffer};
use lightwait_http::{Pending, ThreadPoolFiles};

/// A file source whose reads each take this much longer.
#[derive(Clone, Debug)]
pub(super) struct Slow {
    pub(super) files: ThreadPoolFiles,
    pub(super) delay: Duration,
}

impl FileSource for Slow {
    type Handle = <ThreadPoolFiles as FileSource>::Handle;

    fn open(&self, path: &RelativePath) -> Pending<Result<Opened<Self::Handle>, OpenError>> {
        self.files.open(path)
    }

    fn read_at(
        &self,
        handle: &Self::Handle,
        offset: u64,
        buffer: ReadBuffer,
    ) -> Pending<io::Result<ReadBuffer>> {
        let reading = self.files.read_at(handle, offset, buffer);
        if self.delay.is_zero() {
            return reading;
        }
        // The delay begins with the call, as the read does.
        let delay = lightwait::rt::sleep(self.delay);
        Box::pin(async move {
            delay.await;
            reading.await
        })
    }

    fn metadata(&self, handle: &Self::Handle) -> io::Result<Metadata> {
        self.files.metadata(handle)
    }

    fn list<T: Send + 'static>(
        &self,
        handle: &Self::Handle,
        limit: usize,
        make: impl FnOnce(Entries) -> T + Send + 'static,
    ) -> Pending<io::Result<T>> {
        self.files.list(handle, limit, make)
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<Option<T>> {
        self.files.run(work)
    }
}

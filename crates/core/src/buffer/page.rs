//! Pages, and the frames that may share them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use super::{LARGE_BYTES, PAGE_BYTES, SEGMENT_BYTES, SMALL_BYTES};

/// One page of buffer memory.
pub struct Page<const BYTES: usize = PAGE_BYTES>(Box<[u8; BYTES]>);

/// A small page.
pub type SmallPage = Page<SMALL_BYTES>;

/// A large page.
pub type LargePage = Page<LARGE_BYTES>;

/// A page of one segment.
pub type SegmentPage = Page<SEGMENT_BYTES>;

impl<const BYTES: usize> Page<BYTES> {
    pub(super) fn new() -> Self {
        Page(Box::new([0; BYTES]))
    }

    /// All its bytes.
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// All its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8; BYTES] {
        &mut self.0
    }
}

/// The code that has a page knows which of its bytes mean something.
impl<const BYTES: usize> fmt::Debug for Page<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// A page, or a large one, that frames on their way to the device may share. While one does, the
/// page can be read and not written. The page counts its sharers only once there was one: a page
/// that is never shared costs no atomic operation.
#[derive(Debug)]
pub enum SharedPage {
    /// A page that is not shared, and never was.
    Own(Page),
    /// A large page that is not shared, and never was.
    OwnLarge(LargePage),
    /// A page for a segment that is not shared, and never was.
    OwnSegment(SegmentPage),
    /// Frames may.
    Counted(CountedPage),
}

/// A page as frames hold it.
#[derive(Clone, Debug)]
pub enum CountedPage {
    /// One of the usual size.
    Page(Arc<Page>),
    /// A large one.
    Large(Arc<LargePage>),
    /// One for a segment.
    Segment(Arc<SegmentPage>),
}

impl SharedPage {
    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            SharedPage::Own(page) => page.bytes(),
            SharedPage::OwnLarge(page) => page.bytes(),
            SharedPage::OwnSegment(page) => page.bytes(),
            SharedPage::Counted(page) => page.bytes(),
        }
    }

    /// All its bytes to be written, or `None` while they are shared.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(match self {
            SharedPage::Own(page) => page.bytes_mut(),
            SharedPage::OwnLarge(page) => page.bytes_mut(),
            SharedPage::OwnSegment(page) => page.bytes_mut(),
            SharedPage::Counted(CountedPage::Page(page)) => Arc::get_mut(page)?.bytes_mut(),
            SharedPage::Counted(CountedPage::Large(page)) => Arc::get_mut(page)?.bytes_mut(),
            SharedPage::Counted(CountedPage::Segment(page)) => Arc::get_mut(page)?.bytes_mut(),
        })
    }

    /// The page as frames hold it.
    pub fn counted(self) -> CountedPage {
        match self {
            SharedPage::Own(page) => CountedPage::Page(Arc::new(page)),
            SharedPage::OwnLarge(page) => CountedPage::Large(Arc::new(page)),
            SharedPage::OwnSegment(page) => CountedPage::Segment(Arc::new(page)),
            SharedPage::Counted(page) => page,
        }
    }
}

impl CountedPage {
    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            CountedPage::Page(page) => page.bytes(),
            CountedPage::Large(page) => page.bytes(),
            CountedPage::Segment(page) => page.bytes(),
        }
    }
}

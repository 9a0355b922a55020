//! The open doors, and the door of each file descriptor.
#![allow(unsafe_code, reason = "doors cross a C interface as pointers")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::door::Door;

/// The door of each file descriptor. The C library's `getsockopt` passes nothing but the
/// descriptor.
static DOORS: Mutex<BTreeMap<RawFd, Weak<Door>>> = Mutex::new(BTreeMap::new());

/// The door behind `userdata`.
///
/// # Safety
/// `userdata` must come from
/// [`packetdrill_interface_init`](super::packetdrill_interface_init), and not have been freed.
pub(super) unsafe fn door<'a>(userdata: *mut c_void) -> &'a Door {
    // SAFETY: made by `Arc::into_raw`, and alive until `free`.
    unsafe { &*userdata.cast::<Door>() }
}

/// Notes that `fd` belongs to the door behind `userdata`.
///
/// # Safety
/// Those of [`door`].
pub(super) unsafe fn register(userdata: *mut c_void, fd: RawFd) {
    // SAFETY: made by `Arc::into_raw`; the count is raised for the clone, which is only weak.
    let door = unsafe {
        Arc::increment_strong_count(userdata.cast::<Door>().cast_const());
        Arc::from_raw(userdata.cast::<Door>().cast_const())
    };
    doors().insert(fd, Arc::downgrade(&door));
}

/// The door that `fd` belongs to.
pub(super) fn door_of(fd: RawFd) -> Option<Arc<Door>> {
    doors().get(&fd).and_then(Weak::upgrade)
}

/// Notes that `fd` is closed.
pub(super) fn unregister(fd: RawFd) {
    doors().remove(&fd);
}

fn doors() -> std::sync::MutexGuard<'static, BTreeMap<RawFd, Weak<Door>>> {
    DOORS.lock().unwrap_or_else(PoisonError::into_inner)
}

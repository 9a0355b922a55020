//! Opens a door for packetdrill, and closes it.
#![allow(unsafe_code, reason = "the entry point of a C interface")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Once};

use super::doors::unregister;
use super::{calls, messages, refused, waits};
use crate::door::Door;
use crate::errno::Errno;
use crate::interface::Interface;
use crate::profile::Profile;
use crate::state;
use crate::world::World;

/// Opens a door: fills in `out` for a stack configured by `flags` (see the README).
///
/// Returns 0, or -1 with errno `EINVAL` if a flag makes no sense, which standard error then names;
/// every function of `out` then fails with `EINVAL`, since packetdrill calls them all the same.
///
/// # Safety
/// `flags` must be null or a C string, `out` null or point to room for an [`Interface`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    out: *mut Interface,
) -> c_int {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: not null, and a C string by the caller's promise.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    if out.is_null() {
        return super::buffers::result(Err(Errno::EFAULT));
    }
    match open(&flags) {
        Ok(door) => {
            let userdata = Arc::into_raw(door).cast_mut().cast();
            // SAFETY: not null, and room for one by the caller's promise.
            unsafe { out.write(interface(userdata)) };
            0
        }
        Err(why) => {
            eprintln!("lightwait: {why}");
            // SAFETY: not null, and room for one by the caller's promise.
            unsafe { out.write(refused::interface()) };
            super::buffers::result(Err(Errno::EINVAL))
        }
    }
}

static AT_EXIT: Once = Once::new();

extern "C" fn remove_state() {
    state::remove_all();
}

fn open(flags: &str) -> Result<Arc<Door>, String> {
    let profile = Profile::parse(flags)?;
    let world = World::new(profile).map_err(|error| error.to_string())?;
    let state_path = std::env::var_os("LIGHTWAIT_STATE").map(PathBuf::from);
    let door = Arc::new(Door::new(world, state_path));
    if let Some(path) = door.state_path() {
        state::serve(&door, path)
            .map_err(|error| format!("LIGHTWAIT_STATE={}: {error}", path.display()))?;
        // packetdrill frees the door of a script that passes, and exits from one that fails.
        AT_EXIT.call_once(|| {
            // SAFETY: a function of ours, which takes nothing and may be called at any time. If it
            // cannot be registered a socket stays, and the next door removes it.
            let _full = unsafe { libc::atexit(remove_state) };
        });
    }
    Ok(door)
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: made by `Arc::into_raw` and freed only once, by the interface's rules.
    let door = unsafe { Arc::from_raw(userdata.cast::<Door>().cast_const()) };
    let files: Vec<RawFd> = door.look(|world| world.descriptors().collect());
    // The caller has closed them through libc; other files may have their numbers by now.
    for fd in files {
        unregister(fd);
    }
    let left = Arc::downgrade(&door);
    drop(door);
    state::stop(&left);
}

fn interface(userdata: *mut c_void) -> Interface {
    Interface {
        userdata,
        free,
        socket: calls::socket,
        bind: calls::bind,
        listen: calls::listen,
        accept: calls::accept,
        connect: calls::connect,
        read: messages::read,
        readv: messages::readv,
        recv: messages::recv,
        recvfrom: messages::recvfrom,
        recvmsg: messages::recvmsg,
        write: messages::write,
        writev: messages::writev,
        send: messages::send,
        sendto: messages::sendto,
        sendmsg: messages::sendmsg,
        fcntl: calls::fcntl,
        ioctl: calls::ioctl,
        close: calls::close,
        shutdown: calls::shutdown,
        getsockopt: calls::getsockopt,
        setsockopt: calls::setsockopt,
        poll: waits::poll,
        netdev_send: waits::netdev_send,
        netdev_receive: waits::netdev_receive,
        usleep: waits::usleep,
        gettimeofday: waits::gettimeofday,
        epoll_create: waits::epoll_create,
        epoll_ctl: waits::epoll_ctl,
        epoll_wait: waits::epoll_wait,
        pipe: waits::pipe,
        splice: waits::splice,
    }
}

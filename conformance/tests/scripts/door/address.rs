//! Socket addresses in C's layout.
#![allow(unsafe_code, reason = "C's addresses are one structure read as another")]

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// Room for any address.
pub(super) struct RawAddress {
    storage: sockaddr_storage,
    length: socklen_t,
}

/// The room that there is.
pub(super) fn storage() -> socklen_t {
    size(size_of::<sockaddr_storage>())
}

fn size(bytes: usize) -> socklen_t {
    socklen_t::try_from(bytes).unwrap_or(socklen_t::MAX)
}

impl RawAddress {
    /// Zeros, which is AF_UNSPEC.
    pub(super) fn empty() -> Self {
        // SAFETY: an address of zeros is one of no family.
        Self { storage: unsafe { MaybeUninit::zeroed().assume_init() }, length: storage() }
    }

    pub(super) fn pointer(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn room(&mut self) -> *mut sockaddr {
        (&raw mut self.storage).cast()
    }

    pub(super) fn length(&self) -> socklen_t {
        self.length
    }

    /// The address that a call left, `length` bytes long.
    pub(super) fn decode(&self, length: socklen_t) -> Option<SocketAddr> {
        let family = i32::from(self.storage.ss_family);
        if family == libc::AF_INET && length >= size(size_of::<sockaddr_in>()) {
            // SAFETY: the storage is larger than, and aligned for, any address.
            let address = unsafe { &*(&raw const self.storage).cast::<sockaddr_in>() };
            let ip = IpAddr::from(address.sin_addr.s_addr.to_ne_bytes());
            return Some(SocketAddr::new(ip, u16::from_be(address.sin_port)));
        }
        if family == libc::AF_INET6 && length >= size(size_of::<sockaddr_in6>()) {
            // SAFETY: the storage is larger than, and aligned for, any address.
            let address = unsafe { &*(&raw const self.storage).cast::<sockaddr_in6>() };
            let ip = IpAddr::from(address.sin6_addr.s6_addr);
            return Some(SocketAddr::new(ip, u16::from_be(address.sin6_port)));
        }
        None
    }
}

impl From<SocketAddr> for RawAddress {
    #[expect(clippy::cast_possible_truncation, reason = "families are small numbers")]
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                // SAFETY: the storage is larger than, and aligned for, any address.
                let place = unsafe { &mut *(&raw mut raw.storage).cast::<sockaddr_in>() };
                place.sin_family = libc::AF_INET as libc::sa_family_t;
                place.sin_port = v4.port().to_be();
                place.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                raw.length = size(size_of::<sockaddr_in>());
            }
            SocketAddr::V6(v6) => {
                // SAFETY: the storage is larger than, and aligned for, any address.
                let place = unsafe { &mut *(&raw mut raw.storage).cast::<sockaddr_in6>() };
                place.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                place.sin6_port = v6.port().to_be();
                place.sin6_addr.s6_addr = v6.ip().octets();
                raw.length = size(size_of::<sockaddr_in6>());
            }
        }
        raw
    }
}

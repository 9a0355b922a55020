//! Asks the kernel about network interfaces and sets them up, by rtnetlink (rtnetlink(7)): their
//! index, MTU and hardware address; up; and addresses for the kernel's end.
//!
//! A request is one message, the answer another:
//!
//! ```text
//!  ┌ nlmsghdr: len type flags seq pid ┬ ifinfomsg or ifaddrmsg ┬ attributes: len type value … ┐
//! ```

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use lightwait_core::host::address::Cidr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const HEADER_LEN: usize = 16;
const LINK_HEADER_LEN: usize = 16;

/// What the kernel says about an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its number.
    pub(crate) index: u32,
    /// Its MTU, in bytes.
    pub(crate) mtu: u32,
    /// It has been brought up.
    pub(crate) up: bool,
    /// Its hardware address; zeros if it has none of six bytes.
    pub(crate) hardware: [u8; 6],
}

/// A conversation with the kernel about this thread's network namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Netlink> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is 0, the default.
            None,
        )?;
        Ok(Netlink { socket })
    }

    /// The interface of that name; an error of kind `NotFound` if there is none.
    pub(crate) fn interface(&self, name: &str) -> io::Result<Interface> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.link_header(0, 0, 0);
        request.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
        let answer = self.ask(request).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => {
                io::Error::new(io::ErrorKind::NotFound, format!("no network interface `{name}`"))
            }
            _ => error,
        })?;
        parse_interface(&answer)
            .ok_or_else(|| io::Error::other("the kernel's answer about an interface is cut short"))
    }

    /// Sets the MTU.
    pub(crate) fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.link_header(index, 0, 0);
        request.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        self.ask(request).map(drop)
    }

    /// Brings the interface up.
    pub(crate) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.link_header(index, libc::IFF_UP as u32, libc::IFF_UP as u32);
        self.ask(request).map(drop)
    }

    /// Gives the interface an address with its on-link prefix, at once usable (no duplicate address
    /// detection: the only neighbour is ours). That it has it already is no error.
    pub(crate) fn add_address(&self, index: u32, address: Cidr) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWADDR, libc::NLM_F_ACK | libc::NLM_F_CREATE);
        let (family, octets) = match address.address() {
            IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
        };
        request.bytes.extend([family as u8, address.prefix_len(), 0, 0]);
        request.bytes.extend(index.to_ne_bytes());
        request.attribute(libc::IFA_LOCAL, &octets);
        request.attribute(libc::IFA_ADDRESS, &octets);
        if address.address().is_ipv6() {
            request.attribute(libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes());
        }
        match self.ask(request) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result.map(drop),
        }
    }

    /// Sends a request and returns the kernel's answer, header included; an acknowledgement of
    /// success is an answer, one of failure an error.
    fn ask(&self, mut request: Request) -> io::Result<Vec<u8>> {
        let len = request.bytes.len() as u32;
        request.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        send(&self.socket, &request.bytes, SendFlags::empty())?;
        let mut answer = vec![0; 16 << 10];
        let (_, len) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(len);
        match (word(&answer, 4), long(&answer, HEADER_LEN)) {
            (Some(kind), Some(code)) if i32::from(kind) == libc::NLMSG_ERROR && code != 0 => {
                Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()))
            }
            _ => Ok(answer),
        }
    }
}

/// A request under construction; its length is filled in when it is sent.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: i32) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        Request { bytes }
    }

    /// `struct ifinfomsg`.
    fn link_header(&mut self, index: u32, flags: u32, change: u32) {
        self.bytes.extend([0; 4]);
        for field in [index, flags, change] {
            self.bytes.extend(field.to_ne_bytes());
        }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn parse_interface(message: &[u8]) -> Option<Interface> {
    let mut interface = Interface {
        index: long(message, HEADER_LEN + 4)?,
        mtu: 0,
        up: long(message, HEADER_LEN + 8)? & libc::IFF_UP as u32 != 0,
        hardware: [0; 6],
    };
    let mut rest = message.get(HEADER_LEN + LINK_HEADER_LEN..)?;
    while let (Some(len), Some(kind)) = (word(rest, 0), word(rest, 2)) {
        let value = rest.get(4..usize::from(len))?;
        match kind {
            libc::IFLA_MTU => interface.mtu = long(value, 0)?,
            libc::IFLA_ADDRESS => interface.hardware = value.try_into().unwrap_or_default(),
            _ => (),
        }
        rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    Some(interface)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_known_and_an_invented_one_is_not() {
        let netlink = Netlink::open().unwrap();
        let loopback = netlink.interface("lo").unwrap();
        assert_eq!((loopback.index, loopback.hardware), (1, [0; 6]));
        assert!(loopback.mtu >= 1500);
        let error = netlink.interface("nosuchthing").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("`nosuchthing`"));
    }

    #[test]
    fn a_message_cut_anywhere_is_refused_or_read_without_panic() {
        let mut message = Request::new(libc::RTM_NEWLINK, 0);
        message.link_header(3, libc::IFF_UP as u32, 0);
        message.attribute(libc::IFLA_MTU, &1400u32.to_ne_bytes());
        message.attribute(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 9]);
        let whole = parse_interface(&message.bytes).unwrap();
        let hardware = [2, 0, 0, 0, 0, 9];
        assert_eq!(whole, Interface { index: 3, mtu: 1400, up: true, hardware });
        let padding = 2;
        for len in 0..message.bytes.len() - padding {
            assert_ne!(parse_interface(&message.bytes[..len]), Some(whole));
        }
    }
}

//! Asks the kernel about network interfaces and sets them up, by rtnetlink (rtnetlink(7)). It reads
//! their index, MTU and hardware address, brings them up, and gives the kernel's end addresses.
//!
//! A request is one message, the answer another:
//!
//! ```text
//!  ┌ nlmsghdr: len type flags seq pid ┬ ifinfomsg or ifaddrmsg ┬ attributes: len type value … ┐
//! ```

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lightwait_core::address::Cidr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::refusal::Call;

const HEADER_LEN: usize = 16;
const LINK_HEADER_LEN: usize = 16;
/// Offsets of `rx_dropped` and `tx_dropped` in `struct rtnl_link_stats64`.
const RECEIVED_DROPPED_AT: usize = 6 * 8;
const SENT_DROPPED_AT: usize = 7 * 8;
const ADDRESS_HEADER_LEN: usize = 8;
/// Bytes of an answer, at most: the kernel fills at most 32 KiB of the buffer.
const ANSWER_LEN: usize = 32 << 10;

/// Which way frames go through an interface, as the kernel sees it. What a device's program did not
/// fetch in time was to be sent on a TAP, and was received on a macvtap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Received,
    Sent,
}

impl Way {
    fn dropped_at(self) -> usize {
        match self {
            Way::Received => RECEIVED_DROPPED_AT,
            Way::Sent => SENT_DROPPED_AT,
        }
    }
}

/// The kernel's description of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its index.
    pub(crate) index: u32,
    /// Its MTU, in bytes.
    pub(crate) mtu: u32,
    /// It has been brought up.
    pub(crate) up: bool,
    /// Its cable leads to an end that is up.
    pub(crate) carrier: bool,
    /// It leads back to this machine alone.
    pub(crate) loopback: bool,
    /// It ends in a program: a TAP or a TUN.
    pub(crate) tun: bool,
    /// Its hardware address; zeros if it has none of six bytes.
    pub(crate) hardware: [u8; 6],
}

/// An address of the kernel's own IP stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAddress {
    /// The address, with its prefix.
    pub address: Cidr,
    /// The name of the interface that has it.
    pub interface: String,
}

/// Returns `address` if the kernel's own IP stack has it, in this thread's network namespace. The
/// kernel then answers ARP for it on all interfaces, and keeps packets to it from leaving: no stack
/// on `interface` can use it, too. Only a link-local address may be on another interface.
pub fn kernel_address(interface: &str, address: IpAddr) -> io::Result<Option<KernelAddress>> {
    let netlink = Netlink::open()?;
    let of_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    for (index, held) in netlink.addresses()? {
        if held.address() == address {
            let name = netlink.name(index)?;
            if !of_link || name == interface {
                return Ok(Some(KernelAddress { address: held, interface: name }));
            }
        }
    }
    Ok(None)
}

/// Returns the addresses of the kernel's own IP stack on `interface`, in this thread's network
/// namespace. An error of kind `NotFound` if there is no such interface.
pub fn kernel_addresses(interface: &str) -> io::Result<Vec<Cidr>> {
    let netlink = Netlink::open()?;
    let index = netlink.interface(interface)?.index;
    let all = netlink.addresses()?.into_iter();
    Ok(all.filter(|(of, _)| *of == index).map(|(_, address)| address).collect())
}

/// A netlink socket for this thread's network namespace.
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
        );
        let socket = socket.map_err(|error| Call::Netlink.refused(&error.into()))?;
        Ok(Netlink { socket })
    }

    /// The socket, for ioctls about interfaces.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The interface of that name; an error of kind `NotFound` if there is none.
    pub(crate) fn interface(&self, name: &str) -> io::Result<Interface> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.link_header(0, 0, 0);
        request.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
        let answer = self.ask(request).map_err(|error| Call::Find(name).refused(&error))?;
        parse_interface(&answer)
            .ok_or_else(|| io::Error::other("the kernel's answer about an interface is cut short"))
    }

    /// The interface of that number, if there is one.
    pub(crate) fn interface_at(&self, index: u32) -> io::Result<Option<Interface>> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.link_header(index, 0, 0);
        match self.ask(request) {
            Ok(answer) => Ok(parse_interface(&answer)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frames that the interface of that number dropped, going that way.
    pub(crate) fn dropped(&self, index: u32, way: Way) -> io::Result<u64> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.link_header(index, 0, 0);
        let answer = self.ask(request)?;
        let all = answer.get(HEADER_LEN + LINK_HEADER_LEN..).unwrap_or_default();
        let found = attributes(all).find(|(kind, _)| *kind == libc::IFLA_STATS64);
        let statistics = found.and_then(|(_, value)| value).unwrap_or_default();
        let dropped = statistics.get(way.dropped_at()..).and_then(|rest| rest.first_chunk());
        dropped.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or_else(|| {
            io::Error::other("the kernel's answer about an interface has no statistics")
        })
    }

    /// The name of the interface of that number.
    fn name(&self, index: u32) -> io::Result<String> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        request.link_header(index, 0, 0);
        let answer = self.ask(request)?;
        let all = answer.get(HEADER_LEN + LINK_HEADER_LEN..).unwrap_or_default();
        let name = attributes(all).find(|(kind, _)| *kind == libc::IFLA_IFNAME);
        let name = name.and_then(|(_, value)| value).unwrap_or_default();
        Ok(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
    }

    /// The addresses of the kernel's own IP stack, each with the number of its interface.
    pub(crate) fn addresses(&self) -> io::Result<Vec<(u32, Cidr)>> {
        let mut request = Request::new(libc::RTM_GETADDR, libc::NLM_F_DUMP);
        // `struct ifaddrmsg`: zeros ask for both IP versions and every interface.
        request.bytes.extend([0; 8]);
        self.send(request)?;
        let mut all = Vec::new();
        loop {
            let answer = self.receive()?;
            let mut rest = &answer[..];
            while let (Some(len), Some(kind)) = (long(rest, 0), word(rest, 4)) {
                let message = rest.get(..len as usize).unwrap_or(rest);
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(all),
                    libc::NLMSG_ERROR => return error_of(message).map(|()| all),
                    _ => all.extend(parse_address(message)),
                }
                rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or_default();
            }
        }
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

    /// Gives the interface an address with its on-link prefix, usable at once (no duplicate address
    /// detection: the only neighbour is our stack). It is no error if the interface has the address
    /// already.
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

    /// Sends a request and returns the kernel's answer, header included. An acknowledgement of
    /// success is an answer; an acknowledgement of failure is an error.
    fn ask(&self, request: Request) -> io::Result<Vec<u8>> {
        self.send(request)?;
        let answer = self.receive()?;
        error_of(&answer).map(|()| answer)
    }

    fn send(&self, mut request: Request) -> io::Result<()> {
        let len = request.bytes.len() as u32;
        request.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        send(&self.socket, &request.bytes, SendFlags::empty())?;
        Ok(())
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut answer = vec![0; ANSWER_LEN];
        let (_, len) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(len);
        Ok(answer)
    }
}

/// Fails if the message reports a failure.
fn error_of(message: &[u8]) -> io::Result<()> {
    match (word(message, 4), long(message, HEADER_LEN)) {
        (Some(kind), Some(code)) if i32::from(kind) == libc::NLMSG_ERROR && code != 0 => {
            Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()))
        }
        _ => Ok(()),
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
    let flags = long(message, HEADER_LEN + 8)?;
    let mut interface = Interface {
        index: long(message, HEADER_LEN + 4)?,
        mtu: 0,
        up: flags & libc::IFF_UP as u32 != 0,
        // IFF_RUNNING follows it after a while.
        carrier: flags & libc::IFF_LOWER_UP as u32 != 0,
        loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
        tun: false,
        hardware: [0; 6],
    };
    for (kind, value) in attributes(message.get(HEADER_LEN + LINK_HEADER_LEN..)?) {
        let value = value?;
        match kind {
            libc::IFLA_MTU => interface.mtu = long(value, 0)?,
            libc::IFLA_ADDRESS => interface.hardware = value.try_into().unwrap_or_default(),
            libc::IFLA_LINKINFO => {
                let kind = attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                interface.tun = kind.and_then(|(_, name)| name) == Some(b"tun\0");
            }
            _ => (),
        }
    }
    Some(interface)
}

/// An address with its prefix, and the number of its interface.
fn parse_address(message: &[u8]) -> Option<(u32, Cidr)> {
    let prefix_len = *message.get(HEADER_LEN + 1)?;
    let index = long(message, HEADER_LEN + 4)?;
    let mut address = None;
    for (kind, value) in attributes(message.get(HEADER_LEN + ADDRESS_HEADER_LEN..)?) {
        // On a point-to-point interface `IFA_ADDRESS` is the other end's.
        if kind == libc::IFA_LOCAL || kind == libc::IFA_ADDRESS && address.is_none() {
            address = parse_ip(value?);
        }
    }
    Some((index, Cidr::new(address?, prefix_len)?))
}

fn parse_ip(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
    }
}

/// The attributes at the end of a message, each with its kind; `None` for a truncated one.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, Option<&[u8]>)> {
    std::iter::from_fn(move || {
        let (len, kind) = (usize::from(word(rest, 0)?), word(rest, 2)?);
        let value = rest.get(4..len);
        rest = rest.get(len.next_multiple_of(4).max(4)..).unwrap_or_default();
        Some((kind, value))
    })
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
        assert_eq!((loopback.index, loopback.hardware, loopback.loopback), (1, [0; 6], true));
        assert!(loopback.mtu >= 1500);
        let error = netlink.interface("nosuchthing").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("`nosuchthing`"));
    }

    #[test]
    fn the_kernels_addresses_are_known_with_their_interface() {
        let loopback = kernel_address("eth9", IpAddr::from([127, 0, 0, 1])).unwrap();
        // In a new namespace the loopback interface is down and has no address.
        let all = kernel_addresses("lo").unwrap();
        assert_eq!(all.contains(&"127.0.0.1/8".parse().unwrap()), loopback.is_some(), "{all:?}");
        assert_eq!(kernel_addresses("nosuch").unwrap_err().kind(), io::ErrorKind::NotFound);
        if let Some(loopback) = loopback {
            assert_eq!(loopback.interface, "lo");
            assert_eq!(loopback.address.to_string(), "127.0.0.1/8");
        }
        assert_eq!(kernel_address("lo", IpAddr::from([192, 0, 2, 77])).unwrap(), None);
        assert_eq!(kernel_address("lo", "2001:db8::77".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn an_address_message_is_read_or_refused_wherever_it_is_cut() {
        let mut message = Request::new(libc::RTM_NEWADDR, 0);
        message.bytes.extend([libc::AF_INET as u8, 24, 0, 0]);
        message.bytes.extend(7u32.to_ne_bytes());
        message.attribute(libc::IFA_ADDRESS, &[10, 0, 0, 9]);
        message.attribute(libc::IFA_LOCAL, &[10, 0, 0, 2]);
        let expected = (7, "10.0.0.2/24".parse().unwrap());
        assert_eq!(parse_address(&message.bytes), Some(expected));
        for len in 0..message.bytes.len() {
            assert_ne!(parse_address(&message.bytes[..len]), Some(expected), "{len}");
        }
    }

    #[test]
    fn an_interface_that_there_is_not_is_not_found() {
        let netlink = Netlink::open().unwrap();
        assert_eq!(netlink.interface_at(1).unwrap().unwrap().index, 1);
        assert_eq!(netlink.interface_at(i32::MAX as u32).unwrap(), None);
    }

    #[test]
    fn a_message_cut_anywhere_is_refused_or_read_without_panic() {
        let mut message = Request::new(libc::RTM_NEWLINK, 0);
        message.link_header(3, libc::IFF_UP as u32, 0);
        message.attribute(libc::IFLA_MTU, &1400u32.to_ne_bytes());
        message.attribute(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 9]);
        let whole = parse_interface(&message.bytes).unwrap();
        let hardware = [2, 0, 0, 0, 0, 9];
        let link = Interface {
            index: 3,
            mtu: 1400,
            up: true,
            carrier: false,
            loopback: false,
            tun: false,
            hardware,
        };
        assert_eq!(whole, link);
        let padding = 2;
        for len in 0..message.bytes.len() - padding {
            assert_ne!(parse_interface(&message.bytes[..len]), Some(whole));
        }
    }
}

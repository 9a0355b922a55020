//! What the kernel refused, and why: a text for users that names the cause and the command that
//! helps. Each error number has a cause of its own for each call, so that a privilege is said to be
//! missing only where it is.

mod xdp;

use std::io;

use lightwait_core::address::Cidr;

use super::kind::Kind;

/// A call of a device's to the kernel, with what its text names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    /// Opening `/dev/net/tun`.
    OpenTun,
    /// Attaching to the TAP or TUN of that name, or making it (TUNSETIFF).
    Attach(Kind, &'a str),
    /// The same for one queue of several.
    AttachQueue(Kind, &'a str),
    /// Opening the macvtap of that name and number.
    OpenMacvtap(&'a str, u32),
    /// Asking what a descriptor is attached to (TUNGETIFF).
    Attached,
    /// Setting how the frames of a TAP or TUN look: what, in words.
    Shape(Kind, &'a str),
    /// Loading a program of eBPF: the end of the verifier's log.
    LoadProgram(&'a str),
    /// Loading a program of XDP, or making its map: the end of the verifier's log.
    LoadXdp(&'a str),
    /// Attaching a program of XDP to the interface of that name.
    AttachXdp(&'a str),
    /// Opening a socket of AF_XDP.
    XdpSocket,
    /// Registering memory with a socket of AF_XDP, or mapping its rings.
    XdpMemory,
    /// Binding a socket of AF_XDP to a queue of the interface of that name.
    XdpBind(&'a str, u32),
    /// Opening a packet socket.
    PacketSocket,
    /// Setting an option of a packet socket: its name.
    Option(&'static str),
    /// Sharing the frames of an interface with other packet sockets (PACKET_FANOUT).
    FanOut,
    /// Receiving and sending on the interface of that name.
    Bind(&'a str),
    /// Opening a netlink socket.
    Netlink,
    /// Asking about the interface of that name.
    Find(&'a str),
    /// Setting the MTU of an interface.
    SetMtu(&'a str, u16),
    /// Giving an interface an address.
    AddAddress(&'a str, Cidr),
    /// Bringing an interface up.
    SetUp(&'a str),
}

impl Call<'_> {
    /// The error, with its cause and advice before its text. Its kind stays, but for an interface
    /// that there is not: that is `NotFound`.
    pub(super) fn refused(self, error: &io::Error) -> io::Error {
        let errno = error.raw_os_error().unwrap_or_default();
        let text = match self {
            Call::OpenTun => open_tun(errno),
            Call::Attach(kind, name) => attach(kind, name, errno),
            Call::AttachQueue(kind, name) => attach_queue(kind, name, errno),
            Call::OpenMacvtap(name, index) => open_macvtap(name, index, errno),
            Call::Attached => attached(errno),
            Call::Shape(kind, what) => format!("the {kind} refuses {what}"),
            Call::LoadProgram(log) => load_program(log, errno),
            Call::LoadXdp(log) => xdp::load(log, errno),
            Call::AttachXdp(name) => xdp::attach(name, errno),
            Call::XdpSocket => xdp::socket(errno),
            Call::XdpMemory => xdp::memory(errno),
            Call::XdpBind(name, queue) => xdp::bind(name, queue, errno),
            Call::PacketSocket => packet_socket(errno),
            Call::Option(name) => match errno {
                libc::ENOPROTOOPT => format!("this kernel has no {name}: it is too old"),
                libc::ENODEV => "the interface is gone".to_owned(),
                _ => format!("the packet socket refuses {name}"),
            },
            Call::FanOut => match errno {
                libc::ENOSPC => "256 packet sockets at most share an interface's frames",
                libc::ENOPROTOOPT | libc::EINVAL => {
                    "this kernel has no PACKET_FANOUT as it is needed: it is too old"
                }
                _ => "packet sockets cannot share the interface's frames (PACKET_FANOUT)",
            }
            .to_owned(),
            Call::Bind(name) => match errno {
                libc::ENODEV => no_interface(name),
                _ => format!("cannot bind a packet socket to `{name}`"),
            },
            Call::Netlink => match errno {
                libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => {
                    "this kernel or sandbox has no rtnetlink sockets".to_owned()
                }
                _ => "cannot open a rtnetlink socket".to_owned(),
            },
            Call::Find(name) => match errno {
                // A name that is too long is out of range.
                libc::ENODEV | libc::ERANGE => {
                    return io::Error::new(io::ErrorKind::NotFound, no_interface(name));
                }
                _ => format!("cannot ask the kernel about `{name}`"),
            },
            Call::SetMtu(name, mtu) => set_mtu(name, mtu, errno),
            Call::AddAddress(name, address) => add_address(name, address, errno),
            Call::SetUp(name) => set_up(name, errno),
        };
        io::Error::new(error.kind(), format!("{text} ({error})"))
    }
}

fn no_interface(name: &str) -> String {
    format!("no network interface `{name}`")
}

fn open_tun(errno: i32) -> String {
    match errno {
        libc::ENOENT => {
            "there is no /dev/net/tun: load the kernel's tun module (`sudo modprobe tun`), or give \
             the container that device (`--device /dev/net/tun`)"
        }
        libc::ENODEV | libc::ENXIO => {
            "/dev/net/tun has no driver: load the kernel's tun module (`sudo modprobe tun`)"
        }
        libc::EACCES => {
            "no permission to open /dev/net/tun: run as root, or let this user open it (`sudo \
             chmod 666 /dev/net/tun`) and make the interface for it (`sudo ip tuntap add dev NAME \
             user $USER mode tap`, or `mode tun`; with `multi_queue` for several shards)"
        }
        libc::EPERM => {
            "this container or sandbox does not allow /dev/net/tun: give it that device (`--device \
             /dev/net/tun`)"
        }
        _ => "cannot open /dev/net/tun",
    }
    .to_owned()
}

fn attach(kind: Kind, name: &str, errno: i32) -> String {
    match errno {
        libc::EPERM => attach_denied(kind, name, ""),
        libc::EBUSY => format!("the {kind} `{name}` is in use by another program"),
        libc::EINVAL => format!(
            "there is an interface `{name}` already, and it is no {kind}, or one with several \
             queues: open several, or have it made again without `multi_queue`"
        ),
        _ => format!("cannot attach to the {kind} `{name}`"),
    }
}

fn attach_queue(kind: Kind, name: &str, errno: i32) -> String {
    let mode = kind.mode();
    match errno {
        libc::EPERM => attach_denied(kind, name, " multi_queue"),
        libc::EINVAL => format!(
            "there is an interface `{name}` already, and it is no {kind}, or one with a single \
             queue: delete it and have it made again (`sudo ip tuntap add dev {name} mode {mode} \
             multi_queue user $USER`)"
        ),
        libc::E2BIG => format!("the {kind} `{name}` has 256 queues at most"),
        _ => attach(kind, name, errno),
    }
}

fn attach_denied(kind: Kind, name: &str, queues: &str) -> String {
    let mode = kind.mode();
    format!(
        "making the {kind} `{name}` needs CAP_NET_ADMIN: run as root, or `sudo setcap \
         cap_net_admin+ep` the program, or have it made for this user (`sudo ip tuntap add dev \
         {name} mode {mode}{queues} user $USER`)"
    )
}

fn open_macvtap(name: &str, index: u32, errno: i32) -> String {
    match errno {
        libc::ENOENT | libc::ENXIO | libc::ENODEV => format!(
            "there is no /dev/tap{index} for `{name}`: it is no macvtap (`sudo ip link add link \
             eth0 name NAME type macvtap mode bridge`), or this container has no such file"
        ),
        libc::EACCES | libc::EPERM => format!(
            "no permission to open /dev/tap{index}, the macvtap `{name}`: run as root, or let this \
             user open it (`sudo chown $USER /dev/tap{index}`)"
        ),
        libc::EBUSY => format!("all 256 queues of the macvtap `{name}` are in use"),
        _ => format!("cannot open /dev/tap{index}, the macvtap `{name}`"),
    }
}

fn attached(errno: i32) -> String {
    match errno {
        libc::ENOTTY => "the descriptor is not attached to a TAP or a TUN: it is of another kind",
        libc::EBADFD => {
            "the descriptor is not attached to a TAP or a TUN: attach it first (TUNSETIFF), or the \
             interface is gone"
        }
        _ => "cannot ask what interface the descriptor is attached to",
    }
    .to_owned()
}

fn load_program(log: &str, errno: i32) -> String {
    match errno {
        libc::EPERM => "a program of eBPF needs CAP_BPF or CAP_SYS_ADMIN, and not only in a \
                        namespace of its own: run as root, or `sudo setcap cap_bpf+ep` the \
                        program; before Linux 5.11 it needs locked memory, too (`ulimit -l`)"
            .to_owned(),
        libc::ENOSYS => "this kernel or sandbox has no bpf(2)".to_owned(),
        _ => format!("the kernel refuses the program of eBPF: {log}"),
    }
}

fn packet_socket(errno: i32) -> String {
    match errno {
        libc::EPERM => {
            "a packet socket needs CAP_NET_RAW: run as root, or `sudo setcap \
             cap_net_raw,cap_net_admin+ep` the program, or run it in a namespace of its own \
             (`unshare -Urn`)"
        }
        libc::EAFNOSUPPORT => {
            "this kernel or sandbox has no packet sockets (`sudo modprobe af_packet`)"
        }
        _ => "cannot open a packet socket",
    }
    .to_owned()
}

fn set_mtu(name: &str, mtu: u16, errno: i32) -> String {
    match errno {
        libc::EPERM => denied("setting the MTU", &format!("ip link set dev {name} mtu {mtu}")),
        libc::EINVAL => format!(
            "`{name}` cannot have an MTU of {mtu}: `ip -d link show {name}` \
                                 tells the least and the greatest"
        ),
        libc::ENODEV => no_interface(name),
        _ => format!("cannot set the MTU of `{name}` to {mtu}"),
    }
}

fn add_address(name: &str, address: Cidr, errno: i32) -> String {
    let is_ipv6 = address.address().is_ipv6();
    match errno {
        libc::EPERM => denied(
            "giving the kernel's end an address",
            &format!("ip addr add {address} dev {name}"),
        ),
        libc::EACCES if is_ipv6 => format!(
            "IPv6 is switched off on `{name}`, so that it cannot have {address}: `sudo sysctl \
             net/ipv6/conf/{name}/disable_ipv6=0`, or net/ipv6/conf/default/disable_ipv6=0 before \
             the interface is made, or leave IPv6 addresses out"
        ),
        libc::EOPNOTSUPP | libc::EAFNOSUPPORT if is_ipv6 => format!(
            "this kernel has no IPv6, so that `{name}` cannot have {address}: leave IPv6 addresses \
             out"
        ),
        libc::EINVAL if is_ipv6 => format!(
            "`{name}` cannot have {address}: an MTU below 1280 carries no IPv6, and no interface \
             has a group's address"
        ),
        libc::EINVAL | libc::EADDRNOTAVAIL => {
            format!("{address} is no address that `{name}` can have")
        }
        libc::ENODEV => no_interface(name),
        _ => format!("cannot give `{name}` the address {address}"),
    }
}

fn set_up(name: &str, errno: i32) -> String {
    match errno {
        libc::EPERM => denied(
            &format!("`{name}` is down; to bring it up"),
            &format!("ip link set dev {name} up"),
        ),
        libc::ERFKILL => format!("`{name}` is down, and its radio is switched off: `rfkill list`"),
        libc::EADDRNOTAVAIL => format!("`{name}` is down, and has no valid hardware address"),
        libc::EBUSY => format!("`{name}` is down, and something else uses its hardware"),
        libc::ENODEV => no_interface(name),
        _ => format!("`{name}` is down, and cannot be brought up"),
    }
}

/// The text for a missing privilege, with the command that an administrator may run instead.
fn denied(what: &str, command: &str) -> String {
    format!(
        "{what} needs CAP_NET_ADMIN: run as root, or `sudo setcap cap_net_admin+ep` the program, \
         or do it once by hand: `sudo {command}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> [Call<'static>; 21] {
        [
            Call::OpenTun,
            Call::Attach(Kind::Tap, "lw0"),
            Call::AttachQueue(Kind::Tap, "lw0"),
            Call::OpenMacvtap("lw0", 4),
            Call::Attached,
            Call::Shape(Kind::Tap, "a virtio header of 12 bytes"),
            Call::LoadProgram("R7 !read_ok"),
            Call::LoadXdp("R1 invalid"),
            Call::AttachXdp("lw0"),
            Call::XdpSocket,
            Call::XdpMemory,
            Call::XdpBind("lw0", 3),
            Call::PacketSocket,
            Call::Option("PACKET_IGNORE_OUTGOING"),
            Call::FanOut,
            Call::Bind("lw0"),
            Call::Netlink,
            Call::Find("lw0"),
            Call::SetMtu("lw0", 9000),
            Call::AddAddress("lw0", "fd77::1/64".parse().unwrap()),
            Call::SetUp("lw0"),
        ]
    }

    fn text(call: Call<'_>, errno: i32) -> String {
        call.refused(&io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn each_error_number_tells_its_own_cause() {
        let ipv6 = Call::AddAddress("lw0", "fd77::1/64".parse().unwrap());
        let ipv4 = Call::AddAddress("lw0", "10.0.0.1/24".parse().unwrap());
        for (call, errno, cause) in [
            (Call::OpenTun, libc::ENOENT, "there is no /dev/net/tun"),
            (Call::OpenTun, libc::ENODEV, "has no driver"),
            (Call::OpenTun, libc::ENXIO, "has no driver"),
            (Call::OpenTun, libc::EACCES, "chmod 666 /dev/net/tun"),
            (Call::OpenTun, libc::EPERM, "--device /dev/net/tun"),
            (
                Call::Attach(Kind::Tap, "lw0"),
                libc::EPERM,
                "ip tuntap add dev lw0 mode tap user $USER",
            ),
            (Call::Attach(Kind::Tap, "lw0"), libc::EBUSY, "in use by another program"),
            (Call::Attach(Kind::Tap, "lw0"), libc::EINVAL, "it is no TAP"),
            (Call::AttachQueue(Kind::Tap, "lw0"), libc::EPERM, "mode tap multi_queue user $USER"),
            (Call::AttachQueue(Kind::Tap, "lw0"), libc::EBUSY, "in use by another program"),
            (
                Call::AttachQueue(Kind::Tap, "lw0"),
                libc::EINVAL,
                "ip tuntap add dev lw0 mode tap multi_queue",
            ),
            (Call::AttachQueue(Kind::Tap, "lw0"), libc::E2BIG, "256 queues at most"),
            (Call::OpenMacvtap("lw0", 4), libc::ENOENT, "no /dev/tap4 for `lw0`: it is no macvtap"),
            (Call::OpenMacvtap("lw0", 4), libc::EACCES, "sudo chown $USER /dev/tap4"),
            (Call::Attached, libc::ENOTTY, "of another kind"),
            (Call::Attached, libc::EBADFD, "attach it first"),
            (Call::LoadProgram(""), libc::EPERM, "needs CAP_BPF or CAP_SYS_ADMIN"),
            (Call::LoadProgram(""), libc::ENOSYS, "no bpf(2)"),
            (Call::LoadProgram("R7 !read_ok"), libc::EACCES, "eBPF: R7 !read_ok"),
            (Call::LoadXdp(""), libc::EPERM, "needs CAP_NET_ADMIN and CAP_BPF"),
            (Call::LoadXdp("R1 invalid"), libc::EACCES, "XDP: R1 invalid"),
            (Call::AttachXdp("lw0"), libc::EBUSY, "sudo ip link set dev lw0 xdp off"),
            (Call::AttachXdp("lw0"), libc::EINVAL, "before Linux 5.9"),
            (Call::XdpSocket, libc::EPERM, "needs CAP_NET_RAW"),
            (Call::XdpSocket, libc::EAFNOSUPPORT, "CONFIG_XDP_SOCKETS"),
            (Call::XdpMemory, libc::ENOBUFS, "ulimit -l"),
            (Call::XdpBind("lw0", 3), libc::EBUSY, "queue 3 of `lw0` is in use"),
            (Call::XdpBind("lw0", 3), libc::EINVAL, "has no queue 3"),
            (Call::PacketSocket, libc::EPERM, "needs CAP_NET_RAW"),
            (Call::PacketSocket, libc::EAFNOSUPPORT, "modprobe af_packet"),
            (Call::Option("PACKET_AUXDATA"), libc::ENOPROTOOPT, "no PACKET_AUXDATA"),
            (Call::Option("PACKET_AUXDATA"), libc::ENODEV, "the interface is gone"),
            (Call::FanOut, libc::ENOSPC, "256 packet sockets at most"),
            (Call::FanOut, libc::EINVAL, "too old"),
            (Call::Bind("lw0"), libc::ENODEV, "no network interface `lw0`"),
            (Call::Netlink, libc::EPROTONOSUPPORT, "no rtnetlink"),
            (Call::Find("lw0"), libc::ENODEV, "no network interface `lw0`"),
            (Call::Find("lw0"), libc::ERANGE, "no network interface `lw0`"),
            (Call::SetMtu("lw0", 9000), libc::EPERM, "sudo ip link set dev lw0 mtu 9000"),
            (Call::SetMtu("lw0", 9), libc::EINVAL, "cannot have an MTU of 9"),
            (Call::SetMtu("lw0", 9000), libc::ENODEV, "no network interface"),
            (ipv6, libc::EPERM, "sudo ip addr add fd77::1/64 dev lw0"),
            (ipv6, libc::EACCES, "sudo sysctl net/ipv6/conf/lw0/disable_ipv6=0"),
            (ipv6, libc::EOPNOTSUPP, "this kernel has no IPv6"),
            (ipv6, libc::EAFNOSUPPORT, "this kernel has no IPv6"),
            (ipv6, libc::EINVAL, "an MTU below 1280"),
            (ipv6, libc::EADDRNOTAVAIL, "no address that `lw0` can have"),
            (ipv4, libc::EINVAL, "no address that `lw0` can have"),
            (ipv4, libc::ENODEV, "no network interface"),
            (Call::SetUp("lw0"), libc::EPERM, "sudo ip link set dev lw0 up"),
            (Call::SetUp("lw0"), libc::ERFKILL, "rfkill list"),
            (Call::SetUp("lw0"), libc::EADDRNOTAVAIL, "no valid hardware address"),
            (Call::SetUp("lw0"), libc::EBUSY, "something else uses its hardware"),
            (Call::SetUp("lw0"), libc::ENODEV, "no network interface"),
        ] {
            let text = text(call, errno);
            assert!(text.contains(cause), "{call:?} {errno}: {text}");
        }
    }

    #[test]
    fn only_a_missing_privilege_is_said_to_be_one() {
        for call in calls() {
            for errno in (1..134).filter(|errno| *errno != libc::EPERM) {
                let text = text(call, errno);
                assert!(!text.contains("CAP_"), "{call:?} {errno}: {text}");
            }
        }
    }

    #[test]
    fn an_error_that_is_not_expected_keeps_its_own_text() {
        for call in calls() {
            let error = io::Error::from_raw_os_error(libc::EIO);
            let refused = call.refused(&error);
            assert!(refused.to_string().ends_with(&format!("({error})")), "{refused}");
            assert_eq!(refused.kind(), error.kind());
        }
    }
}

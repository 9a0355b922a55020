//! What the kernel refuses of XDP and its sockets.

pub(super) fn load(log: &str, errno: i32) -> String {
    match errno {
        libc::EPERM => "XDP needs CAP_NET_ADMIN and CAP_BPF, or CAP_SYS_ADMIN, and not only in a \
                        namespace of its own: run as root, or `sudo setcap \
                        cap_net_admin,cap_net_raw,cap_bpf+ep` the program"
            .to_owned(),
        libc::ENOSYS => "this kernel or sandbox has no bpf(2)".to_owned(),
        _ => format!("the kernel refuses the program of XDP: {log}"),
    }
}

pub(super) fn attach(name: &str, errno: i32) -> String {
    match errno {
        libc::EPERM => {
            format!("attaching a program of XDP to `{name}` needs CAP_NET_ADMIN: run as root")
        }
        libc::EBUSY => format!(
            "`{name}` has a program of XDP already: end what holds it (`bpftool net`), or `sudo ip \
             link set dev {name} xdp off`"
        ),
        libc::EINVAL => format!(
            "`{name}` takes no program of XDP; before Linux 5.9 no interface takes one that ends \
             with its process"
        ),
        libc::ENODEV => super::no_interface(name),
        _ => format!("`{name}` takes no program of XDP"),
    }
}

pub(super) fn socket(errno: i32) -> String {
    match errno {
        libc::EPERM => {
            "a socket of AF_XDP needs CAP_NET_RAW: run as root, or `sudo setcap \
             cap_net_admin,cap_net_raw,cap_bpf+ep` the program"
        }
        libc::EAFNOSUPPORT => {
            "this kernel or sandbox has no AF_XDP: it is built without CONFIG_XDP_SOCKETS"
        }
        _ => "cannot open a socket of AF_XDP",
    }
    .to_owned()
}

pub(super) fn memory(errno: i32) -> String {
    match errno {
        libc::ENOBUFS => {
            "the frames of AF_XDP are locked in memory, and the limit is too low: `ulimit -l \
             unlimited`"
        }
        _ => "the socket of AF_XDP refuses its memory",
    }
    .to_owned()
}

pub(super) fn bind(name: &str, queue: u32, errno: i32) -> String {
    match errno {
        libc::EBUSY => {
            format!("queue {queue} of `{name}` is in use by another socket of AF_XDP")
        }
        libc::EINVAL => format!(
            "`{name}` has no queue {queue} (`ethtool -l {name}` tells them), or an MTU above 3818, \
             which needs Linux 6.6"
        ),
        libc::ENETDOWN => format!("`{name}` is down"),
        _ => format!("cannot bind a socket of AF_XDP to queue {queue} of `{name}`"),
    }
}

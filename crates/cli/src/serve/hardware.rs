//! Our hardware address. It is the same each time the program starts, so that the neighbours'
//! caches stay right.

use std::fs;

use lightwait_core::address::Cidr;
use lightwait_core::config::hardware_address;
use lightwait_core::flow::keyed::KeyedHash;

/// What tells this machine from others, the best first: its id (machine-id(5)); in a container
/// without one, the id of the kernel's boot; the host name.
const IDENTITIES: [&str; 4] = [
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/hostname",
];

/// The content that systemd writes before there is an id.
const UNINITIALIZED: &str = "uninitialized";

/// A hardware address for the stack on an interface. It is derived from the machine, the
/// interface's name, the interface's own address (containers of one image may share the rest), and
/// our first IP address (for several stacks on one interface). `None` if nothing identifies the
/// machine.
pub(super) fn stable(interface: &str, own: [u8; 6], address: Cidr) -> Option<[u8; 6]> {
    let texts = IDENTITIES.iter().filter_map(|path| fs::read_to_string(path).ok());
    let identity = texts.map(|text| text.trim().to_owned()).find(|text| is_identity(text))?;
    Some(of(&identity, interface, own, address))
}

fn is_identity(text: &str) -> bool {
    !text.is_empty() && text != UNINITIALIZED
}

/// machine-id(5) asks programs not to reveal the id, so it only keys a hash.
fn of(identity: &str, interface: &str, own: [u8; 6], address: Cidr) -> [u8; 6] {
    let mut key = [0; 32];
    for (index, byte) in identity.bytes().enumerate() {
        key[index % 32] ^= byte;
    }
    let text = format!("{interface}\0{own:?}\0{}", address.address());
    let [a, b, c, d, e, f, ..] =
        KeyedHash::new(&key, "hardware address").strong(text.as_bytes()).to_be_bytes();
    hardware_address([a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn an_address_is_stable_and_differs_where_anything_differs() {
        let (ours, theirs) = ("10.9.0.2/24".parse().unwrap(), "10.9.0.3/24".parse().unwrap());
        let id = "0123456789abcdef0123456789abcdef";
        let all = [
            of(id, "eth0", [1; 6], ours),
            of("1123456789abcdef0123456789abcdef", "eth0", [1; 6], ours),
            of("a-name-that-is-longer-than-the-key-is", "eth0", [1; 6], ours),
            of(id, "eth1", [1; 6], ours),
            of(id, "eth0", [2; 6], ours),
            of(id, "eth0", [1; 6], theirs),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(all[0], of(id, "eth0", [1; 6], ours));
        let of_machine = || stable("eth0", [1; 6], ours);
        assert!(of_machine().is_some());
        assert_eq!(of_machine(), of_machine());
    }

    #[test]
    fn an_id_that_is_none_is_passed_over() {
        assert!(!is_identity("") && !is_identity("uninitialized") && is_identity("a"));
    }
}

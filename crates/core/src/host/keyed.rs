//! Hashes keyed with this process's secret.
//!
//! Addresses and ports are the attacker's to choose, so everything hashed from them is keyed with
//! SipHash (Aumasson & Bernstein 2012): tables, ISNs, timestamp offsets, cookies, port order. Each
//! purpose derives its own key from the one secret, so that what one of them shows says nothing
//! about another.

use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::{SipHasher13, SipHasher24};

/// A hash function of one purpose.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    key: [u8; 16],
}

impl KeyedHash {
    /// The hash function for `purpose`, a name that no other has.
    pub fn new(secret: &[u8; 32], purpose: &str) -> Self {
        let (low, high) = secret.split_at(16);
        let mut key = [0; 16];
        for (half, part) in [low, high].into_iter().enumerate() {
            let part = core::array::from_fn(|i| part[i]);
            let word = SipHasher24::new_with_key(&part).hash(purpose.as_bytes());
            key[half * 8..half * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        KeyedHash { key }
    }

    /// SipHash-2-4 of `bytes`: for what a stranger sees.
    pub fn strong(&self, bytes: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.key).hash(bytes)
    }

    /// SipHash-1-3 of `bytes`: for tables, which nobody sees.
    pub fn quick(&self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_key(&self.key).hash(bytes)
    }

    /// The strong hash of a connection's two ends, and of `more`.
    pub fn of_tuple(&self, local: SocketAddr, remote: SocketAddr, more: &[u8; 8]) -> u64 {
        let mut bytes = Bytes::EMPTY;
        bytes.push_socket(local);
        bytes.push_socket(remote);
        bytes.push(more);
        self.strong(bytes.as_slice())
    }

    /// The strong hash of an address of ours and a remote end.
    pub fn of_destination(&self, local: IpAddr, remote: SocketAddr) -> u64 {
        let mut bytes = Bytes::EMPTY;
        bytes.push_address(local);
        bytes.push_socket(remote);
        self.strong(bytes.as_slice())
    }
}

/// For hash tables: SipHash-1-3.
impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.key)
    }
}

/// The key does not belong in a log.
impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash")
    }
}

/// What is hashed: addresses and ports one after the other. Both addresses of a pair are of one
/// version, so the length tells the layouts apart, and SipHash takes in the length.
struct Bytes {
    bytes: [u8; 48],
    len: usize,
}

impl Bytes {
    const EMPTY: Bytes = Bytes { bytes: [0; 48], len: 0 };

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.push(&address.octets()),
            IpAddr::V6(address) => self.push(&address.octets()),
        }
    }

    fn push_socket(&mut self, socket: SocketAddr) {
        self.push_address(socket.ip());
        self.push(&socket.port().to_be_bytes());
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SocketAddr = SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn purpose_and_every_byte_of_the_secret_matter() {
        let of = |secret: &[u8; 32], purpose| KeyedHash::new(secret, purpose).strong(b"x");
        let plain = of(&[0; 32], "isn");
        assert_eq!(plain, of(&[0; 32], "isn"));
        assert_ne!(plain, of(&[0; 32], "port"));
        for at in 0..32 {
            let mut secret = [0; 32];
            secret[at] = 1;
            assert_ne!(plain, of(&secret, "isn"), "byte {at}");
        }
    }

    #[test]
    fn every_part_of_the_tuple_matters() {
        let hash = KeyedHash::new(&[7; 32], "test");
        let b: SocketAddr = "127.0.0.2:1".parse().unwrap();
        let c: SocketAddr = "127.0.0.1:2".parse().unwrap();
        let six: SocketAddr = "[::1]:1".parse().unwrap();
        let all = [
            hash.of_tuple(A, A, &[0; 8]),
            hash.of_tuple(A, b, &[0; 8]),
            hash.of_tuple(b, A, &[0; 8]),
            hash.of_tuple(A, c, &[0; 8]),
            hash.of_tuple(c, A, &[0; 8]),
            hash.of_tuple(A, A, &[1; 8]),
            hash.of_tuple(six, six, &[0; 8]),
            hash.of_destination(A.ip(), A),
            hash.of_destination(b.ip(), A),
        ];
        for (i, x) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|y| y != x), "{i}");
        }
        assert_ne!(hash.strong(b"x"), hash.quick(b"x"));
    }
}

//! Hashes keyed with this process's secret.
//!
//! Addresses and ports are the attacker's to choose, so everything hashed from them is keyed with
//! SipHash (Aumasson & Bernstein 2012): tables, ISNs, timestamp offsets, cookies, port order. Each
//! purpose derives its own key from the one secret, so that what one of them shows says nothing
//! about another.

use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::{SipHasher13, SipHasher24};

use crate::tcp::Tuple;

/// A hash function of one purpose.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    key: (u64, u64),
}

impl KeyedHash {
    /// The hash function for `purpose`, a name that no other has.
    pub fn new(secret: &[u8; 32], purpose: &str) -> Self {
        let half = |at: usize| SipHasher24::new_with_key(&core::array::from_fn(|i| secret[at + i]));
        KeyedHash { key: (half(0).hash(purpose.as_bytes()), half(16).hash(purpose.as_bytes())) }
    }

    fn strong_hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_keys(self.key.0, self.key.1)
    }

    /// SipHash-2-4 of `bytes`: for what a stranger sees.
    pub fn strong(&self, bytes: &[u8]) -> u64 {
        self.strong_hasher().hash(bytes)
    }

    /// SipHash-1-3 of `bytes`: for tables, which nobody sees.
    pub fn quick(&self, bytes: &[u8]) -> u64 {
        self.build_hasher().hash(bytes)
    }

    /// The quick hash of a connection's two ends.
    #[inline]
    pub fn quick_of_tuple(&self, tuple: &Tuple) -> u64 {
        let mut hasher = self.build_hasher();
        feed_addresses(&mut hasher, tuple.local, tuple.remote);
        hasher.write_u32(ports(tuple.local_port, tuple.remote_port));
        hasher.finish()
    }

    /// The strong hash of a connection's two ends. Its halves are as good as two hashes.
    pub fn of_tuple(&self, local: SocketAddr, remote: SocketAddr) -> u64 {
        let mut hasher = self.strong_hasher();
        feed_addresses(&mut hasher, local.ip(), remote.ip());
        hasher.write_u32(ports(local.port(), remote.port()));
        hasher.finish()
    }

    /// The strong hash of a connection's two ends, and of `more`.
    pub fn of_tuple_and(&self, local: SocketAddr, remote: SocketAddr, more: u64) -> u64 {
        let mut hasher = self.strong_hasher();
        feed_addresses(&mut hasher, local.ip(), remote.ip());
        hasher.write_u64(more);
        hasher.write_u32(ports(local.port(), remote.port()));
        hasher.finish()
    }

    /// The strong hash of an address of ours and a remote end.
    pub fn of_destination(&self, local: IpAddr, remote: SocketAddr) -> u64 {
        let mut hasher = self.strong_hasher();
        feed_addresses(&mut hasher, local, remote.ip());
        hasher.write_u16(remote.port());
        hasher.finish()
    }
}

/// Both addresses are of one version, so the length tells the layouts apart, and SipHash takes in
/// the length. Whole words first: they cost the hasher no shifting.
#[inline]
fn feed_addresses(hasher: &mut impl Hasher, local: IpAddr, remote: IpAddr) {
    match (local, remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            hasher.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
        }
        (local, remote) => {
            for address in [local, remote] {
                let bits = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                    IpAddr::V6(address) => address.to_bits(),
                };
                hasher.write_u64((bits >> 64) as u64);
                hasher.write_u64(bits as u64);
            }
        }
    }
}

fn ports(local: u16, remote: u16) -> u32 {
    u32::from(local) << 16 | u32::from(remote)
}

/// For hash tables: SipHash-1-3.
impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key.0, self.key.1)
    }
}

/// The key does not belong in a log.
impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash")
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
            hash.of_tuple(A, A),
            hash.of_tuple(A, b),
            hash.of_tuple(b, A),
            hash.of_tuple(A, c),
            hash.of_tuple(c, A),
            hash.of_tuple_and(A, A, 0),
            hash.of_tuple_and(A, A, 1),
            hash.of_tuple(six, six),
            hash.of_destination(A.ip(), A),
            hash.of_destination(b.ip(), A),
        ];
        for (i, x) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|y| y != x), "{i}");
        }
        assert_ne!(hash.strong(b"x"), hash.quick(b"x"));
    }
}

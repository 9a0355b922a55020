//! Hardware addresses of our own making, derived from the secret.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

/// What the secret is asked for here, and nowhere else.
const PURPOSE: &[u8] = b"hardware address";

/// An address of six bytes. All but two bits are `random`'s; those say that it is of one station
/// and administered locally (IEEE 802-2014 §8.2.2, the low bits of the first byte).
pub fn hardware_address(random: [u8; 6]) -> [u8; 6] {
    let mut address = random;
    address[0] = address[0] & 0xfc | 0x02;
    address
}

/// The address of a host with that secret. It reveals nothing of the secret.
pub(super) fn of_secret(secret: &[u8; 32]) -> [u8; 6] {
    let half = |at: usize| core::array::from_fn(|index| secret[at + index]);
    let mut hasher = SipHasher24::new_with_key(&half(0));
    hasher.write(&half(16));
    hasher.write(PURPOSE);
    let bytes = hasher.finish().to_le_bytes();
    hardware_address(core::array::from_fn(|index| bytes[index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_local_and_of_one_station_and_random_else() {
        for first in 0..=255 {
            let address = hardware_address([first, 1, 2, 3, 4, 5]);
            assert_eq!((address[0] & 0x03, &address[1..]), (0x02, &[1, 2, 3, 4, 5][..]));
            assert_eq!(address[0] & 0xfc, first & 0xfc);
        }
    }

    #[test]
    fn another_secret_has_another_address_whichever_byte_differs() {
        let first = of_secret(&[7; 32]);
        assert_eq!((first, first[0] & 0x03), (of_secret(&[7; 32]), 0x02));
        for byte in 0..32 {
            let mut other = [7; 32];
            other[byte] = 8;
            assert_ne!(of_secret(&other), first, "{byte}");
        }
    }
}

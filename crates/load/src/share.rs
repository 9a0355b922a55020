//! A load that several processes or machines run together: each has a share, and no 4-tuple is in
//! two shares.

use std::ops::RangeInclusive;

use crate::sources::Sources;

/// One share of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    number: u32,
    /// The number of shares.
    of: u32,
}

impl Share {
    /// The whole load.
    pub const ALL: Share = Share { number: 0, of: 1 };

    /// Share `number` of `of`, from 0; `None` if there is no such share.
    pub fn new(number: u32, of: u32) -> Option<Share> {
        (number < of).then_some(Share { number, of })
    }

    /// Its number, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number of shares.
    pub fn of(&self) -> u32 {
        self.of
    }

    /// Its part of `whole` things: the parts of all shares add up to `whole`.
    pub fn count(&self, whole: u64) -> u64 {
        let [begin, end] = self.range(whole);
        end - begin
    }

    /// Its part of a rate.
    pub fn rate(&self, whole: f64) -> f64 {
        whole / f64::from(self.of)
    }

    /// Its source addresses, and the ports of each. If there are fewer addresses than shares,
    /// several shares have the same address and different ports.
    ///
    /// # Errors
    /// A line of text, if there are not enough ports either.
    pub fn tuples(
        &self,
        sources: &Sources,
        ports: &RangeInclusive<u16>,
    ) -> Result<(Sources, RangeInclusive<u16>), String> {
        let (addresses, of) = (sources.len(), u64::from(self.of));
        if addresses >= of {
            let [begin, end] = self.range(addresses);
            return Ok((sources.slice(begin, end - begin), ports.clone()));
        }
        // The shares `first..end` have this share's address.
        let address = u64::from(self.number) * addresses / of;
        let [first, end] = [address, address + 1].map(|address| (address * of).div_ceil(addresses));
        let among = Share { number: self.number - first as u32, of: (end - first) as u32 };
        let [begin, end] = among.range(ports.len() as u64);
        if begin == end {
            return Err(format!(
                "{} shares of {addresses} addresses and {} ports: there is none for each",
                self.of,
                ports.len(),
            ));
        }
        let port = |place: u64| ports.start() + place as u16;
        Ok((sources.slice(address, 1), port(begin)..=port(end - 1)))
    }

    /// The beginning and the end of its part of `whole` things.
    fn range(&self, whole: u64) -> [u64; 2] {
        let at =
            |number: u32| (u128::from(whole) * u128::from(number) / u128::from(self.of)) as u64;
        [at(self.number), at(self.number + 1)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn shares(of: u32) -> impl Iterator<Item = Share> {
        (0..of).map(move |number| Share::new(number, of).unwrap())
    }

    fn sources(addresses: u64) -> Sources {
        Sources::new(&["10.0.0.0/8".parse().unwrap()]).unwrap().first(addresses)
    }

    proptest! {
        #[test]
        fn shares_have_every_tuple_once_and_all_connections(
            of in 1u32..20, addresses in 1u64..40, ports in 20u16..50, whole in 0u64..100,
        ) {
            let (sources, ports) = (sources(addresses), 1000..=1000 + ports - 1);
            let (mut seen, mut count) = (HashSet::new(), 0);
            for share in shares(of) {
                let (addresses, ports) = share.tuples(&sources, &ports).unwrap();
                for address in addresses.iter() {
                    for port in ports.clone() {
                        prop_assert!(seen.insert((address, port)), "{address} {port} twice");
                    }
                }
                prop_assert!(share.count(whole).abs_diff(whole / u64::from(of)) <= 1);
                count += share.count(whole);
            }
            prop_assert_eq!(seen.len(), addresses as usize * ports.len());
            prop_assert_eq!(count, whole);
        }
    }

    #[test]
    fn a_share_of_nothing_is_refused() {
        let tuples = |of| Share::new(0, of).unwrap().tuples(&sources(1), &(1..=3));
        assert!(tuples(3).is_ok());
        assert!(tuples(4).unwrap_err().contains("4 shares of 1 addresses and 3 ports"));
        assert_eq!((Share::new(4, 4), Share::new(0, 0)), (None, None));
        assert_eq!(Share::new(2, 4).unwrap().rate(100.0), 25.0);
    }
}

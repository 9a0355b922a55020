//! The names of hosts, and the addresses that programs find by them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::switch;

/// Every host's name, with its number.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: BTreeMap<String, usize>,
    /// Names stand for IPv6 addresses.
    pub(super) ipv6: bool,
}

impl Names {
    /// Adds a name. False if there is one like it.
    pub(super) fn add(&mut self, name: &str, number: usize) -> bool {
        self.numbers.insert(name.to_owned(), number).is_none()
    }

    /// The address of the host of that name.
    pub(super) fn find(&self, name: &str) -> Option<IpAddr> {
        let number = *self.numbers.get(name)?;
        Some(match self.ipv6 {
            true => switch::ipv6_address(number).into(),
            false => switch::address(number).into(),
        })
    }
}

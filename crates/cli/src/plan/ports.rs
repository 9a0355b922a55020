//! A range of ports on the command line.

use std::fmt;
use std::str::FromStr;

/// Ports, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Ports, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first @ 1..), Ok(last)) if first <= last => Ok(Ports { first, last }),
            _ => Err("give a port such as 80, or the first and the last, as in 8000-8099"),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ports { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        for (text, first, last) in
            [("80", 80, 80), ("8000-8099", 8000, 8099), ("1-65535", 1, 65535)]
        {
            let ports: Ports = text.parse().unwrap();
            assert_eq!(ports, Ports { first, last });
            assert_eq!(ports.to_string(), text);
        }
        for text in ["", "0", "0-9", "9-8", "80-", "-80", "http", "65536", "1-2-3"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}

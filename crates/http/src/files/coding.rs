//! The codings that a client takes (RFC 9110 §12.5.3), for files that lie compressed beside the
//! plain ones, or are compressed as they are asked for.

use http::header::{self, HeaderMap, HeaderValue};

/// A coding that a file may have beside the plain one, the smallest result first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    pub(super) const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// What its files' names end in.
    pub(super) fn suffix(self) -> &'static [u8] {
        match self {
            Coding::Brotli => b".br",
            Coding::Zstd => b".zst",
            Coding::Gzip => b".gz",
        }
    }

    /// Its name in fields (RFC 9110 §8.4.1, RFC 7932, RFC 8878).
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The value of `Content-Encoding`.
    pub(super) fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// Its bit in a set of codings.
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The codings that a client takes at least as gladly as the plain file, the ones it likes most
/// first, and of equals the smallest.
pub(super) fn accepted(asked: &HeaderMap) -> impl Iterator<Item = Coding> + use<> {
    let liking = |name: &str| {
        let values = asked.get_all(header::ACCEPT_ENCODING).iter();
        let items = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
        let mut any = None;
        for item in items {
            let (coding, weight) = parse(item);
            // `x-gzip` is gzip (§8.4.1.3).
            if coding.eq_ignore_ascii_case(name) || (name == "gzip" && coding == "x-gzip") {
                return Some(weight);
            }
            if coding == "*" {
                any = Some(weight);
            }
        }
        any
    };
    let plain = liking("identity").unwrap_or(0);
    let mut liked = Coding::ALL.map(|coding| (liking(coding.name()).unwrap_or(0), coding));
    liked.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    liked.into_iter().filter(move |(weight, _)| *weight > 0 && *weight >= plain).map(|(_, it)| it)
}

/// A coding of the field, and its weight in thousandths; one that makes no sense is not taken.
fn parse(item: &str) -> (&str, u16) {
    let mut parts = item.split(';').map(str::trim);
    let coding = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let Some(weight) = weight else { return (coding, 1000) };
    let weight = weight.parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight));
    (coding, (weight.unwrap_or(0.0) * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(value: &str) -> Vec<&'static str> {
        let mut asked = HeaderMap::new();
        asked.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
        accepted(&asked).map(Coding::name).collect()
    }

    #[test]
    fn codings_come_as_the_client_likes_them() {
        assert_eq!(accepted(&HeaderMap::new()).count(), 0, "a client that says nothing");
        for (value, codings) in [
            ("", &[][..]),
            ("gzip, deflate, br, zstd", &["br", "zstd", "gzip"]),
            ("gzip;q=1.0, br;q=0.5", &["gzip", "br"]),
            ("br;q=0, gzip", &["gzip"]),
            ("*", &["br", "zstd", "gzip"]),
            ("*;q=0", &[]),
            ("gzip;q=0.3, identity;q=0.5", &[]),
            ("X-GZIP", &[]),
            ("x-gzip", &["gzip"]),
            ("GZip ; q=0.7", &["gzip"]),
            ("gzip;q=2, br;q=x", &[]),
            ("gzip;q=0.5, *;q=0.1", &["gzip", "br", "zstd"]),
        ] {
            assert_eq!(taken(value), codings, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_field_is_too_strange(value in "[ -~]{0,60}") {
            assert!(taken(&value).len() <= 3);
        }
    }
}

//! [`Cidr`]: an IP address with the length of its network's prefix, such as `10.0.0.0/8`.

use std::{borrow::Cow, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An IP address and the length of its network's prefix. The address may have bits beyond the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix_length: u8,
}

impl Cidr {
    /// The address, as given.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits of the address name the network.
    pub const fn prefix_length(&self) -> u8 {
        self.prefix_length
    }
}

/// Why a text is not a CIDR; the message is Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid CIDR address: {text}")]
pub struct ParseCidrError {
    text: String,
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, ParseCidrError> {
        parse(text).ok_or_else(|| ParseCidrError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Cidr> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    // A sign would parse, but Go wants digits alone.
    if !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix_length: u8 = length.parse().ok()?;
    let longest = match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    (prefix_length <= longest).then_some(Cidr { address, prefix_length })
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_length)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_of_both_families_are_read_and_written() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3/024", "10.1.2.3/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.168.1.1/32", "192.168.1.1/32"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("::1/128", "::1/128"),
            ("::ffff:10.0.0.1/120", "::ffff:10.0.0.1/120"),
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn anything_else_is_refused_with_gos_message() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10.0.0/8",
            "10.0.0.01/8",
            "::1/129",
            "fe80::1%eth0/64",
            "1:2:3:4:5:6:7::8/64",
            "00001::/16",
            "10.0.0.0/99999999999",
        ] {
            assert_eq!(
                text.parse::<Cidr>().unwrap_err().to_string(),
                format!("invalid CIDR address: {text}")
            );
        }
    }

    #[test]
    fn a_cidr_in_a_document_is_text() {
        let cidr: Cidr = serde_json::from_str(r#""10.0.0.1/8""#).unwrap();
        assert_eq!((cidr.address(), cidr.prefix_length()), (IpAddr::from([10, 0, 0, 1]), 8));
        assert_eq!(serde_json::to_string(&cidr).unwrap(), r#""10.0.0.1/8""#);
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read_again(v4: [u8; 4], v6: [u8; 16], length in 0_u8..=32) {
            for address in [IpAddr::from(v4), IpAddr::from(v6)] {
                let cidr = Cidr { address, prefix_length: length };
                prop_assert_eq!(cidr.to_string().parse::<Cidr>().unwrap(), cidr);
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC*", similar in "[0-9a-f:./%]{0,20}") {
            let _ = (text.parse::<Cidr>(), similar.parse::<Cidr>());
        }
    }
}

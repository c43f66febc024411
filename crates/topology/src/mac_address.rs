//! The address of a network card.

use std::fmt;
use std::str::FromStr;

/// Six bytes; written in small letters with `:` between them.
///
/// A value, not a part of a host: it is here as the lowest crate that all who read one may
/// use (configurations, the switch, saved states).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// The address of these bytes, in the order in which they are sent.
    #[must_use]
    pub fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// True for the address of a group, to which no card's own belongs.
    #[must_use]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

/// Error type for [`MacAddress::from_str`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no MAC address of six bytes: 52:54:00:12:34:56")]
pub struct ParseMacAddressError {
    /// As it is written.
    pub text: String,
}

/// Pairs of digits with `:` or `-` between them, or fours with `.`.
///
/// Source: Go's `net.ParseMAC`, whose longer forms are no MAC addresses.
impl FromStr for MacAddress {
    type Err = ParseMacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseMacAddressError { text: text.to_owned() };
        let parts = |separator: char, count: usize, digits: usize| {
            let parts: Vec<&str> = text.split(separator).collect();
            let fits = |part: &&str| {
                part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit())
            };
            (parts.len() == count && parts.iter().all(fits)).then(|| parts.concat())
        };
        let digits = parts(':', 6, 2).or_else(|| parts('-', 6, 2)).or_else(|| parts('.', 3, 4));
        let number = u64::from_str_radix(&digits.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        let [_, _, bytes @ ..] = number.to_be_bytes();
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["52:54:00:ab:cd:0f", "52-54-00-AB-cd-0F", "5254.00aB.cd0f"] {
            let mac: MacAddress = text.parse().unwrap();
            assert_eq!(mac.bytes(), [0x52, 0x54, 0, 0xab, 0xcd, 0x0f], "{text}");
            assert_eq!(mac.to_string(), "52:54:00:ab:cd:0f", "{text}");
            assert!(!mac.is_group());
        }
        assert!("01:00:5e:00:00:01".parse::<MacAddress>().unwrap().is_group());
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:0f:01",
            "52:54:00:ab:cd:f",
            "52:54:00:ab:cd:0g",
            "52:54:00:+1:+2:03",
            "52-54:00:ab:cd:0f",
            "525400abcd0f",
            "5254.00ab",
            "5254:00ab:cd0f",
            "52:54:00:ab:cd:é",
        ] {
            let error = text.parse::<MacAddress>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }
}

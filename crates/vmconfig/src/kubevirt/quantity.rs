//! Kubernetes quantities: `2Gi`, `500m`, `1e3`.
//!
//! Source: Kubernetes, `apimachinery/pkg/api/resource/quantity.go`.

use serde::de::{Deserialize, Deserializer, Error as _};

/// A number with a suffix, kept in thousandths and rounded up, as Kubernetes
/// rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    milli: i128,
}

/// Error type for reading a [`Quantity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Not a quantity: {0:?} (write a number like 4, 500m or 2Gi)")]
pub struct ParseQuantityError(String);

impl Quantity {
    /// A whole number.
    #[must_use]
    pub fn whole(number: u64) -> Self {
        Self { milli: i128::from(number) * 1000 }
    }

    /// The whole number above or at the quantity; `None` below zero or where no
    /// `u64` holds it.
    #[must_use]
    pub fn round_up(self) -> Option<u64> {
        let whole = self.milli.div_euclid(1000) + i128::from(self.milli.rem_euclid(1000) != 0);
        u64::try_from(whole).ok()
    }

    /// The number, as near as a float comes to it.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.milli as f64 / 1000.0
    }

    /// The whole number below or at the quantity; `None` as in
    /// [`Quantity::round_up`].
    #[must_use]
    pub fn round_down(self) -> Option<u64> {
        u64::try_from(self.milli.div_euclid(1000)).ok()
    }
}

impl std::str::FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseQuantityError(text.into());
        let unsigned = text.trim().trim_start_matches(['+', '-']);
        let end =
            unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let signs = text.trim().len() - unsigned.len();
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || signs > 1 {
            return Err(error());
        }
        if whole.len() + fraction.len() > 18 {
            return Err(error());
        }
        let digits: i128 = format!("0{whole}{fraction}").parse().map_err(|_| error())?;
        let divisor = 10i128.pow(u32::try_from(fraction.len()).map_err(|_| error())?);
        let (up, down) = multiplier(suffix).ok_or_else(error)?;
        let (product, divisor) = (digits * 1000 * up, divisor * down);
        let milli = product / divisor + i128::from(product % divisor != 0);
        let negative = text.trim().starts_with('-');
        Ok(Self { milli: if negative { -milli } else { milli } })
    }
}

/// The suffix as a fraction.
fn multiplier(suffix: &str) -> Option<(i128, i128)> {
    let power = |base: i128, exponent: u32| Some((base.pow(exponent), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => power(10, 3),
        "M" => power(10, 6),
        "G" => power(10, 9),
        "T" => power(10, 12),
        "P" => power(10, 15),
        "E" => power(10, 18),
        "Ki" => power(1024, 1),
        "Mi" => power(1024, 2),
        "Gi" => power(1024, 3),
        "Ti" => power(1024, 4),
        "Pi" => power(1024, 5),
        "Ei" => power(1024, 6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            match u32::try_from(exponent) {
                Ok(up) if up <= 18 => power(10, up),
                Err(_) if exponent >= -9 => Some((1, 10i128.pow(exponent.unsigned_abs()))),
                _ => None,
            }
        }
    }
}

/// A text or a number, as in manifests.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity like 4, 500m or 2Gi")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity::whole(number))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity { milli: i128::from(number) * 1000 })
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kubernetes_quantities() {
        let check = |text: &str, up: u64, down: u64| {
            let quantity: Quantity = text.parse().expect(text);
            assert_eq!(
                (quantity.round_up(), quantity.round_down()),
                (Some(up), Some(down)),
                "{text}"
            );
        };
        check("2Gi", 2 << 30, 2 << 30);
        check("1.5Gi", 3 << 29, 3 << 29);
        check("64Mi", 64 << 20, 64 << 20);
        check("500m", 1, 0);
        check("4", 4, 4);
        check("1e3", 1000, 1000);
        check("12e-1", 2, 1);
        check(".5", 1, 0);
        check("+3k", 3000, 3000);
        for bad in ["", "Gi", "1 Gi", "1.2.3", "--1", "1Xi", "e", "1e99", "99999999999999999999"] {
            bad.parse::<Quantity>().expect_err(bad);
        }
        assert_eq!("-1".parse::<Quantity>().expect("signed").round_up(), None);
    }
}

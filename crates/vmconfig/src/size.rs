//! Sizes with a unit, as the formats write them.

/// Bytes of `512`, `2M`, `2Mi`, `2MiB`, `1.5G`: a number and a unit in powers
/// of 1024, the unit's first letter in either case. A number alone counts
/// `plain` bytes.
pub(crate) fn bytes(text: &str, plain: u64) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "" => plain,
        "b" | "B" | "bytes" => 1,
        unit => {
            let mut letters = unit.chars();
            let shift = match letters.next()?.to_ascii_uppercase() {
                'K' => 10,
                'M' => 20,
                'G' => 30,
                'T' => 40,
                'P' => 50,
                _ => return None,
            };
            if !["", "i", "iB", "ib", "b", "B"].contains(&letters.as_str()) {
                return None;
            }
            1 << shift
        }
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(scale),
        Some((whole, part)) if !part.is_empty() && part.len() <= 9 => {
            let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
            let divisor = 10_u64.pow(u32::try_from(part.len()).ok()?);
            let part = u128::from(part.parse::<u64>().ok()?) * u128::from(scale);
            let part = u64::try_from(part / u128::from(divisor)).ok()?;
            whole.checked_add(part)
        }
        Some(_) => None,
    }
}

/// Whole MiB of a size, rounded up.
pub(crate) fn mib(text: &str, plain: u64) -> Option<u64> {
    bytes(text, plain).map(|bytes| bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn units_are_powers_of_1024() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(bytes(text, 1 << 20), expected, "{text}");
        };
        check("512", Some(512 << 20));
        check("2M", Some(2 << 20));
        check("2048K", Some(2 << 20));
        check("1Gi", Some(1 << 30));
        check("1.5GiB", Some(3 << 29));
        check("7b", Some(7));
        for nothing in
            ["", "G", "-1", "1X", "1Mx", "1.G", "1.2.3", "99999999999999999999", "17179869185G"]
        {
            check(nothing, None);
        }
    }
}

//! Numbers of bytes as texts: for people to read, and as formats write them.

/// Units of powers of 1024 that people read, the smallest first.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size in the biggest unit of which it has at least 1, with one digit behind the point
/// where it is no whole number: `22 MiB`, `62.8 GiB`.
#[must_use]
pub fn rounded(bytes: u64) -> String {
    let unit = bytes.max(1).ilog2() as usize / 10;
    let shown = format!("{:.1}", bytes as f64 / (1_u64 << (10 * unit)) as f64);
    let shown = shown.strip_suffix(".0").unwrap_or(&shown);
    match UNITS.get(unit + 1) {
        // What is rounded up to 1024 is 1 of the next.
        Some(next) if shown == "1024" => format!("1 {next}"),
        _ => format!("{shown} {}", UNITS[unit]),
    }
}

/// A size without loss, in the biggest unit of which it is a whole number: `64260 MiB`.
#[must_use]
pub fn exact(bytes: u64) -> String {
    let unit = if bytes == 0 { 0 } else { bytes.trailing_zeros() as usize / 10 };
    format!("{} {}", bytes >> (10 * unit), UNITS[unit])
}

/// Bytes of `512`, `2M`, `2Mi`, `2MiB`, `1.5G`: a number and a unit in powers
/// of 1024, the unit's first letter in either case. A number alone counts
/// `plain` bytes.
#[must_use]
pub fn parse(text: &str, plain: u64) -> Option<u64> {
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
                'E' => 60,
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

/// Bytes of a unit: `KiB` and `k` are powers of 1024, `KB` of 1000, in either case;
/// none if libvirt knows no such unit.
///
/// Source: libvirt `virScaleInteger`.
#[must_use]
pub fn libvirt_unit(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if ["b", "byte", "bytes"].contains(&unit.as_str()) {
        return Some(1);
    }
    let power = "kmgtpe".find(unit.chars().next()?)? + 1;
    let base: u64 = match &unit[1..] {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return None,
    };
    base.checked_pow(u32::try_from(power).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, short, whole) in [
            (0, "0 B", "0 B"),
            (1023, "1023 B", "1023 B"),
            (4096, "4 KiB", "4 KiB"),
            (3 << 19, "1.5 MiB", "1536 KiB"),
            ((1 << 30) + 1, "1 GiB", "1073741825 B"),
            ((1 << 30) - 1, "1 GiB", "1073741823 B"),
            (1 << 30, "1 GiB", "1 GiB"),
            (64_260 << 20, "62.8 GiB", "64260 MiB"),
            (5 << 40, "5 TiB", "5 TiB"),
            (3 << 60, "3 EiB", "3 EiB"),
            (u64::MAX, "16 EiB", "18446744073709551615 B"),
        ] {
            assert_eq!((rounded(bytes).as_str(), exact(bytes).as_str()), (short, whole));
            assert_eq!(parse(&exact(bytes).replace(' ', ""), 1), Some(bytes));
        }
    }

    #[test]
    fn units_are_powers_of_1024() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(parse(text, 1 << 20), expected, "{text}");
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

    #[test]
    fn as_libvirt_scales() {
        let check =
            |unit: &str, expected: Option<u64>| assert_eq!(libvirt_unit(unit), expected, "{unit}");
        check("bytes", Some(1));
        check("B", Some(1));
        check("k", Some(1 << 10));
        check("KiB", Some(1 << 10));
        check("KB", Some(1000));
        check("m", Some(1 << 20));
        check("MB", Some(1_000_000));
        check("TiB", Some(1 << 40));
        check("TB", Some(1_000_000_000_000));
        check("E", Some(1 << 60));
        check("Mib", Some(1 << 20));
        check("", None);
        check("X", None);
        check("Mi", None);
        check("\u{e4}", None);
    }
}

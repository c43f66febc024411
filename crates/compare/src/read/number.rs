//! Decimal numbers out of bytes, quickly and correctly rounded.

/// Powers of ten that are exact in an f64.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Integers up to here are exact in an f64.
const EXACT_INTEGER: u64 = 1 << 53;

/// Reads `text` as a decimal number; infinity and NaN by their names. None for
/// anything else, and for what is too large for an f64.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    plain(text).or_else(|| {
        let text = str::from_utf8(text).ok()?;
        let value: f64 = text.parse().ok()?;
        let named = text.contains(['i', 'I']);
        (value.is_finite() || value.is_nan() || named).then_some(value)
    })
}

/// Digits, at most one point: nearly everything that benchmarks print. With a
/// mantissa and a power that are exact, one division rounds correctly.
fn plain(text: &[u8]) -> Option<f64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    let mut mantissa = 0_u64;
    let mut point = None;
    for (index, byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(index),
            _ => return None,
        }
    }
    if mantissa > EXACT_INTEGER {
        return None;
    }
    let Some(point) = point else { return Some(mantissa as f64) };
    let decimals = text.len() - point - 1;
    // A point alone is not a number.
    (text.len() > 1).then(|| mantissa as f64 / EXACT_POWERS[decimals])
}

/// True for what Go reads as an integer of 64 bits.
pub(crate) fn is_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty()
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.len() < 19 || str::from_utf8(text).is_ok_and(|text| text.parse::<i64>().is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_others_are_told_apart() {
        let check = |text: &str, expected: Option<f64>| {
            assert_eq!(float(text.as_bytes()), expected, "{text}");
        };
        check("1726", Some(1726.0));
        check("0.5", Some(0.5));
        check(".5", Some(0.5));
        check("5.", Some(5.0));
        check("-1e3", Some(-1000.0));
        check("+Inf", Some(f64::INFINITY));
        check("9007199254740993", Some(9_007_199_254_740_992.0));
        for text in ["", ".", "1.2.3", "1,5", "x", "1e999", "0x1p-2", "1 "] {
            check(text, None);
        }
        assert!(float(b"NaN").unwrap().is_nan());
        assert!(is_integer(b"+12") && is_integer(b"-0") && is_integer(b"9223372036854775807"));
        assert!(!is_integer(b"9223372036854775808") && !is_integer(b"") && !is_integer(b"1.0"));
    }

    proptest! {
        #[test]
        fn the_quick_way_agrees_with_the_standard_library(text in "[0-9]{0,12}\\.?[0-9]{0,9}") {
            let expected = text.parse::<f64>().ok();
            prop_assert_eq!(float(text.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits));
        }
    }
}

//! Numbers with so many decimals, as the standard library writes them and
//! several times as fast: tables of a hundred thousand lines have a million.

use std::fmt::Write;

const POWERS: [f64; 7] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// Below this what a product is rounded by is far less than [`CLOSE`].
const GREATEST: f64 = 1e9;
/// So close to a half only exact arithmetic knows which way to round.
const CLOSE: f64 = 1e-6;

/// Appends what `{value:.digits$}` gives.
pub(crate) fn push_fixed(out: &mut String, value: f64, digits: usize) {
    let scaled = POWERS.get(digits).map_or(f64::INFINITY, |power| value.abs() * power);
    let part = scaled.fract();
    if scaled.is_nan() || scaled >= GREATEST || (part - 0.5).abs() < CLOSE {
        return write!(out, "{value:.digits$}").expect("memory takes all text");
    }
    let mut left = scaled as u64 + u64::from(part > 0.5);
    let mut text = [b'0'; 12];
    let mut at = text.len();
    while left > 0 || text.len() - at < digits + 1 + usize::from(digits > 0) {
        at -= 1;
        if digits > 0 && text.len() - at == digits + 1 {
            text[at] = b'.';
        } else {
            text[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
    }
    if value.is_sign_negative() {
        out.push('-');
    }
    out.push_str(str::from_utf8(&text[at..]).expect("digits are ASCII"));
}

/// Appends what `{value:+.digits$}` gives.
pub(crate) fn push_signed(out: &mut String, value: f64, digits: usize) {
    if value.is_sign_positive() && !value.is_nan() {
        out.push('+');
    }
    push_fixed(out, value, digits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: f64, digits: usize) {
        let mut text = String::new();
        push_fixed(&mut text, value, digits);
        assert_eq!(text, format!("{value:.digits$}"));
        text.clear();
        push_signed(&mut text, value, digits);
        assert_eq!(text, format!("{value:+.digits$}"));
    }

    #[test]
    fn halves_zeros_and_the_ends_of_the_scale() {
        for digits in 0..10 {
            for value in
                [0.0, 0.5, 1.5, 2.5, 0.05, 0.25, 1.005, 9.995, 999.9995, 1e8, 999_999_999.9]
            {
                check(value, digits);
                check(-value, digits);
            }
            for value in [1e9, 1e300, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN, -f64::INFINITY] {
                check(value, digits);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

        #[test]
        fn the_standard_library_writes_the_same(
            mantissa in -1_000_000_000_i64..1_000_000_000,
            shift in 0..12,
            digits in 0..8_usize,
            noise in -3_i64..4,
        ) {
            // Numbers of few digits, and their neighbours.
            let value = mantissa as f64 / 10_f64.powi(shift);
            let bits = value.to_bits() as i64 + if value == 0.0 { 0 } else { noise };
            check(f64::from_bits(bits as u64), digits);
        }
    }
}

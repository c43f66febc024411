//! Numbers as Go prints them.

use crate::decimal::push_fixed;

/// A divisor for a row of numbers, with the digits behind the point and the
/// prefix of the unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    digits: usize,
    factor: f64,
    prefix: &'static str,
}

/// A prefix: its factor, and where rounding to the digits would print 100.0,
/// 10.00, 1.000.
type PrefixStep = (f64, &'static str, [f64; 3]);

const DECIMAL: [PrefixStep; 8] = [
    (1e12, "T", [99.995e12, 9.9995e12, 0.99995e12]),
    (1e9, "G", [99.995e9, 9.9995e9, 0.99995e9]),
    (1e6, "M", [99.995e6, 9.9995e6, 0.99995e6]),
    (1e3, "k", [99.995e3, 9.9995e3, 0.99995e3]),
    (1.0, "", [99.995, 9.9995, 0.99995]),
    (1e-3, "m", [99.995e-3, 9.9995e-3, 0.99995e-3]),
    (1e-6, "µ", [99.995e-6, 9.9995e-6, 0.99995e-6]),
    (1e-9, "n", [99.995e-9, 9.9995e-9, 0.99995e-9]),
];
const BINARY: [(i32, &str); 5] = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"), (0, "")];
/// Where three digits of a value below the last prefix begin.
const SMALL: [f64; 8] =
    [9.9995e-1, 9.9995e-2, 9.9995e-3, 9.9995e-4, 9.9995e-5, 9.9995e-6, 9.9995e-7, 9.9995e-8];

impl Scale {
    /// A scale that leaves three digits of the value that is nearest to zero.
    pub(crate) fn of(values: impl Iterator<Item = f64>, binary: bool) -> Self {
        let sizes = values.map(f64::abs).filter(|size| *size != 0.0);
        let mut least = 0.0;
        for size in sizes {
            if least == 0.0 || size < least {
                least = size;
            }
        }
        if least == 0.0 {
            return Self { digits: 3, factor: 1.0, prefix: "" };
        }
        let fits = |(factor, prefix, limits): PrefixStep| {
            let place = limits.iter().position(|limit| least >= *limit)?;
            Some(Self { digits: place + 1, factor, prefix })
        };
        let binary_step = |(exponent, prefix): (i32, &'static str)| {
            let factor = 2_f64.powi(exponent);
            (factor, prefix, [99.995, 9.9995, 0.99995].map(|size| size * factor))
        };
        let found = match binary {
            true => BINARY.into_iter().map(binary_step).find_map(fits),
            false => DECIMAL.into_iter().find_map(fits),
        };
        found.unwrap_or_else(|| {
            let (factor, prefix) = if binary { (1.0, "") } else { (1e-9, "n") };
            let small = least / factor;
            let place = SMALL.iter().position(|limit| small >= *limit).unwrap_or(7);
            Self { digits: place + 3, factor, prefix }
        })
    }

    pub(crate) fn write(&self, value: f64, out: &mut String) {
        let value = value / self.factor;
        if value.is_finite() {
            push_fixed(out, value, self.digits);
        } else {
            out.push_str(&general(value));
        }
        out.push_str(self.prefix);
    }
}

/// `%v` of a float: the shortest digits that read back as the same number,
/// with an exponent below 1e-4 and from 1e6 on (Go decides as if six digits were asked for).
pub(crate) fn general(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format's exponent is whole");
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `¹²`: the number of a footnote.
pub(crate) fn superscript(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    number.to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        let check = |value: f64, binary: bool, expected: &str| {
            let mut text = String::new();
            Scale::of([value].into_iter(), binary).write(value, &mut text);
            assert_eq!(text, expected);
        };
        check(1.718e-6, false, "1.718µ");
        check(123_456_789.0, false, "123.5M");
        check(0.99996, false, "1.000");
        check(0.0, false, "0.000");
        check(1020.0 * 1024.0, true, "1020.0Ki");
        check(1.5e-12, false, "0.001500n");
        check(0.001, true, "0.001000");
        check(5e15, false, "5000.0T");
    }

    #[test]
    fn the_general_format_is_go_s() {
        let check = |value: f64, expected: &str| assert_eq!(general(value), expected);
        check(1.718e-6, "1.718e-06");
        check(0.0001, "0.0001");
        check(1e21, "1e+21");
        check(142_592_637.5, "1.425926375e+08");
        check(999_999.5, "999999.5");
        check(-2.5, "-2.5");
        check(0.0, "0");
        check(1e-300, "1e-300");
        check(f64::INFINITY, "+Inf");
        assert_eq!(superscript(10), "¹⁰");
    }
}

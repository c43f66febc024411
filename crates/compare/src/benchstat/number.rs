//! Numbers as Go prints them.

use std::fmt::Write;

/// A divisor for a row of numbers, with the digits behind the point and the
/// prefix of the unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    digits: usize,
    factor: f64,
    prefix: &'static str,
}

const DECIMAL: [(i32, &str); 8] =
    [(12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"), (-6, "µ"), (-9, "n")];
const BINARY: [(i32, &str); 5] = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"), (0, "")];

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
        let power =
            |exponent: i32| if binary { 2_f64.powi(exponent) } else { exact_power(exponent) };
        let steps: &[(i32, &'static str)] = if binary { &BINARY } else { &DECIMAL };
        for (exponent, prefix) in steps {
            let factor = power(*exponent);
            // Where rounding to the digits would print 100.0, 10.00, 1.000.
            let limits = if binary {
                [99.995, 9.9995, 0.99995].map(|size| size * factor)
            } else {
                ["99.995", "9.9995", ".99995"].map(|size| scaled(size, *exponent))
            };
            if let Some(place) = limits.iter().position(|limit| least >= *limit) {
                return Self { digits: place + 1, factor, prefix };
            }
        }
        let (exponent, prefix) = steps[steps.len() - 1];
        let factor = power(exponent);
        let small = least / factor;
        let place = (1..9).position(|down| small >= scaled("9.9995", -down)).unwrap_or(7);
        Self { digits: place + 3, factor, prefix }
    }

    pub(crate) fn write(&self, value: f64, out: &mut String) {
        let value = value / self.factor;
        if value.is_finite() {
            write!(out, "{value:.*}", self.digits).expect("memory takes all text");
        } else {
            out.push_str(&general(value));
        }
        out.push_str(self.prefix);
    }
}

/// The decimal number `digits` times a power of ten, correctly rounded.
fn scaled(digits: &str, exponent: i32) -> f64 {
    format!("{digits}e{exponent}").parse().expect("digits and an exponent are a number")
}

fn exact_power(exponent: i32) -> f64 {
    scaled("1", exponent)
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

//! Numbers and units as tools print them. A text that could mean two numbers
//! means none.

use super::near;

/// The number that `word` says, in every spelling of which there is only one
/// reading: `1234.5`, `1e-3`, `1,234.5`, `1.234,5`, `1,234,567`, `0,25`,
/// `1'234`. `1,234` alone is refused: a thousand or a bit more than one?
pub(crate) fn parse(word: &str) -> Option<f64> {
    quick(word).or_else(|| parse_any(word))
}

/// Powers of ten that are exact.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Most words: few digits, perhaps with a point before the last ones. Both the
/// digits and the power of ten are exact, so that their quotient is the nearest
/// number.
fn quick(word: &str) -> Option<f64> {
    let digits = word.strip_prefix('-').unwrap_or(word).as_bytes();
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    if digits.len() <= 8 {
        let value = quick_of_eight(digits)?;
        return Some(if digits.len() == word.len() { value } else { -value });
    }
    let (mut mantissa, mut point) = (0_u64, None);
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(at),
            _ => return None,
        }
    }
    let value = match point.map(|at| digits.len() - at - 1) {
        None => mantissa as f64,
        Some(0) => return None,
        Some(decimals) => mantissa as f64 / TENS[decimals],
    };
    Some(if digits.len() == word.len() { value } else { -value })
}

/// As [`quick`], of at most eight bytes, all at once: words differ in length, which a loop
/// mispredicts.
#[inline]
fn quick_of_eight(digits: &[u8]) -> Option<f64> {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let length = digits.len();
    let word = near::word_of(digits);
    let points = word ^ (EACH * u64::from(b'.'));
    // The lowest byte that is a point has its highest bit set here.
    let points = points.wrapping_sub(EACH) & !points & EACH << 7;
    let (word, places, decimals) = if points == 0 {
        (word, length, 0)
    } else {
        let point = points.trailing_zeros() / 8;
        let decimals = length - 1 - point as usize;
        if decimals == 0 {
            return None;
        }
        let before = word & ((1 << (8 * point)) - 1);
        (before | (word >> (8 * point) >> 8) << (8 * point), length - 1, decimals)
    };
    // Zeros before the digits, so that there are eight.
    let gap = 8 * (8 - places as u32);
    let zeros = (EACH * u64::from(b'0')).checked_shr(64 - gap).unwrap_or(0);
    let eight = word << gap | zeros;
    let upper = EACH * 0xf0;
    let are_digits =
        eight & upper == EACH * 0x30 && eight.wrapping_add(EACH * 0x06) & upper == EACH * 0x30;
    if !are_digits {
        return None;
    }
    // Neighbours are joined: digits, pairs, fours.
    let ones = eight - EACH * u64::from(b'0');
    let pairs = (ones * 10 + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let mantissa = (fours * 10_000 + (fours >> 32)) & 0xffff_ffff;
    Some(mantissa as f64 / TENS[decimals])
}

fn parse_any(word: &str) -> Option<f64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    // Most words are none.
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return plain(word);
    }
    if let Some(value) = exponent(word) {
        return Some(value);
    }
    let value = separated(digits)?;
    Some(if digits.len() == word.len() { value } else { -value })
}

/// A number of a tool that groups digits and prints no decimals: `1,234` is
/// a thousand.
pub(crate) fn grouped(word: &str) -> Option<f64> {
    by_commas(word).or_else(|| any_grouped(word))
}

/// As [`grouped`], of the usual separator, and of few digits.
fn by_commas(word: &str) -> Option<f64> {
    let digits = word.as_bytes();
    // More may be no whole number that is exact.
    if digits.len() > 19 {
        return None;
    }
    let (mut whole, mut in_group, mut has_commas) = (0_u64, 0, false);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                whole = whole * 10 + u64::from(byte - b'0');
                in_group += 1;
            }
            b',' if in_group == 3 || (!has_commas && matches!(in_group, 1 | 2)) => {
                (in_group, has_commas) = (0, true);
            }
            _ => return None,
        }
    }
    let is_whole = if has_commas { in_group == 3 && digits[0] != b'0' } else { in_group > 0 };
    (is_whole && whole < 1 << 53).then_some(whole as f64)
}

fn any_grouped(word: &str) -> Option<f64> {
    let (groups, separator) = split_groups(word)?;
    let all = separator.is_none() || are_groups(&groups);
    all.then(|| plain(&groups.concat())).flatten()
}

/// A number of a tool that always prints decimals and groups nothing: `1,234`
/// is a bit more than one.
pub(crate) fn with_decimals(word: &str) -> Option<f64> {
    if let Some(value) = quick(word) {
        return Some(value);
    }
    match word.split_once(',') {
        Some((whole, fraction)) if !fraction.contains([',', '.']) && !whole.contains('.') => {
            plain(&format!("{whole}.{fraction}"))
        }
        Some(_) => None,
        None => plain(word),
    }
}

/// Digits, at most one point, with a digit on both of its sides or at least
/// behind it.
fn plain(word: &str) -> Option<f64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let begins = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    let ends = digits.ends_with(|last: char| last.is_ascii_digit());
    if let (true, true, Ok(value)) = (begins, ends, word.parse::<f64>()) {
        return value.is_finite().then_some(value);
    }
    // 1.234.567: points that group.
    let (groups, _) = split_groups(digits)?;
    (groups.len() > 2 && are_groups(&groups) && digits.len() == word.len())
        .then(|| groups.concat().parse().ok())
        .flatten()
}

fn exponent(word: &str) -> Option<f64> {
    let (mantissa, exponent) = word.split_once(['e', 'E'])?;
    let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if power.is_empty() || power.len() > 3 || !power.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    plain(mantissa)?;
    word.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A number with commas, apostrophes or thin spaces in it, without a sign.
fn separated(digits: &str) -> Option<f64> {
    if let (Some(comma), Some(point)) = (digits.rfind(','), digits.rfind('.')) {
        let (whole, fraction) = digits.split_at(comma.max(point));
        return decimal(whole, &fraction[1..]);
    }
    if let Some((whole, fraction)) = digits.rsplit_once(',') {
        let groups: Vec<&str> = digits.split(',').collect();
        if groups.len() > 2 {
            return are_groups(&groups).then(|| plain(&groups.concat())).flatten();
        }
        let may_group = fraction.len() == 3 && (1..=3).contains(&whole.len()) && whole != "0";
        return if may_group { None } else { decimal(whole, fraction) };
    }
    if let Some((whole, fraction)) = digits.split_once('.') {
        return decimal(whole, fraction);
    }
    grouped(digits)
}

fn decimal(whole: &str, fraction: &str) -> Option<f64> {
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (groups, separator) = split_groups(whole)?;
    if !all_digits(fraction) || (separator.is_some() && !are_groups(&groups)) {
        return None;
    }
    plain(&format!("{}.{fraction}", groups.concat()))
}

/// The groups of digits and what separates them; none if anything else is in
/// `digits`, or two sorts of separators.
fn split_groups(digits: &str) -> Option<(Vec<&str>, Option<char>)> {
    let separator = digits.chars().find(|char| !char.is_ascii_digit());
    let groups: Vec<&str> = match separator {
        Some(char @ (',' | '.' | '\'' | '’' | '\u{a0}' | '\u{202f}' | '\u{2009}')) => {
            digits.split(char).collect()
        }
        Some(_) => return None,
        None => vec![digits],
    };
    groups
        .iter()
        .all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some((groups, separator))
}

/// The first has one to three digits and isn't 0, the others have three.
fn are_groups(groups: &[&str]) -> bool {
    let (first, rest) = (groups[0], &groups[1..]);
    (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && rest.iter().all(|group| group.len() == 3)
}

/// How many seconds a unit of time has.
pub(crate) fn seconds(unit: &str) -> Option<f64> {
    Some(match unit.trim_matches(['(', ')', '[', ']', ',', '.', ':']) {
        "s" | "sec" | "secs" | "second" | "seconds" | "Sec" | "Seconds" => 1.0,
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1e-3,
        "us" | "usec" | "usecs" | "µs" | "μs" | "microsecond" | "microseconds" | "microsecs" => {
            1e-6
        }
        "ns" | "nsec" | "nsecs" | "nanosecond" | "nanoseconds" => 1e-9,
        "min" | "mins" | "minutes" => 60.0,
        _ => return None,
    })
}

/// What a prefix of a unit multiplies with: `K` and `Ki` to `T` and `Ti`. The
/// prefixes without an `i` are powers of `thousand`, which the tool's sources
/// decide: 1000 or 1024.
pub(crate) fn prefix(prefix: &str, thousand: f64) -> Option<f64> {
    let (letter, base) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, 1024.0_f64),
        None => (prefix, thousand),
    };
    let power = match letter {
        "" if prefix.is_empty() => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    Some(base.powi(power))
}

/// How many bytes a unit has: `B`, `KB`, `MiB`, `Gbit`, `Mbits`.
pub(crate) fn bytes(unit: &str, thousand: f64) -> Option<f64> {
    for (name, bytes) in [
        ("bytes", 1.0),
        ("Bytes", 1.0),
        ("byte", 1.0),
        ("bits", 0.125),
        ("bit", 0.125),
        ("B", 1.0),
        ("b", 0.125),
    ] {
        if let Some(factor) = unit.strip_suffix(name) {
            // Bits come in thousands everywhere.
            let thousand = if bytes < 1.0 { 1000.0 } else { thousand };
            return Some(prefix(factor, thousand)? * bytes);
        }
    }
    None
}

/// As [`bytes`], of a rate: `MB/s`, `Mbits/sec`, `KiB/sec`, `MBps`.
pub(crate) fn bytes_per_s(unit: &str, thousand: f64) -> Option<f64> {
    let unit = unit.trim_matches(['(', ')', '[', ']', ',']);
    let size = ["/sec", "/second", "/s", "ps"].iter().find_map(|per| unit.strip_suffix(per))?;
    bytes(size, thousand)
}

/// `value` in a unit of so many base units. What is less than one is divided
/// by, so that 19 us are 1.9e-5 s and not the neighbour of that.
#[inline]
pub(crate) fn scaled(value: f64, factor: f64) -> f64 {
    if factor == 1.0 {
        return value;
    }
    let parts = (1.0 / factor).round();
    if factor < 1.0 && parts * factor == 1.0 {
        return value / parts;
    }
    let scaled = value * factor;
    // Tools print at most six decimals: what is left below a thousandth of a
    // thousand is the product's own error.
    if factor >= 1e6 && scaled < 1e12 { (scaled * 1e3).round() / 1e3 } else { scaled }
}

/// The least that has so many digits before the point, from eight zeros behind
/// it on.
const MAGNITUDES: [f64; 24] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8,
    1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// `value` without the error of its last digits that a product leaves: the
/// number of 15 digits, if it is next to it.
pub(crate) fn tidy(value: f64) -> f64 {
    // Most are counts. Not all processors round in one step: numbers of less
    // than 16 digits are cut to whole ones sooner.
    let cut = |value: f64| value as i64 as f64;
    if value.abs() < 1e15 && cut(value) == value {
        return value;
    }
    if !(MAGNITUDES[0]..MAGNITUDES[MAGNITUDES.len() - 1]).contains(&value.abs()) {
        return value;
    }
    // The power of two says the power of ten, or the one below it: lg 2 is a
    // little more than 1233 / 4096.
    let two = (value.abs().to_bits() >> 52) as i64 - 1023;
    let ten = (8 + ((two * 1233) >> 12)).max(0) as usize;
    let at = ten
        + usize::from(MAGNITUDES[ten] <= value.abs())
        + usize::from(MAGNITUDES[ten + 1] <= value.abs());
    let scale = TENS[MAGNITUDES.len() - 1 - at];
    let scaled = value * scale;
    let whole = cut(scaled);
    let up = if (scaled - whole).abs() < 0.5 { 0.0 } else { 1_f64.copysign(value) };
    let tidied = (whole + up) / scale;
    if (tidied - value).abs() <= value.abs() * f64::EPSILON { tidied } else { value }
}

/// Splits `12.5MB/s` where the letters begin.
pub(crate) fn split_unit(word: &str) -> (&str, &str) {
    let at = word
        .char_indices()
        .find(|(at, char)| {
            let exponent = (*char == 'e' || *char == 'E')
                && word[at + 1..]
                    .starts_with(|next: char| next.is_ascii_digit() || "+-".contains(next));
            (char.is_alphabetic() || matches!(char, '%' | '[' | '(' | '/')) && !exponent
        })
        .map_or(word.len(), |(at, _)| at);
    word.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_are_read_as_long_ones() {
        // Every word of three of these, and each of those with zeros before it or behind.
        let bytes = *b"019./:-,e \xb0";
        let mut words: Vec<Vec<u8>> = vec![Vec::new()];
        for _ in 0..3 {
            let longer =
                words.iter().flat_map(|word| bytes.map(|byte| [&word[..], &[byte]].concat()));
            words = words.iter().cloned().chain(longer).collect();
        }
        for word in words.iter().filter(|word| !word.is_empty()) {
            for (before, behind) in [("", ""), ("12345", ""), ("1", "2345"), ("", ".5"), ("9.", "")]
            {
                let word = [before.as_bytes(), word, behind.as_bytes()].concat();
                let Ok(word) = std::str::from_utf8(&word) else { continue };
                let points = word.matches('.').count();
                let is_number = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                    && points < 2
                    && !word.ends_with('.');
                let expected = is_number.then(|| word.parse::<f64>().unwrap());
                if word.len() <= 8 {
                    assert_eq!(quick_of_eight(word.as_bytes()), expected, "{word:?}");
                }
            }
        }
        assert_eq!(quick_of_eight(b"99999999"), Some(99_999_999.0));
        assert_eq!(quick_of_eight(b".1234567"), Some(0.123_456_7));
        assert_eq!(quick("-0.00"), Some(-0.0));
    }

    #[test]
    fn numbers_with_one_reading_are_read() {
        for (word, expected) in [
            ("0", Some(0.0)),
            ("1234.5", Some(1234.5)),
            ("-3", Some(-3.0)),
            (".5", Some(0.5)),
            ("1e-3", Some(0.001)),
            ("1.5e+06", Some(1.5e6)),
            ("1,234.5", Some(1234.5)),
            ("1.234,5", Some(1234.5)),
            ("1,234,567", Some(1_234_567.0)),
            ("1.234.567", Some(1_234_567.0)),
            ("-1,234,567.25", Some(-1_234_567.25)),
            ("0,25", Some(0.25)),
            ("0,123", Some(0.123)),
            ("1234,567", Some(1234.567)),
            ("12,3456", Some(12.3456)),
            ("1'234'567", Some(1_234_567.0)),
            ("1\u{202f}234,5", Some(1234.5)),
            ("1,234", None),
            ("12,34,567", None),
            ("1.2.3", None),
            ("1,2,3", None),
            ("5.", None),
            (".", None),
            ("", None),
            ("-", None),
            ("nan", None),
            ("inf", None),
            ("-inf", None),
            ("1e999", None),
            ("1e", None),
            ("0x10", None),
            ("+1", None),
            ("1 2", None),
            ("12a", None),
            ("٣", None),
        ] {
            assert_eq!(parse(word), expected, "{word:?}");
        }
        assert_eq!(grouped("1,234"), Some(1234.0));
        assert_eq!(grouped("1.234"), Some(1234.0));
        assert_eq!(grouped("12345"), Some(12345.0));
        assert_eq!(grouped("12,34"), None);
        for word in [
            "0",
            "007",
            "0,123",
            "12,345,678",
            "1,2345",
            "1234,567",
            ",123",
            "123,",
            "1,,234",
            "999,999,999,999,999",
            "9007199254740993",
            "12345678901234567890",
            "-1",
            "1'234",
            "",
        ] {
            assert_eq!(grouped(word), any_grouped(word), "{word}");
        }
        assert_eq!(grouped(""), None);
        assert_eq!(with_decimals("1,234"), Some(1.234));
        assert_eq!(with_decimals("1.234"), Some(1.234));
        assert_eq!(with_decimals("1,234.5"), None);
    }

    #[test]
    fn products_are_tidied_and_long_numbers_kept() {
        assert_eq!(tidy(0.072 / 1e3), 7.2e-5);
        assert_eq!(tidy(2107.66 * 1e6), 2_107_660_000.0);
        assert_eq!(tidy(19.0 * 1e-6), 1.9e-5);
        for value in [0.0, 1.0, -3.5, 6_258_162.314_365_594, 1.0 / 3.0, 1e300, 1e-300] {
            assert_eq!(tidy(value), value);
        }
    }

    #[test]
    fn units_have_one_size() {
        assert_eq!(seconds("usec"), Some(1e-6));
        assert_eq!(seconds("(ms)"), Some(1e-3));
        assert_eq!(seconds("furlong"), None);
        assert_eq!(bytes("KiB", 1000.0), Some(1024.0));
        assert_eq!(bytes("KB", 1000.0), Some(1000.0));
        assert_eq!(bytes("KB", 1024.0), Some(1024.0));
        assert_eq!(bytes("Mbits", 1024.0), Some(125_000.0));
        assert_eq!(bytes("iB", 1000.0), None);
        assert_eq!(bytes_per_s("Gbits/sec", 1000.0), Some(1.25e8));
        assert_eq!(bytes_per_s("MiB/s", 1000.0), Some(1_048_576.0));
        assert_eq!(bytes_per_s("MB", 1000.0), None);
        assert_eq!(split_unit("12.5MB/s"), ("12.5", "MB/s"));
        assert_eq!(split_unit("1e-3s"), ("1e-3", "s"));
        assert_eq!(split_unit("12"), ("12", ""));
    }
}

//! Lists of pCPUs and nodes as libvirt writes them: the kernel's format, and
//! `^4` takes one out again.
//!
//! Source: libvirt's documentation of the domain XML, element `vcpu`.

use topology::PcpuSet;

/// The set that a list means, part by part in their order; none if a part is no
/// range of numbers.
#[must_use]
pub fn parse(text: &str) -> Option<PcpuSet> {
    let mut set = PcpuSet::new();
    // Neighbouring parts of one kind go together: one by one a long list takes
    // the square of its length.
    let mut parts: Vec<(bool, PcpuSet)> = Vec::new();
    let mut take = |parts: &mut Vec<(bool, PcpuSet)>| {
        let Some((out, _)) = parts.first() else { return };
        let out = *out;
        let all = PcpuSet::union_of(parts.iter().map(|(_, part)| part));
        set = if out { set.difference(&all) } else { set.union(&all) };
        parts.clear();
    };
    for part in text.split(',') {
        let part = part.trim();
        let (out, numbers) = match part.strip_prefix('^') {
            Some(numbers) => (true, numbers),
            None => (false, part),
        };
        if parts.first().is_some_and(|(before, _)| *before != out) {
            take(&mut parts);
        }
        parts.push((out, numbers.parse().ok()?));
    }
    take(&mut parts);
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn parts_count_in_their_order() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        };
        check("0-7,^3,^5", "0-2,4,6-7");
        check("0-3,^2,2", "0-3");
        check("^2,0-3", "0-3");
        assert_eq!(parse("0,,1"), Some("0-1".parse().unwrap()));
        assert_eq!(parse("0,x"), None);
    }
}

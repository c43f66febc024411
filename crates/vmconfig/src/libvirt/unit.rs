//! Units of sizes as libvirt writes them.

/// Bytes of a unit: `KiB` and `k` are powers of 1024, `KB` of 1000, in either case;
/// none if libvirt knows no such unit.
///
/// Source: libvirt `virScaleInteger`.
pub(super) fn bytes(unit: &str) -> Option<u64> {
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
    use super::bytes;

    #[test]
    fn as_libvirt_scales() {
        let check = |unit: &str, expected: Option<u64>| assert_eq!(bytes(unit), expected, "{unit}");
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

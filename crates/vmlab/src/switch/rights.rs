//! Who may connect to the sockets of ports, as users say it.

use anyhow::bail;

use crate::input;

/// Where a system's own groups are listed.
const GROUPS: &str = "/etc/group";

/// The nine bits of `0660`.
pub(super) fn mode(text: &str) -> anyhow::Result<u32> {
    let digits = text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o777 => Ok(mode),
        _ => bail!("a mode is octal, as in 0660"),
    }
}

/// The number of a group: as it is, or of a name that `/etc/group` has.
pub(super) fn group(text: &str) -> anyhow::Result<u32> {
    let listed = input::text(std::path::Path::new(GROUPS)).unwrap_or_default();
    group_of(text, &listed)
}

fn group_of(text: &str, listed: &str) -> anyhow::Result<u32> {
    // The last number stands for none in `chown(2)`.
    if let Some(number) = text.parse().ok().filter(|&number| number != u32::MAX) {
        return Ok(number);
    }
    let number = listed.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    match number {
        Some(number) => Ok(number),
        None => bail!(
            "{GROUPS} has no such group: give one that it has, or a number \
             (getent group {text} tells it)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_groups_are_read_or_refused() {
        assert_eq!([mode("0660").unwrap(), mode("600").unwrap()], [0o660, 0o600]);
        for text in ["", "0680", "u+w", "+660", "1777", "07777777777777"] {
            assert!(mode(text).unwrap_err().to_string().contains("as in 0660"), "{text}");
        }
        let listed = "root:x:0:\nbroken\nkvm:x:106:me\nodd:x:y:\n";
        let of = |text: &str| group_of(text, listed).map_err(|error| error.to_string());
        assert_eq!((of("kvm"), of("64055"), of("root")), (Ok(106), Ok(64055), Ok(0)));
        for text in ["", "odd", "broken", "none", "4294967295"] {
            assert!(of(text).unwrap_err().contains("has no such group"), "{text}");
        }
    }
}

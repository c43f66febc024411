//! Names with `*`, `?` and `**`, as `.gitignore` has them.

/// Bytes of a pattern.
const MAX_BYTES: usize = 1024;

/// Why a pattern can't be one.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("an empty pattern fits nothing".to_owned());
    }
    if pattern.len() > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    Ok(())
}

/// Whether a name fits: `*` is any characters, `?` one.
pub(crate) fn name(pattern: &str, name: &str) -> bool {
    fits(pattern, name, false)
}

/// Whether a path fits: `*` stays inside one folder, `**` doesn't. A pattern without
/// `/` is held against the file's name, wherever it lies; one that ends with `/`
/// against all below that folder.
pub(crate) fn path(pattern: &str, path: &str) -> bool {
    let below;
    let pattern = match pattern.strip_suffix('/') {
        Some(_) => {
            below = format!("{pattern}**");
            &below
        }
        None => pattern,
    };
    match pattern.contains('/') {
        true => {
            let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
            let pattern =
                if path.starts_with('/') { pattern } else { pattern.trim_start_matches('/') };
            fits(pattern, path, true)
        }
        false => {
            let file = path.rsplit('/').next().unwrap_or(path);
            fits(pattern, file, true)
        }
    }
}

/// By the table of which beginnings fit each other: the product of the lengths at most.
fn fits(pattern: &str, text: &str, folders: bool) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    // Which beginnings of the text the pattern so far fits.
    let mut fit = vec![false; text.len() + 1];
    fit[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let rest = &pattern[at..];
        if folders && rest.starts_with(&['*', '*', '/']) {
            // Any folders, or none.
            let mut open = false;
            for end in 0..=text.len() {
                let begins = fit[end];
                fit[end] = begins || (open && end > 0 && text[end - 1] == '/');
                open |= begins;
            }
            at += 3;
            continue;
        }
        let across = !folders || rest.starts_with(&['*', '*']);
        if rest[0] == '*' {
            for end in 1..=text.len() {
                fit[end] |= fit[end - 1] && (across || text[end - 1] != '/');
            }
            at += if rest.starts_with(&['*', '*']) { 2 } else { 1 };
            continue;
        }
        for end in (1..=text.len()).rev() {
            let letter = text[end - 1];
            let same = rest[0] == letter || rest[0] == '?' && (!folders || letter != '/');
            fit[end] = fit[end - 1] && same;
        }
        fit[0] = false;
        at += 1;
    }
    fit[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_as_gitignore_has_them() {
        let check = |pattern: &str, text: &str, expected: bool| {
            assert_eq!(path(pattern, text), expected, "{pattern} {text}");
        };
        check("*.xml", "a/b/web.xml", true);
        check("*.xml", "web.xml.bak", false);
        check("legacy/*.xml", "legacy/web.xml", true);
        check("legacy/*.xml", "legacy/old/web.xml", false);
        check("legacy/**", "legacy/old/web.xml", true);
        check("legacy/", "legacy/old/web.xml", true);
        check("**/old/*.xml", "legacy/old/web.xml", true);
        check("**/old/*.xml", "old/web.xml", true);
        check("a/**/b", "a/b", true);
        check("a/**/b", "a/x/y/b", true);
        check("a/**/b", "axb", false);
        check("/legacy/*.xml", "legacy/web.xml", true);
        check("./web.xml", "web.xml", true);
        check("db?.xml", "x/db1.xml", true);
        check("db?.xml", "db.xml", false);
        check("caf?/*.xml", "café/web.xml", true);
        check("caf??/*.xml", "café/web.xml", false);
        check("**/ü?.xml", "a/ü€.xml", true);
    }

    #[test]
    fn names_fit() {
        assert!(name("db-*", "db-1/a") && name("*", "") && name("d?", "db"));
        assert!(name("d?-*", "dö-1") && name("日?", "日本") && !name("d??", "dö"));
        assert!(!name("db-*", "adb-1") && !name("", "a") && !name("d?", "d"));
    }

    /// Patterns that make others backtrack for ever.
    #[test]
    fn many_stars_take_the_product_of_lengths() {
        let pattern = "a*".repeat(500);
        assert!(!name(&format!("{pattern}b"), &"a".repeat(10_000)));
    }
}

//! Writing the fixes into a text.

use similar::TextDiff;

use crate::finding::{Edit, Finding};

/// The text with every certain fix of the findings, and how many findings that
/// mends. Fixes that overlap one already taken wait for the next time.
#[must_use]
pub fn apply(text: &str, findings: &[Finding]) -> (String, usize) {
    let mut taken: Vec<&Edit> = Vec::new();
    let mut mended = 0;
    for finding in findings {
        let Some(fix) = finding.fix.as_ref().filter(|fix| fix.certain) else { continue };
        // Two insertions at one place would depend on their order.
        let free = |edit: &Edit| {
            taken.iter().all(|other| {
                edit.start != other.start && (edit.end <= other.start || other.end <= edit.start)
            })
        };
        if fix.edits.iter().all(free) {
            taken.extend(&fix.edits);
            mended += 1;
        }
    }
    taken.sort_by_key(|edit| edit.start);
    let mut mended_text = String::with_capacity(text.len());
    let mut from = 0;
    for edit in taken {
        mended_text.push_str(text.get(from..edit.start).unwrap_or_default());
        mended_text.push_str(&edit.text);
        from = edit.end;
    }
    mended_text.push_str(text.get(from..).unwrap_or_default());
    (mended_text, mended)
}

/// The difference between two texts in the unified format, with three lines
/// around each change, as `patch` takes it; empty if there is none.
#[must_use]
pub fn difference(name: &str, before: &str, after: &str) -> String {
    // `patch` knows no other ends of lines.
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    TextDiff::configure()
        .newline_terminated(true)
        .diff_slices(&lines(before), &lines(after))
        .unified_diff()
        .context_radius(3)
        .header(name, name)
        .to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn patch_makes_the_other_text_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let long: String = (0..40).map(|line| format!("line {line}\n")).collect();
        let no_end = long.strip_suffix('\n').unwrap();
        let crlf = long.replace('\n', "\r\n");
        let mended =
            |text: &str| text.replacen("line 3", "line three", 1).replacen("line 30\n", "", 1);
        for (before, after) in [
            (long.clone(), mended(&long)),
            (no_end.to_owned(), mended(no_end)),
            (no_end.to_owned(), no_end.replace("line 39", "line last")),
            (no_end.to_owned(), long.clone()),
            (long.clone(), no_end.to_owned()),
            (crlf.clone(), crlf.replacen("line 3", "line three", 1)),
            (crlf.clone(), crlf.replacen("line 39\r\n", "line 39", 1)),
            ("a".to_owned(), "b\n".to_owned()),
            ("a\rb\n".to_owned(), "a\rc\n".to_owned()),
        ] {
            let (file, diff) = (dir.path().join("vm.xml"), dir.path().join("vm.diff"));
            fs::write(&file, &before).unwrap();
            fs::write(&diff, difference("vm.xml", &before, &after)).unwrap();
            let mut patch = Command::new("patch");
            patch.arg("--binary").arg("--input").arg(&diff).current_dir(dir.path());
            let output = patch.output().expect("patch is installed");
            assert!(output.status.success(), "{before:?}: {output:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), after);
        }
        assert_eq!(difference("a", &long, &long), "");
    }
}

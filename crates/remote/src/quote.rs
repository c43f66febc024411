//! Words for a shell elsewhere.

/// `words` as one command line that a shell splits into just these words.
///
/// ssh joins its arguments with spaces and hands them to the user's login shell
/// there, so every word is quoted. Backslashes, quotes and exclamation marks stand
/// outside of the quotes, since inside of them fish and csh read them in their own
/// way; all else stands inside.
///
/// A word can't hold NUL: no program could be given it.
///
/// Source: POSIX.1-2017, Shell Command Language, 2.2 Quoting; `ssh(1)`.
#[must_use]
pub fn quote<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let mut line = String::new();
    for (place, word) in words.into_iter().enumerate() {
        if place > 0 {
            line.push(' ');
        }
        quote_word(word.as_ref(), &mut line);
    }
    line
}

fn quote_word(word: &str, line: &mut String) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        line.push_str(word);
        return;
    }
    line.push('\'');
    for c in word.chars() {
        if matches!(c, '\'' | '\\' | '!') {
            line.extend(['\'', '\\', c, '\'']);
        } else {
            line.push(c);
        }
    }
    line.push('\'');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What a real shell makes of `line`, word by word.
    fn split_by_sh(line: &str) -> Vec<String> {
        let script = format!("for word in {line}; do printf '%s\\0' \"$word\"; done");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn plain_words_stay_readable() {
        assert_eq!(quote(["uname", "-m", "/a/b.c"]), "uname -m /a/b.c");
        assert_eq!(quote(["", "a b", "it's", "~", "$HOME"]), r"'' 'a b' 'it'\''s' '~' '$HOME'");
    }

    proptest! {
        // Each case starts a shell.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_splits_into_the_same_words(
            words in prop::collection::vec("[^\0]{0,12}|[ '\"\\\\!$`*?~#&|;<>(){}\\[\\]\n\t-]{0,6}", 1..6)
        ) {
            prop_assert_eq!(split_by_sh(&quote(&words)), words);
        }
    }
}

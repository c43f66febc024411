//! Foreign text inside HTML and SVG: the one place that escapes it.

/// `text` as it may stand in an element or in a quoted attribute.
///
/// Control characters, which consoles are full of and which XML forbids,
/// become their visible pictures (U+2400 and following); line ends and tabs
/// stay.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(visible(other)),
        }
    }
    escaped
}

/// A picture of what must not be written as it is: control characters, and
/// marks that turn the direction of text around.
pub(crate) fn visible(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{fffe}'
        | '\u{ffff}' => '\u{fffd}',
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn markup_and_escape_sequences_lose_their_power() {
        let check = |text: &str, expected: &str| assert_eq!(escape(text), expected);
        check("<script>", "&lt;script&gt;");
        check(r#"a"b'c&d"#, "a&quot;b&#39;c&amp;d");
        check("\u{1b}[31mred\r\n", "␛[31mred␍\n");
        check("\u{202e}gnp", "\u{fffd}gnp");
    }

    proptest! {
        #[test]
        fn an_xml_parser_reads_back_what_was_escaped(text in any::<String>()) {
            let escaped = escape(&text);
            let page = format!("<p title=\"{}\">{escaped}</p>", escaped.replace(['\n', '\t'], " "));
            let parsed = roxmltree::Document::parse(&page).unwrap();
            let expected: String = text.chars().map(visible).collect();
            prop_assert_eq!(parsed.root_element().text().unwrap_or(""), expected);
        }
    }
}

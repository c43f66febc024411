//! XML and YAML from anybody, within one budget.
//!
//! Every reader of such a text begins here, so that none can be made to fill
//! memory, to recurse too deeply or to take the square of a text's length. JSON
//! needs no more than [`MAX_BYTES`]: serde_json stops at a depth of 128, and
//! nothing in JSON is longer than its text; [`json`] reads what a later vmlab may have
//! written. What they find wrong with a file that
//! vmlab's users write is told in one form, [`FileProblems`]; [`toml()`] reads such a file.

mod known;
mod problems;
mod written;
mod yaml;

use roxmltree::{Document, Node, ParsingOptions};

pub use known::{KnownFields, json};
pub use problems::{FileProblems, LineProblem};
pub use written::{by_likeness, near, toml};
pub use yaml::{Span, YamlKey, YamlKind, YamlValue, yaml};

/// Bytes of a text. `lstopo` writes 20 MB for a machine with 4096 pCPUs.
pub const MAX_BYTES: usize = 64 << 20;

/// Values of a YAML text, those that aliases bring and those that anchors keep
/// included.
pub const MAX_VALUES: usize = 1_000_000;

/// Elements and texts of an XML document. One takes some 60 bytes of memory and
/// at least 4 of the document.
pub const MAX_NODES: u32 = 4 << 20;

/// Values or elements inside each other; hwloc nests a dozen.
pub const MAX_DEPTH: usize = 100;

/// Attributes of one element: each is compared with all before it. hwloc gives a
/// dozen.
pub const MAX_ATTRIBUTES: usize = 256;

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedText {
    /// Where, in bytes from the text's beginning.
    pub at: usize,
    /// What.
    pub what: String,
}

impl MalformedText {
    /// What is wrong at a byte of the text.
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }

    /// The line in `text`, from 1.
    #[must_use]
    pub fn line(&self, text: &str) -> usize {
        let before = text.as_bytes().get(..self.at).unwrap_or(text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

fn check_size(text: &str) -> Result<(), MalformedText> {
    match text.len() > MAX_BYTES {
        true => {
            Err(MalformedText::new(MAX_BYTES, format!("The text is longer than {MAX_BYTES} bytes")))
        }
        false => Ok(()),
    }
}

/// Parses an XML document.
///
/// A `<!DOCTYPE>`, as hwloc writes one, is allowed; entities could make a short
/// document long and are not.
///
/// # Errors
/// [`MalformedText`]: it is no XML, or over the budget.
pub fn xml(text: &str) -> Result<Document<'_>, MalformedText> {
    check_size(text)?;
    if let Some(at) = text.find("<!ENTITY") {
        return Err(MalformedText::new(at, "Entities are not read"));
    }
    let mut at = 0;
    for tag in text.split('<') {
        // In comments and the like anything may stand.
        if !tag.starts_with('!') && values_in(tag) > MAX_ATTRIBUTES {
            return Err(MalformedText::new(
                at,
                format!("More than {MAX_ATTRIBUTES} attributes in one element"),
            ));
        }
        at += tag.len() + 1;
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MAX_NODES, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        MalformedText::new(offset(text, error.pos()), format!("Not XML: {error}"))
    })?;
    // The readers recurse; this does not.
    let mut open = vec![(document.root_element(), 1)];
    while let Some((element, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            let what = format!("More than {MAX_DEPTH} elements inside each other");
            return Err(MalformedText::new(element.range().start, what));
        }
        open.extend(element.children().filter(Node::is_element).map(|child| (child, depth + 1)));
    }
    Ok(document)
}

/// How many quoted values a tag has, as far as that is seen without parsing.
fn values_in(tag: &str) -> usize {
    let quoted = |behind: &str| behind.trim_start().starts_with(['\'', '"']);
    tag.match_indices('=').filter(|(at, _)| quoted(&tag[at + 1..])).count()
}

fn offset(text: &str, pos: roxmltree::TextPos) -> usize {
    let row = usize::try_from(pos.row).unwrap_or(1).max(1) - 1;
    let column = usize::try_from(pos.col).unwrap_or(1).max(1) - 1;
    let line_start: usize = text.split_inclusive('\n').take(row).map(str::len).sum();
    let line = text[line_start..].lines().next().unwrap_or_default();
    line_start + line.char_indices().nth(column).map_or(line.len(), |(byte, _)| byte)
}

fn too_deep() -> String {
    format!("Nested more than {MAX_DEPTH} deep")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused<T: std::fmt::Debug>(read: Result<T, MalformedText>, what: &str) {
        let broken = read.expect_err("over the budget");
        assert!(broken.what.contains(what), "{broken:?}");
    }

    #[test]
    fn what_aliases_bring_is_counted() {
        // Each line ten of the one before: 10^9 values.
        let mut bomb = "a0: &a0 [0,0,0,0,0,0,0,0,0,0]\n".to_owned();
        for level in 1..9 {
            let ten = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{ten}]\n"));
        }
        assert!(bomb.len() < 600);
        refused(yaml(&bomb), "More than 1000000 values");
        let kept = "a: &a [1, 2]\nb: *a\n";
        let documents = yaml(kept).unwrap();
        let YamlKind::Map(entries) = &documents[0].kind else { panic!("{documents:?}") };
        assert_eq!(entries[0].1.kind, entries[1].1.kind);
        assert_eq!((entries[1].0.text.as_str(), entries[1].0.span), ("b", (13..14).into()));
    }

    #[test]
    fn what_anchors_keep_is_counted() {
        // Every level keeps all below it once more.
        let values = vec!["0"; 20_000].join(",");
        let open: String = (0..80).map(|level| format!("&a{level} [")).collect();
        refused(yaml(&format!("{open}{values}{}", "]".repeat(80))), "More than 1000000 values");
    }

    #[test]
    fn depth_is_that_of_the_tree_and_not_of_the_text() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        refused(yaml(&nested(120)), "Nested more than 100 deep");
        assert!(yaml(&nested(5000)).is_err() && yaml(&nested(90)).is_ok());
        let mut text = "a0: &a0 x\n".to_owned();
        for level in 1..50 {
            let (open, close) = ("[".repeat(9), "]".repeat(9));
            text.push_str(&format!("a{level}: &a{level} {open}*a{}{close}\n", level - 1));
        }
        refused(yaml(&text), "Nested more than 100 deep");
        let deep = format!("{}{}", "<a>".repeat(5000), "</a>".repeat(5000));
        refused(xml(&deep), "More than 100 elements inside each other");
    }

    #[test]
    fn xml_that_takes_its_square_is_refused() {
        let attributes: String = (0..100_000).map(|n| format!(" a{n}='1'")).collect();
        refused(xml(&format!("<domain{attributes}/>")), "More than 256 attributes");
        refused(xml("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"), "Entities");
        let broken = xml("<a>\n  <b></a>").unwrap_err();
        assert_eq!(broken.line("<a>\n  <b></a>"), 2);
        let ruler = "=".repeat(1000);
        assert!(xml(&format!("<a b='1'><!-- {ruler} -->{ruler}</a>")).is_ok());
    }
}

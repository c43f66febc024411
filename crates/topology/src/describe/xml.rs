//! XML elements, and faults in them.

use roxmltree::{Document, Node};

use super::Defect;
use crate::bounded;

/// The name of the first element.
pub(super) fn root_name(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        rest = &rest[rest.find('<')? + 1..];
        // Comments may hold anything; declarations and headings end at '>'.
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = &comment[comment.find("-->")? + 3..];
        } else if !rest.starts_with(['?', '!']) {
            return rest.split(|c: char| c.is_whitespace() || "/>".contains(c)).next();
        }
    }
}

/// Parses a document.
pub(super) fn parse(text: &str) -> Result<Document<'_>, Defect> {
    bounded::xml(text).map_err(|broken| {
        let line = broken.line(text);
        let at = text.get(broken.at..).or(text.lines().nth(line - 1)).unwrap_or_default();
        Defect::new(line, at.lines().next().unwrap_or_default(), broken.what)
    })
}

/// The line of an element, from 1.
pub(super) fn line(node: Node) -> usize {
    node.document().text_pos_at(node.range().start).row as usize
}

/// A fault in one attribute.
pub(super) fn fault(node: Node, attribute: &str, why: impl Into<String>) -> Defect {
    let value = node.attribute(attribute).unwrap_or_default();
    let text = format!("<{} {attribute}=\"{value}\">", node.tag_name().name());
    Defect::new(line(node), &text, why)
}

/// A number in an attribute; `None` where there is no such attribute.
pub(super) fn number<T: std::str::FromStr>(
    node: Node,
    attribute: &str,
) -> Result<Option<T>, Defect> {
    node.attribute(attribute)
        .map(|text| text.trim().parse().map_err(|_| fault(node, attribute, "Not a number")))
        .transpose()
}

/// Child elements of this name.
pub(super) fn children<'a, 'input: 'a>(
    node: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.has_tag_name(name))
}

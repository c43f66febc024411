//! XML, with limits on what a document may do to its reader.

use roxmltree::{Document, Node, ParsingOptions};

use super::Fault;

/// Elements and texts of a document; `lstopo` writes some 60,000 for a machine
/// with 4096 pCPUs.
const MAX_NODES: u32 = 1 << 20;

/// Elements inside each other; hwloc nests a dozen.
const MAX_DEPTH: usize = 64;

/// Attributes of one element; each is compared with all before it. hwloc gives
/// a dozen.
const MAX_ATTRIBUTES: usize = 256;

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
///
/// hwloc writes a `<!DOCTYPE>`, which is allowed; entities could make a short
/// document long and are not.
pub(super) fn parse(text: &str) -> Result<Document<'_>, Fault> {
    if let Some(at) = text.find("<!ENTITY") {
        let line = text[..at].matches('\n').count() + 1;
        return Err(Fault::new(line, "<!ENTITY", "Entities are not read"));
    }
    let crowded = |tag: &&str| tag.bytes().filter(|byte| *byte == b'=').count() > MAX_ATTRIBUTES;
    if let Some(tag) = text.split('<').find(crowded) {
        let why = format!("More than {MAX_ATTRIBUTES} attributes in one element");
        return Err(Fault::new(None, tag, why));
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MAX_NODES, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let line = error.pos().row as usize;
        let at = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Fault::new(line, at, format!("Not XML: {error}"))
    })?;
    // The readers recurse; this does not.
    let mut open = vec![(document.root_element(), 1)];
    while let Some((element, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            let why = format!("More than {MAX_DEPTH} elements inside each other");
            return Err(Fault::new(None, element.tag_name().name(), why));
        }
        open.extend(element.children().filter(Node::is_element).map(|child| (child, depth + 1)));
    }
    Ok(document)
}

/// The line of an element, from 1.
pub(super) fn line(node: Node) -> usize {
    node.document().text_pos_at(node.range().start).row as usize
}

/// A fault in one attribute.
pub(super) fn fault(node: Node, attribute: &str, why: impl Into<String>) -> Fault {
    let value = node.attribute(attribute).unwrap_or_default();
    let text = format!("<{} {attribute}=\"{value}\">", node.tag_name().name());
    Fault::new(line(node), &text, why)
}

/// A number in an attribute; `None` where there is no such attribute.
pub(super) fn number<T: std::str::FromStr>(
    node: Node,
    attribute: &str,
) -> Result<Option<T>, Fault> {
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

//! XML with the place of each value.

use roxmltree::Node;
use topology::PcpuSet;
use vmconfig::source::{Located, Span};

use vmconfig::libvirt::{list, unit};

/// A document whose values are read with their position in the whole text.
pub(crate) struct XmlSource<'a> {
    /// Where the document begins.
    pub(crate) base: usize,
    pub(crate) text: &'a str,
}

impl XmlSource<'_> {
    pub(crate) fn span(&self, range: std::ops::Range<usize>) -> Span {
        Span { start: self.base + range.start, end: self.base + range.end }
    }

    /// The opening tag: pointing at a whole element helps nobody.
    pub(crate) fn tag(&self, node: Node<'_, '_>) -> Span {
        let range = node.range();
        let end = node.first_child().map_or(range.end, |child| child.range().start);
        self.span(range.start..end.max(range.start))
    }

    pub(crate) fn whole(&self, node: Node<'_, '_>) -> Span {
        self.span(node.range())
    }

    pub(crate) fn attribute(&self, node: Node<'_, '_>, name: &str) -> Option<Located<String>> {
        let found = node.attribute_node(name)?;
        Some(Located::new(found.value().to_owned(), self.span(found.range_value())))
    }

    pub(crate) fn parsed<T>(
        &self,
        node: Node<'_, '_>,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Located<T>> {
        let found = self.attribute(node, name)?;
        Some(Located { value: parse(found.value.trim())?, span: found.span })
    }

    pub(crate) fn number(&self, node: Node<'_, '_>, name: &str) -> Option<Located<u32>> {
        self.parsed(node, name, |text| text.parse().ok())
    }

    pub(crate) fn list(&self, node: Node<'_, '_>, name: &str) -> Option<Located<PcpuSet>> {
        self.parsed(node, name, list::parse)
    }

    pub(crate) fn switch(&self, node: Node<'_, '_>, name: &str) -> Option<Located<bool>> {
        self.parsed(node, name, |text| match text {
            "on" | "yes" => Some(true),
            "off" | "no" => Some(false),
            _ => None,
        })
    }

    pub(crate) fn content(&self, node: Node<'_, '_>) -> Option<Located<String>> {
        let text = node.children().find(Node::is_text)?;
        let value = text.text()?.trim();
        let range = text.range();
        let raw = &self.text[range.clone()];
        let start = range.start + raw.len() - raw.trim_start().len();
        Some(Located::new(value.to_owned(), self.span(start..start + raw.trim().len())))
    }

    pub(crate) fn bytes(&self, node: Node<'_, '_>) -> Option<Located<u64>> {
        let text = self.content(node)?;
        let unit = node.attribute("unit").unwrap_or("KiB");
        let bytes = text.value.parse::<u64>().ok()?.checked_mul(unit::bytes(unit)?)?;
        Some(Located { value: bytes, span: text.span })
    }
}

pub(crate) fn children<'a, 'input: 'a>(
    node: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

//! XML: written in order, and read with a note of what was understood.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use roxmltree::{Node, NodeId};

use crate::UnmodelledSetting;

/// An element to be written.
#[derive(Debug, Clone)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Element>,
    text: Option<String>,
}

impl Element {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), children: Vec::new(), text: None }
    }

    pub(super) fn attr(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub(super) fn maybe_attr(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.attr(name, value),
            None => self,
        }
    }

    pub(super) fn text(mut self, text: impl ToString) -> Self {
        self.text = Some(text.to_string());
        self
    }

    pub(super) fn child(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    pub(super) fn push(&mut self, child: Element) {
        self.children.push(child);
    }

    /// Adds a child unless it says nothing.
    pub(super) fn push_some(&mut self, child: Element) {
        if !child.children.is_empty() || !child.attributes.is_empty() {
            self.children.push(child);
        }
    }

    pub(super) fn write(&self, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        out.push_str(&format!("{indent}<{}", self.name));
        for (name, value) in &self.attributes {
            out.push_str(&format!(" {name}='{}'", escape(value)));
        }
        match (&self.text, self.children.is_empty()) {
            (Some(text), _) => out.push_str(&format!(">{}</{}>\n", escape(text), self.name)),
            (None, true) => out.push_str("/>\n"),
            (None, false) => {
                out.push_str(">\n");
                for child in &self.children {
                    child.write(depth + 1, out);
                }
                out.push_str(&format!("{indent}</{}>\n", self.name));
            }
        }
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A document that is read once, with a note of each element and attribute that
/// was understood: [`XmlReader::rest`] gives all others.
pub(super) struct XmlReader<'a> {
    text: &'a str,
    line_ends: Rc<[usize]>,
    elements: RefCell<HashSet<NodeId>>,
    attributes: RefCell<HashSet<(NodeId, &'a str)>>,
    texts: RefCell<HashSet<NodeId>>,
    lines: RefCell<BTreeMap<String, u32>>,
}

pub(super) type Xml<'a> = Node<'a, 'a>;

impl<'a> XmlReader<'a> {
    pub(super) fn new(text: &'a str, line_ends: Rc<[usize]>) -> Self {
        Self {
            text,
            line_ends,
            elements: RefCell::default(),
            attributes: RefCell::default(),
            texts: RefCell::default(),
            lines: RefCell::default(),
        }
    }

    pub(super) fn line(&self, node: Xml<'a>) -> u32 {
        let before = self.line_ends.partition_point(|end| *end < node.range().start);
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    /// Notes where a field comes from.
    pub(super) fn at(&self, field: &str, node: Xml<'a>) {
        self.lines.borrow_mut().insert(field.to_owned(), self.line(node));
    }

    pub(super) fn take(&self, node: Xml<'a>) {
        self.elements.borrow_mut().insert(node.id());
    }

    /// The element is not understood after all.
    pub(super) fn reject(&self, node: Xml<'a>) {
        self.elements.borrow_mut().remove(&node.id());
    }

    pub(super) fn child(&self, node: Xml<'a>, name: &str) -> Option<Xml<'a>> {
        let child =
            node.children().find(|child| child.is_element() && child.tag_name().name() == name)?;
        self.take(child);
        Some(child)
    }

    pub(super) fn children(&self, node: Xml<'a>, name: &str) -> Vec<Xml<'a>> {
        let all: Vec<Xml<'a>> = node
            .children()
            .filter(|child| child.is_element() && child.tag_name().name() == name)
            .collect();
        all.iter().for_each(|child| self.take(*child));
        all
    }

    pub(super) fn attr(&self, node: Xml<'a>, name: &str) -> Option<&'a str> {
        self.attr_if(node, name, Some)
    }

    /// An attribute if its value means something.
    pub(super) fn attr_if<T>(
        &self,
        node: Xml<'a>,
        name: &str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Option<T> {
        let attribute = node.attribute_node(name)?;
        let value = read(attribute.value())?;
        self.attributes.borrow_mut().insert((node.id(), attribute.name()));
        Some(value)
    }

    pub(super) fn number<T: std::str::FromStr>(&self, node: Xml<'a>, name: &str) -> Option<T> {
        self.attr_if(node, name, |text| text.trim().parse().ok())
    }

    /// The text inside if it means something.
    pub(super) fn text_if<T>(
        &self,
        node: Xml<'a>,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = read(node.text().unwrap_or_default().trim())?;
        self.texts.borrow_mut().insert(node.id());
        Some(value)
    }

    /// The lines, and everything that was not understood.
    pub(super) fn rest(self, root: Xml<'a>) -> (BTreeMap<String, u32>, Vec<UnmodelledSetting>) {
        let mut kept = Vec::new();
        self.sweep(root, &format!("/{}", root.tag_name().name()), &mut kept);
        (self.lines.into_inner(), kept)
    }

    fn sweep(&self, node: Xml<'a>, path: &str, kept: &mut Vec<UnmodelledSetting>) {
        let line = self.line(node);
        for attribute in node.attributes() {
            if !self.attributes.borrow().contains(&(node.id(), attribute.name())) {
                let text = format!("{}='{}'", attribute.name(), attribute.value());
                kept.push(UnmodelledSetting {
                    line,
                    path: format!("{path}/@{}", attribute.name()),
                    text,
                });
            }
        }
        let has_children = node.children().any(|child| child.is_element());
        let text = node.text().unwrap_or_default().trim();
        if !has_children && !text.is_empty() && !self.texts.borrow().contains(&node.id()) {
            kept.push(UnmodelledSetting { line, path: path.to_owned(), text: text.to_owned() });
        }
        for child in node.children().filter(Node::is_element) {
            let path = format!("{path}/{}", child.tag_name().name());
            if self.elements.borrow().contains(&child.id()) {
                self.sweep(child, &path, kept);
            } else {
                let text = self.text.get(child.range()).unwrap_or_default().to_owned();
                kept.push(UnmodelledSetting { line: self.line(child), path, text });
            }
        }
    }
}

//! XML: written in order, and read with a note of what was understood.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;

use super::tree::DomainElement;
use crate::source::{LocatedValue, SourceText};
use crate::{NumberSet, UnmodelledSetting};

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

/// A domain that is read once, with a note of each element and attribute that
/// was understood: [`XmlReader::rest`] gives all others.
pub(super) struct XmlReader<'a> {
    source: &'a SourceText<'a>,
    elements: RefCell<HashSet<u32>>,
    attributes: RefCell<HashSet<(u32, &'a str)>>,
    texts: RefCell<HashSet<u32>>,
    lines: RefCell<BTreeMap<String, u32>>,
}

pub(super) type Xml<'a> = &'a DomainElement;

impl<'a> XmlReader<'a> {
    pub(super) fn new(source: &'a SourceText<'a>) -> Self {
        Self {
            source,
            elements: RefCell::default(),
            attributes: RefCell::default(),
            texts: RefCell::default(),
            lines: RefCell::default(),
        }
    }

    pub(super) fn line(&self, element: Xml<'a>) -> u32 {
        self.source.line_number(element.span)
    }

    /// Notes where a field comes from.
    pub(super) fn at(&self, field: &str, element: Xml<'a>) {
        self.lines.borrow_mut().insert(field.to_owned(), self.line(element));
    }

    pub(super) fn take(&self, element: Xml<'a>) {
        self.elements.borrow_mut().insert(element.id);
    }

    /// The element is not understood after all.
    pub(super) fn reject(&self, element: Xml<'a>) {
        self.elements.borrow_mut().remove(&element.id);
    }

    pub(super) fn child(&self, element: Xml<'a>, name: &str) -> Option<Xml<'a>> {
        let child = element.first(name)?;
        self.take(child);
        Some(child)
    }

    pub(super) fn children(&self, element: Xml<'a>, name: &str) -> Vec<Xml<'a>> {
        let all = element.all(name);
        all.iter().for_each(|child| self.take(child));
        all
    }

    pub(super) fn attr(&self, element: Xml<'a>, name: &str) -> Option<&'a str> {
        self.attr_if(element, name, Some)
    }

    /// An attribute if its value means something.
    pub(super) fn attr_if<T>(
        &self,
        element: Xml<'a>,
        name: &str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Option<T> {
        let (name, at) = element.attributes.iter().find(|(key, _)| key == name)?;
        let value = read(&at.value)?;
        self.attributes.borrow_mut().insert((element.id, name));
        Some(value)
    }

    /// An attribute whose value was found to mean something.
    pub(super) fn noted<T>(
        &self,
        element: Xml<'a>,
        name: &str,
        found: Option<LocatedValue<T>>,
    ) -> Option<T> {
        self.attr_if(element, name, |_| found.map(|at| at.value))
    }

    pub(super) fn number<T: FromStr>(&self, element: Xml<'a>, name: &str) -> Option<T> {
        self.noted(element, name, element.number(name))
    }

    pub(super) fn switch(&self, element: Xml<'a>, name: &str) -> Option<bool> {
        self.noted(element, name, element.switch(name))
    }

    /// A list of numbers that is not empty.
    pub(super) fn list(&self, element: Xml<'a>, name: &str) -> Option<NumberSet> {
        let found = element.list(name).filter(|set| !set.value.is_empty());
        self.noted(element, name, found)
    }

    /// Whole MiB of an attribute that is a size.
    pub(super) fn mib_of(&self, element: Xml<'a>, name: &str) -> Option<u64> {
        self.attr(element, "unit");
        self.noted(element, name, element.bytes_of(name)).map(mib)
    }

    /// Whole MiB of a text that is a size.
    pub(super) fn mib(&self, element: Xml<'a>) -> Option<u64> {
        self.attr(element, "unit");
        self.noted_text(element, element.bytes()).map(mib)
    }

    /// A text that is a number.
    pub(super) fn text_number<T: FromStr>(&self, element: Xml<'a>) -> Option<T> {
        self.noted_text(element, element.text_number())
    }

    /// The text inside if it means something.
    pub(super) fn text_if<T>(
        &self,
        element: Xml<'a>,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = read(text(element))?;
        self.texts.borrow_mut().insert(element.id);
        Some(value)
    }

    fn noted_text<T>(&self, element: Xml<'a>, found: Option<LocatedValue<T>>) -> Option<T> {
        self.text_if(element, |_| found.map(|at| at.value))
    }

    /// The lines, and everything that was not understood.
    pub(super) fn rest(self, root: Xml<'a>) -> (BTreeMap<String, u32>, Vec<UnmodelledSetting>) {
        let mut kept = Vec::new();
        self.sweep(root, &format!("/{}", root.name), &mut kept);
        (self.lines.into_inner(), kept)
    }

    fn sweep(&self, element: Xml<'a>, path: &str, kept: &mut Vec<UnmodelledSetting>) {
        let line = self.line(element);
        for (name, at) in &element.attributes {
            if !self.attributes.borrow().contains(&(element.id, name.as_str())) {
                let text = format!("{name}='{}'", at.value);
                kept.push(UnmodelledSetting::of_text(line, format!("{path}/@{name}"), text));
            }
        }
        let text = text(element);
        let is_leaf = element.children.is_empty();
        if is_leaf && !text.is_empty() && !self.texts.borrow().contains(&element.id) {
            kept.push(UnmodelledSetting::of_text(line, path, text));
        }
        for child in &element.children {
            let path = format!("{path}/{}", child.name);
            if self.elements.borrow().contains(&child.id) {
                self.sweep(child, &path, kept);
            } else {
                let whole = self.source.text.get(child.span.start..child.span.end);
                let text = whole.unwrap_or_default().to_owned();
                kept.push(UnmodelledSetting::of_text(self.line(child), path, text));
            }
        }
    }
}

fn text(element: &DomainElement) -> &str {
    element.text.as_ref().map_or("", |text| &text.value)
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

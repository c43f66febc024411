//! A domain's XML with the place of everything that it says: for rules about
//! what libvirt refuses, which look at more than a VM's own fields.

use vmconfig::source::{Located, Span};

/// One element of the XML.
#[derive(Debug)]
pub(crate) struct DomainElement {
    pub(crate) name: String,
    /// Its opening tag.
    pub(crate) tag: Span,
    pub(crate) attributes: Vec<(String, Located<String>)>,
    /// Its first text, without the blanks around it.
    pub(crate) text: Option<Located<String>>,
    pub(crate) children: Vec<DomainElement>,
}

impl DomainElement {
    /// An attribute with its place.
    pub(crate) fn at(&self, name: &str) -> Option<&Located<String>> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// An attribute's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.at(name).map(|at| at.value.as_str())
    }

    /// Where an attribute stands, or the element that lacks it.
    pub(crate) fn place(&self, name: &str) -> Span {
        self.at(name).map_or(self.tag, |at| at.span)
    }

    /// The children of this name.
    pub(crate) fn named<'a>(
        &'a self,
        name: &'static str,
    ) -> impl Iterator<Item = &'a DomainElement> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The elements at a path below this one: `devices/disk`.
    pub(crate) fn all(&self, path: &str) -> Vec<&DomainElement> {
        let mut found = vec![self];
        for name in path.split('/') {
            found = found.into_iter().flat_map(|one| one.children.iter()).collect();
            found.retain(|one| one.name == name);
        }
        found
    }

    /// The first element at a path.
    pub(crate) fn first(&self, path: &str) -> Option<&DomainElement> {
        let (name, rest) =
            path.split_once('/').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let mut named = self.children.iter().filter(|child| child.name == name);
        match rest {
            Some(rest) => named.find_map(|child| child.first(rest)),
            None => named.next(),
        }
    }

    /// The text of the first element at a path.
    pub(crate) fn text_of(&self, path: &str) -> Option<&Located<String>> {
        self.first(path)?.text.as_ref()
    }
}

//! A domain's XML as a tree that keeps all of it with its places, and what values in it
//! mean.
//!
//! The one reader of such XML: this crate's parser and the linter look at the same tree.
//! Elements and attributes that nobody knows are in it too.

use std::ops::Range;
use std::str::FromStr;

use roxmltree::Node;
use topology::PcpuSet;
use topology::bounded::{self, MalformedText, Span};
use topology::bytes;

use super::{QEMU_NAMESPACE, list};
use crate::PciAddress;
use crate::source::LocatedValue;

/// One element of a domain's XML.
#[derive(Debug)]
pub struct DomainElement {
    /// Its name, without the prefix of a namespace.
    pub name: String,
    /// All of it.
    pub span: Span,
    /// Its opening tag: pointing at a whole element helps nobody.
    pub tag: Span,
    /// Names, with the prefix of a namespace, and values.
    pub attributes: Vec<(String, LocatedValue<String>)>,
    /// The text inside, without the blanks around it; `None` if there is none at all.
    pub text: Option<LocatedValue<String>>,
    /// The elements inside.
    pub children: Vec<DomainElement>,
    /// What no other element of its document has.
    pub(super) id: u32,
}

impl DomainElement {
    /// An attribute with its place.
    #[must_use]
    pub fn at(&self, name: &str) -> Option<&LocatedValue<String>> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// An attribute's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.at(name).map(|at| at.value.as_str())
    }

    /// Whether an attribute has this value.
    #[must_use]
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// An attribute's value if it means something, and its place.
    pub fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<LocatedValue<T>> {
        let at = self.at(name)?;
        Some(LocatedValue::new(parse(at.value.trim())?, at.span))
    }

    /// An attribute that is a number.
    #[must_use]
    pub fn number<T: FromStr>(&self, name: &str) -> Option<LocatedValue<T>> {
        self.parsed(name, |text| text.parse().ok())
    }

    /// An attribute that is a list of pCPUs, nodes, vCPUs.
    #[must_use]
    pub fn list(&self, name: &str) -> Option<LocatedValue<PcpuSet>> {
        self.parsed(name, list::parse)
    }

    /// An attribute that is `on` or `yes`, `off` or `no`.
    #[must_use]
    pub fn switch(&self, name: &str) -> Option<LocatedValue<bool>> {
        self.parsed(name, |text| match text {
            "on" | "yes" => Some(true),
            "off" | "no" => Some(false),
            _ => None,
        })
    }

    /// Bytes of an attribute that is a size in the element's `unit`.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<LocatedValue<u64>> {
        self.parsed(name, |text| self.scaled(text))
    }

    /// Bytes of a text that is a size in the element's `unit`.
    #[must_use]
    pub fn bytes(&self) -> Option<LocatedValue<u64>> {
        let text = self.text.as_ref()?;
        Some(LocatedValue::new(self.scaled(&text.value)?, text.span))
    }

    /// Bytes of a size; one without a unit counts KiB.
    fn scaled(&self, size: &str) -> Option<u64> {
        let unit = bytes::libvirt_unit(self.get("unit").unwrap_or("KiB"))?;
        size.parse::<u64>().ok()?.checked_mul(unit)
    }

    /// A text that is a number.
    #[must_use]
    pub fn text_number<T: FromStr>(&self) -> Option<LocatedValue<T>> {
        let text = self.text.as_ref()?;
        Some(LocatedValue::new(text.value.parse().ok()?, text.span))
    }

    /// An attribute that is a part of an address: decimal, octal behind `0`, hexadecimal
    /// behind `0x`; a sign is none of its digits.
    ///
    /// Source: libvirt `src/conf/device_conf.c` (`virPCIDeviceAddressParseXML`).
    #[must_use]
    pub fn c_number(&self, name: &str) -> Option<LocatedValue<u32>> {
        self.parsed(name, |text| {
            let (digits, radix) = match text.strip_prefix('0') {
                Some(rest) if rest.starts_with(['x', 'X']) => (&rest[1..], 16),
                Some(rest) if !rest.is_empty() => (rest, 8),
                _ => (text, 10),
            };
            let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(digits, radix).ok())?
        })
    }

    /// The address of a PCI device that an element has; 0 is what it does not say.
    #[must_use]
    pub fn pci_address(&self) -> Option<PciAddress> {
        let part = |name: &str| match self.at(name) {
            Some(_) => Some(self.c_number(name)?.value),
            None => Some(0),
        };
        PciAddress::new(part("domain")?, part("bus")?, part("slot")?, part("function")?)
    }

    /// The PCI device of the host that a `<hostdev>`, or an `<interface>` of that type,
    /// gives to the guest. One with `<address type='unassigned'/>` is taken from the host
    /// and given to nobody.
    #[must_use]
    pub fn host_device(&self) -> Option<LocatedValue<PciAddress>> {
        // The type of an interface does not tell; that of its address does.
        let is_pci = |kind: &str| ["pci", "hostdev"].contains(&kind);
        let place = self.first("source")?.first("address")?;
        let is_other = self.get("mode").is_some_and(|mode| mode != "subsystem")
            || self.named("address").any(|guests| guests.is("type", "unassigned"))
            || ![self, place].iter().filter_map(|one| one.get("type")).all(is_pci);
        if is_other {
            return None;
        }
        Some(LocatedValue::new(place.pci_address()?, place.span))
    }

    /// Where an attribute stands, or the element that lacks it.
    #[must_use]
    pub fn place(&self, name: &str) -> Span {
        self.at(name).map_or(self.tag, |at| at.span)
    }

    /// The elements inside of this name.
    pub fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a DomainElement> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The elements at a path below this one: `devices/disk`.
    #[must_use]
    pub fn all(&self, path: &str) -> Vec<&DomainElement> {
        let mut found = vec![self];
        for name in path.split('/') {
            found = found.into_iter().flat_map(|one| one.named(name)).collect();
        }
        found
    }

    /// The first element at a path.
    #[must_use]
    pub fn first(&self, path: &str) -> Option<&DomainElement> {
        match path.split_once('/') {
            Some((name, rest)) => self.named(name).find_map(|child| child.first(rest)),
            None => self.children.iter().find(|child| child.name == path),
        }
    }

    /// The text of the first element at a path.
    #[must_use]
    pub fn text_of(&self, path: &str) -> Option<&LocatedValue<String>> {
        self.first(path)?.text.as_ref()
    }
}

/// Where the bytes of a document are in a text.
struct DocumentPlace<'a> {
    document: &'a str,
    /// Bytes of the text before the document.
    start: usize,
    /// Bytes of the document before what is of the text, and how many are.
    added: usize,
    len: usize,
}

impl DocumentPlace<'_> {
    fn span(&self, range: Range<usize>) -> Span {
        let at = |byte: usize| self.start + byte.saturating_sub(self.added).min(self.len);
        Span { start: at(range.start), end: at(range.end) }
    }

    /// An element with all in it; a document is not deep enough for the stack to matter.
    fn element(&self, node: Node<'_, '_>) -> DomainElement {
        let range = node.range();
        let tag_end = node.first_child().map_or(range.end, |child| child.range().start);
        let attributes = node.attributes().map(|one| {
            let name = self.document[one.range_qname()].to_owned();
            (name, LocatedValue::new(one.value().to_owned(), self.span(one.range_value())))
        });
        let children = node.children().filter(Node::is_element);
        DomainElement {
            name: node.tag_name().name().to_owned(),
            tag: self.span(range.start..tag_end.max(range.start)),
            span: self.span(range),
            attributes: attributes.collect(),
            text: self.text(node),
            children: children.map(|child| self.element(child)).collect(),
            id: node.id().get(),
        }
    }

    /// All texts of an element, comments between them or not.
    fn text(&self, node: Node<'_, '_>) -> Option<LocatedValue<String>> {
        let mut value = String::new();
        let mut place: Option<Range<usize>> = None;
        for text in node.children().filter(Node::is_text) {
            value.push_str(text.text().unwrap_or_default());
            let raw = &self.document[text.range()];
            let start = text.range().start + raw.len() - raw.trim_start().len();
            let end = start + raw.trim().len();
            place = Some(match place {
                Some(before) if start == end => before,
                Some(before) if !before.is_empty() => before.start..end,
                _ => start..end,
            });
        }
        Some(LocatedValue::new(value.trim().to_owned(), self.span(place?)))
    }
}

/// Hands out the domains of a text one after the other: the one that it is, those inside
/// other documents (`virsh snapshot-dumpxml`, files below `/run/libvirt/qemu`), several in
/// a row, or parts of one without `<domain>` around them, as people quote them.
///
/// # Errors
/// [`MalformedText`] if it isn't XML, or over its budget.
pub fn read_domains(text: &str, each: &mut dyn FnMut(DomainElement)) -> Result<(), MalformedText> {
    let parts = documents(text);
    let is_one = parts.len() == 1;
    for (start, part) in parts {
        let found = whole(start, part, each);
        // In a fragment of a domain there is none.
        if matches!(found, Ok(true)) || !is_one || !fragment(start, part, each) {
            found.map_err(|broken| MalformedText { at: start + broken.at, ..broken })?;
        }
    }
    Ok(())
}

/// The domains of a document, if it has any.
fn whole(
    start: usize,
    document: &str,
    each: &mut dyn FnMut(DomainElement),
) -> Result<bool, MalformedText> {
    let tree = bounded::xml(document)?;
    let place = DocumentPlace { document, start, added: 0, len: document.len() };
    let root = tree.root_element();
    // Inside other documents a VM's element has at least a name.
    let is_vm =
        |node: &Node<'_, '_>| *node == root || node.children().any(|one| one.has_tag_name("name"));
    let mut any = false;
    for node in root.descendants().filter(|node| node.has_tag_name("domain")).filter(is_vm) {
        any = true;
        each(place.element(node));
    }
    Ok(any)
}

/// Elements that only a domain has at its top.
const PARTS: &[&str] = &[
    "vcpu",
    "cputune",
    "numatune",
    "memoryBacking",
    "memory",
    "cpu",
    "clock",
    "features",
    "devices",
    "iothreads",
    "commandline",
    "os",
];

/// The domain that a text has parts of, if it has any.
fn fragment(start: usize, part: &str, each: &mut dyn FnMut(DomainElement)) -> bool {
    let around = format!("<domain xmlns:qemu='{QEMU_NAMESPACE}'>");
    let document = format!("{around}{part}</domain>");
    let Ok(tree) = bounded::xml(&document) else { return false };
    let root = tree.root_element();
    let known = root.children().any(|child| PARTS.contains(&child.tag_name().name()));
    let is_fragment = known && !root.children().any(|child| child.has_tag_name("domain"));
    if is_fragment {
        let (added, len) = (around.len(), part.len());
        each(DocumentPlace { document: &document, start, added, len }.element(root));
    }
    is_fragment
}

/// Splits a text that holds several documents in a row, each with where it begins.
fn documents(text: &str) -> Vec<(usize, &str)> {
    const END: &str = "</domain>";
    let blank = text.len() - text.trim_start_matches('\u{feff}').len();
    let Some(first) = text.find(END) else { return vec![(blank, &text[blank..])] };
    let behind = &text[first + END.len()..];
    if !behind.contains(END) || behind.contains("</domains>") || behind.contains("</domainstatus>")
    {
        return vec![(blank, &text[blank..])];
    }
    let mut parts = Vec::new();
    let mut from = blank;
    while let Some(found) = text[from..].find(END) {
        let end = from + found + END.len();
        let lead = text[from..end].len() - text[from..end].trim_start().len();
        parts.push((from + lead, &text[from + lead..end]));
        from = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceText;

    fn domains(text: &str) -> Vec<DomainElement> {
        let mut all = Vec::new();
        read_domains(text, &mut |domain| all.push(domain)).unwrap();
        all
    }

    #[test]
    fn domains_stand_alone_inside_others_in_a_row_and_in_parts() {
        let check = |text: &str, expected: &[(&str, usize)]| {
            let source = SourceText::new(text);
            let all = domains(text);
            let found = all.iter().map(|domain| {
                let vcpus = domain.text_of("vcpu").unwrap();
                assert_eq!(&text[vcpus.span.start..vcpus.span.end], vcpus.value);
                (vcpus.value.as_str(), source.place(vcpus.span).line)
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
        };
        let named = "<domain>\n<name>a</name><vcpu>2</vcpu></domain>";
        check(named, &[("2", 2)]);
        check(&format!("\u{feff}{named}"), &[("2", 2)]);
        check(&format!("<domainstatus>\n{named}</domainstatus>"), &[("2", 3)]);
        check(&format!("<domains>\n{named}{named}</domains>"), &[("2", 3), ("2", 4)]);
        check(&format!("{named}\n\n{named}\n"), &[("2", 2), ("2", 5)]);
        check("<name>a</name>\n<vcpu>4</vcpu>", &[("4", 2)]);
        check("<vcpu>\n 4</vcpu>\n<os/>", &[("4", 2)]);
        check("<domainCapabilities><domain>kvm</domain></domainCapabilities>", &[]);
        check("<a/>", &[]);
        let mut none = |_: DomainElement| panic!("no domain");
        let broken = read_domains("<a>\n<b></a>", &mut none).unwrap_err();
        assert_eq!(broken.line("<a>\n<b></a>"), 2);
    }

    #[test]
    fn parts_of_addresses_are_read_as_libvirt_reads_them() {
        for (address, expected) in [
            ("bus='0x3b' slot='0x1f'", Some("0000:3b:1f.0")),
            ("bus='59' slot='31'", Some("0000:3b:1f.0")),
            ("bus='073' slot='037'", Some("0000:3b:1f.0")),
            ("bus='0X3B'", Some("0000:3b:00.0")),
            ("bus='3b'", None),
            ("bus='0x'", None),
            ("bus='-1'", None),
            ("bus='+1'", None),
            ("bus='256'", None),
            ("bus='0' slot='0x20'", None),
        ] {
            let found = domains(&format!("<domain {address}/>"))[0].pci_address();
            assert_eq!(found.map(|one| one.to_string()).as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn values_have_a_meaning_and_a_place() {
        let text = "<domain type='kvm'><memory unit='GB'>\n2 </memory><memory>8</memory>\
                    <vcpu cpuset=' 0-3,^2' current='x'>1<!-- and -->6</vcpu>\
                    <page size='1' unit='G' on='yes' a:on='off' xmlns:a='b'/></domain>";
        let [domain] = &domains(text)[..] else { panic!("one domain") };
        let at = |span: Span| &text[span.start..span.end];
        let memory: Vec<_> = domain.named("memory").map(|one| one.bytes().unwrap()).collect();
        assert_eq!((memory[0].value, at(memory[0].span)), (2_000_000_000, "2"));
        assert_eq!(memory[1].value, 8 << 10);
        let vcpu = domain.first("vcpu").unwrap();
        assert_eq!(vcpu.text_number::<u32>().unwrap().value, 16);
        assert_eq!(at(vcpu.text.as_ref().unwrap().span), "1<!-- and -->6");
        assert_eq!(vcpu.list("cpuset").unwrap().value.to_string(), "0-1,3");
        assert_eq!(vcpu.number::<u32>("current"), None);
        assert_eq!(at(vcpu.tag), "<vcpu cpuset=' 0-3,^2' current='x'>");
        let page = domain.first("page").unwrap();
        assert_eq!(page.bytes_of("size").unwrap().value, 1 << 30);
        assert_eq!(page.switch("on").map(|on| on.value), Some(true));
        assert_eq!(page.switch("a:on").map(|on| on.value), Some(false));
        assert_eq!(at(page.span), at(page.tag));
    }
}

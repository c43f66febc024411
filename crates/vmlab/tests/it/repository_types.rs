//! A public type's name stands for one thing in the whole workspace: whoever reads it in
//! one crate need not ask which of two is meant.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::circles::{ident, is_punct};

/// Names that more than one public type bears, and why that is right.
const SHARED: &[(&str, &str)] = &[
    ("Device", "the Virtio device of each of the bare-metal guest's transports: one is built in"),
    ("Devices", "KubeVirt's own word in its API, and the bare-metal guest's list of them"),
    ("Node", "a NUMA node of the host, and the device tree's own word in the bare-metal guest"),
];

/// Kinds of Kubernetes' that types of vmlab's are called after.
const KUBERNETES_KINDS: [&str; 1] = ["KubeletConfiguration"];

/// The folders of one architecture each: of what lies in them one is built in.
const ARCHITECTURES: [&str; 2] = ["aarch64", "x86_64"];

/// Adds the public types that `tokens` define, those of tests apart.
fn public_types(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = &tokens[..];
    while let Some((token, mut after)) = rest.split_first() {
        if let TokenTree::Group(group) = token {
            public_types(group.stream(), found);
        } else if is_punct(Some(token), '#') && is_of_tests(after.first()) {
            let end = after.iter().position(|token| is_punct(Some(token), ';') || is_body(token));
            after = &after[end.map_or(after.len(), |end| end + 1)..];
        } else if ident(Some(token)).as_deref() == Some("pub") {
            let words = after.iter().filter(|token| !matches!(token, TokenTree::Group(_)));
            let mut words = words.map(|token| ident(Some(token))).take(3).flatten();
            let kind = words.find(|word| word != "unsafe");
            if kind.is_some_and(|kind| {
                ["struct", "enum", "union", "trait", "type"].contains(&kind.as_str())
            }) {
                found.extend(words.next());
            }
        }
        rest = after;
    }
}

fn is_of_tests(attribute: Option<&TokenTree>) -> bool {
    attribute.is_some_and(|group| group.to_string() == "[cfg (test)]")
}

fn is_body(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Adds the public types of the sources below `folder`, with the file of each.
fn read(folder: &Path, root: &Path, found: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["tests", "testing"].iter().any(|of_tests| stem.ends_with(of_tests)) {
            continue;
        }
        if path.is_dir() {
            read(&path, root, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut names = BTreeSet::new();
            public_types(text.parse().unwrap_or_else(|_| panic!("{path:?}")), &mut names);
            let parts = path.strip_prefix(root).unwrap().iter().map(|part| part.to_string_lossy());
            let parts = parts.filter(|part| !ARCHITECTURES.contains(&&**part));
            let place = parts.collect::<Vec<_>>().join("/");
            for name in names {
                found.entry(name).or_default().insert(place.clone());
            }
        }
    }
}

/// The public types of all crates, with the files of each.
fn all_public_types() -> BTreeMap<String, BTreeSet<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&crates).unwrap() {
        read(&entry.unwrap().path().join("src"), &crates, &mut found);
    }
    assert!(found.len() > 1000, "{} names: little was read", found.len());
    found
}

#[test]
fn a_public_type_s_name_stands_for_one_thing() {
    let mut found = all_public_types();
    found.retain(|_, files| files.len() > 1);
    for (name, why) in SHARED {
        assert!(found.remove(*name).is_some(), "{name} is one type: {why:?} is not needed");
    }
    assert!(found.is_empty(), "names of two things, give each its own: {found:#?}");
}

/// Adds the texts that `tokens` hold, those of attributes apart.
fn texts(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_attribute = false;
    for token in tokens {
        match &token {
            TokenTree::Group(group) if !is_attribute => texts(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                found.extend(text.contains('"').then_some(text));
            }
            _ => (),
        }
        is_attribute = is_punct(Some(&token), '#') || is_attribute && is_punct(Some(&token), '!');
    }
}

/// A type that is renamed everywhere is easily renamed in a sentence, too.
#[test]
fn what_people_read_names_no_type() {
    let types = all_public_types();
    // Of one word, a type is called as people call things.
    let is_type = |word: &&str| {
        word.chars().filter(char::is_ascii_uppercase).count() > 1 && types.contains_key(*word)
    };
    let mut files = Vec::new();
    crate::repository::sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        "rs",
        &mut files,
    );
    let (mut number, mut named) = (0, BTreeSet::new());
    for file in files {
        let mut found = Vec::new();
        texts(fs::read_to_string(&file).unwrap().parse().unwrap(), &mut found);
        let words = found.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
        named.extend(words.filter(is_type).map(|word| (word.to_owned(), file.clone())));
        number += found.len();
    }
    named.retain(|(word, _)| !KUBERNETES_KINDS.contains(&&**word));
    assert!(named.is_empty(), "{named:#?}");
    assert!(number > 1000, "{number} texts: little was read");
}

#[test]
fn texts_are_found() {
    let mut found = Vec::new();
    let code = "#![doc = \"a\"] #[doc = \"b\"] fn a() { say!(\"NextStep: {}\", 'b', [r#\"c\"#]); }";
    texts(code.parse().unwrap(), &mut found);
    assert_eq!(found, ["\"NextStep: {}\"", "r#\"c\"#"]);
}

#[test]
fn public_types_are_found() {
    let types = |text: &str| {
        let mut found = BTreeSet::new();
        public_types(text.parse().unwrap(), &mut found);
        found.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        types("pub struct A(u8); pub(crate) enum B {} pub(super) unsafe trait C {}"),
        "A B C"
    );
    assert_eq!(types("pub type A = u8; pub union B { a: u8 }"), "A B");
    assert_eq!(types("struct A; type B = u8; pub fn b() -> u8 { 1 } pub const C: u8 = 1;"), "");
    assert_eq!(types("pub mod a { pub struct A { pub b: u8 } } made! { pub struct B; }"), "A B");
    assert_eq!(types("#[cfg(test)] mod tests { pub struct A; } pub struct B;"), "B");
    assert_eq!(types("#[cfg(test)] pub use a::b; #[derive(Debug)] pub struct B;"), "B");
    assert_eq!(types("#[cfg(test)] pub struct A; pub struct B;"), "B");
}

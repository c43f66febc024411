//! No two files of a crate need each other, however far round: each can be read after
//! those that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module by the names of the folders and files that lead to it from `src`.
type Module = Vec<String>;

/// What one file says of others.
#[derive(Default)]
struct ModuleUses {
    /// Paths that it uses, as they are written.
    used: Vec<Vec<String>>,
    /// `use`: what a name stands for here, and whether others see it.
    names: BTreeMap<String, (Vec<String>, bool)>,
    /// Whether a library or a program begins here: what `crate` is in the files below.
    is_root: bool,
}

/// The sources of a crate, tests left out.
fn modules(folder: &Path, at: &Module, found: &mut BTreeMap<Module, ModuleUses>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["tests", "testing"].contains(&&*stem) {
            continue;
        }
        let mut module = at.clone();
        if path.is_dir() {
            module.push(stem);
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = ["lib", "main"].contains(&&*stem);
            if !is_root && stem != "mod" {
                module.push(stem);
            }
            let text = fs::read_to_string(&path).unwrap();
            let tokens: TokenStream = text.parse().unwrap_or_else(|_| panic!("{path:?}"));
            let said = found.entry(module).or_default();
            said.is_root |= is_root;
            read(tokens, said);
        }
    }
}

pub(crate) fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

pub(crate) fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn braces(token: Option<&TokenTree>) -> Option<TokenStream> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            Some(group.stream())
        }
        _ => None,
    }
}

fn read(tokens: TokenStream, said: &mut ModuleUses) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_end = |token: &TokenTree| is_punct(Some(token), ';') || braces(Some(token)).is_some();
    let mut public = false;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let word = ident(Some(token));
        if is_punct(Some(token), '#')
            && tokens.get(at + 1).is_some_and(|group| group.to_string() == "[cfg (test)]")
        {
            // What is there for tests alone, to its end.
            at += tokens[at..].iter().position(is_end).unwrap_or(tokens.len()) + 1;
        } else if word.as_deref() == Some("pub") {
            public = true;
            at += 1;
        } else if word.as_deref() == Some("use") {
            let end = tokens[at..].iter().position(|token| is_punct(Some(token), ';'));
            let end = at + end.unwrap_or(tokens.len() - at);
            tree(&[], &tokens[at + 1..end], public, said);
            at = end + 1;
            public = false;
        } else if let Some(first) = word {
            public = false;
            let mut path = vec![first];
            at += 1;
            while is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':') {
                let Some(next) = ident(tokens.get(at + 2)) else { break };
                path.push(next);
                at += 3;
            }
            said.used.push(path);
        } else {
            if let TokenTree::Group(group) = token {
                read(group.stream(), said);
            }
            at += 1;
        }
    }
}

/// The tree of a `use`.
fn tree(prefix: &[String], tokens: &[TokenTree], public: bool, said: &mut ModuleUses) {
    for part in tokens.split(|token| is_punct(Some(token), ',')) {
        let mut path = prefix.to_vec();
        let mut name = None;
        let mut at = 0;
        while let Some(token) = part.get(at) {
            if let Some(inner) = braces(Some(token)) {
                tree(&path, &inner.into_iter().collect::<Vec<_>>(), public, said);
                path.clear();
            } else if ident(Some(token)).as_deref() == Some("as") {
                name = ident(part.get(at + 1));
                at += 1;
            } else if is_punct(Some(token), '*') {
                path.push("*".to_owned());
            } else if let Some(word) = ident(Some(token)) {
                path.push(word);
            }
            at += 1;
        }
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(last) = path.last().cloned() {
            said.names.insert(name.unwrap_or(last), (path, public));
        }
    }
}

/// The library's or the program's first file, of which `here` is part.
fn root(modules: &BTreeMap<Module, ModuleUses>, here: &Module) -> Module {
    let mut above = (0..=here.len()).rev().map(|length| here[..length].to_vec());
    above.find(|above| modules.get(above).is_some_and(|said| said.is_root)).unwrap_or_default()
}

/// The module that a path, written in `here`, leads to: where what it names is defined,
/// as far as files tell.
fn target(
    modules: &BTreeMap<Module, ModuleUses>,
    here: &Module,
    path: &[String],
    depth: u32,
) -> Option<Module> {
    let mut whole = match path[0].as_str() {
        "crate" => root(modules, here),
        "self" => here.clone(),
        "super" => here[..here.len().checked_sub(1)?].to_vec(),
        first => {
            let own = [&here[..], &[first.to_owned()]].concat();
            if modules.contains_key(&own) {
                own
            } else {
                // A name that was brought here; std's and others' lead to nothing.
                let (brought, _) = modules[here].names.get(first)?;
                if depth == 0 || brought[0] == first {
                    return None;
                }
                let whole = [brought, &path[1..]].concat();
                return target(modules, here, &whole, depth - 1);
            }
        }
    };
    let mut rest = &path[1..];
    while let Some((first, more)) = rest.split_first() {
        if first == "super" {
            whole.pop()?;
            rest = more;
            continue;
        }
        let inner = [&whole[..], std::slice::from_ref(first)].concat();
        if modules.contains_key(&inner) {
            (whole, rest) = (inner, more);
            continue;
        }
        // What a file brings for itself alone, those below it see as well.
        let is_below = here.starts_with(&whole);
        let shown = modules[&whole].names.get(first).filter(|(_, public)| *public || is_below);
        return match shown {
            Some((brought, _)) if depth > 0 => {
                let brought = [brought, more].concat();
                target(modules, &whole, &brought, depth - 1).or(Some(whole))
            }
            _ => Some(whole),
        };
    }
    // A module alone was named, not what it holds.
    None
}

/// Which files each file needs. A file may name what is below it, as `mod.rs` does to
/// show it: that is no circle.
fn needs(modules: &BTreeMap<Module, ModuleUses>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let mut needs = BTreeMap::new();
    for (here, said) in modules {
        let brought = said.names.values().filter(|(_, public)| !public).map(|(path, _)| path);
        let found = said.used.iter().chain(brought);
        let found = found.filter_map(|path| target(modules, here, path, 8));
        let others = found.filter(|other| !other.starts_with(here));
        needs.insert(here, others.collect::<BTreeSet<_>>());
    }
    needs
}

/// A way from a file back to itself, if there is one.
fn circle(needs: &BTreeMap<&Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    let mut done: BTreeSet<&Module> = BTreeSet::new();
    for first in needs.keys() {
        // Depth first; the way is what is on the stack.
        let mut way = vec![(*first, needs[*first].iter())];
        while let Some((here, next)) = way.last_mut() {
            let here: &Module = here;
            match next.next() {
                Some(other) if done.contains(other) => {}
                Some(other) => {
                    if let Some(begin) = way.iter().position(|(module, _)| *module == other) {
                        let way = way[begin..].iter().map(|(module, _)| (*module).clone());
                        return Some(way.collect());
                    }
                    let (other, others) = needs.get_key_value(other)?;
                    way.push((*other, others.iter()));
                }
                None => {
                    done.insert(here);
                    way.pop();
                }
            }
        }
    }
    None
}

#[test]
fn no_files_of_a_crate_need_each_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut edges) = (0, 0);
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let mut found = BTreeMap::new();
        modules(&folder.join("src"), &Module::new(), &mut found);
        let needs = needs(&found);
        files += needs.len();
        edges += needs.values().map(BTreeSet::len).sum::<usize>();
        if let Some(way) = circle(&needs) {
            let way: Vec<String> = way.iter().map(|module| module.join("::")).collect();
            panic!("{}: {} needs itself", folder.display(), way.join(" needs "));
        }
    }
    assert!(files > 300 && edges > files, "{files} files with {edges} edges: little was read");
}

#[test]
fn circles_are_found() {
    let read_all = |texts: &[(&str, &str)]| {
        let root = ModuleUses { is_root: true, ..ModuleUses::default() };
        let mut found: BTreeMap<Module, ModuleUses> = BTreeMap::from([(Module::new(), root)]);
        for (name, text) in texts {
            let name: Module = name.split_terminator("::").map(str::to_owned).collect();
            if !found.contains_key(&name) && text.contains("fn main()") {
                found.entry(name.clone()).or_default().is_root = true;
            }
            read(text.parse().unwrap(), found.entry(name).or_default());
        }
        circle(&needs(&found)).map(|way| way.len())
    };
    let a = ("a", "use crate::b::B; pub struct A(B);");
    assert_eq!(read_all(&[a, ("b", "pub struct B;")]), None);
    assert_eq!(read_all(&[a, ("b", "pub struct B(super::a::A);")]), Some(2));
    assert_eq!(read_all(&[a, ("b", "#[cfg(test)] mod tests { use crate::a::A; }")]), None);
    // By another's name, by a macro, and by a module.
    let root = ("", "pub use b::B; mod a; mod b;");
    let by_root = ("a", "use crate::B; pub struct A(B);");
    assert_eq!(read_all(&[root, by_root, ("b", "use crate::a::A;")]), Some(2));
    assert_eq!(read_all(&[a, ("b", "fn b() { assert!(crate::a::is()) }")]), Some(2));
    assert_eq!(read_all(&[a, ("b", "use crate::a; fn b() { a::is() }")]), Some(2));
    assert_eq!(read_all(&[a, ("b", "use crate::a as other; fn b() { other::is() }")]), Some(2));
    // By a name that the file above brought for itself.
    let above = ("", "use b::B; mod a; mod b;");
    assert_eq!(read_all(&[above, ("a", "use super::B;"), ("b", "use super::a::A;")]), Some(2));
    // In a program below the library.
    let program = ("p", "mod a; mod b; fn main() {}");
    let by_crate = ("p::a", "use crate::b::B; pub struct A(B);");
    assert_eq!(read_all(&[program, by_crate, ("p::b", "use crate::a::A;")]), Some(2));
    assert_eq!(read_all(&[program, by_crate, ("p::b", "pub struct B;")]), None);
}

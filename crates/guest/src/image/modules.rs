//! The index of a kernel's modules, as `depmod` makes it.
//!
//! Made here, since the guest's own `depmod` may be a program for another
//! architecture, and the builder's may not be installed.
//!
//! Source: `modules.dep(5)`; modules say what they need in their section
//! `.modinfo`: Linux `include/linux/module.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What a module says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// Modules that must be loaded before it.
    pub(super) depends: Vec<String>,
    /// What is to be loaded before it where it is there: modules, or algorithms.
    pub(super) before: Vec<String>,
    /// Patterns of devices and names that ask for it.
    pub(super) aliases: Vec<String>,
}

impl Module {
    /// Reads a module's file: texts `key=value`, each ended by a NUL, that
    /// stand in no other section.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut module = Self::default();
        for text in bytes.split(|byte| *byte == 0) {
            let Ok(text) = std::str::from_utf8(text) else { continue };
            if let Some(list) = text.strip_prefix("depends=") {
                let names = list.split(',').filter(|name| !name.is_empty());
                // Files' names, as the build has them: `vfio-pci-core`.
                module.depends.extend(names.map(self::name));
            } else if let Some(soft) = text.strip_prefix("softdep=pre: ") {
                let names = soft.split_whitespace().take_while(|word| *word != "post:");
                module.before.extend(names.map(str::to_owned));
            } else if let Some(alias) = text.strip_prefix("alias=") {
                module.aliases.push(alias.to_owned());
            }
        }
        module
    }
}

/// A module's name: its file's, with `_` for `-`.
pub(super) fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.strip_suffix(".ko").unwrap_or(file).replace('-', "_")
}

/// `modules.dep`: a line a module, with all that it needs. What stands behind
/// is loaded first, so none stands behind one that it needs. `modules` are by
/// path.
pub(super) fn dep(modules: &BTreeMap<String, Module>) -> String {
    let paths: BTreeMap<String, &str> =
        modules.keys().map(|path| (name(path), path.as_str())).collect();
    let mut text = String::new();
    for (path, module) in modules {
        let mut needed = Vec::new();
        add_needed(module, modules, &paths, &mut BTreeSet::new(), &mut needed);
        let _ = write!(text, "{path}:");
        for path in needed.iter().rev() {
            let _ = write!(text, " {path}");
        }
        text.push('\n');
    }
    text
}

/// Adds all that `module` needs to `needed`, each behind what it needs itself.
fn add_needed<'a>(
    module: &Module,
    modules: &BTreeMap<String, Module>,
    paths: &BTreeMap<String, &'a str>,
    seen: &mut BTreeSet<&'a str>,
    needed: &mut Vec<&'a str>,
) {
    for name in &module.depends {
        let Some(path) = paths.get(name).filter(|path| seen.insert(path)) else { continue };
        if let Some(below) = modules.get(*path) {
            add_needed(below, modules, paths, seen, needed);
        }
        needed.push(path);
    }
}

/// `modules.alias`.
pub(super) fn alias(modules: &BTreeMap<String, Module>) -> String {
    let mut text = String::new();
    for (path, module) in modules {
        for alias in &module.aliases {
            let _ = writeln!(text, "alias {alias} {}", name(path));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_with_all_that_they_need() {
        let file =
            b"\x7fELF\0\0alias=virtio:d00000001v*\0depends=failover,core-part\0name=net\0\xff\0";
        let net = Module::read(file);
        assert_eq!(net.depends, ["failover", "core_part"]);
        let needs = |list: &[&str]| Module {
            depends: list.iter().map(|name| (*name).to_owned()).collect(),
            before: Vec::new(),
            aliases: Vec::new(),
        };
        let modules = BTreeMap::from([
            ("kernel/net.ko".to_owned(), net),
            ("kernel/ring.ko".to_owned(), needs(&[])),
            ("kernel/f/failover.ko".to_owned(), needs(&["core_part", "ring"])),
            ("kernel/core-part.ko".to_owned(), needs(&["not_kept"])),
            ("kernel/stp.ko".to_owned(), needs(&["ring"])),
            ("kernel/bridge.ko".to_owned(), needs(&["ring", "stp"])),
        ]);
        assert_eq!(
            dep(&modules),
            "kernel/bridge.ko: kernel/stp.ko kernel/ring.ko\n\
             kernel/core-part.ko:\n\
             kernel/f/failover.ko: kernel/ring.ko kernel/core-part.ko\n\
             kernel/net.ko: kernel/f/failover.ko kernel/ring.ko kernel/core-part.ko\n\
             kernel/ring.ko:\n\
             kernel/stp.ko: kernel/ring.ko\n"
        );
        assert_eq!(alias(&modules), "alias virtio:d00000001v* net\n");
    }
}

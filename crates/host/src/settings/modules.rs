//! Kernel modules and their parameters.
//!
//! A parameter that can't be written while its module is loaded is changed by
//! taking the module out and loading it again: only where that was asked for
//! and nobody uses it. Modules that hold it (kvm is held by kvm_intel) are
//! taken out before and loaded after it. All parameters that can be read are
//! remembered, so that each module comes back as it was.
//!
//! Source: `modprobe(8)`, Linux `Documentation/ABI/stable/sysfs-module`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::refusal::SettingRefusal;
use super::tree::SettingsTree;
use super::value::ABSENT;

/// A module that is wanted, whatever its parameters.
pub(super) const PRESENT: &str = "present";

pub(super) const MODPROBE: &str = "modprobe";
const RMMOD: &str = "rmmod";
/// Where they may be: kmod's in the first two, busybox' in any.
const PROGRAMS: [&str; 4] = ["usr/sbin", "sbin", "usr/bin", "bin"];

/// How often a VM without vCPUs, which an emulated host has from its beginning,
/// uses KVM's modules: a file each, there while that VM is.
const KEPT_KVM: &str = "run/vmlab/kept-kvm";
/// Ends that VM.
const KEEP_KVM: &str = "keep-kvm";

pub(super) fn folder(module: &str) -> String {
    format!("sys/module/{module}")
}

pub(super) fn parameter_file(module: &str, parameter: &str) -> String {
    format!("sys/module/{module}/parameters/{parameter}")
}

/// The first of `choices` that is there.
pub(super) fn find<'a>(
    tree: &SettingsTree,
    choices: &[(&'a str, &'a str)],
) -> Result<(&'a str, &'a str), SettingRefusal> {
    let mut all = choices.iter();
    if let Some(found) = all.find(|(module, name)| tree.has(&parameter_file(module, name))) {
        return Ok(*found);
    }
    if let Some((module, parameter)) = choices.iter().find(|(module, _)| tree.has(&folder(module)))
    {
        let hint = format!("this kernel's module {module} has no such parameter");
        return Err(SettingRefusal::Absent { path: parameter_file(module, parameter), hint });
    }
    let modules: Vec<&str> = choices.iter().map(|(module, _)| *module).collect();
    Err(SettingRefusal::NoModule { modules: modules.join(" or ") })
}

/// Whether the parameter's file can be written at all while the module is
/// loaded.
pub(super) fn is_written_live(tree: &SettingsTree, path: &str) -> bool {
    fs::metadata(tree.path(path)).is_ok_and(|about| about.permissions().mode() & 0o222 != 0)
}

pub(super) fn is_built_in(tree: &SettingsTree, module: &str) -> bool {
    // Only what was loaded has a state.
    !tree.has(&format!("{}/initstate", folder(module)))
}

fn holders(tree: &SettingsTree, module: &str) -> Vec<String> {
    tree.list(&format!("{}/holders", folder(module)))
}

/// Each holder counts as a user of what it holds.
pub(super) fn check_removable(tree: &SettingsTree, module: &str) -> Result<(), SettingRefusal> {
    let holders = holders(tree, module);
    let users = |name: &str| {
        let number = |path: String| tree.text(&path).unwrap_or_default().parse::<u64>();
        let kept = number(format!("{KEPT_KVM}/{name}")).unwrap_or(0);
        number(format!("{}/refcnt", folder(name))).unwrap_or(0).saturating_sub(kept)
    };
    let others = users(module).saturating_sub(holders.len() as u64);
    if others > 0 {
        return Err(SettingRefusal::ModuleInUse { module: module.to_owned(), users: others });
    }
    for holder in holders {
        let users = users(&holder);
        if users > 0 {
            return Err(SettingRefusal::ModuleInUse { module: holder, users });
        }
    }
    Ok(())
}

/// The path of a program in `tree`.
fn program(tree: &SettingsTree, name: &str) -> Option<PathBuf> {
    let mut paths = PROGRAMS.iter().map(|folder| format!("{folder}/{name}"));
    paths.find(|path| tree.has(path)).map(|path| tree.path(&path))
}

pub(super) fn run(tree: &SettingsTree, name: &str, args: &[&str]) -> io::Result<()> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{name} is missing"));
    tree.kernel.run(&program(tree, name).ok_or_else(missing)?, args)
}

pub(super) fn check_programs(tree: &SettingsTree) -> Result<(), SettingRefusal> {
    let refuse = |why: &str| Err(SettingRefusal::NoModules { why: why.to_owned() });
    if program(tree, MODPROBE).is_none() || program(tree, RMMOD).is_none() {
        return refuse("modprobe and rmmod are missing: run `apt-get install kmod`");
    }
    if !rustix::process::geteuid().is_root() {
        return refuse("it takes root (sudo)");
    }
    if tree.text("proc/sys/kernel/modules_disabled").is_ok_and(|text| text == "1") {
        return refuse("the kernel allows it no more until a reboot (kernel.modules_disabled)");
    }
    Ok(())
}

/// A module and those that hold it, each with its parameters.
pub(super) type Stack = Vec<(String, BTreeMap<String, String>)>;

/// The module and its holders as they are: `kvm halt_poll_ns=200000; kvm_amd avic=N`.
pub(super) fn read(tree: &SettingsTree, module: &str) -> String {
    if !tree.has(&folder(module)) {
        return ABSENT.to_owned();
    }
    let names = std::iter::once(module.to_owned()).chain(holders(tree, module));
    let with_parameters = |name: String| {
        let parameters = parameters(tree, &name);
        (name, parameters)
    };
    show(&names.map(with_parameters).collect())
}

/// The parameters that can be read and given back.
fn parameters(tree: &SettingsTree, module: &str) -> BTreeMap<String, String> {
    let names = tree.list(&format!("{}/parameters", folder(module))).into_iter();
    names
        .filter_map(|name| {
            let value = tree.text(&parameter_file(module, &name)).ok()?;
            let plain = !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic());
            // Y and N are what switches say; what was asked for is 1 and 0.
            let value = match value.as_str() {
                "Y" => "1".to_owned(),
                "N" => "0".to_owned(),
                _ => value,
            };
            (plain && value != "(null)" && !value.contains(';')).then_some((name, value))
        })
        .collect()
}

pub(super) fn show(stack: &Stack) -> String {
    let one = |(name, parameters): &(String, BTreeMap<String, String>)| {
        let parameters = parameters.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{name}{}", parameters.collect::<String>())
    };
    stack.iter().map(one).collect::<Vec<_>>().join("; ")
}

pub(super) fn parse(text: &str) -> Stack {
    let one = |part: &str| {
        let mut words = part.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let pair = |word: &str| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        Some((name, words.filter_map(pair).collect()))
    };
    text.split(';').filter_map(one).collect()
}

/// Takes `module` and its holders out and loads what `wanted` says.
pub(super) fn write(tree: &SettingsTree, module: &str, wanted: &str) -> io::Result<()> {
    let run = |program: &str, args: &[&str]| run(tree, program, args);
    if tree.has(&format!("{KEPT_KVM}/{module}")) {
        run(KEEP_KVM, &["end"])?;
    }
    for holder in holders(tree, module) {
        run(RMMOD, &[&holder])?;
    }
    if tree.has(&folder(module)) {
        if wanted == ABSENT {
            // With what it brought along, where nobody else needs that: where somebody
            // does, busybox' calls it a failure.
            let removed = run(MODPROBE, &["-r", module]);
            return if tree.has(&folder(module)) { removed } else { Ok(()) };
        }
        run(RMMOD, &[module])?;
    }
    if wanted == ABSENT {
        return Ok(());
    }
    if wanted == PRESENT {
        return run(MODPROBE, &[module]);
    }
    for (name, asked) in parse(wanted) {
        // Loading one may have loaded others already, with their own values.
        if !tree.has(&folder(&name)) {
            run(MODPROBE, &[&name])?;
        }
        let now = parameters(tree, &name);
        let differ = asked.iter().filter(|(parameter, value)| now.get(*parameter) != Some(*value));
        let args: Vec<String> = differ.map(|(name, value)| format!("{name}={value}")).collect();
        if args.is_empty() {
            continue;
        }
        for holder in holders(tree, &name) {
            run(RMMOD, &[&holder])?;
        }
        run(RMMOD, &[&name])?;
        let args: Vec<&str> =
            std::iter::once(name.as_str()).chain(args.iter().map(String::as_str)).collect();
        run(MODPROBE, &args)?;
    }
    Ok(())
}

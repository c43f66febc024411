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

use super::place::Step;
use super::refusal::Refusal;
use super::target::{ABSENT, Target};
use super::tree::Tree;

/// A module that is wanted, whatever its parameters.
pub(super) const PRESENT: &str = "present";

const MODPROBE: &str = "modprobe";
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
    tree: &Tree,
    choices: &[(&'a str, &'a str)],
) -> Result<(&'a str, &'a str), Refusal> {
    let mut all = choices.iter();
    if let Some(found) = all.find(|(module, name)| tree.has(&parameter_file(module, name))) {
        return Ok(*found);
    }
    if let Some((module, parameter)) = choices.iter().find(|(module, _)| tree.has(&folder(module)))
    {
        let hint = format!("this kernel's module {module} has no such parameter");
        return Err(Refusal::Absent { path: parameter_file(module, parameter), hint });
    }
    let modules: Vec<&str> = choices.iter().map(|(module, _)| *module).collect();
    Err(Refusal::NoModule { modules: modules.join(" or ") })
}

/// Whether the parameter's file can be written at all while the module is
/// loaded.
pub(super) fn is_written_live(tree: &Tree, path: &str) -> bool {
    fs::metadata(tree.path(path)).is_ok_and(|about| about.permissions().mode() & 0o222 != 0)
}

/// The step that gives `parameter` its value by loading `module` again.
pub(super) fn reload_step(
    tree: &Tree,
    module: &str,
    parameter: &str,
    wanted: &str,
    reload: bool,
) -> Result<Step, Refusal> {
    if is_built_in(tree, module) {
        let what = format!("{module}.{parameter}={wanted}");
        return Err(Refusal::BuiltIn { module: module.to_owned(), what });
    }
    if !reload {
        let (module, parameter) = (module.to_owned(), parameter.to_owned());
        return Err(Refusal::NeedsReload { module, parameter });
    }
    check_removable(tree, module)?;
    check_programs(tree)?;
    let old = read(tree, module);
    let new = with_parameter(&old, module, parameter, wanted);
    Ok(Step::new(Target::Module(module.to_owned()), old, new))
}

/// `stack` with another value of one parameter.
fn with_parameter(stack: &str, module: &str, parameter: &str, value: &str) -> String {
    let mut all = parse(stack);
    for (name, parameters) in &mut all {
        if name == module {
            parameters.insert(parameter.to_owned(), value.to_owned());
        }
    }
    show(&all)
}

/// Whether two steps load one module again. KVM's modules come and go together
/// with the one that they hold, so they count as one.
pub(super) fn share(one: &Target, other: &Target) -> bool {
    let family = |target: &Target| match target {
        Target::Module(name) if name.starts_with("kvm") => Some("kvm".to_owned()),
        Target::Module(name) => Some(name.clone()),
        _ => None,
    };
    family(one).is_some_and(|name| family(other) == Some(name))
}

/// Both steps in one: that of the module that is held by others, if one is, has
/// the other's parameters as well.
pub(super) fn merge(known: &Step, step: &Step) -> Step {
    let (bigger, smaller) = match parse(&known.old).len() >= parse(&step.old).len() {
        true => (known, step),
        false => (step, known),
    };
    let mut all = parse(&bigger.new);
    for ((name, old), (_, new)) in parse(&smaller.old).into_iter().zip(parse(&smaller.new)) {
        let changed = new.into_iter().filter(|(name, value)| old.get(name) != Some(value));
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, parameters)) => parameters.extend(changed),
            None => all.push((name, old.clone().into_iter().chain(changed).collect())),
        }
    }
    Step { new: show(&all), ..bigger.clone() }
}

/// Gives parameters that could be written live to the reload of their module,
/// which would reset them.
pub(super) fn fold<T>(steps: Vec<(T, Step)>) -> Vec<(T, Step)> {
    let is_module = |(_, step): &(T, Step)| matches!(step.target, Target::Module(_));
    let (mut modules, files): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_module);
    let mut rest = Vec::new();
    for (owner, step) in files {
        let (module, parameter) = parameter_of(&step.target).unwrap_or_default();
        let loads = |text: &str| parse(text).iter().any(|(name, _)| name == module);
        match modules.iter_mut().find(|(_, known)| loads(&known.new)) {
            Some((_, known)) => {
                known.new = with_parameter(&known.new, module, parameter, &step.new);
            }
            None => rest.push((owner, step)),
        }
    }
    modules.extend(rest);
    modules
}

/// The module and the parameter that a file stands for.
fn parameter_of(target: &Target) -> Option<(&str, &str)> {
    let Target::File(path) = target else { return None };
    path.strip_prefix("sys/module/")?.split_once("/parameters/")
}

/// The step after which `module` is present or absent.
pub(super) fn presence_step(tree: &Tree, module: &str, wanted: &str) -> Result<Step, Refusal> {
    let old = read(tree, module);
    let is_there = old != ABSENT;
    let new = match (wanted == PRESENT, is_there) {
        (true, true) | (false, false) => old.clone(),
        (true, false) => {
            check_programs(tree)?;
            // What loading it would do; `-n` is not in busybox.
            let dry = run(tree, MODPROBE, &["-D", module]);
            dry.map_err(|error| Refusal::NoModules { why: error.to_string() })?;
            PRESENT.to_owned()
        }
        (false, true) if is_built_in(tree, module) => {
            let what = "nothing that would take it out: it".to_owned();
            return Err(Refusal::BuiltIn { module: module.to_owned(), what });
        }
        (false, true) => {
            check_removable(tree, module)?;
            check_programs(tree)?;
            ABSENT.to_owned()
        }
    };
    Ok(Step::new(Target::Module(module.to_owned()), old, new))
}

fn is_built_in(tree: &Tree, module: &str) -> bool {
    // Only what was loaded has a state.
    !tree.has(&format!("{}/initstate", folder(module)))
}

fn holders(tree: &Tree, module: &str) -> Vec<String> {
    tree.list(&format!("{}/holders", folder(module)))
}

/// Each holder counts as a user of what it holds.
fn check_removable(tree: &Tree, module: &str) -> Result<(), Refusal> {
    let holders = holders(tree, module);
    let users = |name: &str| {
        let number = |path: String| tree.text(&path).unwrap_or_default().parse::<u64>();
        let kept = number(format!("{KEPT_KVM}/{name}")).unwrap_or(0);
        number(format!("{}/refcnt", folder(name))).unwrap_or(0).saturating_sub(kept)
    };
    let others = users(module).saturating_sub(holders.len() as u64);
    if others > 0 {
        return Err(Refusal::ModuleInUse { module: module.to_owned(), users: others });
    }
    for holder in holders {
        let users = users(&holder);
        if users > 0 {
            return Err(Refusal::ModuleInUse { module: holder, users });
        }
    }
    Ok(())
}

/// The path of a program in `tree`.
fn program(tree: &Tree, name: &str) -> Option<PathBuf> {
    let mut paths = PROGRAMS.iter().map(|folder| format!("{folder}/{name}"));
    paths.find(|path| tree.has(path)).map(|path| tree.path(&path))
}

fn run(tree: &Tree, name: &str, args: &[&str]) -> io::Result<()> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{name} is missing"));
    tree.kernel.run(&program(tree, name).ok_or_else(missing)?, args)
}

fn check_programs(tree: &Tree) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal::NoModules { why: why.to_owned() });
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
type Stack = Vec<(String, BTreeMap<String, String>)>;

/// The module and its holders as they are: `kvm halt_poll_ns=200000; kvm_amd avic=N`.
pub(super) fn read(tree: &Tree, module: &str) -> String {
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
fn parameters(tree: &Tree, module: &str) -> BTreeMap<String, String> {
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

fn show(stack: &Stack) -> String {
    let one = |(name, parameters): &(String, BTreeMap<String, String>)| {
        let parameters = parameters.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{name}{}", parameters.collect::<String>())
    };
    stack.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn parse(text: &str) -> Stack {
    let one = |part: &str| {
        let mut words = part.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let pair = |word: &str| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        Some((name, words.filter_map(pair).collect()))
    };
    text.split(';').filter_map(one).collect()
}

/// Takes `module` and its holders out and loads what `wanted` says.
pub(super) fn write(tree: &Tree, module: &str, wanted: &str) -> io::Result<()> {
    let run = |program: &str, args: &[&str]| run(tree, program, args);
    if tree.has(&format!("{KEPT_KVM}/{module}")) {
        run(KEEP_KVM, &["end"])?;
    }
    for holder in holders(tree, module) {
        run(RMMOD, &[&holder])?;
    }
    if tree.has(&folder(module)) {
        if wanted == ABSENT {
            // With what it brought along, where nobody else needs that.
            return run(MODPROBE, &["-r", module]);
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

//! The changes that load modules, anew or at all.

use super::modules::{
    MODPROBE, PRESENT, check_programs, check_removable, is_built_in, parse, read, run, show,
};
use super::refusal::SettingRefusal;
use super::step::SettingStep;
use super::target::SettingTarget;
use super::tree::SettingsTree;
use super::value::ABSENT;

/// The step that gives `parameter` its value by loading `module` again.
pub(super) fn reload_step(
    tree: &SettingsTree,
    module: &str,
    parameter: &str,
    wanted: &str,
    reload: bool,
) -> Result<SettingStep, SettingRefusal> {
    if is_built_in(tree, module) {
        let what = format!("{module}.{parameter}={wanted}");
        return Err(SettingRefusal::BuiltIn { module: module.to_owned(), what });
    }
    if !reload {
        let (module, parameter) = (module.to_owned(), parameter.to_owned());
        return Err(SettingRefusal::NeedsReload { module, parameter });
    }
    check_removable(tree, module)?;
    check_programs(tree)?;
    let old = read(tree, module);
    let new = with_parameter(&old, module, parameter, wanted);
    Ok(SettingStep::new(SettingTarget::Module(module.to_owned()), old, new))
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
pub(super) fn share(one: &SettingTarget, other: &SettingTarget) -> bool {
    let family = |target: &SettingTarget| match target {
        SettingTarget::Module(name) if name.starts_with("kvm") => Some("kvm".to_owned()),
        SettingTarget::Module(name) => Some(name.clone()),
        _ => None,
    };
    family(one).is_some_and(|name| family(other) == Some(name))
}

/// Both steps in one: that of the module that is held by others, if one is, has
/// the other's parameters as well.
pub(super) fn merge(known: &SettingStep, step: &SettingStep) -> SettingStep {
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
    SettingStep { new: show(&all), ..bigger.clone() }
}

/// Gives parameters that could be written live to the reload of their module,
/// which would reset them.
pub(super) fn fold<T>(steps: Vec<(T, SettingStep)>) -> Vec<(T, SettingStep)> {
    let is_module = |(_, step): &(T, SettingStep)| matches!(step.target, SettingTarget::Module(_));
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
fn parameter_of(target: &SettingTarget) -> Option<(&str, &str)> {
    let SettingTarget::File(path) = target else { return None };
    path.strip_prefix("sys/module/")?.split_once("/parameters/")
}

/// The step after which `module` is present or absent.
pub(super) fn presence_step(
    tree: &SettingsTree,
    module: &str,
    wanted: &str,
) -> Result<SettingStep, SettingRefusal> {
    let old = read(tree, module);
    let is_there = old != ABSENT;
    let new = match (wanted == PRESENT, is_there) {
        (true, true) | (false, false) => old.clone(),
        (true, false) => {
            check_programs(tree)?;
            // What loading it would do; `-n` is not in busybox.
            let dry = run(tree, MODPROBE, &["-D", module]);
            dry.map_err(|error| SettingRefusal::NoModules { why: error.to_string() })?;
            PRESENT.to_owned()
        }
        (false, true) if is_built_in(tree, module) => {
            let what = "nothing that would take it out: it".to_owned();
            return Err(SettingRefusal::BuiltIn { module: module.to_owned(), what });
        }
        (false, true) => {
            check_removable(tree, module)?;
            check_programs(tree)?;
            ABSENT.to_owned()
        }
    };
    Ok(SettingStep::new(SettingTarget::Module(module.to_owned()), old, new))
}

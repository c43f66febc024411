//! Finds what is wrong with a VM's configuration: libvirt domain XML, KubeVirt
//! objects, QEMU command lines and Proxmox's files, and VMs that run ([`ObservedVm`]);
//! alone or against a host, a KubeVirt version and the kubelet's options.
//!
//! [`RULES`] is the table: each rule has its texts, its source and examples
//! that it fires on and that it does not. [`check_text`] applies all of them to
//! one text, [`check_fleet`] those that look at several VMs together. Findings
//! know file, line and column, and where it can be computed, the edit that
//! mends them ([`apply`]). [`output`] says findings as text, JSON and SARIF.
//!
//! Values are read with their places and not by way of `VmSpec`, whose
//! constructor refuses much of what has to be found here.
//!
//! All of it is pure: texts come in and go out.

mod busy;
mod cluster;
mod context;
mod finding;
mod fix;
mod fleet;
mod forecast;
mod format;
mod live;
mod live_difference;
mod object;
pub mod output;
mod read;
mod requirements;
mod rule;
mod rules;
mod running;
mod schema;
pub mod site;
mod version;
mod vm;

pub use busy::BusyPcpus;
pub use cluster::Cluster;
pub use context::{Context, DEFAULT_KUBERNETES, DEFAULT_KUBEVIRT, ExampleHost, Kubelet};
pub use finding::{Edit, Finding, Fix, LiveDifference, Severity};
pub use fix::{apply, difference};
pub use fleet::SharedHostVm;
pub use placement::predict::KubevirtVersion;
pub use read::TextError;
pub use rule::{AffectedVersions, ConfigFormat, Rule, RuleExample};
pub use rules::{RULES, UnknownRule, find};
pub use running::{
    MemoryPlacement, Observation, ObservedValue, ObservedVm, ParseFactError, ThreadOwner,
    ThreadPlacement,
};
pub use version::{ParseReleaseError, ReleaseVersion};
pub use vmconfig::source::{JoinedText, LineColumn, Span};

use std::borrow::Cow;

use finding::{Draft, Drafts};
use fleet::{AllowComments, FleetDrafts};
use read::ConfigItem;
use rule::{Check, CheckVm};
use vm::Vm;
use vmconfig::source::SourceText;

/// What one text holds and what is wrong with it.
#[derive(Debug)]
pub struct CheckedText {
    /// Its format.
    pub format: ConfigFormat,
    /// Findings by place.
    pub findings: Vec<Finding>,
    /// Findings that comments in the text silence.
    pub suppressed: Vec<site::SuppressedFinding>,
    /// Its VMs, for [`check_fleet`].
    pub vms: Vec<SharedHostVm>,
}

/// The VirtualMachineInstances that objects of a YAML text are or make, as JSON, with
/// the instance types that the text holds too, and else those given. Documents without a VM
/// are there as they are; `file` names it in errors.
///
/// # Errors
/// [`TextError::Syntax`], also where an instance type is not there.
pub fn read_instances(
    file: &str,
    text: &str,
    types: &vmconfig::kubevirt::Catalogue,
) -> Result<Vec<serde_json::Value>, TextError> {
    read::kubevirt::instances(text, types).map_err(|broken| read::in_file(broken, file, text))
}

/// The instance types and preferences of KubeVirt in a text, for VMs of other texts
/// ([`Context::instancetypes`]). `None`: it has none, as a text that is no YAML.
#[must_use]
pub fn instancetypes(text: &str) -> Option<vmconfig::kubevirt::Catalogue> {
    if !text.contains("instancetype.kubevirt.io/") {
        return None;
    }
    let documents = topology::bounded::yaml(text).ok()?;
    let mut catalogue = vmconfig::kubevirt::Catalogue::default();
    catalogue.add(&documents);
    Some(catalogue)
}

/// Whether other texts may bear on what is found in a text: KubeVirt's objects name
/// [`Context::instancetypes`] and are for a [`Context::cluster`].
#[must_use]
pub fn needs_others(text: &str) -> bool {
    text.contains("kubevirt.io/")
}

/// Whether a text looks like something that holds VMs.
#[must_use]
pub fn holds_vms(text: &str) -> bool {
    read::format_of(text).is_some()
}

/// Whether the rule with this id looks at several VMs together.
#[must_use]
pub fn is_about_fleets(id: &str) -> bool {
    find(id).is_ok_and(Rule::is_about_fleets)
}

/// What the host's QEMU and libvirt can't do of a text's VMs, as far as
/// [`Context::offers`] tells: findings of those rules alone.
///
/// # Errors
/// [`TextError`] when the text is in none of the formats, or breaks its own.
pub fn check_offers(file: &str, text: &str, context: &Context) -> Result<Vec<Finding>, TextError> {
    let mut findings = check_text(file, text, context)?.findings;
    findings.retain(|finding| rules::OF_OFFERS.contains(&finding.rule.as_ref()));
    Ok(findings)
}

/// Applies every rule for single VMs to a text; `file` names it in findings.
///
/// # Errors
/// [`TextError`] when the text is in none of the formats, or breaks its own.
pub fn check_text(file: &str, text: &str, context: &Context) -> Result<CheckedText, TextError> {
    check_text_by(file, text, context, &[])
}

/// The same, with rules of a site's own beside those of the table. Levels are not
/// changed here: see [`site::settle`].
///
/// # Errors
/// [`TextError`] when the text is in none of the formats, or breaks its own.
pub fn check_text_by(
    file: &str,
    text: &str,
    context: &Context,
    sets: &[&site::SiteRules],
) -> Result<CheckedText, TextError> {
    check_source(file, &SourceText::new(text), context, sets)
}

/// The same of a text with the files that it names behind it: what is found there has
/// their names.
///
/// # Errors
/// [`TextError`] when the text is in none of the formats, or breaks its own.
pub fn check_joined(
    file: &str,
    text: &JoinedText,
    context: &Context,
    sets: &[&site::SiteRules],
) -> Result<CheckedText, TextError> {
    check_source(file, &text.source(), context, sets)
}

fn check_source(
    file: &str,
    source: &SourceText<'_>,
    context: &Context,
    sets: &[&site::SiteRules],
) -> Result<CheckedText, TextError> {
    let text = source.text;
    let Some(format) = read::format_of(text) else {
        return Err(TextError::Unknown { file: file.to_owned() });
    };
    let placeholder = match format {
        ConfigFormat::Kubevirt => read::template::placeholder(text),
        _ => None,
    };
    if let Some(span) = placeholder {
        return Ok(template(file, format, source, span));
    }
    let asker = site::PreparedRules::new(sets, context);
    let wanted = read::ReadOptions { types: &context.instancetypes, settings: asker.is_some() };
    let allowed = AllowComments::new(source);
    let mut findings = Vec::new();
    let mut suppressed = Vec::new();
    let mut keep = |finding: Finding| match allowed.covers(&finding.rule, &finding.place) {
        false => findings.push(finding),
        true => suppressed.push(site::SuppressedFinding::by_comment(finding)),
    };
    let rules: Vec<&'static Rule> = RULES.iter().filter(|rule| rule.holds(context)).collect();
    let of_vms: Vec<(&'static Rule, CheckVm)> =
        rules.iter().filter_map(|rule| Some((*rule, rule.check_vm()?))).collect();
    let about_fleets: Vec<&str> =
        RULES.iter().filter(|rule| rule.is_about_fleets()).map(|rule| rule.id).collect();
    let mut vms = Vec::new();
    let mut drafts = Drafts::default();
    let of_item = |rule: &Rule, draft: Draft, name: &str, vm: Option<&Vm>| {
        let place = source.place(draft.span);
        let live = vm.and_then(|vm| live_difference::live_difference(vm, source, draft.span));
        // A command line that was followed long ago is not mended.
        // Nor is what a command line is made of: it is written otherwise.
        let fix = draft.fix_in(source).filter(|fix| {
            live.is_none()
                && format != ConfigFormat::Proxmox
                && fix.edits.iter().all(|edit| vm.is_none_or(|vm| !vm.is_elsewhere(edit)))
        });
        let mut notes = draft.notes;
        if !rule.affected.is_empty() {
            let versions: Vec<String> = rule.affected.iter().map(AffectedVersions::text).collect();
            notes.push(format!("concerns {}", versions.join("; ")));
        }
        Finding {
            rule: Cow::Borrowed(rule.id),
            severity: rule.severity,
            file: place.file_or(file),
            vm: name.to_owned(),
            place,
            message: draft.message,
            notes,
            help: draft.help.map_or(Cow::Borrowed(rule.mend), Cow::Owned),
            live,
            fix,
        }
    };
    let mut look = |item: ConfigItem| {
        let vm = match &item {
            ConfigItem::Vm(vm) => vm,
            ConfigItem::Object(object) => {
                for (rule, check) in
                    rules.iter().filter_map(|rule| Some((rule, rule.check_object()?)))
                {
                    check(object, context, &mut drafts);
                    let all = drafts.0.drain(..);
                    all.for_each(|draft| keep(of_item(rule, draft, &object.name, None)));
                }
                return;
            }
        };
        for (rule, check) in &of_vms {
            check(vm, context, &mut drafts);
            let all = drafts.0.drain(..);
            all.for_each(|draft| keep(of_item(rule, draft, &vm.name, Some(vm))));
        }
        if let Some(asker) = &asker {
            asker.check(file, vm, source).into_iter().for_each(&mut keep);
        }
        vms.push(SharedHostVm::new(vm, file, source, &allowed, &about_fleets));
    };
    read::read(format, source, wanted, &mut look)
        .map_err(|broken| read::in_file(broken, file, text))?;
    let known = |id: &str| {
        RULES.iter().any(|rule| rule.id == id)
            || sets.iter().any(|set| set.rules.iter().any(|rule| rule.id == id))
    };
    for (line, id) in allowed.ids().filter(|(_, id)| !known(id)) {
        let place = source.place(source.line_span(line));
        findings.push(unknown_allow(file, place, id));
    }
    findings.sort_by(|one, other| {
        let at = |found: &Finding| (found.place.line, found.place.column);
        (&one.place.file, at(one)).cmp(&(&other.place.file, at(other)))
    });
    Ok(CheckedText { format, findings, suppressed, vms })
}

/// The pins that a domain asks for: those of vCPUs, of the emulator thread and of
/// iothreads by QEMU's names for them. Empty where the text holds no domain.
///
/// Beside a domain's own XML, libvirt's status files hold one
/// (`/run/libvirt/qemu/NAME.xml`).
#[must_use]
pub fn asked_pins(xml: &str) -> Vec<(ThreadOwner, topology::PcpuSet)> {
    let mut first = None;
    let source = SourceText::new(xml);
    let read = read::libvirt::read(&source, false, &mut |vm| first = first.take().or(Some(vm)));
    let Some(vm) = read.ok().and(first) else { return Vec::new() };
    let vcpus = vm.pins.iter().map(|pin| (ThreadOwner::Vcpu(Some(pin.id.value)), &pin.pcpus));
    let iothreads = vm.iothread_pins.iter().map(|pin| {
        let id = format!("iothread{}", pin.id.value);
        (ThreadOwner::Iothread(id), &pin.pcpus)
    });
    let emulator = vm.emulator.iter().map(|set| (ThreadOwner::Emulator, set));
    let all = vcpus.chain(emulator).chain(iothreads);
    all.map(|(who, set)| (who, set.value.clone())).collect()
}

/// Applies the rules that look at several VMs together.
#[must_use]
pub fn check_fleet(vms: &[SharedHostVm], context: &Context) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        if let Check::Fleet(check) = rule.check
            && rule.holds(context)
        {
            let Rule { id, severity, mend, .. } = *rule;
            let findings = &mut findings;
            check(vms, context, &mut FleetDrafts { rule: id, severity, mend, findings });
        }
    }
    findings
}

/// What is said of a text that is a template.
fn template(file: &str, format: ConfigFormat, source: &SourceText, span: Span) -> CheckedText {
    let rule = &rules::comments::TEMPLATE;
    let place = source.place(span);
    let message = "An engine has yet to fill this in: the file was not read";
    let finding = of_text(rule, file, place, message.to_owned(), rule.mend.into());
    let mut checked =
        CheckedText { format, findings: Vec::new(), suppressed: Vec::new(), vms: Vec::new() };
    match AllowComments::new(source).covers(rule.id, &finding.place) {
        false => checked.findings.push(finding),
        true => checked.suppressed.push(site::SuppressedFinding::by_comment(finding)),
    }
    checked
}

fn unknown_allow(file: &str, place: LineColumn, id: &str) -> Finding {
    let near = find(id).err().and_then(|unknown| unknown.near);
    let rule = &rules::comments::UNKNOWN_ALLOW;
    let help = near.map_or(rule.mend.into(), |near| format!("Did you mean {near}?").into());
    of_text(rule, file, place, format!("No rule has the id {id:?}"), help)
}

/// A finding about a text, and no VM of it.
fn of_text(
    rule: &Rule,
    file: &str,
    place: LineColumn,
    message: String,
    help: Cow<'static, str>,
) -> Finding {
    Finding {
        rule: Cow::Borrowed(rule.id),
        severity: rule.severity,
        file: file.to_owned(),
        vm: String::new(),
        place,
        message,
        notes: Vec::new(),
        help,
        live: None,
        fix: None,
    }
}

#[cfg(test)]
mod tests;

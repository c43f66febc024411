//! libvirt's own cases: its domains and the command lines that it makes of them.
//!
//! Each domain is converted to QEMU's command line; what a [`VmSpec`] models is
//! compared with libvirt's answer, field by field. Where they differ, reading or
//! writing must have said so, at that very field. The cases come with libvirt's
//! source package and are fetched, never kept here.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use suite::{Tier, needs};

use super::*;
use crate::qemu::{Capabilities, emit_plain};

/// What the answers' names end with.
const END: &str = ".x86_64-latest.args";

/// The cases that libvirt answers, by name.
pub(super) fn names(cases: &Path) -> Vec<String> {
    let all = std::fs::read_dir(cases).unwrap();
    let mut names: Vec<String> = all
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(END)?.to_owned()))
        .collect();
    names.sort();
    names
}

/// A difference between libvirt's answer and vmlab's.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) field: String,
    pub(super) libvirt: Option<Value>,
    pub(super) vmlab: Option<Value>,
}

/// libvirt opens tap devices itself and passes them on by number; a number for
/// each queue. A name in their place lets the answer be read like any other.
pub(super) fn with_names(answer: &str) -> String {
    let mut text = String::new();
    for line in answer.lines() {
        let mut line = line.to_owned();
        if line.starts_with("-netdev") {
            if let Some((head, tail)) = line.split_once("\"fds\":\"") {
                let (numbers, rest) = tail.split_once('"').unwrap();
                let queues = numbers.split(':').count();
                line = format!("{head}\"ifname\":\"tap0\",\"queues\":{queues}{rest}");
            }
            line = line.replace("\"fd\":", "\"ifname\":");
            for key in ["\"vhostfd\":", "\"vhostfds\":"] {
                if let Some((head, tail)) = line.split_once(key) {
                    let (_, rest) = tail[1..].split_once('"').unwrap();
                    line = format!("{}{rest}", head.trim_end_matches(','));
                }
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// What libvirt's cases say of the host's processor: the named likeness of it, with
/// its features, as `virsh domcapabilities` of the newest QEMU has it.
fn likeness(cases: &Path, accel: Accel) -> Option<String> {
    let end = match accel {
        Accel::Kvm => ".x86_64.xml",
        Accel::Tcg => "-tcg.x86_64.xml",
    };
    let version = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix("qemu_")?.strip_suffix(end)?.to_owned();
        name.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<u32>>>()
    };
    let files = std::fs::read_dir(cases.join("../domaincapsdata")).ok()?;
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let (_, newest) = files.filter_map(|path| Some((version(&path)?, path))).max()?;
    let text = std::fs::read_to_string(newest).ok()?;
    let document = roxmltree::Document::parse(&text).ok()?;
    let mode = document.descendants().find(|node| node.attribute("name") == Some("host-model"))?;
    let model = mode.children().find(|node| node.has_tag_name("model"))?.text()?;
    let features = mode.children().filter(|node| node.has_tag_name("feature"));
    // What keeps a guest from moving is there for those alone who ask for it.
    let features = features.filter(|feature| feature.attribute("name") != Some("invtsc"));
    let features = features.filter_map(|feature| {
        let sign = if feature.attribute("policy") == Some("disable") { '-' } else { '+' };
        Some(format!(",{sign}{}", feature.attribute("name")?))
    });
    Some(format!("{model}{}", features.collect::<String>()))
}

/// A case whose answer is the other host that libvirt's cases pretend to run on: it
/// asks for at least a model, and gets the host.
const OTHER_HOST: &str = "cpu-minimum1";

/// The VM with `host-model` as the likeness of the host that the answer is of.
fn on_their_host(spec: &VmSpec, cases: &Path, answer: &VmSettings) -> VmSpec {
    let mut settings = VmSettings::from(spec.clone());
    if split_cpu_model(&settings.cpu_model).0 == "host-model" {
        let file = format!("{OTHER_HOST}.x86_64-latest.args");
        let other = std::fs::read_to_string(cases.join(file)).unwrap();
        let hosts = [
            likeness(cases, settings.accel).expect("the host's likeness"),
            crate::qemu::parse(&other).unwrap().settings.cpu_model,
        ];
        let model = split_cpu_model(&answer.cpu_model).0;
        let host = hosts.iter().find(|host| split_cpu_model(host).0 == model);
        let host = host.unwrap_or(&hosts[0]);
        settings.cpu_model = settings.cpu_model.replacen("host-model", host, 1);
    }
    VmSpec::new(settings).unwrap()
}

/// The fields that a command line has, by path; disks by what they hold, since
/// libvirt sorts them.
fn fields(settings: &VmSettings) -> BTreeMap<String, Value> {
    let mut whole = serde_json::to_value(settings).unwrap();
    let members = whole.as_object_mut().unwrap();
    // Threads are pinned when they run; the rest is no property of the VM.
    for name in ["name", "pins", "scheduler", "host", "delegated", "extra_args", "boot", "arch"] {
        members.remove(name);
    }
    members.remove("kernel_cmdline");
    let (model, properties) = split_cpu_model(&settings.cpu_model);
    members.insert("cpu_model".to_owned(), model.into());
    for property in properties {
        let name = match property.name.replace('_', "-").as_str() {
            // QEMU takes both.
            "pclmuldq" => "pclmulqdq".to_owned(),
            // On by itself in the models that have it.
            "migratable" if property.switch() == Some(true) => continue,
            name => name.to_owned(),
        };
        members.insert(format!("cpu_model.{name}"), property.value.into());
    }
    let machine = settings.machine.split(',').next().unwrap_or_default();
    members.insert("machine".to_owned(), machine.into());
    members.remove("disks");
    for (number, disk) in settings.disks.iter().enumerate() {
        let mut value = serde_json::to_value(disk).unwrap();
        let source = value.as_object_mut().unwrap().remove("source").unwrap();
        // Whom the firmware asks first: libvirt numbers what `<os>` lists by kind.
        value.as_object_mut().unwrap().remove("boot_order");
        let same = settings.disks[..number].iter().filter(|one| one.source == disk.source).count();
        members.insert(format!("disks.{source}#{same}"), value);
    }
    members.remove("nics");
    for (number, nic) in settings.nics.iter().enumerate() {
        let mut value = serde_json::to_value(nic).unwrap();
        // libvirt opens devices itself and passes them on by number: the kind is
        // what can be compared.
        match &nic.backend {
            NicBackend::User => value["backend"] = "user".into(),
            NicBackend::VhostUser { .. } => {}
            _ => value["backend"] = "tap".into(),
        }
        let name = nic.mac.clone().unwrap_or_else(|| number.to_string());
        members.insert(format!("nics.{name}"), value);
    }
    let mut flat = BTreeMap::new();
    flatten(String::new(), whole, &mut flat);
    flat
}

fn flatten(path: String, value: Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            if path.starts_with("disks.") || path.starts_with("nics.") {
                into.insert(path.clone(), "is there".into());
            }
            for (name, value) in members {
                let below = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(below, value, into);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.into_iter().enumerate() {
                flatten(format!("{path}.{number}"), value, into);
            }
        }
        value => {
            into.insert(path, value);
        }
    }
}

pub(super) fn differences(libvirt: &VmSettings, vmlab: &VmSettings) -> Vec<Difference> {
    let (mut theirs, ours) = (fields(libvirt), fields(vmlab));
    let mut all: Vec<Difference> = Vec::new();
    for (field, value) in ours {
        let answer = theirs.remove(&field);
        if answer.as_ref() != Some(&value) {
            all.push(Difference { field, libvirt: answer, vmlab: Some(value) });
        }
    }
    let rest = theirs.into_iter();
    all.extend(rest.map(|(field, value)| Difference { field, libvirt: Some(value), vmlab: None }));
    all
}

#[test]
fn each_domain_of_libvirts_cases_becomes_what_libvirt_makes_of_it() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cases = match suite::libvirts_cases(folder.path()) {
        Ok(cases) => cases,
        Err(why) => return suite::skip(format!("libvirt's source: {why}")),
    };
    let names = names(&cases);
    let mut undeclared = Vec::new();
    let (mut declared, mut read, mut same, mut refused) = (0, 0, 0, 0);
    let mut by_field: BTreeMap<String, u32> = BTreeMap::new();
    for name in &names {
        let Ok(text) = std::fs::read_to_string(cases.join(format!("{name}.xml"))) else { continue };
        let answer = std::fs::read_to_string(cases.join(format!("{name}{END}"))).unwrap();
        let theirs = crate::qemu::parse(&with_names(&answer)).unwrap();
        let parsed = match parse(&text) {
            Ok(mut parsed) => parsed.remove(0),
            Err(error) => {
                undeclared.push(format!("{name}: {error}"));
                continue;
            }
        };
        let spec = match parsed.spec() {
            Ok(spec) => on_their_host(&spec, &cases, &theirs.settings),
            Err(error) if refused_by_qemu(name, &error) => {
                refused += 1;
                continue;
            }
            Err(error) => {
                undeclared.push(format!("{name}: {error}"));
                continue;
            }
        };
        read += 1;
        let emitted = emit_plain(&spec, &Capabilities::current());
        let ours = crate::qemu::parse_args(&emitted.args);
        let mut all_same = true;
        for one in differences(&theirs.settings, &ours.settings) {
            if is_excepted(name, &one, &ours.settings) {
                continue;
            }
            all_same = false;
            if is_declared(&one, &parsed, &emitted.losses) {
                declared += 1;
                let head = one.field.split('.').next().unwrap_or_default().to_owned();
                *by_field.entry(head).or_insert(0) += 1;
            } else {
                let Difference { field, libvirt, vmlab } = one;
                let show = |value: Option<Value>| value.map_or("-".to_owned(), |v| v.to_string());
                undeclared.push(format!(
                    "{name}: {field}: libvirt {} vmlab {}",
                    show(libvirt),
                    show(vmlab)
                ));
            }
        }
        same += usize::from(all_same);
    }
    println!(
        "{} cases, {read} read, {refused} that QEMU refuses, {same} the same, {declared} \
         differences declared, {} not",
        names.len(),
        undeclared.len()
    );
    println!("declared: {by_field:?}");
    assert!(undeclared.is_empty(), "{}", undeclared.join("\n"));
}

/// The path of a field with the number of its disk or interface in a VM.
pub(super) fn with_number(field: &str, settings: &VmSettings) -> String {
    let Some((head, rest)) = field.split_once('.') else { return field.to_owned() };
    let tail = rest.rsplit_once(['.', '#']).map_or("", |(_, tail)| tail);
    let of_disk = |disk: &Disk| {
        let source = serde_json::to_value(&disk.source).unwrap().to_string();
        rest.strip_prefix(&source).is_some_and(|rest| rest.starts_with('#'))
    };
    let of_nic = |(number, nic): (usize, &Nic)| {
        let name = nic.mac.clone().unwrap_or_else(|| number.to_string());
        rest == name || rest.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.'))
    };
    let number = match head {
        "disks" => settings.disks.iter().position(of_disk),
        "nics" => settings.nics.iter().enumerate().position(of_nic),
        _ => None,
    };
    number.map_or_else(|| field.to_owned(), |number| format!("{head}.{number}.{tail}"))
}

/// Answers that are none of a libvirt that runs: case, field (each that begins
/// so), and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("disk-serial", "disks.", "libvirt puts a backslash in front of each blank"),
    (
        "migrate-numa-unaligned",
        "memory_mib",
        "a VM that comes in is taken as another libvirt sent it",
    ),
    (
        "cpu-Icelake-Server-pconfig",
        "cpu_model.",
        "libvirt's own model of the same name has other features",
    ),
];

/// Domains that libvirt takes and no QEMU starts, what is said of them, and why.
const REFUSED: &[(&str, &str)] = &[
    // "memory size must be equal to or larger than page size"
    ("hugepages-numa-nodeset-part", "768 MiB, which is not made of whole huge pages of 1G"),
    // QEMU waits for ever for the second answer of a socket that serves the first one.
    ("disk-vhostuser", SERVED_TWICE),
    ("disk-vhostuser-numa", SERVED_TWICE),
];

const SERVED_TWICE: &str = "vhost-user socket of another, which serves one";

fn refused_by_qemu(name: &str, error: &InvalidVm) -> bool {
    REFUSED.iter().any(|(case, why)| *case == name && error.to_string().ends_with(why))
}

/// Whether the answer is that of libvirt's cases alone.
pub(super) fn is_excepted(name: &str, one: &Difference, vmlab: &VmSettings) -> bool {
    // They open vhost for TCG too, which libvirt's own code does not.
    let vhost = one.field.starts_with("nics.") && one.field.ends_with(".vhost");
    vhost && vmlab.accel == Accel::Tcg
        || EXCEPTIONS.iter().any(|(case, field, _)| *case == name && one.field.starts_with(field))
}

/// Whether somebody who converts is told of the difference, at that field.
fn is_declared(one: &Difference, parsed: &ParsedVm, losses: &[Loss]) -> bool {
    let is_below = |path: &str, above: &str| {
        path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))
    };
    let numbered = with_number(&one.field, &parsed.settings);
    if losses.iter().flat_map(|loss| &loss.fields).any(|field| is_below(&numbered, field)) {
        return true;
    }
    let kept = |path: &str| parsed.kept.iter().any(|kept| kept.path == path);
    let kept_with = |path: &str, word: &str| {
        parsed.kept.iter().any(|kept| kept.path.starts_with(path) && kept.text.contains(word))
    };
    let (head, rest) = one.field.split_once('.').unwrap_or((&one.field, ""));
    let (_, last) = one.field.rsplit_once('.').unwrap_or(("", &one.field));
    match head {
        "accel" => kept("/domain/@type"),
        "machine" => kept("/domain/os/type/@machine"),
        "topology" | "present_vcpus" => kept("/domain/vcpus") || kept("/domain/cpu/topology"),
        "cpu_model" if kept("/domain/cpu/@match") => true,
        "cpu_model" if rest.is_empty() => kept("/domain/cpu/@mode") || kept("/domain/cpu/model"),
        "cpu_model" if rest.ends_with("phys-bits") || rest == "host-phys-bits-limit" => {
            kept("/domain/cpu/maxphysaddr")
        }
        "cpu_model" if rest == "vendor" => kept("/domain/cpu/model/@vendor_id"),
        "cpu_model" if rest == "hv-crash" => kept("/domain/devices/panic"),
        "cpu_model" if rest.starts_with("hv-") => kept_with("/domain/features/hyperv", ""),
        "cpu_model" => {
            let name = rest.replace('-', "_");
            ["/domain/cpu/feature", "/domain/features"]
                .iter()
                .any(|path| kept_with(path, rest) || kept_with(path, &name))
        }
        "cpu_cache" => kept("/domain/cpu/cache"),
        "memory_mib" => kept("/domain/memory"),
        "memory" if kept_with("/domain/devices/video", "blob='on'") => true,
        "memory" if kept("/domain/vcpu/@placement") => true,
        "memory" => {
            let path = match last {
                "source" if kept("/domain/cpu/numa/cell/@memAccess") => return true,
                "huge_pages" | "source" | "prealloc" => "/domain/memoryBacking/hugepages/page",
                "shared" => "/domain/cpu/numa/cell/@memAccess",
                "host_nodes" | "policy" => "/domain/numatune/memory",
                _ => "/domain/memoryBacking/allocation",
            };
            kept(path)
        }
        "numa" => match last {
            "host_nodes" | "policy" => {
                kept("/domain/numatune/memnode") || kept("/domain/numatune/memory")
            }
            _ => kept("/domain/cpu/numa/cell"),
        },
        "iothreads" => kept("/domain/iothreads") || kept("/domain/iothreadids"),
        "disks" => {
            let path = rest.rsplit_once('#').map_or(rest, |(path, _)| path);
            let path = path.split('"').nth(3).unwrap_or_default();
            if path.starts_with("/dev/fdset/") {
                return kept("/domain/devices/disk/source/@fdgroup");
            }
            let attribute = match last {
                "format" => "/domain/devices/disk/driver/@type",
                "cache" => "/domain/devices/disk/driver/@cache",
                "io" => "/domain/devices/disk/driver/@io",
                "queues" => "/domain/devices/disk/driver/@queues",
                "iothread" => "/domain/devices/disk/driver/iothreads",
                "serial" => "/domain/devices/disk/serial",
                _ => "",
            };
            kept(attribute)
                || of_disk(parsed, path)
                || parsed
                    .kept
                    .iter()
                    .any(|kept| kept.path == "/domain/devices/disk" && kept.text.contains(path))
        }
        "nics" => {
            kept("/domain/devices/interface/backend")
                || parsed.kept.iter().any(|kept| {
                    let mac = rest.split('.').next().unwrap_or_default();
                    kept.path == "/domain/devices/interface"
                        && kept.text.to_lowercase().contains(mac)
                })
        }
        // Whether a network of libvirt's hands out bridges or devices is its own XML's.
        "host_devices" if one.vmlab.is_none() => {
            let of_network = |nic: &Nic| matches!(nic.backend, NicBackend::Libvirt { .. });
            let number = parsed.settings.nics.iter().position(of_network);
            let path = number.map(|number| format!("nics.{number}"));
            path.is_some_and(|path| {
                losses.iter().flat_map(|loss| &loss.fields).any(|field| is_below(field, &path))
            })
        }
        "clock" if last == "base" => kept("/domain/clock/@offset"),
        "clock" => kept_with("/domain/clock/timer", ""),
        "hints" => kept_with("/domain/features/", ""),
        _ => false,
    }
}

/// Whether something of this disk has no place in a VM: libvirt's answer has a
/// node for it that no disk of a VM is made of.
fn of_disk(parsed: &ParsedVm, path: &str) -> bool {
    let disks = &parsed.settings.disks;
    let Some(number) = disks.iter().position(|disk| match &disk.source {
        DiskSource::File(file) | DiskSource::Block(file) => file == Path::new(path),
        _ => false,
    }) else {
        return false;
    };
    // libvirt starts without it, and plugs an overlay in.
    if disks[number].transient {
        return true;
    }
    let from = parsed.line(&format!("disks.{number}")).unwrap_or(0);
    let to = parsed.line(&format!("disks.{}", number + 1)).filter(|to| *to > from);
    let nodes = ["encryption", "slices", "throttlefilters", "@copy_on_read", "@fdgroup"];
    parsed.kept.iter().any(|kept| {
        kept.line >= from
            && to.is_none_or(|to| kept.line < to)
            && nodes.iter().any(|node| kept.path.ends_with(node))
    })
}

//! libvirt's own cases, read and written again: whether a real libvirt takes what is
//! written, and says the same VM to QEMU.

use std::collections::BTreeMap;
use std::process::Command;

use suite::{Tier, needs};

use super::daemon::{asked_and_told, command_line, for_this_machine, virsh};
use super::schema::{as_known_here, installed};
use super::*;

/// libvirt's schema of domains.
const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";

/// What this machine's libvirt and QEMU refuse, and why that says nothing of what was
/// written: a part of libvirt's words, and the reason.
const REFUSED: &[(&str, &str)] = &[(
    "Host CPU does not provide required features",
    "a processor that this machine does not have",
)];

/// Where the command line can't say what it was asked for: case (each that begins so),
/// field (each that begins so), and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("qemu-ns-", "disks.", "their argument is no option: QEMU takes a word alone for a disk"),
    ("disk-serial", "disks.", "libvirt puts a backslash in front of each blank"),
    (
        "cpu-Icelake-Server-pconfig",
        "cpu_model.",
        "libvirt's own model of the same name has other features",
    ),
];

/// The VM under a machine type of this QEMU: the cases are for another one.
fn with_machine(spec: &VmSpec) -> VmSpec {
    let mut settings = VmSettings::from(for_this_machine(spec));
    let (name, rest) = match settings.machine.split_once(',') {
        Some((name, rest)) => (name, format!(",{rest}")),
        None => (settings.machine.as_str(), String::new()),
    };
    let family = match name {
        name if name.starts_with("pc-q35-") => "q35",
        name if name.starts_with("pc-") => "pc",
        name => name,
    };
    settings.machine = format!("{family}{rest}");
    VmSpec::new(settings).unwrap_or_else(|error| panic!("{}: {error}", spec.name))
}

#[test]
fn what_is_written_of_libvirts_cases_libvirt_says_to_qemu() {
    // virsh takes a turn of its own.
    if needs(Tier::Full).pcpus(1).turn().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cases = match suite::libvirts_cases(folder.path()) {
        Ok(cases) => cases,
        Err(why) => return suite::skip(format!("libvirt's source: {why}")),
    };
    let mut all = Vec::new();
    for name in oracle::names(&cases) {
        let Ok(text) = std::fs::read_to_string(cases.join(format!("{name}.xml"))) else { continue };
        // What can't be read is the other test's.
        let Some(spec) = parse(&text).ok().and_then(|parsed| parsed[0].spec().ok()) else {
            continue;
        };
        let spec = as_known_here(&with_machine(&spec));
        let file = folder.path().join(format!("{name}.xml"));
        std::fs::write(&file, emit(&spec).text).unwrap();
        all.push((name, spec, file));
    }
    let files = all.iter().map(|(_, _, file)| file);
    if installed("xmllint") && std::path::Path::new(SCHEMA).exists() {
        let checked = Command::new("xmllint")
            .args(["--noout", "--relaxng", SCHEMA])
            .args(files)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        let wrong: Vec<&str> = said.lines().filter(|line| !line.ends_with(" validates")).collect();
        assert!(checked.status.success() && wrong.is_empty(), "{}", wrong.join("\n"));
    }
    let scripts: Vec<String> = all
        .iter()
        .map(|(_, _, file)| format!("domxml-to-native qemu-argv --xml {}\n", file.display()))
        .collect();
    let Some(answers) = virsh(Tier::Full, &scripts) else { return };
    let (mut same, mut refused) = (0, BTreeMap::<&str, u32>::new());
    let mut wrong = Vec::new();
    for ((name, spec, _), answer) in all.iter().zip(&answers) {
        let losses = emit(spec).losses;
        if let Some((_, why)) = answer.split_once("error:") {
            match REFUSED.iter().find(|(words, _)| why.contains(words)) {
                Some((_, reason)) => *refused.entry(reason).or_insert(0) += 1,
                None => wrong.push(format!("{name}: refused: {}", why.trim())),
            }
            continue;
        }
        // libvirt opens tap devices itself, and names them by number.
        let line = oracle::with_names(&command_line(answer).replace(" -", "\n-"));
        let (asked, mut told) = asked_and_told(spec, &line.replace('\n', " "));
        for (told, asked) in told.nics.iter_mut().zip(&asked.nics) {
            told.mac = told.mac.take().filter(|_| asked.mac.is_some());
        }
        let lost: Vec<&str> =
            losses.iter().flat_map(|loss| &loss.fields).map(String::as_str).collect();
        let different: Vec<String> = oracle::differences(&told, &asked)
            .into_iter()
            .filter(|one| {
                let numbered = oracle::with_number(&one.field, &asked);
                let is_below = |above: &&str| {
                    let rest = numbered.strip_prefix(*above);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                let excepted = EXCEPTIONS
                    .iter()
                    .any(|(case, field, _)| name.starts_with(case) && one.field.starts_with(field));
                // libvirt makes every interface a new one of type ethernet first, and
                // leaves it model and address.
                let backend = one.field.starts_with("nics.")
                    && (one.field.contains(".backend.")
                        || ["backend", "queues", "vhost", "queue_size", "mtu", "packed"]
                            .iter()
                            .any(|last| one.field.ends_with(last)));
                !backend && !excepted && !lost.iter().any(is_below)
            })
            .map(|one| {
                format!("{name}: {}: asked {:?}, told {:?}", one.field, one.vmlab, one.libvirt)
            })
            .collect();
        same += usize::from(different.is_empty());
        wrong.extend(different);
    }
    println!("{} domains written, {same} the same, refused here: {refused:?}", all.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

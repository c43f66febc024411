//! Trials as domains of libvirt's: what a domain says beside its VM, what of a study
//! libvirt can't do, and the domains that dead runs left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use guest::Cancel;
use guest::libvirt::{LibvirtFacts, Virsh, VirshError};
use host::owner::Owner;
use topology::bounded::LineProblem;
use vmconfig::libvirt::{self, LaunchedDomain, OWNER_NAMESPACE};
use vmconfig::qemu::Channels;
use vmconfig::{BootSource, EmittedText, Loss, VmSpec};

use crate::host_settings::with_causes;
use crate::plan::StudyPlan;
use crate::shown::placeholder_channels;
use crate::study::{RunsOn, Study};

/// What all names of vmlab's domains begin with. It proves nothing: see [`OrphanDomain`].
const NAME: &str = "vmlab-";

/// How much of a run's id stands in a domain's name.
const RUN_CHARS: usize = 8;

/// The domain's name of a run's VM.
pub(crate) fn name(run_id: &str, vm: &str) -> String {
    let run: String = run_id.chars().take(RUN_CHARS).collect();
    format!("{NAME}{run}-{vm}")
}

/// The domain of a VM of `plan`.
pub(crate) fn domain(
    plan: &StudyPlan,
    libvirt: &LibvirtFacts,
    spec: &VmSpec,
    name: &str,
    channels: &Channels,
    owner: &str,
) -> EmittedText {
    // As whoever runs vmlab, who can read images and reach sockets. Of a session that
    // is so anyway; others than root have been refused the system's.
    let run_as = (libvirt.tells_users && !libvirt.uri.is_session()).then_some((0, 0));
    let emulator = Path::new(&plan.qemu.path);
    libvirt::emit_launched(spec, &LaunchedDomain { name, emulator, channels, owner, run_as })
}

/// What of a VM libvirt has no word for.
pub(crate) fn losses(spec: &VmSpec) -> Vec<Loss> {
    let mut losses = libvirt::emit(spec).losses;
    // Said in other words; a trial's domain has a name of its own.
    let same = |field: &String| field == "cpu_model" || field == "name";
    losses.retain(|loss| !loss.fields.iter().all(same));
    losses
}

/// What of a study the libvirt of its plan can't do: what it has no word for, what it
/// refuses, what needs a process that it does not start.
///
/// # Errors
/// libvirt does not answer.
pub fn refusals(
    study: &Study,
    plan: &StudyPlan,
    cancel: &Cancel,
) -> Result<Vec<LineProblem>, VirshError> {
    let Some(libvirt) = &plan.libvirt else { return Ok(Vec::new()) };
    let mut problems = Vec::new();
    for variant in plan.variants.iter().filter(|one| one.aa_of.is_none() && one.on == RunsOn::Vm) {
        let mut say = |field: &str, message: String| {
            let line = study.line_of(&variant.name, field);
            problems.push(LineProblem { line, message: format!("{}: {message}", variant.name) });
        };
        for Loss { what, why, fields } in losses(&variant.spec) {
            let field = fields.first().and_then(|path| path.split('.').next()).unwrap_or_default();
            say(field, format!("libvirt can't say {what}: {why}"));
        }
        if let Some(said) = refused(plan, libvirt, &variant.spec, cancel)? {
            say("", format!("{libvirt} refuses the domain: {said}"));
        }
    }
    for workload in &plan.workloads {
        let two = workload.under_test.other().is_some();
        if let (true, Ok((entry, _))) = (two, workload.resolve()) {
            let message = format!(
                "{}: {} needs two VMs in a network that vmlab makes and libvirt can't enter: run \
                 it without --on libvirt",
                workload.label, entry.name
            );
            problems.push(LineProblem { line: study.line_of_workload(&workload.label), message });
        }
    }
    for (load, spec) in plan.other_specs() {
        let line = study.line_of_load(load);
        let mut say = |message: String| {
            problems.push(LineProblem { line, message: format!("{load}: {message}") });
        };
        let one = plan.loads.iter().find(|one| one.name == load);
        let count = one.and_then(|one| one.vms.as_ref()).map_or(0, |vms| vms.count);
        let shared = |image: &PathBuf| {
            let under_test = plan.variants.iter().any(
                |variant| matches!(&variant.spec.boot, BootSource::Disk { image: of, .. } if of == image),
            );
            count > 1 || under_test
        };
        if let BootSource::Disk { image, .. } = &spec.boot
            && shared(image)
        {
            say(format!(
                "libvirt gives the image {} to one VM at a time: take a builtin image, or a copy",
                image.display()
            ));
        }
        for Loss { what, why, .. } in losses(spec) {
            say(format!("libvirt can't say {what}: {why}"));
        }
        if let Some(said) = refused(plan, libvirt, spec, cancel)? {
            say(format!("{libvirt} refuses the domain: {said}"));
        }
    }
    Ok(problems)
}

/// What libvirt has against a domain; nothing is defined or started.
fn refused(
    plan: &StudyPlan,
    libvirt: &LibvirtFacts,
    spec: &VmSpec,
    cancel: &Cancel,
) -> Result<Option<String>, VirshError> {
    let text = domain(plan, libvirt, spec, "vmlab-check", &placeholder_channels(), "").text;
    let asked = |path: &Path| {
        let path = path.to_string_lossy();
        let words = ["domxml-to-native", "qemu-argv", "--xml", &path];
        match Virsh::new(&libvirt.uri).ask(&words, cancel) {
            Ok(_) => Ok(None),
            Err(VirshError::Refused { said, .. }) => Ok(Some(said)),
            Err(error) => Err(error),
        }
    };
    // A file that is gone with this call.
    let file = tempfile::NamedTempFile::new().and_then(|file| {
        std::fs::write(file.path(), &text)?;
        Ok(file)
    });
    match file {
        Ok(file) => asked(file.path()),
        Err(error) => Ok(Some(format!("it can't be written down: {error}"))),
    }
}

/// A domain whose metadata name a vmlab that is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanDomain {
    /// Its name.
    pub name: String,
    /// Its UUID, by which it is meant: a name may come again.
    uuid: String,
    /// Whose it was.
    pub owner: Owner,
}

/// The domains at a libvirt that dead runs left. A domain without vmlab's metadata is
/// nobody's business here, whatever its name.
///
/// # Errors
/// libvirt does not answer.
pub fn left(virsh: &Virsh, cancel: &Cancel) -> Result<Vec<OrphanDomain>, VirshError> {
    let all = virsh.ask(&["list", "--all", "--uuid", "--name"], cancel)?;
    let mut left = Vec::new();
    let mut seen = BTreeSet::new();
    for (uuid, name) in all.lines().filter_map(|line| line.trim().split_once(char::is_whitespace)) {
        let name = name.trim();
        if !name.starts_with(NAME) || !seen.insert(uuid) {
            continue;
        }
        let words = ["metadata", uuid, "--uri", OWNER_NAMESPACE];
        let said = match virsh.ask(&words, cancel) {
            Ok(said) => said,
            // Without such metadata, or gone meanwhile.
            Err(VirshError::Refused { .. }) => continue,
            Err(error) => return Err(error),
        };
        if let Some(owner) = owner_in(&said)
            && !owner.is_alive()
        {
            left.push(OrphanDomain { name: name.to_owned(), uuid: uuid.to_owned(), owner });
        }
    }
    Ok(left)
}

/// The owner in what virsh says of a domain's metadata.
fn owner_in(said: &str) -> Option<Owner> {
    serde_json::from_str(&libvirt::owner_in(said)?).ok()
}

impl OrphanDomain {
    /// Ends the domain and forgets it.
    ///
    /// # Errors
    /// What libvirt said.
    pub fn end(&self, virsh: &Virsh, cancel: &Cancel) -> Result<(), String> {
        let uuid = self.uuid.as_str();
        let ended = virsh.ask(&["destroy", uuid], cancel);
        // A transient domain is gone by then, one that is defined is not.
        let forgotten = virsh.ask(&["undefine", uuid, "--nvram"], cancel);
        match virsh.ask(&["domstate", uuid], cancel) {
            Err(VirshError::Refused { .. }) => Ok(()),
            Err(error) => Err(with_causes(&error)),
            Ok(_) => match ended.and(forgotten) {
                Err(error) => Err(with_causes(&error)),
                Ok(_) => Err(format!("libvirt still has the domain {}", self.name)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use vmconfig::{VmSettings, libvirt::parse};

    use super::*;
    use crate::testing::plan;

    #[test]
    fn an_owner_is_read_as_libvirt_keeps_it() {
        let mut owner = Owner::current("run <1> & \"2\"").unwrap();
        owner.pid = 7;
        let facts = LibvirtFacts {
            uri: "qemu:///system".parse().unwrap(),
            version: "9.0.0".to_owned(),
            driver: "QEMU 7.2.22".to_owned(),
            tells_users: true,
        };
        let (plan, channels) = (plan(), placeholder_channels());
        let spec = &plan.variants[0].spec;
        let said = serde_json::to_string(&owner).unwrap();
        let name = name("0123456789abcdef", "trial");
        assert_eq!(name, "vmlab-01234567-trial");
        let text = domain(&plan, &facts, spec, &name, &channels, &said).text;
        // As `virsh metadata` of libvirt 9.0 prints it: without its namespace.
        let begin = text.find("<vmlab:owner").unwrap();
        let end = text.find("</vmlab:owner>").unwrap();
        let (_, kept) = text[begin..end].split_once('>').unwrap();
        assert_eq!(owner_in(&format!("<owner>{kept}</owner>\n\n")), Some(owner));
        for odd in ["", "<owner/>", "<owner>me</owner>", "<owner>{}</owner>", "owner"] {
            assert_eq!(owner_in(odd), None, "{odd}");
        }
        let read: VmSettings = parse(&text).unwrap().remove(0).settings;
        assert_eq!(read.name, "vmlab-01234567-trial");
    }

    #[test]
    fn what_libvirt_has_no_word_for_is_refused_and_spelling_is_not() {
        let plan = plan();
        let mut settings: VmSettings = (*plan.variants[0].spec).clone();
        settings.cpu_model = "max,vendor=GenuineIntel".to_owned();
        let of = |settings: &VmSettings| losses(&VmSpec::new(settings.clone()).unwrap());
        assert_eq!(of(&settings), []);
        settings.pins.vhost = Some("0".parse().unwrap());
        let found = of(&settings);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].fields, ["pins.vhost"]);
    }
}

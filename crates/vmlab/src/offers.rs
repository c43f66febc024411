//! What a host's QEMU and libvirt can do: from files, or asked here.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use guest::Cancel;
use guest::libvirt::{Virsh, VirshError};
use topology::{Host, read_description};
use vmconfig::offers::{self, Offers};

use crate::input;

#[derive(Debug, Args)]
pub(crate) struct OffersArgs {
    /// What the host's QEMU and libvirt can do: the output of `virsh domcapabilities`
    /// or `virsh capabilities`, or QMP's answers (see docs/capabilities.md); may be
    /// given again.
    #[arg(long, value_name = "FILE")]
    capabilities: Vec<PathBuf>,
    /// Ask the libvirt at this URI what it can do (qemu:///system), by virsh.
    #[arg(long, value_name = "URI", value_parser = libvirt_uri)]
    pub(crate) libvirt: Option<String>,
    /// Ask this QEMU what it can do, by QMP.
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
}

/// An address: without one, virsh would ask whichever libvirt is this user's.
pub(crate) fn libvirt_uri(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it is empty: write a URI as virsh takes it, qemu:///system".to_owned()),
        false => Ok(text.to_owned()),
    }
}

impl OffersArgs {
    /// Whether anything is to be asked or read.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn is_given(&self) -> bool {
        !self.capabilities.is_empty() || self.libvirt.is_some() || self.qemu.is_some()
    }

    /// What was said or asked, and the host where libvirt describes it; `None`
    /// without any of the options.
    ///
    /// # Errors
    /// A file that tells nothing, a libvirt or a QEMU that does not answer.
    pub(crate) fn load(&self) -> anyhow::Result<(Option<Offers>, Option<Host>)> {
        let mut texts = Vec::new();
        for path in &self.capabilities {
            let name = path.display().to_string();
            let text = input::text(path).with_context(|| format!("Cannot read {name}"))?;
            texts.push((name, text));
        }
        if let Some(uri) = &self.libvirt {
            texts.extend(ask_libvirt(uri)?);
        }
        if let Some(program) = &self.qemu {
            texts.push((program.display().to_string(), guest::ask_offers(program)?));
        }
        let (mut all, mut host): (Option<Offers>, Option<Host>) = (None, None);
        for (name, text) in texts {
            let found = offers::read(&name, &text)?;
            match &mut all {
                Some(all) => all.add(found),
                None => all = Some(found),
            }
            // A libvirt that shows no pCPUs still tells of its QEMU.
            if text.contains("<capabilities")
                && let Ok(described) = read_description(&name, text.as_bytes())
            {
                host.get_or_insert(described.into_host());
            }
        }
        Ok((all, host))
    }
}

/// A domain that runs.
pub(crate) struct ActiveDomain {
    pub(crate) name: String,
    /// As libvirt writes it, and gives it to QEMU (`-uuid`).
    pub(crate) uuid: String,
    /// What it was started as, and was changed to since.
    pub(crate) xml: String,
}

/// The domains that run at a libvirt, by name.
///
/// # Errors
/// A libvirt that does not answer.
pub(crate) fn active_domains(uri: &str) -> anyhow::Result<Vec<ActiveDomain>> {
    let (virsh, cancel) = (Virsh::new(uri), Cancel::new());
    let all = virsh.ask(&["list", "--uuid", "--name"], &cancel)?;
    let mut domains = Vec::new();
    for (uuid, name) in all.lines().filter_map(|line| line.trim().split_once(char::is_whitespace)) {
        match virsh.ask(&["dumpxml", uuid], &cancel) {
            Ok(xml) => {
                let (uuid, name) = (uuid.to_owned(), name.trim().to_owned());
                domains.push(ActiveDomain { name, uuid, xml });
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    domains.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(domains)
}

/// Whether the domain that was asked about ended meanwhile.
fn is_gone(error: &VirshError) -> bool {
    matches!(error, VirshError::Refused { said, .. } if said.contains("failed to get domain"))
}

/// The domains at a libvirt, by name: running or not, as they will be started next.
///
/// # Errors
/// A libvirt that does not answer.
pub(crate) fn domains(uri: &str) -> anyhow::Result<Vec<(String, String)>> {
    let (virsh, cancel) = (Virsh::new(uri), Cancel::new());
    let all = virsh.ask(&["list", "--all", "--uuid", "--name"], &cancel)?;
    let mut domains = Vec::new();
    for (uuid, name) in all.lines().filter_map(|line| line.trim().split_once(char::is_whitespace)) {
        // One that is gone with its end has no other configuration than its present one.
        let text = match virsh.ask(&["dumpxml", "--inactive", uuid], &cancel) {
            Err(VirshError::Refused { .. }) => virsh.ask(&["dumpxml", uuid], &cancel),
            other => other,
        };
        match text {
            Ok(text) => domains.push((name.trim().to_owned(), text)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    domains.sort();
    Ok(domains)
}

/// The machine types whose domains are asked about: all versions of one are alike.
const FAMILIES: [(&str, &[&str]); 2] = [("x86_64", &["q35", "pc"]), ("aarch64", &["virt"])];

fn ask_libvirt(uri: &str) -> anyhow::Result<Vec<(String, String)>> {
    let (asked, cancel) = (Virsh::new(uri), Cancel::new());
    let virsh = |words: &[&str]| asked.ask(words, &cancel);
    let name = |what: &str| format!("virsh -c {uri} {what}");
    let text = virsh(&["capabilities"])?;
    let offered = offers::read(&name("capabilities"), &text)?;
    let mut texts = vec![(name("capabilities"), text)];
    let Some(arch) = offered.arch.as_deref() else { return Ok(texts) };
    let families = FAMILIES.iter().find(|(of, _)| *of == arch).map_or(&[][..], |(_, all)| all);
    let accels = offered.accels.get(arch).into_iter().flatten();
    for kind in accels.map(|accel| if accel.name() == "kvm" { "kvm" } else { "qemu" }) {
        for machine in families {
            // Builds of distributions leave some out.
            if offered.machine(arch, machine).is_some_and(|found| found.is_empty()) {
                continue;
            }
            let what =
                ["domcapabilities", "--virttype", kind, "--arch", arch, "--machine", machine];
            texts.push((name(&what.join(" ")), virsh(&what)?));
        }
    }
    Ok(texts)
}

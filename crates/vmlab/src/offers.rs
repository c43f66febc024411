//! What a host's QEMU and libvirt can do: from files, or asked here.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args;
use topology::{Host, read_description};
use vmconfig::offers::{self, Offers};

#[derive(Debug, Args)]
pub(crate) struct OffersArgs {
    /// What the host's QEMU and libvirt can do: the output of `virsh domcapabilities`
    /// or `virsh capabilities`, or QMP's answers (see docs/capabilities.md); may be
    /// given again.
    #[arg(long, value_name = "FILE")]
    capabilities: Vec<PathBuf>,
    /// Ask the libvirt at this URI what it can do (qemu:///system), by virsh.
    #[arg(long, value_name = "URI")]
    libvirt: Option<String>,
    /// Ask this QEMU what it can do, by QMP.
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
}

impl OffersArgs {
    /// What was said or asked, and the host where libvirt describes it; `None`
    /// without any of the options.
    ///
    /// # Errors
    /// A file that tells nothing, a libvirt or a QEMU that does not answer.
    pub(crate) fn load(&self) -> anyhow::Result<(Option<Offers>, Option<Host>)> {
        let mut texts = Vec::new();
        for path in &self.capabilities {
            let name = path.display().to_string();
            let text = fs::read_to_string(path).with_context(|| format!("Cannot read {name}"))?;
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

/// The machine types whose domains are asked about: all versions of one are alike.
const FAMILIES: [(&str, &[&str]); 2] = [("x86_64", &["q35", "pc"]), ("aarch64", &["virt"])];

fn ask_libvirt(uri: &str) -> anyhow::Result<Vec<(String, String)>> {
    let virsh = |arguments: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new("virsh");
        command.args(["-q", "-c", uri]).args(arguments).env("LC_ALL", "C");
        let output = command.output().context("Cannot run virsh (libvirt-clients)")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("libvirt at {uri} does not tell its {}: {}", arguments[0], said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
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

//! A VM of a trial as a domain of libvirt's.

use std::fs;

use guest::libvirt::{LibvirtFacts, Virsh};
use guest::{DomainLaunch, OwnedVm};
use record::{Failure, FailureKind};
use vmconfig::VmSpec;
use vmconfig::qemu::Channels;

use super::LocalLab;
use super::failure::failure;
use crate::domains;

/// Starts the VM of `spec` as a domain; `name` tells it apart from the run's others.
/// Also the arguments that libvirt gave to QEMU.
pub(super) fn start(
    lab: &LocalLab<'_>,
    libvirt: &LibvirtFacts,
    spec: &VmSpec,
    name: &str,
    channels: Channels,
) -> Result<(OwnedVm, Vec<String>), Failure> {
    let refused = |detail: String| Failure::new(FailureKind::VmRefused, detail);
    let owner = serde_json::to_string(&lab.owner).map_err(|error| refused(error.to_string()))?;
    let name = domains::name(&lab.owner.run_id, name);
    let xml = domains::domain(lab.plan, libvirt, spec, &name, &channels, &owner).text;
    let virsh = Virsh::new(&libvirt.uri).marked(&lab.owner.env());
    let launch = DomainLaunch { virsh, name, xml, channels, start_limit: lab.boot_limit() };
    let vm = OwnedVm::start_domain(&launch, &lab.cancel).map_err(failure)?;
    let args = fs::read(format!("/proc/{}/cmdline", vm.pid())).unwrap_or_default();
    let args = args.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    let args = args.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Ok((vm, args))
}

//! The other VMs of loads: alike but for what single ones have of their own, and with what
//! a variant changes where the load follows that.

use std::collections::BTreeMap;

use topology::Host;
use vmconfig::{HostWishes, ImagePatch, VmPatch, VmSpec};

use super::Freezer;
use crate::plan::{FollowingVms, PlanOtherVm, PlanVariant};
use crate::study::{HostLoad, OtherVms, RunsOn, StudyDisk, StudyVariant, unpinned};

/// The VMs of the loads that follow no variant.
#[derive(Debug, Default)]
pub(super) struct OtherVmSpecs {
    /// Those that have nothing of their own, by load.
    pub(super) all: BTreeMap<String, VmSpec>,
    /// The others, by load and number.
    pub(super) each: BTreeMap<String, BTreeMap<u32, PlanOtherVm>>,
}

/// The images that the VMs of a load boot, but for those of variants that it follows.
pub(super) fn images(vms: &OtherVms) -> Vec<ImagePatch> {
    let own = vms.each.values().map(|own| vms.vm.overlay(own).image());
    own.chain([vms.vm.image()]).collect()
}

/// What of a variant's changes another VM has, too: not what only one VM can have, nor what
/// is the whole host's, which the variant's trials have anyway.
fn followed(changes: &VmPatch) -> VmPatch {
    VmPatch {
        pins: None,
        emulator_pin: None,
        iothread_pins: None,
        vhost_pin: None,
        host_devices: None,
        host: HostWishes::default(),
        ..changes.clone()
    }
}

impl Freezer<'_> {
    /// The other VMs of the loads that follow no variant.
    pub(super) fn other_vms(&mut self) -> OtherVmSpecs {
        let mut specs = OtherVmSpecs::default();
        let study = self.study;
        for load in &study.loads {
            let Some(vms) = load.vms.as_ref().filter(|vms| vms.follows.is_none()) else { continue };
            let whose = format!("the other VM of load {:?}", load.name);
            let (all, each) = self.vms_of_load(load, vms, "", &whose, &vms.vm);
            specs.all.extend(all.map(|vm| (load.name.clone(), vm.spec)));
            if !each.is_empty() {
                specs.each.insert(load.name.clone(), each);
            }
        }
        specs
    }

    /// Those of the loads that follow `variant`, which changes the base VM so.
    pub(super) fn following_vms(
        &mut self,
        written: &str,
        variant: &StudyVariant,
        changes: &VmPatch,
    ) -> BTreeMap<String, FollowingVms> {
        let mut following = BTreeMap::new();
        let study = self.study;
        for load in &study.loads {
            let Some(vms) = &load.vms else { continue };
            let Some(own) = &vms.follows else { continue };
            // On the host there is no VM to follow.
            let changes = match variant.on {
                RunsOn::Vm => followed(changes),
                RunsOn::Host => VmPatch::default(),
            };
            let vm = unpinned(&study.base).overlay(&changes).overlay(own);
            let whose = format!("{written}: the other VM of load {:?}", load.name);
            let (all, each) = self.vms_of_load(load, vms, written, &whose, &vm);
            following.extend(all.map(|all| (load.name.clone(), FollowingVms { all, each })));
        }
        following
    }

    /// The VMs of a load that are `vm` but for what they have of their own: one for all
    /// those that have nothing, and the others by number.
    fn vms_of_load(
        &mut self,
        load: &HostLoad,
        vms: &OtherVms,
        written: &str,
        whose: &str,
        vm: &VmPatch,
    ) -> (Option<PlanOtherVm>, BTreeMap<u32, PlanOtherVm>) {
        let name = format!("{}-other", load.name);
        let mut resolve = |name: &str, whose: &str, vm: &VmPatch| {
            let entry = workload::find(&vms.workload).ok();
            self.programs(written, &vm.image(), entry.into_iter());
            self.linux(whose, &vm.image());
            let spec = self.spec(name, written, whose, vm)?;
            self.no_devices(whose, &spec, &StudyDisk::default());
            Some(PlanOtherVm { image: vm.image().to_string(), spec })
        };
        let all = resolve(&name, whose, vm);
        let own = vms.each.iter().filter_map(|(number, own)| {
            let whose = format!("{whose}, number {number}");
            Some((*number, resolve(&format!("{name}-{number}"), &whose, &vm.overlay(own))?))
        });
        (all, own.collect())
    }
}

/// All VMs of a load are there at once, beside the one under test.
pub(super) fn memory_problem(
    host: &Host,
    load: &HostLoad,
    other_vms: &OtherVmSpecs,
    variants: &[PlanVariant],
) -> Option<String> {
    let vms = load.vms.as_ref()?;
    let of_others = |all: Option<&VmSpec>, each: Option<&BTreeMap<u32, PlanOtherVm>>| {
        let own = each.into_iter().flatten().map(|(_, vm)| vm.spec.memory_mib);
        let alike = u64::from(vms.count).saturating_sub(each.map_or(0, |each| each.len() as u64));
        let all = alike.saturating_mul(all.map_or(0, |spec| spec.memory_mib));
        own.fold(all, u64::saturating_add)
    };
    let needed = |variant: &PlanVariant| {
        let others = match variant.other_vms.get(&load.name) {
            Some(vms) => of_others(Some(&vms.all.spec), Some(&vms.each)),
            None => of_others(other_vms.all.get(&load.name), other_vms.each.get(&load.name)),
        };
        variant.specs().map(|spec| spec.memory_mib).fold(others, u64::saturating_add)
    };
    let (needed, total) = (variants.iter().map(needed).max()?, host.memory_bytes? >> 20);
    (needed > total).then(|| {
        format!(
            "Load {:?}: its VMs and the one under test need {needed} MiB of memory, this host has {total} MiB",
            load.name
        )
    })
}

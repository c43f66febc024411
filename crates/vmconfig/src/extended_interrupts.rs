//! What a VM of more than 255 vCPUs needs on x86.

use crate::cpu::HOST_MODEL;
use crate::iommu::is_q35;
use crate::{Accel, Iommu, Irqchip, SpecFinding, VmSettings, VmSpec, defaults, split_cpu_model};

/// vCPUs that an interrupt's message can name with 8 bits.
///
/// Source: Intel VT-d specification, "Interrupt Remapping"; libvirt
/// `QEMU_MAX_VCPUS_WITHOUT_EIM`.
pub const MOST_WITHOUT_EXTENDED_INTERRUPTS: u32 = 255;

impl VmSpec {
    /// The VM with what more than 255 vCPUs need on x86, and what that is; none if
    /// it lacks nothing: an IOMMU in extended interrupt mode, without which libvirt
    /// refuses it and interrupts of devices reach the first 255 alone; an interrupt
    /// controller that such an IOMMU works with; and x2APIC, without which QEMU
    /// refuses it.
    ///
    /// What no machine type of the VM can have is left as it is, for
    /// [`qemu::check`](crate::qemu::check) to tell.
    #[must_use]
    pub fn with_extended_interrupts(&self) -> Option<(Self, Vec<SpecFinding>)> {
        if self.max_vcpus() <= MOST_WITHOUT_EXTENDED_INTERRUPTS || !is_q35(self.arch, &self.machine)
        {
            return None;
        }
        let vcpus = self.max_vcpus();
        let mut settings = VmSettings::from(self.clone());
        let mut added = Vec::new();
        let mut add = |field: &str, what: &str| {
            let message = format!("added: {what}, for more than 255 vCPUs ({vcpus})");
            added.push(SpecFinding::warning(field, message));
        };
        let extended = Iommu { interrupt_remapping: Some(true), extended_interrupts: Some(true) };
        if settings.iommu != Some(extended) {
            settings.iommu = Some(extended);
            add("iommu", "an IOMMU in extended interrupt mode");
        }
        if settings.hints.irqchip != Some(Irqchip::Split) {
            settings.hints.irqchip = Some(Irqchip::Split);
            add("hints.irqchip", "irqchip \"split\"");
        }
        if !has_x2apic(&settings) {
            settings.cpu_model.push_str(",+x2apic");
            add("cpu_model", "+x2apic");
        }
        if added.is_empty() {
            return None;
        }
        // What holds together before does so with these.
        Self::new(settings).ok().map(|spec| (spec, added))
    }
}

/// Whether the CPU model has no x2APIC for sure: by name, or as QEMU's own models that
/// an emulator executes.
pub(crate) fn lacks_x2apic(vm: &VmSettings) -> bool {
    match said_of_x2apic(vm) {
        Some(on) => !on,
        None => {
            let model = split_cpu_model(&vm.cpu_model).0;
            vm.accel == Accel::Tcg && ["qemu64", "kvm64"].contains(&model)
        }
    }
}

fn said_of_x2apic(vm: &VmSettings) -> Option<bool> {
    let (_, properties) = split_cpu_model(&vm.cpu_model);
    let said = properties.iter().rev().find(|one| one.name == "x2apic");
    said.and_then(crate::CpuProperty::switch)
}

/// Whether the CPU model has x2APIC for sure: by name, because it is all that the
/// accelerator has, or because KVM has it with every model.
fn has_x2apic(vm: &VmSettings) -> bool {
    match said_of_x2apic(vm) {
        Some(on) => on,
        None => {
            let model = split_cpu_model(&vm.cpu_model).0;
            let whole = [defaults::cpu_model(Accel::Kvm), defaults::cpu_model(Accel::Tcg)];
            vm.accel == Accel::Kvm || whole.contains(&model) || model == HOST_MODEL
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::{Capabilities, emit_plain};
    use crate::{Arch, BootSource, GuestTopology, ParsedVm};

    fn many(change: impl FnOnce(&mut VmSettings)) -> VmSpec {
        let mut settings = VmSettings {
            topology: GuestTopology::of_cores(288),
            ..VmSettings::new("vm", Arch::X86_64, Accel::Kvm, BootSource::Firmware)
        };
        change(&mut settings);
        VmSpec::new(settings).unwrap()
    }

    fn added(spec: &VmSpec) -> Vec<String> {
        let added = spec.with_extended_interrupts();
        added.into_iter().flat_map(|(_, added)| added).map(|one| one.field).collect()
    }

    #[test]
    fn many_vcpus_get_what_they_lack() {
        assert_eq!(added(&many(|_| {})), ["iommu", "hints.irqchip"]);
        assert_eq!(added(&many(|vm| vm.topology = GuestTopology::of_cores(255))), [""; 0]);
        // No machine type of it has so many, and it says so itself.
        assert_eq!(added(&many(|vm| vm.machine = "pc".to_owned())), [""; 0]);
        let arm = many(|vm| (vm.arch, vm.machine) = (Arch::Aarch64, "virt".to_owned()));
        assert_eq!(added(&arm), [""; 0]);
        let named = |vm: &mut VmSettings, model: &str| {
            (vm.accel, vm.cpu_model) = (Accel::Tcg, model.to_owned());
        };
        let all = ["iommu", "hints.irqchip", "cpu_model"];
        assert_eq!(added(&many(|vm| named(vm, "qemu64"))), all);
        assert_eq!(added(&many(|vm| named(vm, "max,-x2apic"))), all);
        assert_eq!(added(&many(|vm| named(vm, "max"))), all[..2]);

        let (whole, _) = many(|vm| named(vm, "qemu64")).with_extended_interrupts().unwrap();
        assert_eq!(whole.with_extended_interrupts(), None);
        let args = emit_plain(&whole, &Capabilities::current()).args.join(" ");
        for word in ["kernel-irqchip=split", "intel-iommu,intremap=on,eim=on", "qemu64,+x2apic"] {
            assert!(args.contains(word), "{args}");
        }
        let text = crate::libvirt::emit(&whole).text;
        assert!(text.contains("<driver intremap='on' eim='on'/>"), "{text}");
        let again = |parsed: ParsedVm| parsed.spec().unwrap().with_extended_interrupts();
        assert_eq!(again(crate::libvirt::parse(&text).unwrap().remove(0)), None);
    }

    #[test]
    fn an_iommu_that_cannot_be_is_refused() {
        let check = |iommu: Iommu, change: fn(&mut VmSettings), expected: &str| {
            let mut settings = VmSettings::from(many(|vm| vm.topology.cores = 2));
            settings.iommu = Some(iommu);
            change(&mut settings);
            let found = VmSpec::new(settings).map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(found.err().unwrap_or_default(), expected);
        };
        let remaps = Iommu { interrupt_remapping: Some(true), extended_interrupts: None };
        check(Iommu::default(), |_| {}, "");
        check(remaps, |vm| vm.hints.irqchip = Some(Irqchip::Split), "");
        check(remaps, |_| {}, "iommu remaps interrupts, which needs hints.irqchip = \"split\"");
        check(
            Iommu { interrupt_remapping: Some(false), extended_interrupts: Some(true) },
            |_| {},
            "iommu has extended_interrupts without interrupt_remapping",
        );
        let pc = |vm: &mut VmSettings| vm.machine = "pc".to_owned();
        check(Iommu::default(), pc, "iommu is Intel's, which only a q35 machine has");
    }
}

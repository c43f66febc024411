//! What a guest is told about being one, and what it may do by itself.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::InvalidVm;

/// Hints to the guest and exits that it is spared. What is not set is QEMU's
/// own choice. KVM alone knows most of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hints {
    /// The guest halts and waits without leaving its pCPU, which it must have
    /// for itself. QEMU `-overcommit cpu-pm=`; libvirt and KubeVirt can't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_pm: Option<bool>,
    /// "No vCPU is ever preempted": the guest spins instead of yielding. QEMU
    /// `-cpu kvm-hint-dedicated=`, libvirt `<kvm><hint-dedicated state=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm_hint_dedicated: Option<bool>,
    /// The guest may tell KVM not to poll when it halts. QEMU `-cpu
    /// kvm-poll-control=`, libvirt `<kvm><poll-control state=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_control: Option<bool>,
    /// Ends of interrupts are written to shared memory. QEMU `-cpu
    /// kvm-pv-eoi=`, libvirt `<apic eoi=>`, KubeVirt `apic.endOfInterrupt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_eoi: Option<bool>,
    /// Spinlocks whose waiters halt. QEMU `-cpu kvm-pv-unhalt=`, libvirt
    /// `<pvspinlock state=>`, KubeVirt `pvspinlock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_spinlocks: Option<bool>,
    /// Interprocessor interrupts by hypercall. QEMU `-cpu kvm-pv-ipi=`, libvirt
    /// `<kvm><pv-ipi state=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_ipi: Option<bool>,
    /// The guest does not see KVM. QEMU `-cpu kvm=off`, libvirt and KubeVirt
    /// `<kvm><hidden state='on'>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm_hidden: Option<bool>,
    /// Performance counters. QEMU `-cpu pmu=`, libvirt `<pmu state=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pmu: Option<bool>,
    /// Who emulates interrupt controllers. QEMU `-machine kernel-irqchip=`,
    /// libvirt `<ioapic driver=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irqchip: Option<Irqchip>,
    /// Enlightenments of Hyper-V; none is "Hyper-V off". QEMU `-cpu hv-...`,
    /// libvirt and KubeVirt `<hyperv>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<BTreeSet<Enlightenment>>,
    /// Attempts before a spinning guest tells Hyper-V, from 4095 on. QEMU
    /// `-cpu hv-spinlocks=`, libvirt `<spinlocks retries=>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv_spinlocks: Option<u32>,
}

/// Who emulates the interrupt controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Irqchip {
    /// The kernel, all of them.
    Kernel,
    /// The kernel those in the processor, QEMU the rest.
    Split,
}

macro_rules! enlightenments {
    ($($name:ident, $doc:literal, $qemu:literal, $libvirt:literal, $kubevirt:expr;)*) => {
        /// An enlightenment of Hyper-V: something that the guest may ask of
        /// the hypervisor instead of the hardware.
        ///
        /// Source: QEMU `docs/system/i386/hyperv.rst`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Enlightenment { $(#[doc = $doc] $name,)* }

        impl Enlightenment {
            /// Name in QEMU, libvirt and KubeVirt.
            pub(crate) const NAMES: &[(Self, &'static str, &'static str, Option<&'static str>)] =
                &[$((Self::$name, $qemu, $libvirt, $kubevirt),)*];
        }
    };
}

enlightenments! {
    Relaxed, "No watchdog on timer interrupts.", "hv-relaxed", "relaxed", Some("relaxed");
    Vapic, "Fast access to the interrupt controller.", "hv-vapic", "vapic", Some("vapic");
    Vpindex, "vCPU numbers.", "hv-vpindex", "vpindex", Some("vpindex");
    Runtime, "Time that a vCPU ran.", "hv-runtime", "runtime", Some("runtime");
    Synic, "Synthetic interrupt controller.", "hv-synic", "synic", Some("synic");
    Stimer, "Synthetic timers.", "hv-stimer", "stimer", Some("synictimer");
    Reset, "Reset by the hypervisor.", "hv-reset", "reset", Some("reset");
    Frequencies, "Frequencies of counters.", "hv-frequencies", "frequencies", Some("frequencies");
    Reenlightenment, "Notice of a changed counter.", "hv-reenlightenment", "reenlightenment", Some("reenlightenment");
    Tlbflush, "Flush of translations.", "hv-tlbflush", "tlbflush", Some("tlbflush");
    Ipi, "Interprocessor interrupts.", "hv-ipi", "ipi", Some("ipi");
    Evmcs, "Nested VMs on Intel.", "hv-evmcs", "evmcs", Some("evmcs");
    Avic, "With hardware's virtual interrupt controller.", "hv-avic", "avic", None;
}

impl Hints {
    pub(crate) fn overlay(self, over: Self) -> Self {
        crate::overlay_fields!(
            self,
            over,
            cpu_pm,
            kvm_hint_dedicated,
            poll_control,
            pv_eoi,
            pv_spinlocks,
            pv_ipi,
            kvm_hidden,
            pmu,
            irqchip,
            hyperv,
            hyperv_spinlocks
        )
    }

    pub(crate) fn normalise(&mut self) {
        if self.hyperv.as_ref().is_some_and(BTreeSet::is_empty) {
            self.hyperv = None;
        }
        self.cpu_pm = self.cpu_pm.filter(|on| *on);
        self.kvm_hidden = self.kvm_hidden.filter(|on| *on);
    }

    pub(crate) fn check(&self) -> Result<(), InvalidVm> {
        let has = |one: Enlightenment| self.hyperv.as_ref().is_some_and(|all| all.contains(&one));
        let refuse = |message: String| Err(InvalidVm::Contradiction { field: "hints", message });
        for (one, needs) in [
            (Enlightenment::Synic, Enlightenment::Vpindex),
            (Enlightenment::Stimer, Enlightenment::Synic),
            (Enlightenment::Tlbflush, Enlightenment::Vpindex),
            (Enlightenment::Ipi, Enlightenment::Vpindex),
            (Enlightenment::Evmcs, Enlightenment::Vapic),
        ] {
            if has(one) && !has(needs) {
                return refuse(format!("has hyperv {one:?}, which needs {needs:?}").to_lowercase());
            }
        }
        if self.hyperv_spinlocks.is_some_and(|attempts| attempts < 4095) {
            return refuse("has hyperv_spinlocks below 4095".to_owned());
        }
        Ok(())
    }
}

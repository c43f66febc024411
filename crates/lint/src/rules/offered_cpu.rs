//! The processor model and its features against what the host's QEMU can do.

use std::collections::BTreeSet;

use vmconfig::Accel;
use vmconfig::offers::{CpuModels, Offers};
use vmconfig::source::Span;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, qemu, xml, yaml};
use crate::rules::worlds::{OFFERS, OFFERS_OF_QEMU};
use crate::vm::Vm;

const DOMAIN_CAPABILITIES: &str = "https://libvirt.org/formatdomaincaps.html#cpu-configuration";
const CPU: &str = "https://libvirt.org/formatdomain.html#cpu-model-and-topology";
const QMP: &str =
    "https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html (query-cpu-definitions)";

/// What a host offers to VMs like this one.
#[derive(Clone, Copy)]
pub(super) struct CpuOffer<'a> {
    pub(super) offers: &'a Offers,
    pub(super) arch: &'a str,
    pub(super) accel: Accel,
}

/// `None` where nothing is known of the host, or the VM is none of QEMU's.
pub(super) fn here<'a>(vm: &'a Vm, context: &'a Context) -> Option<CpuOffer<'a>> {
    let offers = context.offers.as_ref()?;
    let arch = vm.arch.as_ref().map(|at| at.value.as_str()).or(offers.arch.as_deref())?;
    let accel = match vm.accel.value.as_str() {
        "kvm" => Accel::Kvm,
        "tcg" => Accel::Tcg,
        _ => return None,
    };
    // What runs was able to start.
    vm.live.is_none().then_some(CpuOffer { offers, arch, accel })
}

pub(crate) const CPU_NOT_USABLE: Rule = Rule {
    id: "cpu-not-usable",
    severity: Severity::Error,
    summary: "the host does not have the processor model, or a feature that must be there",
    why: "libvirt compares the guest's processor with the host's before it starts a domain of KVM, \
          and QEMU does with enforce: what is asked for and missing is an error. Microcode that \
          switched TSX off, nested virtualization that is not there, or an older processor is \
          enough.",
    mend: "Name a model that virsh domcapabilities calls usable, take away the features that are \
           missing (<feature policy='disable' name='...'/>), or use host-model",
    sources: &[DOMAIN_CAPABILITIES, CPU, QMP],
    affected: &[],
    check: Check::Vm(cpu_not_usable),
    fires: &[
        xml(OFFERS, "<vcpu>1</vcpu>\n<cpu mode='custom'><model>Skylake-Client</model></cpu>\n")
            .mended(&[("Skylake-Client", "Skylake-Client-noTSX-IBRS")]),
        xml(
            OFFERS,
            "<vcpu>1</vcpu>\n<cpu mode='host-model'><feature policy='require' name='mpx'/></cpu>\n",
        ),
        xml(OFFERS, "<vcpu>1</vcpu>\n<cpu mode='maximum'/>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu Skylake-Client,enforce"),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu Diamondlake"),
        yaml(OFFERS, "domain:\n  cpu:\n    model: Skylake-Client\n  devices: {}\n"),
    ],
    quiet: &[
        xml(
            OFFERS,
            "\
<vcpu>1</vcpu>
<cpu mode='custom'><model>Skylake-Client</model>
  <feature policy='disable' name='hle'/><feature policy='disable' name='rtm'/></cpu>
",
        ),
        xml(
            OFFERS,
            "<vcpu>1</vcpu>\n<cpu mode='custom' check='none'><model>Skylake-Client</model></cpu>\n",
        ),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu Skylake-Client,-hle,-rtm,enforce"),
        yaml(OFFERS, "domain:\n  cpu:\n    model: Skylake-Client-noTSX-IBRS\n  devices: {}\n"),
    ],
};

fn cpu_not_usable(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(here) = here(vm, context) else { return };
    if let Some(mode) = vm.asks.model.as_ref().filter(|_| vm.format == ConfigFormat::Libvirt) {
        let key = format!("cpu.{}", mode.value);
        let mut kinds = here.offers.domains.iter();
        let kind = kinds.find(|kind| kind.arch == here.arch && kind.accel == here.accel);
        if kind.is_some_and(|kind| kind.supported.get(&key) == Some(&false)) {
            let message = format!("Domains like this one can't have mode='{}' here", mode.value);
            out.at(mode.span, message);
        }
    }
    for lack in lacks(vm, here) {
        if lack.stops {
            lack.say(out, "");
        }
    }
}

pub(crate) const CPU_INCOMPLETE: Rule = Rule {
    id: "cpu-incomplete",
    severity: Severity::Warning,
    summary: "the guest's processor will lack features of its model",
    why: "Without enforce, or with check='none', QEMU leaves out what the host does not have: the \
          guest starts, without instructions that its software may be fast by, and after a \
          migration to a host that has them it is another VM than one started there. libvirt may \
          take another model in the place of one that its QEMU does not have.",
    mend: "Name a model that the host has, or use the host's own (-cpu host, host-model); with \
           enforce, or check='full', what is missing is told",
    sources: &[
        "https://www.qemu.org/docs/master/system/qemu-cpu-models.html",
        CPU,
        DOMAIN_CAPABILITIES,
    ],
    affected: &[],
    check: Check::Vm(cpu_incomplete),
    fires: &[
        xml(
            OFFERS,
            "<vcpu>1</vcpu>\n<cpu mode='custom' check='none'><model>Skylake-Client</model></cpu>\n",
        ),
        xml(OFFERS, "<vcpu>1</vcpu>\n<cpu mode='custom'><model>Diamondlake</model></cpu>\n"),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu Skylake-Client"),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu host,+rtm"),
    ],
    quiet: &[
        xml(
            OFFERS,
            "\
<vcpu>1</vcpu>
<cpu mode='host-model'><feature policy='optional' name='rtm'/></cpu>
",
        ),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu Skylake-Client,-hle,rtm=off"),
        qemu(OFFERS_OF_QEMU, "kvm -m 1G -cpu host,+x2apic"),
    ],
};

fn cpu_incomplete(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(here) = here(vm, context) else { return };
    for lack in lacks(vm, here) {
        if !lack.stops {
            lack.say(out, ", and starts without");
        }
    }
}

/// Something of the processor that the host does not have.
struct Lack<'a> {
    span: Span,
    /// Whether the VM does not start then.
    stops: bool,
    what: LackKind<'a>,
}

enum LackKind<'a> {
    /// Nobody here knows the model.
    Unknown(&'a str),
    /// The model's features, where they are known.
    Model(&'a str, BTreeSet<&'a str>),
    Feature(&'a str),
}

impl Lack<'_> {
    fn say(&self, out: &mut Drafts, what_then: &str) {
        match &self.what {
            LackKind::Unknown(model) => {
                out.at(self.span, format!("The processor model {model} is not there"));
            }
            LackKind::Feature(name) => {
                let message = format!("The VM asks for {name}, which is not there{what_then}");
                out.at(self.span, message);
            }
            LackKind::Model(model, blockers) => {
                let draft = out.at(
                    self.span,
                    format!(
                        "The host can't be a {model}{what_then}{}",
                        match what_then {
                            "" => "",
                            _ => " what is missing",
                        }
                    ),
                );
                if blockers.is_empty() {
                    draft.note(
                        "which features are missing is not told by this libvirt; QEMU's \
                                query-cpu-definitions tells",
                    );
                } else {
                    let names: Vec<&str> = blockers.iter().copied().collect();
                    draft.note(format!("missing: {}", names.join(", ")));
                }
            }
        }
    }
}

fn lacks<'a>(vm: &'a Vm, here: CpuOffer<'a>) -> Vec<Lack<'a>> {
    let asks = &vm.asks;
    let known: Vec<&CpuModels> = here.offers.cpus(here.arch, here.accel).collect();
    let mut lacks = Vec::new();
    if let Some(model) = &asks.model {
        let name = model.value.as_str();
        let is_mode = matches!(
            name,
            "host-passthrough" | "host-model" | "maximum" | "host" | "max" | "help" | "base"
        );
        // Each program knows best what it does itself.
        let own = |cpus: &&&CpuModels| cpus.of_libvirt != vm.is_command();
        let found = known.iter().filter(own).chain(&known).find_map(|cpus| cpus.models.get(name));
        let lists = known.iter().find(own).is_some_and(|cpus| !cpus.models.is_empty());
        let mut lack = |stops, what| lacks.push(Lack { span: model.span, stops, what });
        match found {
            _ if is_mode => {}
            None if lists => {
                lack(vm.is_command() || asks.no_fallback, LackKind::Unknown(name));
            }
            Some(found) if found.usable == Some(false) => {
                let of_all = known.iter().filter_map(|cpus| cpus.models.get(name));
                let told: BTreeSet<&str> =
                    of_all.flat_map(|model| &model.blockers).map(String::as_str).collect();
                let left: BTreeSet<&str> =
                    told.iter().copied().filter(|name| !asks.disabled.contains(*name)).collect();
                // Where the blockers are not told, those may be all that were taken away.
                if !left.is_empty() || told.is_empty() && asks.disabled.is_empty() {
                    lack(asks.exact, LackKind::Model(name, left));
                }
            }
            _ => {}
        }
    }
    for feature in &asks.features {
        if known.iter().any(|cpus| cpus.missing.contains(&feature.value)) {
            let what = LackKind::Feature(&feature.value);
            lacks.push(Lack { span: feature.span, stops: asks.exact, what });
        }
    }
    lacks
}

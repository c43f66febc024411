//! Whether KVM counted what the guest did.
//!
//! Source: Linux `arch/x86/kvm/x86.c` (`kvm_vcpu_stats_desc`) and where each is
//! counted; `Documentation/virt/kvm/api.rst`, `KVM_GET_STATS_FD`.

use schemars::JsonSchema;
use serde::Serialize;

use super::{BootPrice, Price};

/// What the guest's own lines and the host's looks at it cost beside the operation:
/// at the least so many of each.
const LEAST_FLOOR: f64 = 32.0;
/// What may come between, as a share of what is counted: ticks of the host.
const FLOOR_SHARE: f64 = 0.02;

/// What KVM says to the guest's count.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kvm", rename_all = "kebab-case")]
pub enum Agreement {
    /// The counts are the same within the noise floor.
    Agrees {
        /// KVM's counter.
        counter: &'static str,
    },
    /// They are not.
    Differs(Disagreement),
    /// KVM has no counter for it, none could be read, or there is no boot.
    NotCounted,
}

/// Counts that are not the same.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Disagreement {
    /// KVM's counter.
    pub counter: &'static str,
    /// What the guest did, in the first boot that differs.
    pub guest: f64,
    /// What KVM counted, of all exits without those that have another cause.
    pub found: f64,
    /// How far they may be apart.
    pub floor: f64,
}

/// KVM's counter of what an operation is made of, where it has one.
pub(super) fn counter(arch: &str, operation: &str) -> Option<&'static str> {
    if arch == "aarch64" {
        // Linux `arch/arm64/kvm/handle_exit.c` and `mmio.c`.
        return Some(match operation {
            "sysreg-trap" | "blk-poll" | "net-poll" => "kvm.exits",
            "hypercall" => "kvm.hvc_exit_stat",
            "mmio-kernel" => "kvm.mmio_exit_kernel",
            "mmio-qemu" => "kvm.mmio_exit_user",
            "timer-halt" | "timer-sleep" | "ipi-halt" | "ipi-broadcast" | "sem-halt"
            | "blk-irq" | "net-irq" => "kvm.wfi_exit_stat",
            _ => return None,
        });
    }
    Some(match operation {
        "cpuid" | "msr-read" | "msr-write" | "mmio-kernel" | "blk-poll" | "net-poll" => "kvm.exits",
        "hypercall" => "kvm.hypercalls",
        "irq-window" => "kvm.irq_window_exits",
        "pio-kernel" | "pio-qemu" => "kvm.io_exits",
        "mmio-qemu" => "kvm.mmio_exits",
        "timer-halt" | "timer-sleep" | "ipi-halt" | "ipi-broadcast" | "sem-halt" | "blk-irq"
        | "net-irq" => "kvm.halt_exits",
        _ => return None,
    })
}

/// Whether the host may count more than the guest makes: its interrupts, while the guest
/// only looks whether a device is through.
fn may_be_more(operation: &str) -> bool {
    ["blk-poll", "net-poll"].contains(&operation)
}

/// KVM's counter for an operation, and how many of it the guest makes.
fn expected(arch: &str, price: &Price, boot: &BootPrice) -> Option<(&'static str, f64)> {
    let counter = counter(arch, &price.operation)?;
    // An interrupt that comes while its vCPU is about to halt ends that halt in
    // the guest, without an exit.
    let made = match counter {
        "kvm.halt_exits" | "kvm.wfi_exit_stat" => boot.hlts as f64,
        _ => f64::from(price.n) * f64::from(price.batch),
    };
    Some((counter, made))
}

/// What KVM counted by an operation's counter. Of all exits those are taken off that it counts
/// by causes which the operation has not: the host's own interrupts, which are as many as
/// the phase is long, and the guest's looks at its serial line.
fn counted(operation: &str, boot: &BootPrice, counter: &str) -> Option<f64> {
    let count = |name: &str| boot.kvm.get(name).copied();
    let all = count(counter)?;
    // A device may be told by any exit.
    if counter != "kvm.exits" || may_be_more(operation) {
        return Some(all);
    }
    // On arm64 the serial line is memory, and interrupts have no counter.
    let others = ["kvm.irq_exits", "kvm.io_exits", "kvm.mmio_exit_user"];
    Some((all - others.into_iter().filter_map(count).sum::<f64>()).max(0.0))
}

pub(super) fn of(arch: &str, price: &Price, empty: Option<&Price>) -> Agreement {
    let mut agreed = None;
    for boot in price.boots.iter().filter(|boot| !boot.kvm.is_empty()) {
        let Some((counter, guest)) = expected(arch, price, boot) else {
            return Agreement::NotCounted;
        };
        let found = counted(&price.operation, boot, counter).unwrap_or(0.0);
        let empty = empty.into_iter().flat_map(|price| &price.boots);
        let noise =
            empty.filter_map(|boot| counted(&price.operation, boot, counter)).fold(0.0, f64::max);
        let floor = LEAST_FLOOR.max(2.0 * noise).max(FLOOR_SHARE * guest);
        let is_more = found > guest && may_be_more(&price.operation);
        if (found - guest).abs() > floor && !is_more {
            return Agreement::Differs(Disagreement { counter, guest, found, floor });
        }
        agreed = Some(Agreement::Agrees { counter });
    }
    agreed.unwrap_or(Agreement::NotCounted)
}

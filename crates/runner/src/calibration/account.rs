//! Which of KVM's counters is paid at which of the thin guest's prices, and
//! whether a price list is of a study's host.
//!
//! Each event is in one kind only. An IPI wakes a halted vCPU as long as there are
//! wake-ups; of what is left, IPIs went to running vCPUs and wake-ups came from
//! timers and devices. An operation's exits, as KVM counted them when its price was
//! taken, are its own; exits beyond all of those are paid like those that KVM handles by
//! itself, of which a CPUID is the cheapest.
//!
//! A halt is one of two things: KVM polls until it is over, or the vCPU's thread sleeps and
//! is woken. Halts have one price, in which as many slept as KVM counted when it was taken;
//! what slept beyond those costs what a timer's halt that is too long for a poll costs more
//! than one that is not.
//!
//! Where exits were counted by reason those of a kind that has a price of its own are paid
//! at that: CPUIDs, readings and writings of model-specific registers, device memory that KVM
//! handles by itself. The local APIC's registers and its timer's belong to IPIs, halts and
//! timers, whose prices hold them.
//!
//! Source: Linux `arch/x86/kvm/x86.c` (`kvm_vcpu_stats_desc`) and where each is
//! counted: `halt_exits` in `kvm_emulate_halt_noskip`, `mmio_exits` on the way to
//! user space in `x86_emulate_instruction`, `io_exits` in `io_interception` and
//! `handle_io`, `hypercalls` in `kvm_emulate_hypercall`, `pf_taken` in
//! `kvm_mmu_do_page_fault`, where an access to a device that is known as such does not
//! come, and `pf_fixed` and `pf_emulate` behind it, `exits` in `vcpu_enter_guest`;
//! `halt_successful_poll` in `kvm_vcpu_halt` (`virt/kvm/kvm_main.c`). On arm64
//! `arch/arm64/kvm/handle_exit.c` (`hvc_exit_stat`, `wfi_exit_stat`), `mmio.c`
//! (`mmio_exit_user`, `mmio_exit_kernel`) and `arm.c` (`exits`).

use std::collections::BTreeMap;

use record::{CounterSet, Environment};
use report::{NoPrice, PricedEvent, UnfitPrices};
use stats::Estimate;
use topology::Host;
use vmconfig::Arch;

use super::{Calibration, Count, Price, agreement, measure};
use crate::plan::StudyPlan;

/// A kind of event and the operation that has its price. What KVM must have counted
/// when that was measured is `agreement::counter`'s to say.
const PRICED: &[(PricedEvent, &str)] = &[
    (PricedEvent::IpiToHalted, "ipi-halt"),
    (PricedEvent::IpiToRunning, "ipi-spin"),
    (PricedEvent::Wakeup, SHORT_HALT),
    (PricedEvent::Sleep, "timer-sleep"),
    (PricedEvent::DeviceMemory, "mmio-qemu"),
    (PricedEvent::Port, "pio-qemu"),
    (PricedEvent::Hypercall, "hypercall"),
    (PricedEvent::PageFault, "page-fill-4k"),
    (PricedEvent::Cpuid, "cpuid"),
    (PricedEvent::MsrRead, "msr-read"),
    (PricedEvent::MsrWrite, "msr-write"),
    (PricedEvent::KernelMemory, "mmio-kernel"),
];

/// Halts that KVM polls to their end, if it polls at all.
const SHORT_HALT: &str = "timer-halt";

/// The events that are halts.
const HALTS: [PricedEvent; 2] = [PricedEvent::IpiToHalted, PricedEvent::Wakeup];

/// Operations whose exits KVM handles by itself, the cheapest first, whose price is the least:
/// what an exit costs of which nobody knows why it was lies between these.
fn in_kernel(arch: &str) -> &'static [&'static str] {
    if arch == Arch::Aarch64.name() {
        &["sysreg-trap", "self-ipi", "mmio-kernel"]
    } else {
        &["cpuid", "msr-read", "msr-write", "self-ipi", "mmio-kernel"]
    }
}
/// Fewer of them say nothing of how they differ.
const LEAST_KINDS: usize = 3;

/// An operation is an event's price if KVM counted the event for so many of them.
const LEAST_PART: f64 = 0.5;

const NS_PER_S: f64 = crate::results::NS_PER_S;

/// IPIs between vCPUs: as the guest counts them, which knows of those too that the
/// processor delivers without KVM; else as KVM does.
fn ipis(counters: &CounterSet) -> Option<f64> {
    const GUEST: [&str; 2] = ["guest.ipi_reschedule", "guest.ipi_call_function"];
    const KVM: &str = "kvm.ipis.";
    let of_guest: Option<f64> = GUEST.iter().map(|name| counters.get(name)).sum();
    let of_kvm = || {
        let all = counters.0.iter().filter(|(name, _)| name.starts_with(KVM));
        let counted = counters.counted("kvm.ipis.0xfd").is_some();
        counted.then(|| all.map(|(_, count)| count).sum())
    };
    of_guest.or_else(of_kvm)
}

impl Calibration {
    /// Why this list says nothing of the study that `plan` is; empty if it does.
    #[must_use]
    pub fn unfit_for(&self, plan: &StudyPlan, host: &Host) -> Vec<UnfitPrices> {
        let study = plan.environment();
        let list = self.environment;
        // Where the clock counts instructions they are shown as what they are.
        let emulated = [list, study]
            .into_iter()
            .find(|environment| environment.is_emulated_time() && !environment.is_deterministic());
        if let Some(environment) = emulated {
            return vec![UnfitPrices::EmulatedTime { environment }];
        }
        if list != study {
            return vec![UnfitPrices::OtherEnvironment { list, study }];
        }
        let mut why = self.other_facts(plan, host);
        let mut boots = self.prices.iter().flat_map(|price| &price.boots);
        if self.is_software_kvm() {
            why.push(UnfitPrices::SoftwareKvm);
        } else if boots.all(|boot| boot.kvm.is_empty()) {
            why.push(UnfitPrices::NotCounted);
        }
        if self.seconds_of_count().is_none() {
            why.push(UnfitPrices::NoClock);
        }
        why
    }

    /// Seconds in a unit of [`Calibration::count`]; an instruction is 1 ns where the
    /// clock of the whole host counts them.
    fn seconds_of_count(&self) -> Option<f64> {
        match self.count {
            Count::Instructions => {
                (self.environment == Environment::InstructionCounted).then_some(1.0 / NS_PER_S)
            }
            Count::Cycles => self.ns_of_count().map(|ns| ns / NS_PER_S),
        }
    }

    /// How many of `counter` KVM counted for one operation, beyond what it counts
    /// when nothing is done; the mean of the boots.
    fn counted_each(&self, price: &Price, counter: &str) -> f64 {
        let mean = |price: &Price| {
            let boots = price.boots.iter().map(|boot| boot.kvm.get(counter).copied());
            let sum: f64 = boots.map(Option::unwrap_or_default).sum();
            sum / (price.boots.len().max(1) as f64)
        };
        let empty = self.price(measure::EMPTY).map_or(0.0, mean);
        let done = f64::from(price.n) * f64::from(price.batch);
        ((mean(price) - empty) / done.max(1.0)).max(0.0)
    }

    /// The operation that has the price of `event`.
    #[must_use]
    pub fn operation_of(&self, event: PricedEvent) -> &'static str {
        let least = in_kernel(&self.arch)[0];
        PRICED.iter().find(|row| row.0 == event).map_or(least, |row| row.1)
    }

    /// KVM's counter of halts.
    fn halt_counter(&self) -> &'static str {
        if self.is_of_arm64() { "kvm.wfi_exit_stat" } else { "kvm.halt_exits" }
    }

    fn is_of_arm64(&self) -> bool {
        self.arch == Arch::Aarch64.name()
    }

    /// What an event costs, s.
    ///
    /// # Errors
    /// [`NoPrice`].
    pub fn price_of(&self, event: PricedEvent) -> Result<Estimate, NoPrice> {
        if event == PricedEvent::OtherExit
            && let Some(found) = self.price_of_any_exit()
        {
            return Ok(found);
        }
        let operation = self.operation_of(event);
        let price = self.price(operation).ok_or(NoPrice::NotMeasured)?;
        if event == PricedEvent::Sleep {
            return self.price_of_a_sleep(price);
        }
        let counter = match event {
            // That of arm64 counts no faults.
            PricedEvent::PageFault if self.is_of_arm64() => Some("kvm.exits"),
            PricedEvent::PageFault => Some("kvm.pf_fixed"),
            _ => agreement::counter(&self.arch, operation),
        };
        let found = self.estimate_of_many(price).zip(self.seconds_of_count());
        let (found, scale) = found.ok_or(NoPrice::NotMeasured)?;
        if counter.is_some_and(|counter| self.counted_each(price, counter) < LEAST_PART) {
            return Err(NoPrice::NotTheEvent);
        }
        let interval = found.interval.map(|interval| interval.map(|count| count * scale));
        Ok(Estimate { centre: found.centre * scale, interval, ..found })
    }

    /// Halts of one operation in which KVM did not poll until it was over.
    fn sleeps_each(&self, price: &Price) -> f64 {
        let [halts, polled] =
            [self.halt_counter(), POLLED].map(|counter| self.counted_each(price, counter));
        (halts - polled).max(0.0)
    }

    /// What a halt costs more if its vCPU sleeps, s: by how much `long` halts, which KVM does
    /// not poll to their end, are over later than short ones.
    fn price_of_a_sleep(&self, long: &Price) -> Result<Estimate, NoPrice> {
        let short = self.price(SHORT_HALT).ok_or(NoPrice::NotMeasured)?;
        let sleeps = self.sleeps_each(long) - self.sleeps_each(short);
        if sleeps < LEAST_PART {
            return Err(NoPrice::NotTheEvent);
        }
        let pairs = self.means(long).into_iter().zip(self.means(short));
        let each: Vec<f64> = pairs.map(|(long, short)| (long - short).max(0.0) / sleeps).collect();
        let found = super::estimate_of(&each).zip(self.seconds_of_count());
        let (found, scale) = found.ok_or(NoPrice::NotMeasured)?;
        let interval = found.interval.map(|interval| interval.map(|count| count * scale));
        Ok(Estimate { centre: found.centre * scale, interval, ..found })
    }

    /// What an exit costs that KVM handles by itself, s: the mean of the kinds that were
    /// measured, as sure as one more kind would be (all of a run's may be of one). None
    /// if too few were.
    fn price_of_any_exit(&self) -> Option<Estimate> {
        let each = |name: &&str| {
            let price = self.price(name)?;
            let exits = self.counted_each(price, "kvm.exits");
            let cost = self.estimate_of_many(price)?.centre;
            (exits >= LEAST_PART && cost > 0.0).then_some(cost / exits)
        };
        let kinds: Vec<f64> = in_kernel(&self.arch).iter().filter_map(each).collect();
        if kinds.len() < LEAST_KINDS {
            return None;
        }
        let (found, scale) = super::estimate_of(&kinds).zip(self.seconds_of_count())?;
        let of_one_more = (f64::from(found.boots) + 1.0).sqrt();
        let widen = |interval: stats::Interval| {
            let width = |end: f64| found.centre * (end / found.centre).powf(of_one_more);
            interval.map(|end| width(end) * scale)
        };
        Some(Estimate {
            centre: found.centre * scale,
            interval: found.interval.map(widen),
            spread: found.spread.map(|spread| spread * of_one_more),
            ..found
        })
    }

    /// How many events of each kind the counters of a run tell of; what was not
    /// counted is absent.
    #[must_use]
    pub fn events(&self, counters: &CounterSet) -> BTreeMap<PricedEvent, f64> {
        let mut events = BTreeMap::new();
        let halts = counters.get(self.halt_counter());
        // On arm64 those for that reason are WFEs, too.
        let by_reason = || counters.counted("kvm.exits.hlt").filter(|_| !self.is_of_arm64());
        let halts = halts.or_else(by_reason);
        let ipis = ipis(counters);
        if let Some(ipis) = ipis {
            let woken = ipis.min(halts.unwrap_or(0.0));
            events.insert(PricedEvent::IpiToHalted, woken);
            events.insert(PricedEvent::IpiToRunning, ipis - woken);
        }
        if let Some(halts) = halts {
            events.insert(PricedEvent::Wakeup, halts - halts.min(ipis.unwrap_or(0.0)));
        }
        if self.is_of_arm64() {
            self.add_of_arm64(counters, &mut events);
        } else {
            self.add_of_x86(counters, &mut events);
        }
        if let Some(exits) = counters.get(EXITS) {
            let others = exits - self.own(&events, EXITS);
            events.insert(PricedEvent::OtherExit, others);
        }
        // It is no exit of its own.
        if let Some((halts, polled)) = halts.zip(counters.get(POLLED)) {
            let own = |event: PricedEvent| {
                let price =
                    self.price(self.operation_of(event)).filter(|_| self.price_of(event).is_ok());
                let each = price.map_or(0.0, |price| self.sleeps_each(price));
                each * events.get(&event).copied().unwrap_or(0.0)
            };
            let others = halts - polled - HALTS.map(own).iter().sum::<f64>();
            events.insert(PricedEvent::Sleep, others);
        }
        events
    }

    fn add_of_x86(&self, counters: &CounterSet, events: &mut BTreeMap<PricedEvent, f64>) {
        let hypercalls = counters.get("kvm.hypercalls").map(|all| {
            // Those are IPIs.
            all - counters.counted("kvm.hypercalls.send_ipi").unwrap_or(0.0)
        });
        let counted = [
            (PricedEvent::DeviceMemory, counters.get("kvm.mmio_exits")),
            (PricedEvent::Port, counters.get("kvm.io_exits")),
            (PricedEvent::PageFault, counters.get("kvm.pf_fixed")),
            (PricedEvent::Hypercall, hypercalls),
            (PricedEvent::Cpuid, counters.counted("kvm.exits.cpuid")),
            (PricedEvent::MsrRead, of_msrs(counters, "kvm.msr_reads.")),
            (PricedEvent::MsrWrite, of_msrs(counters, "kvm.msr_writes.")),
            (PricedEvent::KernelMemory, kernel_memory(counters)),
        ];
        let is_paid = |event: PricedEvent| {
            let by_reason = [
                PricedEvent::Cpuid,
                PricedEvent::MsrRead,
                PricedEvent::MsrWrite,
                PricedEvent::KernelMemory,
            ];
            // Without a price of their own they are of those that nobody knows.
            !by_reason.contains(&event) || self.price_of(event).is_ok()
        };
        let counted = counted.into_iter().filter(|(event, _)| is_paid(*event));
        events.extend(counted.filter_map(|(event, count)| Some((event, count?))));
    }

    fn add_of_arm64(&self, counters: &CounterSet, events: &mut BTreeMap<PricedEvent, f64>) {
        const KERNEL: &str = "kvm.mmio_exit_kernel";
        let [user, kernel] = ["kvm.mmio_exit_user", KERNEL].map(|name| counters.get(name));
        // Stage 2's aborts are faults, or accesses to devices.
        let aborts: Option<f64> = ["kvm.exits.dabt_low", "kvm.exits.iabt_low"]
            .map(|reason| counters.counted(reason))
            .into_iter()
            .sum();
        let faults = aborts.zip(user.zip(kernel)).map(|(all, (user, kernel))| all - user - kernel);
        // With GICv2 an IPI writes to the distributor, which is in its price.
        let of_ipis = self.own(events, KERNEL);
        let counted = [
            (PricedEvent::DeviceMemory, user),
            (PricedEvent::KernelMemory, kernel.map(|all| all - of_ipis)),
            (PricedEvent::Hypercall, counters.get("kvm.hvc_exit_stat")),
            (PricedEvent::PageFault, faults),
        ];
        events.extend(counted.into_iter().filter_map(|(event, count)| Some((event, count?))));
    }

    /// How many of `counter` belong to these events.
    fn own(&self, events: &BTreeMap<PricedEvent, f64>, counter: &str) -> f64 {
        events.iter().map(|(event, count)| count * self.each_of(*event, counter)).sum()
    }

    /// How many of `counter` belong to one event: as many as KVM counted when its price was
    /// taken. What has no price is one exit, as it can't be the cheapest.
    fn each_of(&self, event: PricedEvent, counter: &str) -> f64 {
        let price = self.price(self.operation_of(event)).filter(|_| self.price_of(event).is_ok());
        let unknown = if counter == EXITS { 1.0 } else { 0.0 };
        price.map_or(unknown, |price| self.counted_each(price, counter))
    }
}

const EXITS: &str = "kvm.exits";
const POLLED: &str = "kvm.halt_successful_poll";

/// Accesses to model-specific registers of one family of counters, without those that belong
/// to IPIs, interrupts and timers; none where they were not counted.
fn of_msrs(counters: &CounterSet, family: &str) -> Option<f64> {
    // The rows of a family begin with its first event: exits say whether they were counted.
    counters.counted(family)?;
    let all =
        counters.0.iter().filter_map(|(name, count)| Some((name.strip_prefix(family)?, count)));
    Some(all.filter(|(msr, _)| !is_of_local_apic(msr)).map(|(_, count)| count).sum())
}

/// Registers of the x2APIC, 0x800 to 0x8ff, and of the local timer.
fn is_of_local_apic(msr: &str) -> bool {
    let number = msr.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    msr == "tsc_deadline"
        || msr.starts_with(X2APIC)
        || number.is_some_and(|number| (0x800..0x900).contains(&number))
}

const X2APIC: &str = "x2apic_";

/// Accesses to the memory of devices that KVM handles by itself: nested faults that were no
/// faults, less those that QEMU handled. None of them is told where the local APIC is memory,
/// too: that belongs to IPIs and interrupts.
fn kernel_memory(counters: &CounterSet) -> Option<f64> {
    let nested: Option<f64> = ["npf", "ept_violation", "ept_misconfig"]
        .map(|reason| counters.counted(&format!("kvm.exits.{reason}")))
        .into_iter()
        .sum();
    let [taken, emulated, qemu] =
        ["kvm.pf_taken", "kvm.pf_emulate", "kvm.mmio_exits"].map(|name| counters.get(name));
    let sum = |family: &str| -> f64 {
        let all = counters.0.iter().filter(|(name, _)| name.starts_with(family));
        all.map(|(_, count)| count).sum()
    };
    let interrupts = sum("kvm.ipis.") + sum("kvm.irqs.");
    let is_memory = interrupts > 0.0 && sum(&format!("kvm.msr_writes.{X2APIC}")) == 0.0;
    let found = nested? - (taken? - emulated?) - qemu?;
    Some(if is_memory { 0.0 } else { found.max(0.0) })
}

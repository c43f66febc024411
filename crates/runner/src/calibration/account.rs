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
//! Source: Linux `arch/x86/kvm/x86.c` (`kvm_vcpu_stats_desc`) and where each is
//! counted: `halt_exits` in `kvm_emulate_halt_noskip`, `mmio_exits` on the way to
//! user space in `x86_emulate_instruction`, `io_exits` in `io_interception` and
//! `handle_io`, `hypercalls` in `kvm_emulate_hypercall`, `pf_fixed` in
//! `kvm_mmu_do_page_fault`, `exits` in `vcpu_enter_guest`; `halt_successful_poll` in
//! `kvm_vcpu_halt` (`virt/kvm/kvm_main.c`).

use std::collections::BTreeMap;

use record::{CounterSet, Environment};
use report::{HostFact, NoPrice, PricedEvent, UnfitPrices};
use stats::Estimate;
use topology::Host;

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
    (PricedEvent::OtherExit, OTHER),
];

/// Halts that KVM polls to their end, if it polls at all.
const SHORT_HALT: &str = "timer-halt";

/// The events that are halts.
const HALTS: [PricedEvent; 2] = [PricedEvent::IpiToHalted, PricedEvent::Wakeup];

/// The operation whose price an exit has that belongs to no other.
const OTHER: &str = "cpuid";

/// Operations whose exits KVM handles by itself: what an exit costs of which nobody knows
/// why it was lies between these.
const IN_KERNEL: &[&str] = &[OTHER, "msr-read", "msr-write", "self-ipi", "mmio-kernel"];
/// Fewer of them say nothing of how they differ.
const LEAST_KINDS: usize = 3;

/// An operation is an event's price if KVM counted the event for so many of them.
const LEAST_PART: f64 = 0.5;

const NS_PER_S: f64 = crate::results::NS_PER_S;

/// The operation that has the price of `event`.
#[must_use]
pub fn operation(event: PricedEvent) -> &'static str {
    PRICED.iter().find(|row| row.0 == event).map_or(OTHER, |row| row.1)
}

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
        let facts = [
            (HostFact::Processor, self.cpu_model.clone(), host.cpu_model.clone()),
            (HostFact::Kernel, self.kernel.clone(), host.kernel.clone()),
            (HostFact::Qemu, Some(self.qemu.clone()), Some(plan.qemu.version.clone())),
        ];
        // What neither knows shows no sameness.
        let other = |(what, list, study): (HostFact, Option<String>, Option<String>)| {
            (list.is_none() || list != study).then_some(UnfitPrices::Other { what, list, study })
        };
        let mut why: Vec<UnfitPrices> = facts.into_iter().filter_map(other).collect();
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
        let operation = operation(event);
        let price = self.price(operation).ok_or(NoPrice::NotMeasured)?;
        if event == PricedEvent::Sleep {
            return self.price_of_a_sleep(price);
        }
        let counter = match event {
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
        let [halts, polled] = ["kvm.halt_exits", "kvm.halt_successful_poll"]
            .map(|counter| self.counted_each(price, counter));
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
        let kinds: Vec<f64> = IN_KERNEL.iter().filter_map(each).collect();
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
        let halts = counters.get("kvm.halt_exits").or_else(|| counters.counted("kvm.exits.hlt"));
        let ipis = ipis(counters);
        if let Some(ipis) = ipis {
            let woken = ipis.min(halts.unwrap_or(0.0));
            events.insert(PricedEvent::IpiToHalted, woken);
            events.insert(PricedEvent::IpiToRunning, ipis - woken);
        }
        if let Some(halts) = halts {
            events.insert(PricedEvent::Wakeup, halts - halts.min(ipis.unwrap_or(0.0)));
        }
        let counted = [
            (PricedEvent::DeviceMemory, counters.get("kvm.mmio_exits")),
            (PricedEvent::Port, counters.get("kvm.io_exits")),
            (PricedEvent::PageFault, counters.get("kvm.pf_fixed")),
            (
                PricedEvent::Hypercall,
                counters.get("kvm.hypercalls").map(|all| {
                    // Those are IPIs.
                    all - counters.counted("kvm.hypercalls.send_ipi").unwrap_or(0.0)
                }),
            ),
        ];
        events.extend(counted.into_iter().filter_map(|(event, count)| Some((event, count?))));
        if let Some(exits) = counters.get("kvm.exits") {
            let own = |(event, count): (&PricedEvent, &f64)| count * self.exits_of(*event);
            let others = exits - events.iter().map(own).sum::<f64>();
            events.insert(PricedEvent::OtherExit, others);
        }
        // It is no exit of its own.
        if let Some((halts, polled)) = halts.zip(counters.get("kvm.halt_successful_poll")) {
            let own = |event: PricedEvent| {
                let price = self.price(operation(event)).filter(|_| self.price_of(event).is_ok());
                let each = price.map_or(0.0, |price| self.sleeps_each(price));
                each * events.get(&event).copied().unwrap_or(0.0)
            };
            let others = halts - polled - HALTS.map(own).iter().sum::<f64>();
            events.insert(PricedEvent::Sleep, others);
        }
        events
    }

    /// Exits that belong to one event: as many as KVM counted when its price was
    /// taken. What has no price is one exit, as it can't be the cheapest.
    fn exits_of(&self, event: PricedEvent) -> f64 {
        let price = self.price(operation(event)).filter(|_| self.price_of(event).is_ok());
        price.map_or(1.0, |price| self.counted_each(price, "kvm.exits"))
    }
}

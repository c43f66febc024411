//! Price lists made up, and what is made of them.

use record::CounterSet;
use report::{NoPrice, PricedEvent};

use super::*;

pub(crate) fn price(operation: &str, n: u32, boots: &[(f64, &[(&str, f64)])]) -> Price {
    let boot = |(median, kvm): &(f64, &[(&str, f64)])| BootPrice {
        min: *median,
        median: *median,
        p99: *median,
        mean: None,
        ipis: 0,
        hlts: u64::from(n),
        kvm: kvm.iter().map(|(name, count)| (format!("kvm.{name}"), *count)).collect(),
    };
    Price {
        operation: operation.to_owned(),
        summary: String::new(),
        n,
        batch: 1,
        boots: boots.iter().map(boot).collect(),
        missing: None,
        registers: None,
        found: None,
    }
}

pub(crate) fn list(prices: Vec<Price>) -> Calibration {
    Calibration {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        environment: Environment::Kvm,
        count: Count::Cycles,
        kernel: None,
        cpu_model: None,
        hostname: None,
        host_settings: BTreeMap::new(),
        qemu: "QEMU emulator version 7.2.22".to_owned(),
        arch: "x86_64".to_owned(),
        machine: "q35".to_owned(),
        vcpu_model: "host".to_owned(),
        vcpus: 1,
        apic: "x2apic".to_owned(),
        tsc_khz: 2_000_000,
        exits_by_reason: true,
        notes: Vec::new(),
        prices,
    }
}

#[test]
fn a_price_is_what_is_above_an_empty_sample() {
    let all = list(vec![
        price("nothing", 10, &[(30.0, &[]), (20.0, &[])]),
        price("cpuid", 10, &[(1020.0, &[]), (1020.0, &[])]),
    ]);
    let cpuid = all.price("cpuid").unwrap();
    let estimate = all.estimate(cpuid).unwrap();
    assert!((estimate.centre - 1000.0).abs() < 1e-6, "{estimate:?}");
    let (ns, interval) = all.estimate_ns(cpuid).unwrap();
    assert!((ns - 500.0).abs() < 1e-6 && interval.is_some_and(|interval| interval.contains(ns)));
    let values = all.values();
    assert_eq!(values.len(), 2);
    assert!((values[0].value - 5e-7).abs() < 1e-15 && values[0].unit == "s", "{values:?}");
    // A count of instructions is no time.
    let counted = Calibration { count: Count::Instructions, ..all.clone() };
    assert_eq!(counted.estimate_ns(cpuid), None);
    assert!(counted.values().iter().all(|value| value.unit == "instructions"));
}

#[test]
fn kvm_agrees_within_the_noise_of_an_empty_phase() {
    let check = |operation: &str, counter: &str, found: f64, noise: f64| {
        let all = list(vec![
            price("nothing", 1000, &[(20.0, &[(counter, noise)])]),
            price(operation, 1000, &[(99.0, &[(counter, found)])]),
        ]);
        all.agreement(&all.prices[1])
    };
    let agrees = |counter| Agreement::Agrees { counter };
    assert_eq!(check("cpuid", "exits", 1020.0, 10.0), agrees("kvm.exits"));
    assert_eq!(check("timer-halt", "halt_exits", 995.0, 0.0), agrees("kvm.halt_exits"));
    assert_eq!(
        check("irq-window", "irq_window_exits", 1000.0, 0.0),
        agrees("kvm.irq_window_exits")
    );
    assert_eq!(check("cpuid", "exits", 1150.0, 80.0), agrees("kvm.exits"));
    let differs = Disagreement { counter: "kvm.exits", guest: 1000.0, found: 2000.0, floor: 32.0 };
    assert_eq!(check("cpuid", "exits", 2000.0, 10.0), Agreement::Differs(differs));
    // What KVM does not count at all is told from what it counts as 0.
    assert_eq!(check("call", "exits", 5.0, 5.0), Agreement::NotCounted);
    // Who looks for an answer is interrupted meanwhile, and tells the device all the same.
    assert_eq!(check("net-poll", "exits", 1900.0, 0.0), agrees("kvm.exits"));
    assert!(matches!(check("net-poll", "exits", 900.0, 0.0), Agreement::Differs(_)));
    assert_eq!(check("blk-irq", "halt_exits", 1000.0, 0.0), agrees("kvm.halt_exits"));
    assert!(matches!(check("pio-qemu", "exits", 1000.0, 1.0), Agreement::Differs(_)));
    let silent = list(vec![price("cpuid", 1000, &[(99.0, &[])])]);
    assert_eq!(silent.agreement(&silent.prices[0]), Agreement::NotCounted);
}

#[test]
fn exits_by_the_host_s_interrupts_are_not_the_guest_s() {
    // Of a busy host, whose phase was ten times as long as the empty one.
    let counts: &[(&str, f64)] = &[("exits", 669.0), ("irq_exits", 85.0), ("io_exits", 84.0)];
    let empty: &[(&str, f64)] = &[("exits", 12.0), ("irq_exits", 8.0), ("io_exits", 4.0)];
    let check = |operation: &str, counts: &[(&str, f64)]| {
        let all = list(vec![
            price("nothing", 500, &[(20.0, empty)]),
            price(operation, 500, &[(99.0, counts)]),
        ]);
        all.agreement(&all.prices[1])
    };
    assert_eq!(check("cpuid", counts), Agreement::Agrees { counter: "kvm.exits" });
    // They hide none that is missing.
    let found = Disagreement { counter: "kvm.exits", guest: 500.0, found: 0.0, floor: 32.0 };
    assert_eq!(
        check("cpuid", &[("exits", 500.0), ("irq_exits", 400.0), ("io_exits", 100.0)]),
        Agreement::Differs(found)
    );
    // Ports are what these operations are.
    let ports = [("exits", 600.0), ("irq_exits", 90.0), ("io_exits", 510.0)];
    assert_eq!(check("pio-kernel", &ports), Agreement::Agrees { counter: "kvm.io_exits" });
}

#[test]
fn a_kvm_in_software_is_told_from_one_on_a_processor() {
    let counted =
        |exits: f64| list(vec![price("cpuid", 1000, &[(9.0, &[("exits", exits), ("x", 1.0)])])]);
    assert!(counted(57.0).is_software_kvm());
    assert!(counted(57.0).environment_sentence().contains("emulated time"));
    assert!(!counted(1010.0).is_software_kvm());
    assert_eq!(counted(1010.0).environment_sentence(), Environment::Kvm.sentence());
    // Where nothing was counted nothing is known.
    assert!(!list(vec![price("cpuid", 1000, &[(9.0, &[])])]).is_software_kvm());
}

#[test]
fn the_file_is_read_by_its_version() {
    let all = list(vec![price("cpuid", 10, &[(1020.0, &[("exits", 10.0)])])]);
    let text = all.to_json();
    assert_eq!(Calibration::from_json(&text).unwrap(), all);
    let fails = |text: &str, expected: &str| {
        let error = Calibration::from_json(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    fails(&text.replace("\"version\": 1", "\"version\": 2"), "version 2");
    fails(&text.replace("vmlab-calibration", "vmlab-plan"), "vmlab-plan");
    fails(&text.replace("1020.0", "-1.0"), "\"cpuid\"");
    fails("{}", "no calibration");
    fails("[1", "no calibration");
}

/// What one event of each kind costs at 1 GHz, cycles, its exits, and what else KVM and
/// the guest count of it.
type PricedExample = (PricedEvent, f64, f64, &'static [(&'static str, f64)]);
const EVENTS: &[PricedExample] = &[
    (PricedEvent::IpiToHalted, 9000.0, 3.0, &[("kvm.halt_exits", 1.0), (POLLED, 1.0), (IPIS, 1.0)]),
    (PricedEvent::IpiToRunning, 3000.0, 2.0, &[(IPIS, 1.0)]),
    (PricedEvent::Wakeup, 5000.0, 2.0, &[("kvm.halt_exits", 1.0), (POLLED, 1.0)]),
    // One of these that was not polled.
    (PricedEvent::Sleep, 4000.0, 0.0, &[(POLLED, -1.0)]),
    (PricedEvent::DeviceMemory, 7000.0, 1.0, &[("kvm.mmio_exits", 1.0)]),
    (PricedEvent::Port, 6000.0, 1.0, &[("kvm.io_exits", 1.0)]),
    (PricedEvent::Hypercall, 1200.0, 1.0, &[("kvm.hypercalls", 1.0)]),
    (PricedEvent::PageFault, 2500.0, 1.0, &[("kvm.pf_fixed", 1.0)]),
    (PricedEvent::OtherExit, 1000.0, 1.0, &[]),
];
const IPIS: &str = "guest.ipi_reschedule";
const POLLED: &str = "kvm.halt_successful_poll";

/// A price list of these, of the host and the QEMU of this crate's tests.
pub(crate) fn priced_events() -> Calibration {
    let counted = EVENTS.iter().map(|(event, cycles, exits, counters)| {
        let others = counters
            .iter()
            .filter_map(|(name, each)| Some((name.strip_prefix("kvm.")?, each * 100.0)));
        let mut kvm: Vec<(&str, f64)> = others.chain([("exits", exits * 100.0)]).collect();
        let mut cycles = *cycles;
        if *event == PricedEvent::Sleep {
            // A wake-up with all that is its own.
            cycles += EVENTS.iter().find(|row| row.0 == PricedEvent::Wakeup).unwrap().1;
            kvm = vec![("halt_exits", 100.0), ("exits", 200.0)];
        }
        let boots: Vec<_> = [0.99, 1.0, 1.01].map(|by| (cycles * by, &kvm[..])).into();
        price(list(Vec::new()).operation_of(*event), 100, &boots)
    });
    let prices = [price("nothing", 100, &[(0.0, &[])])].into_iter().chain(counted).collect();
    let processor = Some("A processor".to_owned());
    Calibration {
        tsc_khz: 1_000_000,
        exits_by_reason: true,
        kernel: Some("6.1.0".to_owned()),
        cpu_model: processor,
        ..list(prices)
    }
}

/// What KVM and the guest count of so many events of each kind, and their time, s.
pub(crate) fn counted(events: &[(PricedEvent, f64)]) -> (CounterSet, f64) {
    let mut counters = CounterSet::default();
    for name in ["kvm.exits", "guest.ipi_call_function"] {
        counters.set(name, 0.0);
    }
    EVENTS.iter().flat_map(|row| row.3).for_each(|(name, _)| counters.set(*name, 0.0));
    let mut seconds = 0.0;
    for (event, count) in events {
        let (_, cycles, exits, others) = EVENTS.iter().find(|row| row.0 == *event).unwrap();
        counters.add("kvm.exits", exits * count);
        others.iter().for_each(|(name, each)| counters.add(*name, each * count));
        seconds += cycles * count / 1e9;
    }
    (counters, seconds)
}

#[test]
fn every_exit_is_paid_once() {
    use PricedEvent::*;
    let all = priced_events();
    let check = |events: &[(PricedEvent, f64)]| {
        let (counters, seconds) = counted(events);
        let found = all.events(&counters);
        let paid: f64 =
            found.iter().map(|(e, count)| count * all.price_of(*e).unwrap().centre).sum();
        assert!((paid / seconds - 1.0).abs() < 1e-3, "{events:?}: {found:?}");
        for (event, count) in events {
            assert!((found[event] - count).abs() < 1e-6, "{events:?}: {found:?}");
        }
    };
    for (event, ..) in EVENTS {
        // Wake-ups and IPIs to running vCPUs are told apart from IPIs that wake by
        // there being none of the other.
        check(&[(*event, 700.0)]);
    }
    check(&[(IpiToHalted, 300.0), (Wakeup, 50.0), (PageFault, 1000.0), (Port, 3.0)]);
    check(&[(IpiToHalted, 300.0), (IpiToRunning, 90.0), (DeviceMemory, 20.0), (Hypercall, 8.0)]);
    check(&[(IpiToHalted, 300.0), (Wakeup, 50.0), (Sleep, 200.0), (PageFault, 40.0)]);
    // IPIs by hypercall are no other hypercalls.
    let (mut counters, _) = counted(&[(IpiToRunning, 10.0), (Hypercall, 12.0)]);
    counters.set("kvm.hypercalls.send_ipi", 10.0);
    counters.set("kvm.exits.hypercall", 12.0);
    assert_eq!(all.events(&counters)[&Hypercall], 2.0);
    // Without the guest's counts KVM's are taken, and without both none.
    let (mut counters, _) = counted(&[(IpiToHalted, 5.0), (Wakeup, 2.0)]);
    counters.0.remove(IPIS);
    let found = all.events(&counters);
    assert_eq!((found.get(&IpiToHalted), found[&Wakeup]), (None, 7.0));
    counters.set("kvm.exits.hlt", 7.0);
    counters.set("kvm.ipis.0xfd", 5.0);
    let found = all.events(&counters);
    assert_eq!((found[&IpiToHalted], found[&Wakeup]), (5.0, 2.0));
}

#[test]
fn a_price_is_only_of_what_kvm_counted() {
    let mut all = priced_events();
    let fault = all.price_of(PricedEvent::PageFault).unwrap();
    assert!((fault.centre - 2.5e-6).abs() < 1e-9 && fault.interval.is_some(), "{fault:?}");
    // Huge pages behind the memory: one of many touches faults.
    let prices = all.prices.iter_mut().filter(|price| price.operation == "page-fill-4k");
    prices.flat_map(|price| &mut price.boots).for_each(|boot| {
        boot.kvm.insert("kvm.pf_fixed".to_owned(), 1.0);
    });
    assert_eq!(all.price_of(PricedEvent::PageFault), Err(NoPrice::NotTheEvent));
    all.prices.retain(|price| price.operation != "page-fill-4k");
    assert_eq!(all.price_of(PricedEvent::PageFault), Err(NoPrice::NotMeasured));
}

#[test]
fn a_sleep_is_priced_where_some_halts_are_polled_and_others_not() {
    let all = priced_events();
    let found = all.price_of(PricedEvent::Sleep).unwrap();
    assert!((found.centre - 4e-6).abs() < 1e-8 && found.interval.is_some(), "{found:?}");
    // Prices in which each second halt slept, and a study in which each did.
    let mut half = all.clone();
    let prices = half.prices.iter_mut().filter(|price| price.operation == "timer-halt");
    prices.flat_map(|price| &mut price.boots).for_each(|boot| {
        boot.kvm.insert(POLLED.to_owned(), 50.0);
    });
    let (counters, _) = counted(&[(PricedEvent::Wakeup, 60.0), (PricedEvent::Sleep, 60.0)]);
    assert_eq!(half.events(&counters)[&PricedEvent::Sleep], 30.0);
    let found = half.price_of(PricedEvent::Sleep).unwrap();
    assert!((found.centre - 8e-6).abs() < 1e-8, "{found:?}");
    // Where KVM does not poll at all nobody knows what that would spare, nor needs to.
    let prices = half.prices.iter_mut().flat_map(|price| &mut price.boots);
    prices.for_each(|boot| {
        boot.kvm.remove(POLLED);
    });
    assert_eq!(half.price_of(PricedEvent::Sleep), Err(NoPrice::NotTheEvent));
    assert_eq!(half.events(&counters)[&PricedEvent::Sleep], 0.0);
    half.prices.retain(|price| price.operation != "timer-sleep");
    assert_eq!(half.price_of(PricedEvent::Sleep), Err(NoPrice::NotMeasured));
}

#[test]
fn every_priced_operation_is_one_of_the_guest_s() {
    for arch in ["x86_64", "aarch64"] {
        let all = Calibration { arch: arch.to_owned(), ..list(Vec::new()) };
        for (event, ..) in EVENTS.iter().filter(|row| row.0 != PricedEvent::Port) {
            let operation = Operation::from_name(all.operation_of(*event)).unwrap();
            assert!(operation.is_of(arch), "{arch}: {event:?}");
        }
    }
}

#[test]
fn an_exit_of_no_known_kind_costs_what_lies_between_those_that_are_known() {
    let of = |name: &str, cycles: f64, exits: f64| {
        let counted: &[(&str, f64)] = &[("exits", exits * 100.0)];
        price(name, 100, &[(cycles, counted), (cycles, counted)])
    };
    let kinds =
        [of("cpuid", 1000.0, 1.0), of("msr-read", 1100.0, 1.0), of("self-ipi", 2600.0, 2.0)];
    let nothing = || price("nothing", 100, &[(0.0, &[])]);
    let all = list([nothing()].into_iter().chain(kinds.clone()).collect());
    let found = all.price_of(PricedEvent::OtherExit).unwrap();
    let ns = |seconds: f64| seconds * 2e9;
    assert!((1100.0..1150.0).contains(&ns(found.centre)), "{found:?}");
    let interval = found.interval.unwrap();
    assert!(ns(interval.lo) < 1000.0 && ns(interval.hi) > 1300.0, "{found:?}");
    // Two kinds say nothing of how kinds differ: a CPUID is the least.
    let few = list([nothing()].into_iter().chain(kinds.into_iter().take(2)).collect());
    assert!((ns(few.price_of(PricedEvent::OtherExit).unwrap().centre) - 1000.0).abs() < 1e-6);
}

#[test]
fn many_operations_are_paid_by_their_mean() {
    let mut fill = price("page-fill-4k", 100, &[(1000.0, &[("pf_fixed", 100.0)])]);
    fill.boots[0].mean = Some(1500.0);
    let all = list(vec![price("nothing", 100, &[(0.0, &[])]), fill]);
    let found = all.price_of(PricedEvent::PageFault).unwrap();
    assert!((found.centre * 2e9 - 1500.0).abs() < 1e-6, "{found:?}");
    // What an operation takes is still its median.
    assert!((all.estimate(&all.prices[1]).unwrap().centre - 1000.0).abs() < 1e-6);
    // Lists of earlier versions have no mean.
    let old = all.to_json().replace("\"mean\": 1500.0,", "");
    assert!(!old.contains("1500"), "{old}");
    let old = Calibration::from_json(&old).unwrap();
    assert!((old.price_of(PricedEvent::PageFault).unwrap().centre * 2e9 - 1000.0).abs() < 1e-6);
}

fn counters(rows: &[(&str, f64)]) -> CounterSet {
    CounterSet(rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
}

#[test]
fn exits_are_paid_by_their_reason_where_that_has_a_price() {
    use PricedEvent::*;
    let of = |name: &str, cycles: f64| {
        let boots: Vec<_> =
            [0.99, 1.0, 1.01].map(|by| (cycles * by, &[("exits", 100.0)][..])).into();
        price(name, 100, &boots)
    };
    let mut all = priced_events();
    all.prices.extend([of("msr-read", 1100.0), of("mmio-kernel", 2000.0)]);
    let (mut run, _) = counted(&[(OtherExit, 500.0)]);
    run.merge(counters(&[
        ("kvm.exits.cpuid", 200.0),
        ("kvm.exits.msr", 90.0),
        ("kvm.msr_reads.efer", 30.0),
        // The local APIC's, which interrupts and IPIs are paid with.
        ("kvm.msr_reads.0x839", 7.0),
        ("kvm.msr_writes.x2apic_eoi", 20.0),
        // Without a price in this list.
        ("kvm.msr_writes.0x1b", 33.0),
        ("kvm.exits.npf", 60.0),
        ("kvm.pf_taken", 12.0),
        ("kvm.pf_emulate", 2.0),
    ]));
    let found = all.events(&run);
    assert_eq!((found[&Cpuid], found[&MsrRead], found[&KernelMemory]), (200.0, 30.0, 50.0));
    assert_eq!(found.get(&MsrWrite), None);
    assert_eq!(found[&OtherExit], 500.0 - 280.0);
    let cpuid = all.price_of(Cpuid).unwrap();
    assert!((cpuid.centre - 1e-6).abs() < 1e-9 && cpuid.interval.is_some(), "{cpuid:?}");
    // Where the local APIC is memory nobody knows which of these accesses is an interrupt's.
    run.0.remove("kvm.msr_writes.x2apic_eoi");
    run.set("kvm.irqs.0x22", 20.0);
    let found = all.events(&run);
    assert_eq!((found[&KernelMemory], found[&OtherExit]), (0.0, 500.0 - 230.0));
    // Where reasons were not counted all are of those that nobody knows.
    let (run, _) = counted(&[(OtherExit, 500.0)]);
    let found = all.events(&run);
    assert_eq!((found.get(&Cpuid), found[&OtherExit]), (None, 500.0));
}

#[test]
fn arm64_counts_have_names_of_their_own() {
    use PricedEvent::*;
    let of = |name: &str, cycles: f64, kvm: &[(&str, f64)]| {
        let kvm: Vec<_> = kvm.iter().map(|(name, each)| (*name, each * 100.0)).collect();
        let boots: Vec<_> = [0.99, 1.0, 1.01].map(|by| (cycles * by, &kvm[..])).into();
        price(name, 100, &boots)
    };
    let all = Calibration {
        arch: "aarch64".to_owned(),
        tsc_khz: 1_000_000,
        ..list(vec![
            price("nothing", 100, &[(0.0, &[])]),
            of("sysreg-trap", 1000.0, &[("exits", 1.0)]),
            of("self-ipi", 2600.0, &[("exits", 2.0)]),
            of("hypercall", 1200.0, &[("exits", 1.0), ("hvc_exit_stat", 1.0)]),
            of("mmio-kernel", 2000.0, &[("exits", 1.0), ("mmio_exit_kernel", 1.0)]),
            of("mmio-qemu", 7000.0, &[("exits", 1.0), ("mmio_exit_user", 1.0)]),
            of("page-fill-4k", 2500.0, &[("exits", 1.0)]),
            of("timer-halt", 5000.0, &[("exits", 2.0), ("wfi_exit_stat", 1.0)]),
            of("ipi-spin", 3000.0, &[("exits", 2.0)]),
            // GICv2's: the IPI is a write to the distributor.
            of(
                "ipi-halt",
                9000.0,
                &[("exits", 3.0), ("wfi_exit_stat", 1.0), ("mmio_exit_kernel", 1.0)],
            ),
        ])
    };
    let run = counters(&[
        ("kvm.exits", 100.0 * 3.0 + 40.0 * 2.0 + 7.0 + 50.0 + 11.0 + 300.0 + 25.0),
        ("kvm.wfi_exit_stat", 140.0),
        ("kvm.halt_successful_poll", 140.0),
        ("guest.ipi_reschedule", 60.0),
        ("guest.ipi_call_function", 40.0),
        ("kvm.hvc_exit_stat", 7.0),
        ("kvm.mmio_exit_user", 11.0),
        ("kvm.mmio_exit_kernel", 150.0),
        ("kvm.exits.wfx", 150.0),
        ("kvm.exits.dabt_low", 150.0 + 11.0 + 299.0),
        ("kvm.exits.iabt_low", 1.0),
    ]);
    let found = all.events(&run);
    let expected = [
        (IpiToHalted, 100.0),
        (IpiToRunning, 0.0),
        (Wakeup, 40.0),
        (DeviceMemory, 11.0),
        (KernelMemory, 50.0),
        (Hypercall, 7.0),
        (PageFault, 300.0),
        (OtherExit, 25.0),
    ];
    for (event, count) in expected {
        assert!((found[&event] - count).abs() < 1e-9, "{event:?}: {found:?}");
        assert!(all.price_of(event).is_ok(), "{event:?}");
    }
    // There are no ports, and none of x86's kinds.
    assert!([Port, Cpuid, MsrRead, MsrWrite].iter().all(|one| !found.contains_key(one)));
}

#[test]
fn the_file_says_what_follows_from_it_and_is_read_without() {
    let all = list(vec![
        price("nothing", 1000, &[(20.0, &[("exits", 0.0)])]),
        price("cpuid", 1000, &[(1020.0, &[("exits", 1003.0)])]),
        price("pio-qemu", 1000, &[(1020.0, &[("exits", 1003.0)])]),
    ]);
    let text = all.to_json();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = &json["prices"][1]["found"];
    assert_eq!(found["agreement"]["kvm"], "agrees");
    assert_eq!(json["prices"][2]["found"]["agreement"]["kvm"], "differs");
    let near = |value: &serde_json::Value, expected: f64| {
        (value.as_f64().unwrap() - expected).abs() < 1e-6
    };
    assert!(near(&found["price"]["min"], 1000.0) && near(&found["price_ns"]["p99"], 500.0));
    assert!(near(&found["price_ns"]["centre"], 500.0), "{found}");
    // A reader works it out anew, whatever stands there.
    let lie = text.replace("\"differs\"", "\"agrees\"");
    assert_eq!(Calibration::from_json(&lie).unwrap(), all);
    // Instructions are no time.
    let counted = Calibration { count: Count::Instructions, ..all }.with_findings();
    assert_eq!(counted.prices[1].found.as_ref().unwrap().price_ns, None);
}

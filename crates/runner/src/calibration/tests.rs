//! Price lists made up, and what is made of them.

use super::*;

fn price(operation: &str, n: u32, boots: &[(f64, &[(&str, f64)])]) -> Price {
    let boot = |(median, kvm): &(f64, &[(&str, f64)])| BootPrice {
        min: *median,
        median: *median,
        p99: *median,
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
    }
}

fn list(prices: Vec<Price>) -> Calibration {
    Calibration {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        environment: Environment::Kvm,
        count: Count::Cycles,
        kernel: None,
        cpu_model: None,
        qemu: "QEMU emulator version 7.2.22".to_owned(),
        machine: "q35".to_owned(),
        cpu: "host".to_owned(),
        vcpus: 1,
        apic: "x2apic".to_owned(),
        tsc_khz: 2_000_000,
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
    assert_eq!(check("cpuid", "exits", 1150.0, 80.0), agrees("kvm.exits"));
    let differs = Disagreement { counter: "kvm.exits", guest: 1000.0, found: 2000.0, floor: 32.0 };
    assert_eq!(check("cpuid", "exits", 2000.0, 10.0), Agreement::Differs(differs));
    // What KVM does not count at all is told from what it counts as 0.
    assert_eq!(check("call", "exits", 5.0, 5.0), Agreement::NotCounted);
    assert!(matches!(check("pio-qemu", "exits", 1000.0, 1.0), Agreement::Differs(_)));
    let silent = list(vec![price("cpuid", 1000, &[(99.0, &[])])]);
    assert_eq!(silent.agreement(&silent.prices[0]), Agreement::NotCounted);
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

//! What real tools say of themselves, and what must not be taken for it.

use proptest::prelude::*;

use super::*;
use crate::Accel;

const CAPABILITIES: &str = include_str!("../../testdata/libvirt-9.0.0/capabilities.xml");
const Q35_KVM: &str = include_str!("../../testdata/libvirt-9.0.0/domcapabilities-q35-kvm.xml");
const PC_QEMU: &str = include_str!("../../testdata/libvirt-9.0.0/domcapabilities-pc-qemu.xml");
const QMP_KVM: &str = include_str!("../../testdata/qemu-7.2.22/qmp-kvm.json");
const QMP_TCG: &str = include_str!("../../testdata/qemu-7.2.22/qmp-tcg.json");

fn all(texts: &[&str]) -> Offers {
    let mut offers = Offers::default();
    for text in texts {
        offers.add(super::read("text", text).unwrap());
    }
    offers
}

fn names(found: Option<Vec<&MachineType>>) -> Option<Vec<&str>> {
    found.map(|found| found.iter().map(|machine| machine.name.as_str()).collect())
}

#[test]
fn both_list_the_machine_types() {
    for text in [CAPABILITIES, QMP_KVM] {
        let offers = all(&[text]);
        let check = |name: &str, there: bool, max: Option<u32>, deprecated: bool| {
            let found = offers.machine("x86_64", name).unwrap();
            assert_eq!(!found.is_empty(), there, "{name}");
            assert!(found.iter().all(|one| one.max_vcpus == max && one.deprecated == deprecated));
        };
        check("pc-q35-7.2", true, Some(288), false);
        check("pc-i440fx-1.7", true, Some(255), true);
        assert_eq!(offers.machine("x86_64", "q35").unwrap()[0].max_vcpus, Some(288));
        check("pc-q35-10.0", false, None, false);
        assert_eq!(names(offers.machine("aarch64", "virt")), None, "of others nothing is known");
        assert_eq!(offers.arch.as_deref(), Some("x86_64"));
    }
}

#[test]
fn models_come_with_what_blocks_them() {
    let offers = all(&[Q35_KVM, QMP_KVM, QMP_TCG]);
    let of = |accel| -> Vec<(bool, Option<bool>, usize)> {
        let all = offers.cpus("x86_64", accel).map(|cpus| (cpus, cpus.models.get("Haswell")));
        all.map(|(cpus, model)| (cpus.of_libvirt, model.unwrap()))
            .map(|(of_libvirt, model)| (of_libvirt, model.usable, model.blockers.len()))
            .collect()
    };
    // libvirt 9.0 says only that something is in the way.
    assert_eq!(of(Accel::Kvm), [(true, Some(false), 0), (false, Some(false), 26)]);
    assert_eq!(of(Accel::Tcg).len(), 1);
    let kvm: Vec<&CpuModels> = offers.cpus("x86_64", Accel::Kvm).collect();
    assert_eq!(kvm[0].models["486"].usable, Some(true));
    for cpus in kvm {
        assert!(cpus.missing.contains("avx2") && cpus.missing.contains("sse4-1"));
        assert!(!cpus.missing.contains("x2apic"), "{:?}", cpus.missing);
    }
}

/// Since libvirt 10 what is in the way has a list beside the models.
#[test]
fn blockers_are_read() {
    let offers = all(&["<domainCapabilities><domain>kvm</domain><arch>x86_64</arch><cpu>
        <mode name='custom' supported='yes'>
          <model usable='no' deprecated='yes' vendor='Intel'>Skylake-Client</model>
          <blockers model='Skylake-Client'><feature name='hle'/><feature name='lahf_lm'/></blockers>
          <model usable='unknown'>Other</model>
        </mode></cpu></domainCapabilities>"]);
    let models = &offers.cpus[0].models;
    let skylake = &models["Skylake-Client"];
    assert_eq!(skylake.blockers, ["hle".to_owned(), "lahf-lm".to_owned()].into());
    assert!(skylake.deprecated);
    assert_eq!(models["Other"].usable, None);
}

#[test]
fn kinds_of_domains_are_told_apart() {
    let offers = all(&[CAPABILITIES, Q35_KVM, PC_QEMU]);
    let kind = offers.domain("x86_64", Accel::Kvm, "q35").unwrap();
    assert_eq!((kind.machine.as_str(), kind.max_vcpus), ("pc-q35-7.2", Some(288)));
    assert_eq!(offers.domain("x86_64", Accel::Kvm, "pc-q35-2.7"), Some(kind));
    assert_eq!(offers.domain("x86_64", Accel::Kvm, "pc"), None);
    assert_eq!(offers.domain("x86_64", Accel::Tcg, "pc").unwrap().machine, "pc-i440fx-7.2");
    assert_eq!(kind.supported.get("iothreads"), Some(&true));
    assert_eq!(kind.supported.get("sev"), Some(&false));
    assert!(kind.values["video.modelType"].contains("bochs"));
    assert!(kind.values["os.firmware"].is_empty());
    assert!(!kind.values["loader.secure"].contains("yes"));
    assert!(!kind.values["disk.bus"].contains("ide"));
    assert!(kind.values["memoryBacking.sourceType"].contains("memfd"));
    assert_eq!(offers.accels["x86_64"], [Accel::Kvm, Accel::Tcg].into());
}

#[test]
fn qemu_lists_its_devices() {
    let offers = all(&[QMP_KVM]);
    assert!(offers.types["x86_64"].contains("virtio-net-pci"));
    assert!(offers.accels.is_empty(), "that KVM is there is no promise that it works");
    let without = QMP_TCG.replace("\"present\": true", "\"present\": false");
    assert_eq!(all(&[&without]).accels["x86_64"], [Accel::Tcg].into());
}

#[test]
fn what_is_something_else_is_refused_with_its_line() {
    let check = |text: &str, expected: &str| {
        let error = super::read("file", text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    check("", "file: tells nothing of what a host can do");
    check("<domain/>", "file: tells nothing");
    check("{\"return\": {}}", "file: tells nothing");
    check("<capabilities", "file:1: Not XML");
    check("<domainCapabilities>\n</domainCapabilities>", "file:1: No <arch> inside");
    let machine = "<capabilities>\n<guest><arch name='x86_64'>\n<machine maxCpus='many'>q35\
                   </machine></arch></guest></capabilities>";
    check(machine, "file:3: maxCpus is no number: \"many\"");
    check("{\"return\": {}}\n{\"return\"", "file:2: Not an answer of QMP: ");
    let machines = "{\"return\": [{\"name\": \"q35\", \"cpu-max\": 288}]}";
    check(machines, "file:1: The answer to query-target is missing");
    let wrong = "{\"return\": {}}\n{\"return\": [{\"name\": 1, \"cpu-max\": 288}]}";
    check(wrong, "file:2: Not an answer of QMP: invalid type: integer");
}

proptest! {
    #[test]
    fn any_text_is_read_without_harm(
        text in "[{<][a-zA-Z/<>{}'\": =,\\[\\]0-9]{0,100}", cut in 0..3000_usize
    ) {
        let _ = super::read("any", &text);
        for golden in [Q35_KVM, QMP_KVM, CAPABILITIES] {
            let _ = super::read("any", &golden[..golden.floor_char_boundary(cut)]);
        }
    }
}

/// The model with everything tells what no model has here, and no more than that.
#[test]
fn what_the_whole_model_lacks_is_missing() {
    let offers = all(&["\
{\"return\": {\"enabled\": true, \"present\": true}}
{\"return\": {\"arch\": \"x86_64\"}}
{\"return\": [{\"name\": \"host\", \"typename\": \"host-x86_64-cpu\", \"unavailable-features\": []}]}
{\"return\": {\"model\": {\"name\": \"host\", \"props\": {\"waitpkg\": false, \"avx\": true, \
\"hv-time\": false, \"ht\": false, \"invtsc\": false, \"pmu\": false, \"family\": 6}}}}"]);
    assert_eq!(offers.cpus[0].missing, ["waitpkg".to_owned()].into());
    // Of another model nothing is concluded.
    let other = all(&["\
{\"return\": {\"enabled\": true, \"present\": true}}
{\"return\": {\"arch\": \"x86_64\"}}
{\"return\": [{\"name\": \"host\", \"typename\": \"host-x86_64-cpu\", \"unavailable-features\": []}]}
{\"return\": {\"model\": {\"name\": \"qemu64\", \"props\": {\"avx\": false}}}}"]);
    assert!(other.cpus[0].missing.is_empty());
}

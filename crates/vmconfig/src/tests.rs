//! Patches become VMs, or an error that names field and value.

use proptest::prelude::*;
use topology::{Host, Pcpu, PcpuSet};

use crate::*;

mod any;
mod words;
pub(crate) use any::{any_spec, check_round_trip, differences};

pub(crate) fn direct() -> BootSource {
    BootSource::Direct {
        kernel: "/img/vmlinuz".into(),
        initrd: "/img/initrd.img".into(),
        root_image: "/img/root.img".into(),
        cmdline: vec!["root=/dev/vda".to_owned(), "console=ttyS0".to_owned()],
    }
}

pub(crate) fn with(boot: BootSource) -> PatchContext<'static> {
    PatchContext { name: "two", arch: Arch::X86_64, auto_accel: Accel::Tcg, boot }
}

pub(crate) fn patch(text: &str) -> VmPatch {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What variants that turn a knob of every disk or interface turn it on.
pub(crate) fn a_disk_and_a_nic() -> VmPatch {
    patch(
        "disks = [ { source = { file = '/img/data.img' } } ]
         nics = [ { backend = { tap = { ifname = 'tap0' } } } ]",
    )
}

/// Two sockets of eight cores of two threads, numbered as Intel does.
pub(crate) fn xeon_4208() -> Host {
    let pcpu = |id: u32| {
        let (core, thread) = (id % 16, id / 16);
        Pcpu {
            id,
            online: true,
            socket: Some(core / 8),
            core: Some(core % 8),
            thread: Some(thread),
            node: Some(core / 8),
            ..Pcpu::default()
        }
    };
    Host { pcpus: (0..32).map(pcpu).collect(), ..Host::default() }
}

pub(crate) fn resolve(text: &str) -> Result<VmSpec, ResolveError> {
    patch(text).resolve(&with(direct()))
}

#[test]
fn nothing_written_means_the_defaults() {
    let spec = resolve("").unwrap();
    assert_eq!((spec.vcpus(), spec.memory_mib, spec.accel), (1, 1024, Accel::Tcg));
    assert_eq!((spec.machine.as_str(), spec.cpu_model.as_str()), ("q35", "max"));
    assert!(spec.pins.is_empty() && spec.extra_args.is_empty());
    assert_eq!(VmPatch::default().image(), ImagePatch::Builtin("debian-12".to_owned()));

    let kvm = PatchContext { auto_accel: Accel::Kvm, ..with(direct()) };
    assert_eq!(patch("").resolve(&kvm).unwrap().cpu_model, "host");
    assert_eq!(patch("accel = 'tcg'").resolve(&kvm).unwrap().cpu_model, "max");
    let arm = PatchContext { arch: Arch::Aarch64, ..with(direct()) };
    let arm = patch("").resolve(&arm).unwrap();
    assert_eq!((arm.machine.as_str(), arm.machine_type()), ("virt,gic-version=max", "virt"));
}

#[test]
fn vcpus_and_topology_complete_each_other() {
    let check = |text: &str, expected: [u32; 5]| {
        let topology = resolve(text).unwrap().topology;
        assert_eq!(topology.levels().map(|(_, count)| count), expected, "{text}");
    };
    check("vcpus = 4", [1, 1, 1, 4, 1]);
    check("topology = { sockets = 2 }", [2, 1, 1, 1, 1]);
    check("topology = { cores = 2, threads = 2 }", [1, 1, 1, 2, 2]);
    check("vcpus = 4\ntopology = { threads = 2 }", [1, 1, 1, 2, 2]);
    check("vcpus = 8\ntopology = { sockets = 2, dies = 2, threads = 2 }", [2, 2, 1, 1, 2]);
    check("vcpus = 4\ntopology = { sockets = 2, cores = 2 }", [2, 1, 1, 2, 1]);
}

#[test]
fn what_lies_over_holds() {
    let base = patch(
        "vcpus = 4\ntopology = { threads = 2 }\npins = ['0', '1', '2', '3']\nmemory_mib = 512
         kernel_cmdline = 'nohz=off'\nextra_args = ['-no-hpet']\nemulator_pin = '7'",
    );
    let check =
        |over: &str, expected: &str| assert_eq!(base.overlay(&patch(over)), patch(expected));
    let rest = "memory_mib = 512\nkernel_cmdline = 'nohz=off'\nextra_args = ['-no-hpet']";
    let pins = "pins = ['0', '1', '2', '3']\nemulator_pin = '7'";
    let vcpus = "vcpus = 4\ntopology = { threads = 2 }";
    check("", &format!("{vcpus}\n{pins}\n{rest}"));
    // The base's threads say nothing about a variant's vCPUs.
    check("vcpus = 2", &format!("vcpus = 2\n{pins}\n{rest}"));
    check("topology = { cores = 3 }", &format!("topology = {{ cores = 3 }}\n{pins}\n{rest}"));
    check("pins = []", &format!("{vcpus}\npins = []\nemulator_pin = '7'\n{rest}"));
    check(
        "kernel_cmdline = 'idle=poll'\nextra_args = ['-device', 'virtio-rng-pci']\nmemory_mib = 64",
        &format!(
            "{vcpus}\n{pins}\nmemory_mib = 64\nkernel_cmdline = 'nohz=off idle=poll'
             extra_args = ['-no-hpet', '-device', 'virtio-rng-pci']"
        ),
    );
    let unpinned = base.overlay(&patch("pins = []\nemulator_pin = ''"));
    assert!(unpinned.resolve(&with(direct())).unwrap().pins.is_empty());
}

#[test]
fn pins_are_a_list_or_a_table() {
    let check = |text: &str, expected: &[(u32, &str)]| {
        let expected: VcpuPins =
            expected.iter().map(|(vcpu, pcpus)| (*vcpu, pcpus.parse().unwrap())).collect();
        assert_eq!(patch(text).pins.unwrap(), expected, "{text}");
    };
    check("pins = ['2', '3', '4-5']", &[(0, "2"), (1, "3"), (2, "4-5")]);
    check("pins = [2, '', 4]", &[(0, "2"), (2, "4")]);
    check("pins = { 0 = '2', 3 = '4-5,8' }", &[(0, "2"), (3, "4-5,8")]);
    check("pins = { 1 = 2 }", &[(1, "2")]);
    check("pins = []", &[]);
}

#[test]
fn texts_that_are_no_patch_are_refused_with_the_value() {
    let check = |text: &str, expected: &str| {
        let error = toml::from_str::<VmPatch>(text).unwrap_err();
        assert!(error.message().contains(expected), "{text}: {}", error.message());
        assert!(error.span().is_some(), "{text}: no place");
    };
    check("vcpu = 2", "unknown field `vcpu`");
    check("vcpus = '2'", "invalid type: string \"2\"");
    check("vcpus = -1", "invalid value: integer `-1`");
    check("topology = { core = 2 }", "unknown field `core`");
    check("accel = 'hvf'", "unknown variant `hvf`, expected one of `auto`, `kvm`, `tcg`");
    check("pins = 'all'", "invalid type: string \"all\", expected pCPUs by vCPU");
    check("pins = ['x']", "Not a pCPU number: \"x\"");
    check("pins = [-1]", "not a pCPU number: -1");
    check("pins = { a = '1' }", "not a vCPU number: \"a\"");
    check("pins = { 1 = '1', 01 = '2' }", "vCPU 1 is pinned twice");
    check("emulator_pin = '3-1'", "Range runs backwards: \"3-1\"");
    check("image = ''", "Not an image: \"\"");
    check("image = 'builtin:'", "Not an image: \"builtin:\"");
    check("extra_args = '-foo'", "invalid type: string \"-foo\"");
}

#[test]
fn patches_that_make_no_vm_are_refused_with_field_and_value() {
    let check = |text: &str, field: &str, expected: &str| {
        let error = resolve(text).unwrap_err();
        assert_eq!((error.field(), error.to_string().as_str()), (field, expected), "{text}");
    };
    check("vcpus = 0", "vcpus", "vcpus is 0: a VM has at least 1");
    check(
        "topology = { sockets = 0 }",
        "topology",
        "topology sockets=0,dies=1,clusters=1,cores=1,threads=1 has 0 sockets: every level is at \
         least 1",
    );
    check(
        "vcpus = 4\ntopology = { cores = 3 }",
        "vcpus",
        "vcpus is 4, but topology sockets=1,dies=1,clusters=1,cores=3,threads=1 makes 3",
    );
    check(
        "vcpus = 3\ntopology = { threads = 2 }",
        "vcpus",
        "vcpus 3 can't be shared evenly among topology \
         sockets=1,dies=1,clusters=1,cores=1,threads=2; write its cores too",
    );
    check(
        "vcpus = 4097",
        "vcpus",
        "vcpus 4097 (sockets=1,dies=1,clusters=1,cores=4097,threads=1) is more than any machine \
         takes: 4096",
    );
    // Their product does not fit into 32 bits.
    check(
        "topology = { sockets = 65536, cores = 65536, threads = 2 }",
        "vcpus",
        "vcpus 4294967295 (sockets=65536,dies=1,clusters=1,cores=65536,threads=2) is more than \
         any machine takes: 4096",
    );
    check("memory_mib = 0", "memory_mib", "memory_mib is 0: a guest needs memory");
    check(
        "memory_mib = 18446744073709551",
        "memory_mib",
        "memory_mib 18446744073709551 is more than 1073741824 (1 PiB)",
    );
    check(
        "vcpus = 2\npins = { 2 = '0' }",
        "pins",
        "pins name vCPU 2, but the VM has 2 vCPUs (0-1)",
    );
    check("pins = ['0', '1']", "pins", "pins name vCPU 1, but the VM has 1 vCPU (0)");
    check(
        "pins = { 0 = '' }",
        "pins",
        "pins gives vCPU 0 no pCPU: leave it out to let it run anywhere",
    );
    check("machine = ''", "machine", "machine is empty");
    check("cpu_model = 'host, -x'", "cpu_model", "cpu_model \"host, -x\" holds white space");
    check(
        "cpu_model = 'host,-hypervisor'",
        "cpu_model",
        "cpu_model \"host,-hypervisor\" needs accel kvm; tcg takes \"max\" or a named model",
    );
    check(
        "extra_args = ['a\\nb']".replace('\'', "\"").as_str(),
        "extra_args",
        "extra_args \"a\\nb\" holds a control character",
    );
    check(
        "extra_args = ['--smp', '3']",
        "extra_args",
        "extra_args holds \"--smp\": write vcpus or topology",
    );
    check(
        "extra_args = ['-daemonize']",
        "extra_args",
        "extra_args holds \"-daemonize\": the VM would be left behind when the run ends",
    );

    let disk = BootSource::Disk { image: "a.qcow2".into(), format: DiskFormat::Qcow2 };
    let error = patch("kernel_cmdline = 'idle=poll'").resolve(&with(disk)).unwrap_err();
    assert_eq!(error.field(), "kernel_cmdline");
    let nameless = PatchContext { name: "", ..with(direct()) };
    let error = patch("").resolve(&nameless).unwrap_err();
    assert_eq!((error.field(), error.to_string().as_str()), ("name", "name is empty"));
}

#[test]
fn the_host_is_asked() {
    let pcpu = |id, online| Pcpu { id, online, ..Pcpu::default() };
    let host = Host {
        pcpus: vec![pcpu(0, true), pcpu(1, true), pcpu(2, false), pcpu(3, true)],
        memory_bytes: Some(8 << 30),
        available_bytes: Some(4 << 30),
        allowed: Some("0-2".parse().unwrap()),
        ..Host::default()
    };
    let check = |text: &str, expected: &[(SpecSeverity, &str, &str)]| {
        let findings = check_against(&resolve(text).unwrap(), &host);
        let found: Vec<_> = findings
            .iter()
            .map(|finding| (finding.severity, finding.field.as_str(), finding.message.as_str()))
            .collect();
        assert_eq!(found, expected, "{text}");
    };
    use SpecSeverity::{Error, Warning};
    check("vcpus = 3\npins = ['0', '1', '0-1']\nmemory_mib = 4096", &[]);
    check(
        "vcpus = 3\npins = ['0', '1-2', '3']\nemulator_pin = '9'",
        &[
            (Error, "pins", "pins \"1-2\" puts vCPU 1 on pCPU 2, which is offline"),
            (
                Error,
                "pins",
                "pins \"3\" puts vCPU 2 on pCPU 3, which this process may not use (cpuset or \
                 affinity)",
            ),
            (
                Error,
                "emulator_pin",
                "emulator_pin \"9\" puts the emulator thread on pCPU 9, which this host does not \
                 have (online: 0-1,3)",
            ),
        ],
    );
    check(
        "iothreads = 1\niothread_pins = { 1 = '9' }\nvhost_pin = '2'",
        &[
            (
                Error,
                "iothread_pins",
                "iothread_pins \"9\" puts iothread 1 on pCPU 9, which this host does not have \
                 (online: 0-1,3)",
            ),
            (
                Error,
                "vhost_pin",
                "vhost_pin \"2\" puts the vhost threads on pCPU 2, which is offline",
            ),
        ],
    );
    check(
        "topology = { threads = 2 }\naccel = 'tcg'",
        &[(
            Warning,
            "topology",
            "threads = 2: with cpu_model \"max\" the guest takes each thread for a core; write \
             cpu_model = \"max,vendor=GenuineIntel\"",
        )],
    );
    check("topology = { threads = 2 }\naccel = 'tcg'\ncpu_model = 'max,vendor=GenuineIntel'", &[]);
    check("topology = { threads = 2 }\naccel = 'kvm'", &[]);
    let amd = Host { cpu_model: Some("AMD EPYC 7763".to_owned()), ..Host::default() };
    let on_amd = |model: &str| {
        let text = format!("topology = {{ threads = 2 }}\naccel = 'kvm'\ncpu_model = '{model}'");
        check_against(&resolve(&text).unwrap(), &amd).len()
    };
    assert_eq!((on_amd("host"), on_amd("host,topoext=on"), on_amd("EPYC")), (1, 0, 0));
    let shown = |host: &Host, more: &str| {
        let spec = resolve(&format!("topology = {{ threads = 2 }}\n{more}")).unwrap();
        crate::with_shown_threads(spec, host).unwrap().cpu_model.clone()
    };
    assert_eq!(shown(&amd, "accel = 'kvm'"), "host,topoext=on");
    assert_eq!(shown(&amd, "accel = 'kvm'\ncpu_model = 'host,topoext=off'"), "host,topoext=off");
    assert_eq!(shown(&amd, "accel = 'kvm'\ncpu_model = 'EPYC'"), "EPYC");
    assert_eq!(
        shown(&amd, "accel = 'kvm'\ncpu_model = 'host-model'"),
        "host-model,topoext=on",
        "QEMU gets host for it"
    );
    assert_eq!(shown(&amd, "accel = 'tcg'"), "max", "TCG has no such feature");
    assert_eq!(shown(&Host::default(), "accel = 'kvm'"), "host");
    check(
        "memory_mib = 8193",
        &[(Error, "memory_mib", "memory_mib 8193 is more than this host has: 8192 MiB")],
    );
    check(
        "memory_mib = 4097",
        &[(
            Warning,
            "memory_mib",
            "memory_mib 4097 is more than this host has available: 4096 MiB; the guest may be \
             killed when it touches it all",
        )],
    );
    check(
        "memory_mib = 100",
        &[(Warning, "memory_mib", "memory_mib 100 is little: a Debian guest needs 128 to get up")],
    );
    check(
        "vcpus = 4",
        &[(Warning, "vcpus", "vcpus 4 on a host with 3 online pCPUs: they take turns")],
    );
    assert_eq!(check_against(&resolve("vcpus = 4\npins = ['99']").unwrap(), &Host::default()), []);
}

#[test]
fn images_have_names() {
    let check = |text: &str, expected: ImagePatch| {
        let image: ImagePatch = text.parse().unwrap();
        assert_eq!((&image, image.to_string().as_str()), (&expected, text));
    };
    check("builtin:debian-12", ImagePatch::Builtin("debian-12".to_owned()));
    check("images/my.qcow2", ImagePatch::File("images/my.qcow2".into()));
}

pub(crate) fn any_patch() -> impl Strategy<Value = VmPatch> {
    let pcpus = prop::collection::btree_set(0..9_u32, 0..3).prop_map(PcpuSet::from_iter);
    let level = || prop::option::of(0..4_u32);
    let topology = (level(), level(), level(), level(), level()).prop_map(
        |(sockets, dies, clusters, cores, threads)| TopologyPatch {
            sockets,
            dies,
            clusters,
            cores,
            threads,
        },
    );
    let pins = prop::collection::btree_map(0..5_u32, pcpus.clone(), 0..4).prop_map(VcpuPins);
    let text = |choices: &'static [&'static str]| {
        prop::option::of(prop::sample::select(choices).prop_map(str::to_owned))
    };
    let image = prop::sample::select(vec!["builtin:debian-12", "a,b.raw"]);
    (
        (prop::option::of(0..9_u32), prop::option::of(topology), prop::option::of(pins)),
        (
            prop::option::of(pcpus),
            prop::option::of(prop::sample::select(vec![0, 1, 64, 4096, u64::MAX >> 1])),
        ),
        (text(&["host", "max", "qemu64,-sse4", "", "a b"]), text(&["q35", "pc,hpet=off", ""])),
        prop::option::of(prop::sample::select(vec![
            AccelChoice::Auto,
            AccelChoice::Kvm,
            AccelChoice::Tcg,
        ])),
        (prop::option::of(image), text(&["quiet", "a  b", "x\u{7}"])),
        prop::collection::vec(prop::sample::select(vec!["-no-hpet", "-smp", "-device", "x"]), 0..3),
    )
        .prop_map(
            |(
                (vcpus, topology, pins),
                (emulator_pin, memory_mib),
                (cpu_model, machine),
                accel,
                (image, kernel_cmdline),
                extra_args,
            )| {
                VmPatch {
                    vcpus,
                    topology,
                    pins,
                    emulator_pin,
                    memory_mib,
                    cpu_model,
                    machine,
                    accel,
                    image: image.map(|text| text.parse().expect("an image")),
                    kernel_cmdline,
                    extra_args: extra_args.into_iter().map(str::to_owned).collect(),
                    ..VmPatch::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn a_vm_holds_its_invariants_or_the_error_names_the_field(patch in any_patch()) {
        match patch.resolve(&with(direct())) {
            Ok(spec) => {
                let VmSettings { topology, pins, memory_mib, .. } = &*spec;
                prop_assert!(topology.levels().iter().all(|(_, count)| *count >= 1));
                prop_assert!(patch.vcpus.is_none_or(|vcpus| vcpus == spec.vcpus()));
                prop_assert!(*memory_mib >= 1);
                prop_assert!(pins.vcpus.iter().all(|(vcpu, pcpus)| *vcpu < spec.vcpus() && !pcpus.is_empty()));
                prop_assert!(!spec.extra_args.contains(&"-smp".to_owned()));
                // The settings alone make the same VM again, also through JSON.
                let text = serde_json::to_string(&spec).unwrap();
                prop_assert_eq!(serde_json::from_str::<VmSpec>(&text).unwrap(), spec);
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with(error.field()), "{} of {}", error.field(), text);
            }
        }
    }

    #[test]
    fn a_patch_survives_toml(patch in any_patch()) {
        let text = toml::to_string(&patch).unwrap();
        prop_assert_eq!(toml::from_str::<VmPatch>(&text).unwrap(), patch);
    }

    #[test]
    fn overlaying_is_associative_and_nothing_changes_nothing(
        a in any_patch(), b in any_patch(), c in any_patch(),
    ) {
        prop_assert_eq!(a.overlay(&b).overlay(&c), a.overlay(&b.overlay(&c)));
        prop_assert_eq!(a.overlay(&VmPatch::default()), a.clone());
        prop_assert_eq!(VmPatch::default().overlay(&a), a);
    }
}

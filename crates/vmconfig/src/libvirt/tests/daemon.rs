//! The real libvirtd: privately, in namespaces of its own, which root can have.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use suite::{Tier, needs};

use crate::builtin::{VARIANTS, variant};
use crate::tests::{a_disk_and_a_nic, differences, direct, patch, xeon_4208};
use crate::{
    Accel, Arch, BootSource, CpuProperty, DelegatedPlacement, Disk, DiskSource, HostWishes,
    MemoryBacking, NumberSet, PatchContext, Pins, Schedulers, TickPolicy, VmSettings, VmSpec,
    split_cpu_model,
};

use super::schema::as_known_here;
use super::*;

/// What virsh says to each list of commands; `None` if it can't be had here.
pub(super) fn virsh(tier: Tier, scripts: &[String]) -> Option<Vec<String>> {
    let _turn = needs(tier).pcpus(1).turn()?;
    let mut child = suite::beside_libvirtd(include_str!("daemon.sh"))?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = scripts.iter().map(|script| format!("{script}{END}")).collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let mut answers: Vec<String> = said.split(END_SAID).map(str::to_owned).collect();
    answers.pop();
    assert_eq!(answers.len(), scripts.len(), "{said}");
    Some(answers)
}

const END: &str = "echo ==\\= end\n";
const END_SAID: &str = "=== end";

fn vm(name: &str, text: &str) -> VmSpec {
    let with = PatchContext {
        name,
        arch: Arch::X86_64,
        auto_accel: Accel::Tcg,
        boot: BootSource::Firmware,
    };
    patch(text).resolve(&with).unwrap()
}

/// Every variant, and VMs of every kind.
fn all() -> Vec<VmSpec> {
    let host = xeon_4208();
    let of_variant = |name| {
        let patch = a_disk_and_a_nic().overlay(&variant(name, &host, 4).unwrap());
        let boot = if patch.kernel_cmdline.is_some() { direct() } else { BootSource::Firmware };
        let with = PatchContext { name, arch: Arch::X86_64, auto_accel: Accel::Tcg, boot };
        patch.resolve(&with).unwrap()
    };
    let mut all: Vec<VmSpec> = VARIANTS.iter().map(|one| of_variant(one.name)).collect();
    let config = Config::default();
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    all.extend((0..100).map(|_| any_spec().new_tree(&mut runner).unwrap().current()));
    // libvirt knows domains of KVM only where there is one.
    all.retain(|spec| spec.accel == Accel::Tcg || Path::new("/dev/kvm").exists());
    all.iter().map(as_known_here).collect()
}

/// The VM without what this machine may lack, which libvirt looks for: nodes but
/// the first, vhost-scsi, VFIO, another rate of the time stamp counter, and AMD's
/// threads.
pub(super) fn for_this_machine(spec: &VmSpec) -> VmSpec {
    let mut settings = VmSettings::from(spec.clone());
    let nodes = settings.numa.iter_mut().map(|node| &mut node.host_nodes);
    for nodes in nodes.chain([&mut settings.memory.host_nodes]).flatten() {
        *nodes = NumberSet::from_iter([0]);
    }
    settings.disks.retain(|disk| !matches!(disk.source, DiskSource::VhostScsi(_)));
    settings.host_devices.clear();
    settings.clock.tsc_frequency_hz = None;
    settings.cpu_model = settings.cpu_model.replace(",topoext=on", "");
    VmSpec::new(settings).unwrap()
}

/// What libvirt changes in a definition: it adds the newest version of a machine
/// type, addresses of network interfaces and its own choice for migration,
/// forgets a lone queue, and puts disks of one bus together, vhost-scsi behind all.
fn as_defined(asked: &VmSettings, kept: &VmSettings) -> VmSettings {
    let mut kept = kept.clone();
    kept.machine = unversioned(&kept.machine, &asked.machine);
    for (kept, asked) in kept.nics.iter_mut().zip(&asked.nics) {
        assert!(kept.mac.is_some());
        kept.mac = kept.mac.take().filter(|_| asked.mac.is_some());
        kept.queues = kept.queues.or(asked.queues.filter(|queues| *queues == 1));
    }
    kept.cpu_model = without_migratable(&kept.cpu_model, &asked.cpu_model);
    kept.disks = ungrouped(kept.disks, &asked.disks);
    kept
}

/// `disks`, of which libvirt puts those of one bus together, in the order of `asked`.
fn ungrouped(mut disks: Vec<Disk>, asked: &[Disk]) -> Vec<Disk> {
    let kind = |disk: &Disk| (disk.bus, matches!(disk.source, DiskSource::VhostScsi(_)));
    let mut all = Vec::new();
    for disk in asked {
        let place = disks.iter().position(|found| kind(found) == kind(disk));
        all.extend(place.map(|place| disks.remove(place)));
    }
    all.append(&mut disks);
    all
}

/// `pc-q35-7.2` is what `q35` meant.
fn unversioned(found: &str, asked: &str) -> String {
    let found = found.replace(",usb=off,dump-guest-core=off", "");
    for (long, short) in [("pc-q35-", "q35"), ("pc-i440fx-", "pc")] {
        let (machine, rest) = found.split_once(',').unwrap_or((&found, ""));
        if machine.starts_with(long) && asked.split(',').next() == Some(short) {
            return [short, rest].join(",").trim_end_matches(',').to_owned();
        }
    }
    found
}

fn without_migratable(found: &str, asked: &str) -> String {
    if asked.contains("migratable") {
        return found.to_owned();
    }
    found.replace(",+migratable", "").replace(",migratable=on", "")
}

/// Both VMs as a command line of libvirt's can say them. It leaves out what is
/// QEMU's default, opens taps and overlays by itself, chooses what memory is for
/// the kernel, and has huge pages there from the start.
fn as_told(settings: &VmSettings, huge_pages: bool) -> VmSettings {
    let mut vm = settings.clone();
    match &vm.boot {
        BootSource::Direct { kernel, initrd, cmdline, .. } => {
            vm.kernel_cmdline = [cmdline.clone(), vm.kernel_cmdline].concat();
            vm.boot = BootSource::Kernel { kernel: kernel.clone(), initrd: Some(initrd.clone()) };
        }
        BootSource::Disk { .. } => vm.boot = BootSource::Firmware,
        BootSource::Kernel { .. } | BootSource::Firmware => {}
    }
    for disk in &mut vm.disks {
        (disk.boot_order, disk.transient) = (None, false);
    }
    (vm.pins, vm.scheduler) = (Pins::default(), Schedulers::default());
    (vm.host, vm.delegated) = (HostWishes::default(), DelegatedPlacement::default());
    vm.memory.source = None;
    if huge_pages {
        let MemoryBacking { huge_pages, prealloc, .. } = &mut vm.memory;
        (*huge_pages, *prealloc) = (None, None);
    }
    for node in &mut vm.numa {
        node.source = None;
        if huge_pages {
            (node.huge_pages, node.prealloc) = (None, None);
        }
        node.distances.retain(|_, distance| *distance != 10);
    }
    let off = |switch: &mut Option<bool>| *switch = switch.filter(|on| *on);
    off(&mut vm.hints.kvm_hint_dedicated);
    off(&mut vm.hints.poll_control);
    off(&mut vm.clock.hypervclock);
    vm.hints.pv_ipi = vm.hints.pv_ipi.filter(|on| !on);
    vm.clock.hpet = vm.clock.hpet.filter(|on| !on);
    vm.clock.rtc = vm.clock.rtc.filter(|policy| *policy != TickPolicy::Delay);
    let (model, properties) = split_cpu_model(&vm.cpu_model);
    let mut words: Vec<String> = properties.iter().map(CpuProperty::text).collect();
    words.sort();
    vm.cpu_model = [vec![model.to_owned()], words].concat().join(",");
    vm
}

/// The VM that libvirt was asked for and the one that its command line says, both as
/// far as that can say them; interfaces as they stand.
pub(super) fn asked_and_told(spec: &VmSpec, line: &str) -> (VmSettings, VmSettings) {
    let mut told = crate::qemu::parse(line).unwrap().settings;
    let (extra, asked) = (told.extra_args.join(" "), spec.extra_args.join(" "));
    // A word that is not an option stands in the line, and is an image there.
    assert!(extra.contains(&asked) || line.contains(&asked), "{extra}\n{line}");
    told.extra_args.clone_from(&spec.extra_args);
    if let BootSource::Direct { root_image: image, .. } | BootSource::Disk { image, .. } =
        &spec.boot
    {
        assert_eq!(told.disks.remove(0).source, DiskSource::File(image.clone()), "{line}");
    }
    told.machine = unversioned(&told.machine, &spec.machine);
    told.cpu_model = without_migratable(&told.cpu_model, &spec.cpu_model);
    if spec.cpu_model.starts_with("host-model") {
        // A name and a list that belong to this machine.
        told.cpu_model.clone_from(&spec.cpu_model);
    }
    let huge_pages = spec.backing().iter().any(|memory| memory.huge_pages.is_some());
    (as_told(spec, huge_pages), as_told(&told, huge_pages))
}

/// The command line in libvirt's answer.
pub(super) fn command_line(answer: &str) -> &str {
    answer.lines().find(|line| line.contains("/qemu-system-x86_64 ")).unwrap()
}

#[test]
fn it_keeps_the_vm_and_says_the_same_to_qemu() {
    let folder = tempfile::tempdir().unwrap();
    let specs = all();
    let file = |name: String, spec: &VmSpec| {
        let path = folder.path().join(name);
        std::fs::write(&path, emit(spec).text).unwrap();
        path.display().to_string()
    };
    let scripts: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(number, spec)| {
            let asked = file(format!("{number}.xml"), spec);
            let native = file(format!("{number}-here.xml"), &for_this_machine(spec));
            let name = spec.name.replace('/', "-");
            let name: String = name.chars().flat_map(|c| ['\\', c]).collect();
            format!(
                "define {asked}\n{CUT}dumpxml --inactive {name}\n{CUT}\
                 domxml-to-native qemu-argv --xml {native}\n{CUT}undefine {name}\n"
            )
        })
        .collect();
    let Some(answers) = virsh(Tier::Test, &scripts) else { return };
    for (spec, answer) in specs.iter().zip(answers) {
        let EmittedText { text, losses } = emit(spec);
        assert!(!answer.contains("error:"), "{answer}\n{text}");
        let parts: Vec<&str> = answer.split(CUT_SAID).collect();
        let &[_, kept, native, _] = parts.as_slice() else { panic!("{answer}") };

        let kept = settings(between(kept, "<domain", "</domain>")).settings;
        let different = differences(spec, &as_defined(spec, &kept), &losses);
        assert!(different.is_empty(), "{}\n{text}\n{answer}", different.join("\n"));

        let spec = for_this_machine(spec);
        let EmittedText { text, losses } = emit(&spec);
        let (mut asked, mut told) = asked_and_told(&spec, command_line(native));
        // libvirt opens taps itself, and gives addresses.
        asked.nics.clear();
        told.nics.clear();
        told.disks = ungrouped(told.disks, &asked.disks);
        let different = differences(&asked, &told, &losses);
        assert!(different.is_empty(), "{}\n{text}\n{native}", different.join("\n"));
    }
}

/// The pins that libvirt really set, from the affinities of the threads.
#[test]
fn it_starts_the_vm_with_its_pins() {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let spec = vm(
        "pinned",
        &format!(
            "vcpus = 2\npins = ['0', '{last}']\nemulator_pin = '{last}'\niothreads = 1
             iothread_pins = {{ 1 = '0' }}\nmemory_mib = 64"
        ),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pinned.xml");
    std::fs::write(&file, emit(&spec).text).unwrap();
    let commands = ["vcpuinfo --pretty", "emulatorpin", "iothreadinfo", "dumpxml"];
    let asked = commands.map(|command| format!("{CUT}{command} pinned\n")).concat();
    let file = file.display();
    let script = format!("define {file}\nstart pinned\n{asked}{CUT}destroy pinned\n");
    let Some(answers) = virsh(Tier::Test, &[script]) else { return };
    let answer = &answers[0];
    assert!(!answer.contains("error:"), "{answer}");
    let parts: Vec<&str> = answer.split(CUT_SAID).collect();
    let &[_, vcpus, emulator, iothreads, live, _] = parts.as_slice() else { panic!("{answer}") };
    let after = |text: &str, word: &str| -> Vec<String> {
        let rest = text.lines().filter_map(|line| line.trim().strip_prefix(word));
        rest.filter_map(|rest| rest.split_whitespace().next().map(str::to_owned)).collect()
    };
    let last = last.to_string();
    assert_eq!(after(vcpus, "CPU Affinity:"), ["0", &last], "{answer}");
    assert_eq!(emulator.lines().nth(1), Some(last.as_str()), "{answer}");
    assert_eq!(after(iothreads, "1 "), ["0"], "{answer}");
    let live = settings(between(live, "<domain", "</domain>")).settings;
    assert_eq!(live.pins, spec.pins);
}

/// The part of a text from one word to the end of another.
fn between<'a>(text: &'a str, first: &str, last: &str) -> &'a str {
    let start = text.find(first).unwrap_or_else(|| panic!("no {first} in {text}"));
    &text[start..text.rfind(last).unwrap() + last.len()]
}

/// A line between answers; virsh repeats the command, which must look different.
const CUT: &str = "echo ==\\= cut\n";
const CUT_SAID: &str = "=== cut";

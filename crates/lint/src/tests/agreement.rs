//! All who read a VM believe the same of it: this crate's rules, `VmSpec` and the
//! predictors of Kubernetes, on every text of the repository that holds one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use placement::predict::kubevirt::Vmi;
use suite::{Tier, needs};
use topology::PcpuSet;
use vmconfig::kubevirt::Catalogue;
use vmconfig::source::SourceText;
use vmconfig::{DiskSource, HostDevice, ParsedVm, VmSettings};

use crate::read::{self, ConfigItem, ReadOptions};
use crate::rule::ConfigFormat;
use crate::rules::RULES;
use crate::vm::Vm;

/// What a reader believes of a VM; nothing of what its text does not say or what is
/// no business of that reader.
#[derive(Debug, Default, PartialEq, Eq)]
struct Belief(BTreeMap<&'static str, String>);

impl Belief {
    fn say(&mut self, what: &'static str, value: impl ToString) {
        self.0.insert(what, value.to_string());
    }

    fn both<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a String, &'a String)> {
        self.0.iter().filter_map(|(what, one)| Some((*what, one, other.0.get(what)?)))
    }

    /// What both speak of, and say otherwise.
    fn differences(&self, other: &Self) -> Vec<String> {
        let different = self.both(other).filter(|(_, one, other)| one != other);
        different.map(|(what, one, other)| format!("{what} {one} and {other}")).collect()
    }
}

fn levels(levels: [u32; 5]) -> String {
    let [sockets, dies, clusters, cores, threads] = levels;
    // Whether what shares a second cache counts as a cluster or as cores is a matter
    // of words.
    format!("{sockets} {dies} {} {threads}", clusters.saturating_mul(cores))
}

/// Threads by their number, each with where it may run.
fn of_threads<N: ToString, S: ToString>(pins: impl IntoIterator<Item = (N, S)>) -> String {
    let each = pins.into_iter().map(|(id, set)| format!("{}@{} ", id.to_string(), set.to_string()));
    each.collect()
}

/// What is said of the first cells: their memory, and their vCPUs.
const CELLS: [&str; 4] = ["cell 0", "cell 1", "cell 2", "cell 3"];
const SEATS: [&str; 4] = ["vcpus of 0", "vcpus of 1", "vcpus of 2", "vcpus of 3"];

fn set(pcpus: Option<&PcpuSet>) -> String {
    pcpus.map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn of_rules(vm: &Vm) -> Belief {
    let mut belief = Belief::default();
    if !vm.vcpus_unknown {
        belief.say("vcpus", vm.vcpus.value);
        belief.say("max_vcpus", vm.max_vcpus.value);
    }
    if let Some(topology) = &vm.topology {
        let one = &topology.value;
        belief
            .say("topology", levels([one.sockets, one.dies, one.clusters, one.cores, one.threads]));
    }
    // Cells hold the memory, where there are any.
    if let Some(memory) = vm.memory_bytes.as_ref().filter(|_| vm.cells.is_empty()) {
        belief.say("memory_mib", memory.value.div_ceil(1 << 20));
    }
    let mut pins: Vec<_> = vm.pins.iter().map(|pin| (pin.id.value, &pin.pcpus.value)).collect();
    pins.sort_by_key(|pin| pin.0);
    pins.dedup_by_key(|pin| pin.0);
    belief.say("pins", of_threads(pins));
    if vm.affinity.is_none() {
        belief.say("emulator", set(vm.emulator.as_ref().map(|at| &at.value)));
    }
    let mut cells: Vec<_> = vm.cells.iter().collect();
    cells.sort_by_key(|cell| cell.id);
    // What can't be is for rules to find, and a VM has others in its place.
    if cells.iter().map(|cell| cell.id).eq(0..u32::try_from(cells.len()).unwrap()) {
        belief.say("cells", cells.len());
        for (name, cell) in CELLS.into_iter().zip(&cells) {
            if let Some(bytes) = cell.memory_bytes {
                belief.say(name, format!("{} MiB", bytes.div_ceil(1 << 20)));
            }
        }
        let seated = PcpuSet::union_of(cells.iter().map(|cell| &cell.vcpus));
        if seated == (0..vm.max_vcpus.value.min(4096)).collect() {
            for (name, cell) in SEATS.into_iter().zip(&cells) {
                belief.say(name, &cell.vcpus);
            }
        }
    }
    if let Some(huge) = &vm.huge_pages
        && let Some(bytes) = huge.value
        && vm.cells.is_empty()
    {
        belief.say("huge_pages", format!("{} KiB", bytes >> 10));
    }
    if vm.kubevirt.is_none() {
        belief.say("iothreads", vm.iothreads.len());
        let place = |id: &str| vm.iothreads.iter().position(|one| one == id);
        let pins = vm.iothread_pins.iter();
        let pins = pins.map(|pin| Some((place(&pin.id.value)? + 1, &pin.pcpus.value)));
        // A pin of a thread that is not there is for a rule to find.
        if let Some(mut pins) = pins.collect::<Option<Vec<_>>>() {
            pins.sort_by_key(|pin| pin.0);
            belief.say("iothread pins", of_threads(pins));
        }
    }
    let devices = vm.host_devices.iter().map(|at| format!("{} ", at.value));
    belief.say("host devices", devices.collect::<String>());
    belief.say("dedicated", vm.is_dedicated());
    belief.say("nics", vm.nics.len());
    let queues = |queues: Option<u32>| queues.map_or("-".to_owned(), |n| n.to_string());
    for (name, nic) in ["nic 0", "nic 1", "nic 2"].into_iter().zip(&vm.nics) {
        belief.say(name, queues(nic.queues.as_ref().map(|at| at.value)));
    }
    let disks: Vec<_> = vm.disks.iter().filter(|disk| disk.hard).collect();
    belief.say("disks", disks.len());
    for (name, disk) in ["disk 0", "disk 1", "disk 2"].into_iter().zip(disks) {
        let cache = disk.cache.as_ref().map_or("-", |at| &*at.value);
        let io = disk.io.as_ref().map_or("-", |at| &*at.value);
        belief.say(name, format!("cache {cache} io {io} block {}", disk.block));
    }
    belief
}

fn of_spec(parsed: &ParsedVm, format: ConfigFormat) -> Belief {
    let VmSettings { topology, pins, .. } = &parsed.settings;
    let mut belief = Belief::default();
    // What has no place in a VM is kept, and no disagreement.
    let is_kept = |word: &str| parsed.kept.iter().any(|kept| kept.path.contains(word));
    // Nobody starts a VM whose vCPUs are not its topology.
    let contradicts = is_kept("-smp") || is_kept("/cpu/topology");
    if !contradicts {
        belief.say("vcpus", parsed.settings.vcpus());
        belief.say("max_vcpus", parsed.settings.max_vcpus());
    }
    let mut counts = topology.levels().map(|(_, count)| count);
    if let (ConfigFormat::Kubevirt, Some(present)) = (format, parsed.settings.present_vcpus) {
        // Others speak of the sockets that are there at the start.
        counts[0] = present / topology.cores.saturating_mul(topology.threads).max(1);
    }
    belief.say("topology", levels(counts));
    if parsed.lines.contains_key("memory_mib") {
        belief.say("memory_mib", parsed.settings.memory_mib);
    }
    let of_all = parsed.lines.contains_key("pins");
    if !of_all {
        belief.say("pins", of_threads(pins.vcpus.iter()));
    }
    if !is_kept("/iothreadpin") {
        belief.say("iothread pins", of_threads(pins.iothreads.iter()));
    }
    belief.say("iothreads", parsed.settings.iothreads);
    belief.say("cells", parsed.settings.numa.len());
    for ((name, seat), cell) in CELLS.into_iter().zip(SEATS).zip(&parsed.settings.numa) {
        belief.say(name, format!("{} MiB", cell.memory_mib));
        belief.say(seat, &cell.vcpus);
    }
    if let Some(size) = parsed.settings.memory.huge_pages {
        belief.say("huge_pages", format!("{} KiB", size.kib()));
    }
    let devices = parsed.settings.host_devices.iter().filter_map(|device| match device {
        HostDevice::Pci(address) => Some(format!("{address} ")),
        HostDevice::Resource(_) => None,
    });
    if !["hostdev", "interface", "-device"].iter().any(|word| is_kept(word)) {
        belief.say("host devices", devices.collect::<String>());
    }
    belief.say("dedicated", parsed.settings.delegated.dedicated_vcpus == Some(true));
    belief.say("emulator", set(pins.emulator.as_ref()));
    let nics = ["interface", "-device", "-netdev", "-nic", "-net", "hostdev"];
    if !nics.iter().any(|word| is_kept(word)) {
        belief.say("nics", parsed.settings.nics.len());
        for (name, nic) in ["nic 0", "nic 1", "nic 2"].into_iter().zip(&parsed.settings.nics) {
            belief.say(name, nic.queues.map_or("-".to_owned(), |n| n.to_string()));
        }
    }
    let disks = ["disk", "-device", "-drive", "-blockdev", "hostdev", "volumes"];
    if !disks.iter().any(|word| is_kept(word)) {
        belief.say("disks", parsed.settings.disks.len());
        for (name, disk) in ["disk 0", "disk 1", "disk 2"].into_iter().zip(&parsed.settings.disks) {
            let cache = disk.cache.map_or("-", vmconfig::CacheMode::name);
            let io = disk.io.map_or("-", vmconfig::DiskIo::name);
            let block = matches!(disk.source, DiskSource::Block(_) | DiskSource::Claim(_));
            belief.say(name, format!("cache {cache} io {io} block {block}"));
        }
    }
    belief
}

fn of_predictor(vmi: &Vmi) -> Belief {
    let mut belief = Belief::default();
    let shape = vmi.shape();
    belief.say("vcpus", shape.vcpus());
    let sockets = vmi.max_sockets().unwrap_or(0).max(shape.sockets);
    belief.say("max_vcpus", sockets.saturating_mul(shape.vcpus() / shape.sockets));
    belief.say("topology", levels([shape.sockets, 1, 1, shape.cores, shape.threads]));
    if let Some(bytes) = vmi.page_bytes() {
        belief.say("huge_pages", format!("{} KiB", bytes >> 10));
    }
    belief.say("dedicated", vmi.is_dedicated());
    if let Some(bytes) = vmi.memory_bytes().filter(|bytes| *bytes > 0) {
        belief.say("memory_mib", bytes.div_ceil(1 << 20));
    }
    belief
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a folder whose names end so.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|end| {
            ["xml", "yaml", "yml", "sh", "args", "md"].iter().any(|one| end == *one)
        }) {
            into.push(path);
        }
    }
}

/// Blocks of code of a page.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts.filter_map(|part| Some(part.split_once('\n')?.1.to_owned())).collect()
}

/// Every text of the repository that may hold VMs, with where it is from.
fn texts() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for krate in fs::read_dir(root().join("crates")).unwrap() {
        files(&krate.unwrap().path().join("testdata"), &mut paths);
    }
    files(&root().join("docs"), &mut paths);
    let mut texts = Vec::new();
    for path in paths {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.display().to_string();
        if path.extension().is_some_and(|end| end == "md") {
            texts.extend(blocks(&text).into_iter().map(|block| (name.clone(), block)));
        } else {
            texts.push((name, text));
        }
    }
    for rule in RULES {
        for example in rule.fires.iter().copied().chain(rule.quiet()) {
            texts.push((rule.id.to_owned(), example.document()));
        }
    }
    texts.extend(HARD.iter().map(|text| ("hard".to_owned(), (*text).to_owned())));
    texts
}

/// Where readers have disagreed.
const HARD: &[&str] = &[
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  \
     domain:\n    devices: {}\n    cpu: {cores: 2}\n    memory: {guest: 1Gi}\n    \
     cpu: {cores: 4, cores: 8}\n    memory: {guest: 2Gi}\n",
    "apiVersion: pool.kubevirt.io/v1beta1\nkind: VirtualMachinePool\nmetadata: {name: a}\n\
     spec: {virtualMachineTemplate: {spec: {template: {spec: {domain: {devices: {},\n    \
     cpu: {cores: 3, threads: 2}, memory: {guest: 1Gi}}}}}}}\n",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  \
     domain:\n    devices: {}\n    resources: {requests: {cpu: \"1.5\", memory: 1.5Gi}}\n",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  \
     domain:\n    devices: {}\n    cpu: {sockets: 0, cores: 0, threads: 0}\n    \
     resources: {limits: {cpu: 2500m, memory: 1e9}}\n",
    "qemu-system-x86_64 -curses -smp 8,sockets=2,modules=2,cores=2 -m 4G\n",
    "qemu-system-x86_64 -nographic -m 1024 -smp cpus=2,maxcpus=8,cores=4 -no-reboot -snapshot\n",
    "kvm -m size=2G,slots=2,maxmem=8G -smp 4 -drive file=/dev/sdb,format=raw,if=virtio,cache=none,\
     aio=native -netdev tap,id=n,queues=4,ifname=t,script=no,downscript=no \
     -device virtio-net-pci,netdev=n,mq=on,vectors=10\n",
    "kvm -m 1G -blockdev driver=file,filename=/a,node-name=f,aio=io_uring,cache.direct=on \
     -blockdev driver=raw,file=f,node-name=d -device virtio-blk-pci,drive=d\n",
    "qemu-system-x86_64 -M q35,smp.cpus=4,smp.threads=2,memory.size=2G,memory.max-size=8G\n",
    "qemu-system-x86_64 -smp 2 -m 1G -machine \
     '{\"type\": \"q35\", \"smp\": {\"cpus\": 8, \"sockets\": 2}, \"memory\": {\"size\": 3221225472}}'\n",
    "qemu-system-x86_64 -smp 2 -object memory-backend-memfd,id=ram,size=6G -M q35,memory-backend=ram\n",
    "<domain type='kvm'><name>a</name><memory unit='TB'>1</memory><vcpu>4</vcpu>\
     <cputune><vcpupin vcpu='0' cpuset='0-3,^2,2'/><emulatorpin cpuset='4,^4,5'/></cputune></domain>",
    "<domain type='kvm'><name>a</name><memory unit='MB'>1000</memory><vcpu current='2'>8</vcpu>\
     <cputune><vcpupin vcpu='1' cpuset='0-7,^3'/></cputune></domain>",
    "<domain type='kvm'><name>a</name><memory>1048576</memory><vcpu><!-- was 4 -->8</vcpu>\
     <iothreads>2</iothreads><iothreadids><iothread id='5'/></iothreadids>\
     <cputune><iothreadpin iothread='1' cpuset='3'/><iothreadpin iothread='5' cpuset='2'/>\
     </cputune></domain>",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  \
     domain:\n    devices: {}\n    cpu: {sockets: 2, cores: 2, maxSockets: 8}\n    \
     memory: {guest: 1Gi}\n",
];

/// What came of comparing all who read the VMs of some texts.
#[derive(Default)]
struct ReaderComparison {
    compared: u32,
    predicted: u32,
    /// How often two readers spoke of the same.
    spoken: BTreeMap<&'static str, u32>,
    wrong: Vec<String>,
}

fn compare(texts: impl IntoIterator<Item = (String, String)>) -> ReaderComparison {
    let mut found = ReaderComparison::default();
    let ReaderComparison { compared, predicted, spoken, wrong } = &mut found;
    for (from, text) in texts {
        let Some(format) = read::format_of(&text) else { continue };
        // Rules see what is of a VM that runs, not what was asked for.
        if format == ConfigFormat::Running {
            continue;
        }
        let wanted = ReadOptions { types: &Catalogue::default(), settings: true };
        let mut vms = Vec::new();
        let source = SourceText::new(&text);
        let mut keep = |item| match item {
            ConfigItem::Vm(vm) => vms.push(vm),
            ConfigItem::Object(_) => {}
        };
        if read::read(format, &source, wanted, &mut keep).is_err() {
            continue;
        }
        for vm in &vms {
            let Some(parsed) = &vm.parsed else {
                wrong.push(format!("{from}: lint sees a VM, and VmSpec's reader none\n{text}"));
                continue;
            };
            *compared += 1;
            let (rules, spec) = (of_rules(vm), of_spec(parsed, format));
            for (what, ..) in rules.both(&spec) {
                *spoken.entry(what).or_default() += 1;
            }
            for one in rules.differences(&spec) {
                wrong.push(format!("{from}: lint and VmSpec: {one}\n{text}"));
            }
            let Some(kubevirt) = &vm.kubevirt else { continue };
            let Ok(vmi) = Vmi::from_value(&kubevirt.instance(&vm.name)) else { continue };
            *predicted += 1;
            let predictor = of_predictor(&vmi);
            for one in predictor.differences(&spec) {
                wrong.push(format!("{from}: predictor and VmSpec: {one}\n{text}"));
            }
            for one in predictor.differences(&rules) {
                wrong.push(format!("{from}: predictor and lint: {one}\n{text}"));
            }
        }
    }
    println!("{compared} VMs, {predicted} predicted, by what both speak of: {spoken:?}");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    found
}

#[test]
fn all_who_read_a_vm_believe_the_same() {
    let ReaderComparison { compared, predicted, spoken, .. } = compare(texts());
    let often = [
        "vcpus",
        "max_vcpus",
        "topology",
        "memory_mib",
        "pins",
        "emulator",
        "iothreads",
        "iothread pins",
        "cells",
        "host devices",
        "dedicated",
        "disks",
        "nics",
    ];
    assert!(often.iter().all(|what| spoken[what] > 50), "{spoken:?}");
    let seldom = ["cell 1", "vcpus of 1", "huge_pages", "nic 1", "disk 1"];
    assert!(seldom.iter().all(|what| spoken[what] > 5), "{spoken:?}");
    assert!(compared > 500 && predicted > 80, "{compared} VMs, {predicted} predicted");
}

/// The same of libvirt's own cases: its domains, and the command lines that it makes of them.
#[test]
fn all_who_read_libvirts_cases_believe_the_same() {
    if needs(Tier::Full).turn().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cases = match suite::libvirts_cases(folder.path()) {
        Ok(cases) => cases,
        Err(why) => return suite::skip(format!("libvirt's source: {why}")),
    };
    let mut paths = Vec::new();
    files(&cases, &mut paths);
    let named = |path: PathBuf| Some((path.display().to_string(), fs::read_to_string(path).ok()?));
    let found = compare(paths.into_iter().filter_map(named));
    assert!(found.compared > 1000, "{}", found.compared);
}

#[test]
fn a_disagreement_is_seen() {
    let belief = |vcpus: u32| {
        let mut belief = Belief::default();
        belief.say("vcpus", vcpus);
        belief
    };
    assert_eq!(belief(1).differences(&belief(2)), ["vcpus 1 and 2"]);
    assert_eq!(belief(1).differences(&Belief::default()), [""; 0]);
    // A text is split where it says.
    let page = "a\n```console\n$ x\n```\nb\n```\ny\n```\n";
    assert_eq!(blocks(page), ["$ x", "y"]);
}

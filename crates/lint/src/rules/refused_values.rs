//! Values that libvirt can't read, and settings of vCPUs, processor and time that
//! exclude each other.

use topology::PcpuSet;

use crate::ConfigFormat;
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, xml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use vmconfig::libvirt::DomainElement;

const DOMAIN: &str = "https://libvirt.org/formatdomain.html";
const CPU: &str = "https://libvirt.org/formatdomain.html#cpu-model-and-topology";
const TUNING: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
const BOOT: &str = "https://libvirt.org/formatdomain.html#operating-system-booting";

pub(crate) const VALUE_UNREADABLE: Rule = Rule {
    id: "value-unreadable",
    severity: Severity::Error,
    summary: "a value that libvirt can't read",
    why: "libvirt refuses the whole domain for one list, number or word that it can't read, and \
          names the value but not its line.",
    mend: "Write lists as 0-3,8,^2, numbers without a sign or a unit, and words as the \
           documentation has them",
    sources: &[DOMAIN],
    affected: &[],
    check: Check::Vm(value_unreadable),
    fires: &[
        xml(ANY, "<vcpu cpuset='all'>2</vcpu>\n"),
        xml(ANY, "<vcpu>2</vcpu>\n<numatune><memory mode='strict' nodeset='1,^1'/></numatune>\n"),
        xml(ANY, "<devices><interface type='bridge'><driver queues='-1'/></interface></devices>\n"),
        xml(
            ANY,
            "<devices><disk type='file'><driver name='qemu' cache='nocache'/></disk></devices>\n",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu cpuset='0-7,^3'>2</vcpu>
<numatune><memory mode='strict' nodeset='0-1'/></numatune>
<devices>
  <disk type='file'><driver name='qemu' cache='none' io='native' queues='2'/></disk>
</devices>
",
    )],
};

/// Attributes that hold lists, and whether an empty one is refused.
const LISTS: &[(&str, &str, bool)] = &[
    ("vcpu", "cpuset", true),
    ("cputune/vcpupin", "cpuset", true),
    ("cputune/emulatorpin", "cpuset", true),
    ("cputune/iothreadpin", "cpuset", true),
    ("cputune/vcpusched", "vcpus", true),
    ("cputune/iothreadsched", "iothreads", true),
    ("numatune/memory", "nodeset", true),
    ("numatune/memnode", "nodeset", true),
    ("memoryBacking/hugepages/page", "nodeset", true),
    ("cpu/numa/cell", "cpus", false),
];

/// Attributes that hold numbers from 0.
const NUMBERS: &[(&str, &str)] = &[
    ("vcpu", "current"),
    ("cputune/vcpupin", "vcpu"),
    ("cputune/iothreadpin", "iothread"),
    ("numatune/memnode", "cellid"),
    ("cpu/numa/cell", "id"),
    ("cpu/topology", "sockets"),
    ("cpu/topology", "dies"),
    ("cpu/topology", "cores"),
    ("cpu/topology", "threads"),
    ("devices/controller", "index"),
    ("devices/controller/driver", "queues"),
    ("devices/controller/driver", "iothread"),
    ("devices/disk/driver", "queues"),
    ("devices/disk/driver", "iothread"),
    ("devices/interface/driver", "queues"),
    ("devices/interface/driver", "rx_queue_size"),
    ("devices/interface/driver", "tx_queue_size"),
];

/// Attributes that hold one of a few words.
const WORDS: &[(&str, &str, &[&str])] = &[
    ("vcpu", "placement", &["static", "auto"]),
    ("numatune/memory", "mode", &["strict", "preferred", "interleave", "restrictive"]),
    ("numatune/memory", "placement", &["static", "auto"]),
    ("numatune/memnode", "mode", &["strict", "preferred", "interleave", "restrictive"]),
    ("memoryBacking/access", "mode", &["shared", "private"]),
    ("memoryBacking/source", "type", &["file", "anonymous", "memfd"]),
    ("memoryBacking/allocation", "mode", &["immediate", "ondemand"]),
    ("cputune/vcpusched", "scheduler", &["batch", "idle", "fifo", "rr"]),
    ("cputune/iothreadsched", "scheduler", &["batch", "idle", "fifo", "rr"]),
    ("cpu", "mode", &["custom", "host-model", "host-passthrough", "maximum"]),
    ("cpu", "check", &["none", "partial", "full"]),
    ("cpu/feature", "policy", &["force", "require", "optional", "disable", "forbid"]),
    ("cpu/cache", "mode", &["emulate", "passthrough", "disable"]),
    ("cpu/numa/cell", "memAccess", &["shared", "private"]),
    ("clock/timer", "tickpolicy", &["delay", "catchup", "merge", "discard"]),
    (
        "devices/disk/driver",
        "cache",
        &["default", "none", "writethrough", "writeback", "directsync", "unsafe"],
    ),
    ("devices/disk/driver", "io", &["threads", "native", "io_uring"]),
    ("devices/disk/driver", "discard", &["unmap", "ignore"]),
    ("devices/disk", "device", &["disk", "cdrom", "floppy", "lun"]),
    ("devices/interface/driver", "name", &["vhost", "qemu"]),
];

fn value_unreadable(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    for &(path, name, not_empty) in LISTS {
        for (one, at) in domain.all(path).into_iter().filter_map(|one| Some((one, one.at(name)?))) {
            match one.list(name).map(|set| set.value) {
                None => {
                    out.at(at.span, format!("{name}={:?} is no list of numbers", at.value));
                }
                Some(set) if set.is_empty() && not_empty => {
                    out.at(at.span, format!("{name}={:?} names nothing", at.value));
                }
                Some(_) => {}
            }
        }
    }
    for &(path, name) in NUMBERS {
        for (one, at) in domain.all(path).into_iter().filter_map(|one| Some((one, one.at(name)?))) {
            if one.number::<u32>(name).is_none() {
                out.at(at.span, format!("{name}={:?} is no number from 0", at.value));
            }
        }
    }
    for &(path, name, words) in WORDS {
        for at in domain.all(path).into_iter().filter_map(|one| one.at(name)) {
            if !words.contains(&at.value.as_str()) {
                let known = words.join(", ");
                out.at(at.span, format!("{name}={:?} is none of {known}", at.value));
            }
        }
    }
    for name in ["vcpu", "iothreads"] {
        if let Some(one) = domain.first(name)
            && let Some(at) = &one.text
            && one.text_number::<u32>().is_none()
        {
            out.at(at.span, format!("<{name}>: {:?} is no number", at.value));
        }
    }
    for name in ["memory", "currentMemory", "maxMemory"] {
        if let Some(one) = domain.first(name)
            && let Some(at) = &one.text
            && one.text_number::<u64>().is_none()
        {
            out.at(at.span, format!("<{name}>: {:?} is no number", at.value));
        }
    }
}

pub(crate) const MEMORY_MISSING: Rule = Rule {
    id: "memory-missing",
    severity: Severity::Error,
    summary: "nothing says how much memory the VM has, or more than can be counted",
    why: "libvirt takes the size from <memory>, or from the guest's cells; without both it refuses \
          the domain, as it does where the size does not fit into 64 bits when rounded up.",
    mend: "Add <memory unit='GiB'>...</memory>",
    sources: &["https://libvirt.org/formatdomain.html#memory-allocation"],
    affected: &[],
    check: Check::Vm(memory_missing),
    fires: &[
        xml(
            ANY,
            "<vcpu>2</vcpu>\n<os><type arch='x86_64'>hvm</type></os>\n<devices><emulator>/usr/bin/kvm</emulator></devices>\n",
        ),
        xml(ANY, "<memory unit='KiB'>9007199254740991</memory>\n<vcpu>2</vcpu>\n"),
    ],
    quiet: &[
        xml(
            ANY,
            "<memory unit='GiB'>2</memory>\n<vcpu>2</vcpu>\n<os><type arch='x86_64'>hvm</type></os>\n<devices><emulator>/usr/bin/kvm</emulator></devices>\n",
        ),
        xml(
            ANY,
            "<vcpu>2</vcpu>\n<cpu><numa><cell id='0' cpus='0-1' memory='2' unit='GiB'/></numa></cpu>\n<os><type arch='x86_64'>hvm</type></os>\n<devices/>\n",
        ),
    ],
};

/// The largest size that is still one after rounding up to MiB.
const MOST_BYTES: u64 = (i64::MAX as u64) & !((1 << 20) - 1);

fn memory_missing(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let cells = domain.all("cpu/numa/cell");
    // A part of a domain, as people show it, has neither of these.
    let is_whole = ["name", "os/type", "devices"].iter().all(|path| domain.first(path).is_some());
    if is_whole && domain.first("memory").is_none() && cells.is_empty() {
        out.at(domain.tag, "Neither <memory> nor cells say how much memory it has");
    }
    if let Some(memory) = vm.memory_bytes.as_ref().filter(|memory| memory.value > MOST_BYTES) {
        out.at(memory.span, "The size overflows when it is rounded up");
    }
}

pub(crate) const SCHED_INVALID: Rule = Rule {
    id: "scheduler-set-invalid",
    severity: Severity::Error,
    summary: "schedulers for a thread twice, or for one that is not there",
    why: "libvirt refuses a vCPU or an iothread that two vcpusched or iothreadsched elements name, \
          even with the same values, and an iothread that the domain does not have.",
    mend: "Name each thread in one element",
    sources: &[TUNING],
    affected: &[],
    check: Check::Vm(sched_invalid),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<cputune>
  <vcpusched vcpus='0-2' scheduler='fifo' priority='1'/>
  <vcpusched vcpus='2-3' scheduler='fifo' priority='1'/>
</cputune>
",
        ),
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<iothreads>1</iothreads>
<cputune><iothreadsched iothreads='1-2' scheduler='rr' priority='2'/></cputune>
",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>4</vcpu>
<iothreads>1</iothreads>
<cputune>
  <vcpusched vcpus='0-1' scheduler='fifo' priority='1'/>
  <vcpusched vcpus='2-3' scheduler='fifo' priority='1'/>
  <iothreadsched iothreads='1' scheduler='fifo' priority='1'/>
</cputune>
",
    )],
};

fn sched_invalid(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    for (path, name) in [("cputune/vcpusched", "vcpus"), ("cputune/iothreadsched", "iothreads")] {
        let mut seen = PcpuSet::new();
        for at in domain.all(path).into_iter().filter_map(|one| one.list(name)) {
            let set = at.value;
            let again = set.intersection(&seen);
            if !again.is_empty() {
                out.at(at.span, format!("{name} {again} have a scheduler already"));
            }
            seen = seen.union(&set);
            // No domain has more: a set may name four thousand millions.
            let missing: Vec<u32> = set
                .iter()
                .take(4096)
                .filter(|id| name == "iothreads" && !vm.iothreads.contains(&id.to_string()))
                .take(1)
                .collect();
            if let Some(id) = missing.first() {
                out.at(at.span, format!("The domain has no iothread {id}"));
            }
        }
    }
}

pub(crate) const CPU_CACHE_IMPOSSIBLE: Rule = Rule {
    id: "cpu-cache-impossible",
    severity: Severity::Error,
    summary: "the processor's cache in a mode and level that can't be had",
    why: "QEMU can show the host's own caches to a guest that has the host's own processor \
          (passthrough, all levels at once), or make up a third level (emulate). libvirt refuses \
          other pairs of mode, level and processor.",
    mend: "Use <cache mode='passthrough'/> with host-passthrough, or <cache level='3' mode='emulate'/>",
    sources: &[CPU],
    affected: &[],
    check: Check::Vm(cpu_cache_impossible),
    fires: &[
        xml(ANY, "<cpu mode='host-passthrough'><cache level='2' mode='emulate'/></cpu>\n"),
        xml(ANY, "<cpu mode='host-passthrough'><cache level='3' mode='passthrough'/></cpu>\n"),
        xml(ANY, "<cpu mode='host-model'><cache mode='passthrough'/></cpu>\n"),
    ],
    quiet: &[
        xml(ANY, "<cpu mode='host-passthrough'><cache mode='passthrough'/></cpu>\n"),
        xml(ANY, "<cpu mode='host-model'><cache level='3' mode='emulate'/></cpu>\n"),
    ],
};

fn cpu_cache_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let Some(cpu) = domain.first("cpu") else { return };
    let is_host = matches!(cpu.get("mode"), Some("host-passthrough" | "maximum"));
    for cache in cpu.named("cache") {
        match (cache.get("mode"), cache.get("level")) {
            (Some("passthrough"), Some(_)) => {
                out.at(
                    cache.place("level"),
                    "Mode passthrough shows all levels: it takes no level",
                );
            }
            (Some("passthrough"), None) if !is_host => {
                let model = cpu.get("mode").unwrap_or("custom");
                out.at(
                    cache.place("mode"),
                    format!("The host's caches go with the host's processor, not with {model}"),
                );
            }
            (Some("emulate"), level) if level != Some("3") => {
                out.at(cache.place("level"), "Mode emulate makes up level 3, and no other");
            }
            (Some("disable"), Some(_)) => {
                out.at(cache.place("level"), "Mode disable takes no level");
            }
            _ => {}
        }
    }
    for width in cpu.named("maxphysaddr") {
        if width.get("mode") == Some("passthrough") && width.at("bits").is_some() {
            out.at(width.place("bits"), "The width of addresses is the host's: bits can't be said");
        }
    }
}

pub(crate) const HOST_CPU_EMULATED: Rule = Rule {
    id: "host-cpu-emulated",
    severity: Severity::Error,
    summary: "the host's processor is asked for, and the guest is emulated",
    why: "The host's own processor is there with a hypervisor only. QEMU ends with `CPU model \
          'host' requires KVM or HVF`, and libvirt refuses host-passthrough in a domain of type \
          qemu.",
    mend: "Use KVM; or the model max (libvirt: maximum), which has all that TCG can do",
    sources: &["https://www.qemu.org/docs/master/system/qemu-cpu-models.html", CPU],
    affected: &[],
    check: Check::Vm(host_cpu_emulated),
    fires: &[
        qemu(ANY, "qemu-system-x86_64 -cpu host -m 4G"),
        xml(
            ANY,
            "<domain type='qemu'>\n<name>a</name>\n<cpu mode='host-passthrough'/>\n</domain>\n",
        )
        .mended(&[("type='qemu'", "type='kvm'")]),
    ],
    quiet: &[
        qemu(ANY, "kvm -cpu host -m 4G"),
        qemu(ANY, "qemu-system-x86_64 -accel tcg -cpu max -m 4G"),
        qemu(ANY, "qemu-system-x86_64 $ACCEL -cpu host -m 4G"),
        xml(ANY, "<domain type='qemu'>\n<name>a</name>\n<cpu mode='maximum'/>\n</domain>\n"),
    ],
};

fn host_cpu_emulated(vm: &Vm, _: &Context, out: &mut Drafts) {
    let emulated = vm.accel.value == "tcg" && vm.unread.is_empty() && vm.live.is_none();
    if let Some(cpu) = vm.cpu.as_ref().filter(|_| emulated)
        && matches!(cpu.value.model.as_str(), "host" | "host-passthrough")
    {
        let message = match vm.format {
            ConfigFormat::Libvirt => "host-passthrough in a domain of type qemu",
            _ => "-cpu host without KVM",
        };
        out.at(cpu.span, message);
    }
}

pub(crate) const TSC_TIMER_FOREIGN: Rule = Rule {
    id: "timer-foreign",
    severity: Severity::Error,
    summary: "a timer that this architecture does not have",
    why: "TSC, kvm-clock, HPET and PIT are of x86; libvirt refuses them, when asked for, in a domain \
          of another architecture.",
    mend: "Leave it out",
    sources: &["https://libvirt.org/formatdomain.html#time-keeping"],
    affected: &[],
    check: Check::Vm(timer_foreign),
    fires: &[xml(
        ANY,
        "<os><type arch='aarch64' machine='virt'>hvm</type></os>\n<clock><timer name='tsc' present='yes'/></clock>\n",
    ).mended(&[("arch='aarch64' machine='virt'", "arch='x86_64'")])],
    quiet: &[],
};

fn timer_foreign(vm: &Vm, _: &Context, out: &mut Drafts) {
    let is_x86 =
        vm.arch.as_ref().is_none_or(|arch| matches!(arch.value.as_str(), "x86_64" | "i686"));
    for timer in vm.timers.iter().filter(|_| vm.format == ConfigFormat::Libvirt && !is_x86) {
        let name = timer.value.name.as_str();
        let off = timer.value.present.as_ref().is_some_and(|present| !present.value);
        if matches!(name, "tsc" | "kvmclock" | "hypervclock") && !off {
            out.at(timer.span, format!("Only x86 has the timer {name}"));
        }
    }
}

pub(crate) const BOOT_ORDER_TWICE: Rule = Rule {
    id: "boot-order-twice",
    severity: Severity::Error,
    summary: "what to boot from is said in two ways, or a place in the order twice",
    why: "libvirt refuses <boot dev> in <os> together with <boot order> of devices, and two devices \
          with the same order.",
    mend: "Keep the devices' <boot order>, each number once",
    sources: &[BOOT],
    affected: &[],
    check: Check::Vm(boot_order_twice),
    fires: &[
        xml(
            ANY,
            "\
<os><type>hvm</type><boot dev='hd'/></os>
<devices><disk type='file'><target dev='vda'/><boot order='1'/></disk></devices>
",
        ),
        xml(
            ANY,
            "\
<os><type>hvm</type></os>
<devices>
  <disk type='file'><target dev='vda'/><boot order='1'/></disk>
  <interface type='bridge'><boot order='1'/></interface>
</devices>
",
        )
        .mended(&[(
            "<interface type='bridge'><boot order='1'",
            "<interface type='bridge'><boot order='2'",
        )]),
    ],
    quiet: &[],
};

fn boot_order_twice(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let devices = domain.named("devices").flat_map(|devices| &devices.children);
    let orders: Vec<&DomainElement> = devices
        .filter_map(|device| device.first("boot").filter(|boot| boot.at("order").is_some()))
        .collect();
    if let (Some(boot), false) = (domain.first("os/boot"), orders.is_empty()) {
        out.at(boot.tag, "Devices have a boot order of their own")
            .note(format!("{} devices have <boot order>", orders.len()));
    }
    let mut seen = std::collections::HashSet::new();
    for order in orders {
        let number = order.get("order").unwrap_or_default();
        if !seen.insert(number) {
            out.at(order.tag, format!("Order {number} is another device's already"));
        }
    }
}

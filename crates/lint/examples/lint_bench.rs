//! How fast domain XML is checked: `cargo run --release -p lint --example
//! lint_bench [FILES]`, by the built-in rules alone and with 20 of a site's own, on one
//! thread and on one for each pCPU. Prints files a second and the peak of memory; with
//! `tiny` in place of a number instead what 20 000 tiny domains in one file take of memory,
//! as a multiple of the file. Asserts nothing.

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use lint::site::SiteRules;
use lint::{Context, SharedHostVm, check_fleet, check_text_by};
use topology::Host;

/// A domain of usual size; each is another one, and some are wrong.
fn domain(number: usize) -> String {
    let vcpus = [2, 4, 8, 16][number % 4];
    let mut text = format!(
        "<domain type='kvm'>\n  <name>vm-{number}</name>\n  <memory unit='GiB'>8</memory>\n  \
         <vcpu placement='static'>{vcpus}</vcpu>\n  <iothreads>1</iothreads>\n  <cputune>\n"
    );
    for vcpu in 0..vcpus {
        let pcpu = (number * 7 + vcpu) % 128;
        let _ = writeln!(text, "    <vcpupin vcpu='{vcpu}' cpuset='{pcpu}'/>");
    }
    let _ = write!(
        text,
        "    <emulatorpin cpuset='0'/>\n  </cputune>\n  <os><type arch='x86_64' \
         machine='q35'>hvm</type></os>\n  <cpu mode='host-passthrough'><topology sockets='1' \
         cores='{}' threads='2'/></cpu>\n  <clock offset='utc'><timer name='hpet' \
         present='no'/></clock>\n  <devices>\n",
        vcpus / 2
    );
    for disk in 0..4 {
        let _ = write!(
            text,
            "    <disk type='block' device='disk'>\n      <driver name='qemu' type='raw' \
             cache='none' io='native' iothread='1'/>\n      <source dev='/dev/vg/vm-{number}-{disk}'/>\n      \
             <target dev='vd{}' bus='virtio'/>\n    </disk>\n    <interface type='bridge'>\n      \
             <source bridge='br{disk}'/>\n      <model type='virtio'/>\n    </interface>\n",
            char::from(b'a' + disk)
        );
    }
    text.push_str("  </devices>\n</domain>\n");
    text
}

/// 2 sockets of 32 cores of 2 threads.
fn host() -> Host {
    let pcpus = (0..128_u32).map(|id| topology::Pcpu {
        id,
        online: true,
        socket: Some(id % 64 / 32),
        core: Some(id % 32),
        thread: Some(id / 64),
        node: Some(id % 64 / 32),
        ..topology::Pcpu::default()
    });
    Host { pcpus: pcpus.collect(), ..Host::default() }
}

/// 20 rules of a site's own, of the usual kinds.
fn site() -> SiteRules {
    let kinds = [
        ("", "vm.memory_mib > 32 * 1024 && !has(vm.memory.huge_pages)"),
        ("each = 'vm.disks'\n", "has(item.cache) && item.cache == 'unsafe'"),
        ("each = 'vm.pins.vcpus'\n", "vm.pins.vcpus[item].overlaps('0-1')"),
        ("", "!name.matches('^vm-[0-9]+$')"),
        ("", "vm.nics.exists(n, has(n.backend.user)) || vm.disks.all(d, d.readonly)"),
    ];
    let mut text = String::from("vmlab = 1\n");
    for number in 0..20 {
        let (each, when) = kinds[number % kinds.len()];
        let _ = write!(
            text,
            "[[rule]]\nid = 'site-{number}'\nseverity = 'hint'\ntext = 'T'\nhelp = 'H'\n{each}when \
             = \"{when}\"\n"
        );
    }
    SiteRules::read("site.toml", &text, &[]).expect("these rules are right")
}

/// What checking one text of 20 000 tiny domains takes, its findings as text included.
fn tiny() {
    let mut text = String::from("<domains>\n");
    for number in 0..20_000 {
        let _ = writeln!(
            text,
            "<domain type='kvm'><name>a{number}</name><memory>1048576</memory><vcpu>1</vcpu>\
             <os><type>hvm</type></os></domain>"
        );
    }
    text.push_str("</domains>\n");
    let before = peak_kib();
    let checked = check_text_by("tiny.xml", &text, &Context::default(), &[])
        .unwrap_or_else(|error| panic!("{error}"));
    let shown: usize =
        lint::output::texts(&checked.findings, 80, false).map(|text| text.len()).sum();
    let (vms, findings) = (checked.vms.len(), checked.findings.len());
    if let (Some(before), Some(peak)) = (before, peak_kib()) {
        let bytes = (peak - before) * 1024.0;
        println!(
            "{vms} domains, {:.1} MB, {findings} findings, {shown} bytes shown: {:.1} MiB of memory, \
             {:.1} times the file",
            text.len() as f64 / 1e6,
            bytes / f64::from(1 << 20),
            bytes / text.len() as f64
        );
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("tiny") {
        return tiny();
    }
    let files = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let texts: Vec<String> = (0..files).map(domain).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let site = site();
    for (what, context, sets) in [
        ("alone", Context::default(), &[][..]),
        ("on a host", Context::default().on(host()), &[]),
        ("with 20 rules of a site's own", Context::default(), &[&site]),
    ] {
        for threads in [1, thread::available_parallelism().map_or(1, usize::from)] {
            let start = Instant::now();
            let findings = lint(&texts, threads, &context, sets);
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{what}, threads {threads}: {files} files, {:.1} MB, {findings} findings in \
                 {seconds:.2} s: {:.0} files/s",
                bytes as f64 / 1e6,
                files as f64 / seconds
            );
        }
    }
    if let Some(peak) = peak_kib() {
        println!("peak memory {:.0} MiB, the texts among it", peak / 1024.0);
    }
}

/// How much is found in all texts.
fn lint(texts: &[String], threads: usize, context: &Context, sets: &[&SiteRules]) -> usize {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut found, mut vms) = (0, Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(text) = texts.get(number) else { return (found, vms) };
            match check_text_by(&format!("vm-{number}.xml"), text, context, sets) {
                Ok(checked) => {
                    found += checked.findings.len();
                    vms.push((number, checked.vms));
                }
                Err(error) => eprintln!("{error}"),
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let (mut found, mut vms) = (0, Vec::new());
        for worker in workers {
            let (of_worker, its) = worker.join().expect("no rule panics");
            found += of_worker;
            vms.extend(its);
        }
        // Which VM is told of an overlap goes by their order.
        vms.sort_by_key(|(number, _)| *number);
        let vms: Vec<SharedHostVm> = vms.into_iter().flat_map(|(_, vms)| vms).collect();
        found + check_fleet(&vms, context).len()
    })
}

/// The peak of resident memory, as the kernel counts it.
fn peak_kib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}

//! Real trials: what is recorded is what was asked for.

use std::collections::BTreeMap;
use std::fs;

use guest::image::{BUILTIN, Recipe};
use guest::qemu::find_qemu;
use guest::{Cancel, GuestCommand, Launch, OwnedVm};
use host::affinity::thread_affinity;
use suite::{PATIENCE, Tier, needs};
use topology::PcpuSet;
use vmconfig::qemu::{Channels, emit};
use vmconfig::{Accel, Arch, BootSource, GuestTopology, VmSettings, VmSpec};

use crate::lab::events;
use crate::running::{Study, assert_complete, owned_by, results};

/// The pCPUs that this process may use: the first and the last.
pub(crate) fn two_pcpus() -> Option<(u32, u32)> {
    let allowed = thread_affinity(std::process::id()).unwrap();
    let (first, last) = (allowed.iter().next()?, allowed.iter().next_back()?);
    (first != last).then_some((first, last))
}

#[test]
fn a_study_runs_to_its_end() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let (first, last) = two_pcpus().unwrap_or_default();
    let study = Study::new(
        2,
        &format!(
            "[[variant]]\nname = \"one\"\nvm.vcpus = 1\n\n\
             [[variant]]\nname = \"pinned\"\nvm.vcpus = 2\nvm.pins = [{last}, {first}]\n\n\
             [[workload]]\nrun = \"hackbench\"\ninvocations = 2\n\
             params = {{ groups = 1, loops = 20 }}\n"
        ),
    );
    let running = study.start();
    let owner = running.pid();
    let said = running.wait();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:#?}");
    assert!(said.stdout.contains("hackbench") && said.stdout.contains("emulated"), "{said:#?}");
    let dir = study.dir();
    for name in ["report.html", "report.json", "samples.csv", "samples.json", "plan.json"] {
        assert!(fs::metadata(dir.join(name)).unwrap().len() > 100, "{name}");
    }
    let html = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(html.contains("<svg") && !html.contains("src=\"http"));

    let contents = assert_complete(&dir);
    let all = results(&contents.events);
    assert_eq!(all.len(), 4);
    for result in &all {
        assert!(result.outcome.is_completed(), "{result:#?}");
        assert!(result.boot_s.unwrap() > 0.0 && result.wall_s > result.boot_s.unwrap());
        assert!(result.qemu_args.iter().any(|arg| arg == "-smp"), "{:?}", result.qemu_args);
        let vcpus = if result.trial.variant == "one" { 1 } else { 2 };
        assert_eq!(result.vcpu_affinity.len(), vcpus);
        if vcpus == 2 {
            assert_eq!(result.vcpu_affinity, [last.to_string(), first.to_string()]);
        }
        assert_eq!(result.runs.len(), 2);
        for run in &result.runs {
            assert!(run.samples.iter().any(|s| s.metric == "time" && s.value > 0.0), "{run:#?}");
            assert!(run.counters.get("vcpu.run_s").unwrap() > 0.0, "{run:#?}");
            assert!(run.counters.get("guest.context_switches").unwrap() > 0.0, "{run:#?}");
            let ipis = run.counters.get("guest.ipi_reschedule").unwrap();
            assert!(if vcpus == 2 { ipis > 0.0 } else { ipis == 0.0 }, "{ipis}: {run:#?}");
            for hash in run.blobs.values() {
                assert!(runner::store::blob(&dir, hash).is_some(), "{hash}");
            }
        }
    }
    assert!(owned_by(owner).is_empty());

    // Complete is complete: nothing is booted again.
    let again = study.resume().wait();
    assert_eq!(again.code, Some(0), "{again:#?}");
    assert_eq!(results(&events(&dir)).len(), 4);
}

#[test]
fn the_guest_sees_the_topology_that_was_asked_for() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let one = GuestTopology::of_cores(1);
    check_topology(GuestTopology { sockets: 2, cores: 2, threads: 2, ..one });
    check_topology(GuestTopology { dies: 2, cores: 2, ..one });
}

/// Boots a guest of `asked` and counts what its kernel sees.
fn check_topology(asked: GuestTopology) {
    let qemu = find_qemu(Arch::X86_64).unwrap();
    let recipe = Recipe::builtin(BUILTIN, Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let channels = Channels {
        qmp_socket: file("qmp"),
        agent_socket: file("agent"),
        done_socket: file("done"),
        console_socket: file("serial"),
        console_log: file("console"),
    };
    let boot = BootSource::Direct {
        kernel: image.kernel,
        initrd: image.initrd,
        root_image: image.root_image,
        cmdline: image.cmdline,
    };
    let spec = VmSpec::new(VmSettings {
        // What QEMU emulates by default says nothing of threads.
        cpu_model: "max,vendor=GenuineIntel".to_owned(),
        topology: asked,
        memory_mib: 256,
        ..VmSettings::new("topology", Arch::X86_64, Accel::Tcg, boot)
    })
    .unwrap();
    let mut args = emit(&spec, &channels, &qemu.capabilities).args;
    // Emulated by a thread for each vCPU, a guest of several stands still at boot now and
    // then (docs/emulation.md), for which trials start it once more. Nothing here depends on
    // these threads.
    let accel = args.iter_mut().find(|arg| arg.starts_with("tcg")).unwrap();
    accel.push_str(",thread=single");
    let launch = Launch {
        qemu: qemu.path,
        args,
        channels,
        env: Vec::new(),
        start_limit: guest::START_LIMIT,
    };
    let cancel = Cancel::new();
    let mut vm = OwnedVm::start(&launch, &cancel).unwrap();
    vm.wait_ready(PATIENCE, &cancel).unwrap();
    let script = "cd /sys/devices/system/cpu; for c in cpu[0-9]*; do cd $c/topology; \
                  cat physical_package_id die_id core_id; cd ../..; done";
    let command = GuestCommand::new(["sh", "-c", script], PATIENCE);
    let output = vm.exec(&command, &cancel).unwrap();
    vm.shutdown();

    let text = output.stdout_text();
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    let mut threads: BTreeMap<[u32; 3], u32> = BTreeMap::new();
    for place in numbers.chunks_exact(3) {
        *threads.entry([place[0], place[1], place[2]]).or_default() += 1;
    }
    let count = |level: usize| {
        let mut places: Vec<_> = threads.keys().map(|place| &place[..level]).collect();
        places.dedup();
        u32::try_from(places.len()).unwrap()
    };
    let dies = asked.sockets * asked.dies;
    let seen = (count(1), count(2), count(3), numbers.len() / 3);
    assert_eq!(
        seen,
        (asked.sockets, dies, dies * asked.cores, asked.vcpus() as usize),
        "sockets, dies, cores, threads of {asked}: {text}"
    );
    assert!(threads.values().all(|count| *count == asked.threads), "{threads:?}");
}

/// Where the living stress-ng workers of a vmlab may run.
fn stress_ng(owner: u32) -> Vec<PcpuSet> {
    let stress =
        owned_by(owner).into_iter().filter(|owned| owned.command_line.starts_with("stress-ng"));
    stress.filter_map(|owned| thread_affinity(owned.pid).ok()).collect()
}

#[test]
fn host_loads_are_there_during_trials_and_gone_afterwards() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some((first, last)) = two_pcpus() else {
        suite::skip("host loads: off the VM's pCPUs needs two pCPUs");
        return;
    };
    let study = Study::new(
        1,
        &format!(
            "[[variant]]\nname = \"one\"\nvm.pins = [{first}]\n\n\
             [[load]]\nname = \"anywhere\"\nstress = {{ percent = 50 }}\n\n\
             [[load]]\nname = \"off-vm\"\nstress = {{ percent = 25, placement = \"off-vm\" }}\n\n\
             [[load]]\nname = \"vm\"\n\
             vms = {{ count = 1, workload = \"probe-unixbench\", \
             params = {{ test = \"copy-256\", time_ms = 50, repeats = 1 }} }}\n\n\
             [[workload]]\nrun = \"hackbench\"\nparams = {{ groups = 1, loops = 20 }}\n"
        ),
    );
    let mut running = study.start();
    for _ in 0..3 {
        let load = running.until("a trial with its VM", |running| {
            let load = running.trial()?.load;
            let tested = |line: &str| line.contains("trial.agent") || line.contains("trial.qmp");
            running.qemus().iter().any(|qemu| tested(&qemu.command_line)).then_some(load)
        });
        let stress = stress_ng(running.pid());
        let vms = running.qemus().len();
        match load.as_str() {
            "vm" => {
                assert_eq!((stress.len(), vms), (0, 2), "{stress:?}");
                // The files that it copies do not fit into its memory.
                let disk = |line: &str| line.contains("serial=vmlab-scratch");
                assert!(running.qemus().iter().any(|qemu| disk(&qemu.command_line)));
            }
            _ => {
                assert!(!stress.is_empty() && vms == 1, "{load}: {stress:?}, {vms} VMs");
                for pcpus in &stress {
                    let off = !pcpus.contains(first);
                    assert!(pcpus.contains(last) && off == (load == "off-vm"), "{load}: {pcpus}");
                }
            }
        }
        running.until("the trial's end", |running| {
            let there = running.trial().map(|trial| trial.load);
            (there.as_ref() != Some(&load)).then_some(())
        });
    }
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let contents = assert_complete(&study.dir());
    for result in results(&contents.events) {
        assert!(result.outcome.is_completed(), "{result:#?}");
        // That the load works was seen when it came up: of a short run's time a light
        // load may sleep through all.
        let stress = result.runs[0].counters.get("load.run_s");
        assert_eq!(stress.is_some(), result.trial.load != "vm", "{result:#?}");
    }
}

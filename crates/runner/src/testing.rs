//! A small plan and a laboratory without VMs, for this crate's tests.

use std::collections::BTreeMap;

use guest::Cancel;
use host::watch::Moment;
use record::journal::{RunResult, TrialKey, TrialResult};
use record::{
    CounterSet, Environment, Failure, FailureKind, Ground, HostWatch, Outcome, ProfileSide, Sample,
    SideProfile, TrialProfile,
};
use topology::{Host, Pcpu};
use vmconfig::{Accel, Arch, BootSource, ImagePatch};

use crate::execute::{ExecutionEvent, Lab, TrialRecord};
use crate::freeze::{MachineFacts, MachineImage, freeze};
use crate::plan::{ImageFacts, PlanVariant, PlanWorkload, QemuFacts, StudyPlan};
use crate::study::{HostLoad, Study};
use crate::unix_s;

pub(crate) const STUDY: &str = r#"
vmlab = 1
title = "A made-up study"
[budget]
blocks = 3
[[variant]]
name = "a"
[[variant]]
name = "b"
vm.vcpus = 2
[[variant]]
name = "c"
vm.memory_mib = 256
[[load]]
name = "idle"
[[load]]
name = "busy"
stress.percent = 50
[[workload]]
run = "hackbench"
invocations = 2
"#;

pub(crate) fn host() -> Host {
    host_of(4, |pcpu| pcpu)
}

/// A host of so many pCPUs, each placed by `place`.
pub(crate) fn host_of(pcpus: u32, place: impl Fn(Pcpu) -> Pcpu) -> Host {
    let pcpu = |id| place(Pcpu { id, online: true, ..Pcpu::default() });
    Host {
        pcpus: (0..pcpus).map(pcpu).collect(),
        memory_bytes: Some(8 << 30),
        available_bytes: Some(6 << 30),
        ..Host::default()
    }
}

pub(crate) fn boot() -> BootSource {
    BootSource::Direct {
        kernel: "/images/vmlinuz".into(),
        initrd: "/images/initrd".into(),
        root_image: "/images/root".into(),
        cmdline: vec!["console=ttyS0".into()],
    }
}

pub(crate) fn machine() -> MachineFacts {
    let facts = ImageFacts { identity: "0123456789ab".into(), kernel: None };
    let qemu = QemuFacts {
        path: "/usr/bin/qemu-system-x86_64".into(),
        version: "QEMU emulator version 7.2.22".into(),
    };
    MachineFacts {
        host: host(),
        arch: Arch::X86_64,
        capabilities: qemu.capabilities().expect("7.2 is new enough"),
        qemu,
        libvirt: None,
        kubevirt: None,
        auto_accel: Accel::Tcg,
        environment_why: Some("there is no /dev/kvm".into()),
        images: BTreeMap::from([(
            ImagePatch::Builtin("debian-12".into()),
            MachineImage { boot: boot(), facts },
        )]),
        is_simulated: false,
    }
}

pub(crate) fn plan_of(study: &str) -> StudyPlan {
    let study = Study::parse("made-up.toml", study).expect("the test's study is sound");
    freeze(&study, &machine(), 7, 1.0e9).expect("the test's machine can run it").plan
}

pub(crate) fn plan() -> StudyPlan {
    plan_of(STUDY)
}

/// A laboratory whose benchmark takes 10 s in `a`, 5 s in all others, with a
/// little noise that depends on the block alone; `noisy` is as fast as `a` give
/// or take a fifth.
pub(crate) struct FakeLab {
    /// Variants that always fail.
    pub(crate) broken: Vec<&'static str>,
    /// Attempts at blocks in which others used half of the pCPUs beside one
    /// variant: block, attempt.
    pub(crate) disturbed: Vec<(u32, u32)>,
    /// That variant.
    pub(crate) disturbed_variant: &'static str,
    /// Whether others use a tenth of the pCPUs beside all trials.
    pub(crate) busy: bool,
    /// By what part the first invocation of a boot takes longer, the next a
    /// third of that, and so on.
    pub(crate) cold: f64,
    /// By what part invocations differ from each other, without an order.
    pub(crate) wobble: f64,
    /// Whether exits are counted: 2000 a run in `a`, 1600 in all others.
    pub(crate) exits: bool,
    /// Whether trials are profiled: of a guest's 100 samples 20 are in `ipi` in `a`, 5 in `b`,
    /// none in all others.
    pub(crate) profiles: bool,
    /// After which blocks begun, counted from 0, the host stays as it is.
    pub(crate) stuck: Vec<usize>,
    /// Raise the flag when that many trials are done.
    pub(crate) cancel_after: Option<(usize, Cancel)>,
    /// Loads and trials, in order.
    pub(crate) log: Vec<String>,
    trials: usize,
}

impl FakeLab {
    pub(crate) fn new() -> Self {
        Self {
            broken: Vec::new(),
            disturbed: Vec::new(),
            disturbed_variant: "b",
            busy: false,
            cold: 0.0,
            wobble: 0.0,
            exits: false,
            profiles: false,
            stuck: Vec::new(),
            cancel_after: None,
            log: Vec::new(),
            trials: 0,
        }
    }
}

impl Lab for FakeLab {
    fn begin_block(&mut self, load: &HostLoad) -> Result<(), Failure> {
        self.log.push(format!("+{}", load.name));
        Ok(())
    }

    fn trial(
        &mut self,
        key: &TrialKey,
        variant: &PlanVariant,
        workload: &PlanWorkload,
        _observe: &mut dyn FnMut(ExecutionEvent<'_>),
    ) -> TrialRecord {
        self.trials += 1;
        self.log.push(format!("{}/{}", key.block, variant.name));
        if let Some((after, cancel)) = &self.cancel_after
            && self.trials > *after
        {
            cancel.cancel();
            let kind = FailureKind::Aborted;
            return TrialRecord::failed(key.clone(), Failure::new(kind, "Ctrl-C"));
        }
        if self.broken.contains(&variant.name.as_str()) {
            let kind = FailureKind::GuestPanicked;
            return TrialRecord::failed(key.clone(), Failure::new(kind, "no init"));
        }
        let seconds = match variant.name.as_str() {
            "a" => 10.0,
            "noisy" => 10.0 + 2.0 * f64::from(key.block * 7 % 11).sin(),
            _ => 5.0,
        };
        let noise = 1.0 + f64::from(key.block % 3) * 1e-3 * f64::from(variant.name.len() as u32);
        let skew = if variant.name == "b" { 1.0 + f64::from(key.block) * 1e-4 } else { 1.0 };
        let disturbed = variant.name == self.disturbed_variant
            && self.disturbed.contains(&(key.block, key.attempt));
        // What is not the same each time, or no noise would be left to judge by.
        let others = f64::from(key.order % 5) * 1e-3
            + if self.busy { 0.2 } else { 0.0 }
            + if disturbed { 0.5 } else { 0.0 };
        let inside = |run: u32| {
            let chance = f64::from((key.order * 31 + run) * 7919 % 101) / 50.0 - 1.0;
            1.0 + self.cold / 3f64.powi(run.min(30) as i32) + self.wobble * chance
        };
        let mut counters = CounterSet::default();
        if self.exits {
            let exits = if variant.name == "a" { 2000.0 } else { 1600.0 };
            counters.set("kvm.exits", exits + f64::from(key.order % 5));
        }
        let run = |run| RunResult {
            run,
            outcome: Outcome::Completed,
            command: vec!["hackbench".into()],
            wall_s: seconds,
            started_unix_s: 0.0,
            tool_version: None,
            samples: vec![Sample {
                metric: "time".into(),
                value: seconds * noise * skew * inside(run),
            }],
            histograms: Vec::new(),
            counters: counters.clone(),
            blobs: BTreeMap::new(),
        };
        let runs: Vec<_> = (0..workload.invocations).map(run).collect();
        let text = BTreeMap::from([("stdout".to_owned(), format!("Time: {seconds}").into_bytes())]);
        let side = SideProfile {
            side: ProfileSide::Guest,
            event: Some("cycles".to_owned()),
            samples: 100,
            cut: false,
            blob: None,
            missing: None,
        };
        let profile = TrialProfile { samples: Vec::new(), frequency_hz: 99, sides: vec![side] };
        let in_ipi = match variant.name.as_str() {
            "a" => 20,
            "b" => 5,
            _ => 0,
        };
        let stacks = format!("swapper;ipi;wake {in_ipi}\nswapper;idle {}\n", 100 - in_ipi);
        let profiles = BTreeMap::from([(ProfileSide::Guest, stacks.into_bytes())]);
        TrialRecord {
            texts: vec![text; runs.len()],
            profiles: if self.profiles { profiles } else { BTreeMap::new() },
            result: TrialResult {
                boot_s: Some(1.0),
                wall_s: seconds,
                runs,
                profile: self.profiles.then_some(profile),
                ground: Some(Ground {
                    merged_bytes: Some(0),
                    page_cache_bytes: Some(u64::from(key.block + 1) << 20),
                    ..Ground::default()
                }),
                watch: Some(HostWatch {
                    pcpus: 4,
                    wall_s: seconds,
                    foreign_s: Some(4.0 * others * seconds),
                    ..HostWatch::default()
                }),
                ..TrialResult::new(key.clone(), Outcome::Completed, unix_s())
            },
            console: b"Linux version 6.1\n".to_vec(),
            device_state: Vec::new(),
        }
    }

    fn watch(&mut self, _variant: &PlanVariant) -> Option<Moment> {
        None
    }

    fn end_block(&mut self) -> Vec<String> {
        let ended = self.log.iter().filter(|line| *line == "-").count();
        self.log.push("-".to_owned());
        let stuck = self.stuck.contains(&ended);
        stuck.then(|| "Host setting governor stays powersave".to_owned()).into_iter().collect()
    }
}

#[test]
fn the_fake_study_runs_emulated() {
    assert_eq!(plan().environment(), Environment::Tcg);
}

//! What KVM does in a trial, counted in an emulated host: exits by reason, what
//! `cpu_pm` does about halts, and that nothing of the counting stays behind.

use std::collections::BTreeMap;

use record::journal::{JournalEvent, TrialResult, read};
use record::{EXITS, FailureKind, Outcome};
use suite::{Tier, needs};

use crate::lab::{CommandOutput, said, vmlab};

const STUDY: &str = r#"
vmlab = 1
title = "Halts"
question = "Who leaves its pCPU when it halts?"
baseline = "halts"
[budget]
blocks = 1
[vm]
vcpus = 1
memory_mib = 384
[[variant]]
name = "halts"
[[variant]]
name = "cpu-pm"
vm.hints.cpu_pm = true
[[workload]]
run = "hackbench"
params = { groups = 1, loops = 20 }
limit_s = 600
"#;

/// A QEMU that prints what a real one prints when KVM refuses to disable exits.
const REFUSING: &str = "#!/bin/sh\n\
    case \"$*\" in *cpu-pm=on*)\n\
    echo 'qemu-system-x86_64: kvm: guest stopping CPU not supported: Invalid argument' >&2;;\n\
    esac\n\
    exec /usr/bin/qemu-system-x86_64 \"$@\"\n";

/// Starts a run, kills it once it counts, and says what is there after each.
const KILLED: &str = "cd /scratch; instances=/sys/kernel/tracing/instances\n\
    vmlab run halts.toml --out killed >/dev/null 2>&1 & run=$!\n\
    until ls $instances | grep -q vmlab; do kill -0 $run || exit 9; sleep 0.2; done\n\
    kill -9 $run; echo left $(ls $instances)\n\
    vmlab clean >/dev/null; echo then $(ls $instances)";

struct Replica {
    state: tempfile::TempDir,
}

impl Replica {
    fn say(&self, args: &[&str]) -> CommandOutput {
        said(vmlab(["replica"]).args(args).env("XDG_STATE_HOME", self.state.path()))
    }

    fn sh(&self, script: &str) -> CommandOutput {
        self.say(&["exec", "--", "sh", "-c", script])
    }

    /// The trials of a results folder, by variant.
    fn trials(&self, folder: &str) -> BTreeMap<String, TrialResult> {
        let journal = self.sh(&format!("cat /scratch/{folder}/journal.jsonl"));
        let journal = read(journal.has_code(0).stdout.as_bytes(), None);
        assert_eq!(journal.damage, []);
        let trial = |event| match event {
            JournalEvent::TrialEnded(result) => Some((result.trial.variant.clone(), *result)),
            _ => None,
        };
        journal.events.into_iter().filter_map(trial).collect()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Nothing of a failed test is left; what it said is told.
        let _ = self.say(&["down", "--all"]);
    }
}

#[test]
fn exits_are_counted_by_reason_and_cpu_pm_is_proved() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let replica = Replica { state: tempfile::tempdir().unwrap() };
    replica.say(&["up", "--like", "two-nodes", "--timeout", "3600"]).has_code(0);
    let write = |path: &str, text: &str| {
        replica
            .sh(&format!("mkdir -p /scratch/bin && cat >{path} <<'END'\n{text}\nEND"))
            .has_code(0);
    };
    write("/scratch/halts.toml", STUDY);
    write("/scratch/bin/qemu-system-x86_64", REFUSING);
    // One block has no interval: that is a finding, not an error.
    replica.sh("cd /scratch && vmlab run halts.toml --out counted").has_code(1);

    let trials = replica.trials("counted");
    for (name, trial) in &trials {
        assert_eq!(trial.outcome, Outcome::Completed, "{name}");
        assert_eq!(trial.facts["exits by reason"], "counted", "{name}");
        assert!(["on", "off"].contains(&trial.facts["vcpu.kvm-pv-eoi"].as_str()), "{name}");
        for run in &trial.runs {
            let counters = &run.counters;
            let by_reason = counters.0.iter().filter(|(name, _)| name.starts_with(EXITS));
            let by_reason: f64 = by_reason.map(|(_, count)| count).sum();
            let exits = counters.get("kvm.exits").expect("query-stats");
            // They are read one after the other while the guest runs.
            assert!((by_reason - exits).abs() <= 0.1 * exits + 50.0, "{by_reason} of {exits}");
            assert!(counters.get("memory.present_bytes") > Some(0.0), "{name}");
        }
    }
    let total = |variant: &str, counter: &str| -> f64 {
        trials[variant].runs.iter().filter_map(|run| run.counters.get(counter)).sum()
    };
    assert!(total("halts", "kvm.exits.hlt") > 0.0);
    assert_eq!((total("cpu-pm", "kvm.exits.hlt"), total("cpu-pm", "kvm.halt_exits")), (0.0, 0.0));
    assert_eq!(trials["cpu-pm"].facts["cpu_pm"], "in force", "{:?}", trials["cpu-pm"].facts);

    // KVM refuses, and QEMU goes on.
    replica.sh("cd /scratch && chmod +x bin/* && PATH=/scratch/bin:$PATH vmlab run halts.toml --out refused").has_code(1);
    let trials = replica.trials("refused");
    assert_eq!(trials["halts"].outcome, Outcome::Completed);
    let Outcome::Failed(failure) = &trials["cpu-pm"].outcome else { panic!("it completed") };
    assert_eq!(failure.kind, FailureKind::NotAsClaimed);
    assert!(failure.detail.contains("guest stopping CPU not supported"), "{failure:?}");

    let killed = replica.sh(KILLED);
    let lines: Vec<&str> = killed.has_code(0).stdout.lines().collect();
    assert!(lines[0].starts_with("left vmlab.") && lines[1] == "then", "{lines:?}");
}

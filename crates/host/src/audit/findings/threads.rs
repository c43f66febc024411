//! Threads that get in each other's way, and groups that say something else
//! than threads.

use std::collections::BTreeMap;

use topology::PcpuSet;

use super::{Finding, Ground, Severity, finding, pcpus, vcpus};
use crate::audit::RunningVm;
use crate::audit::thread::{Role, RunningThread};

pub(super) fn check(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    on_vcpus(vm, ground, findings);
    against_cpuset(vm, ground, findings);
    quota(vm, ground, findings);
}

/// Threads that are no vCPUs where vCPUs are held.
fn on_vcpus(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    let held = ground.held_vcpus(vm);
    let taken = ground.held_pcpus(vm);
    if taken.is_empty() {
        return;
    }
    type Kind = (&'static str, &'static str, fn(&Role) -> bool);
    let kinds: [Kind; 3] = [
        ("emulator-on-vcpu", "emulator", |role| {
            role.is_emulator() && *role != Role::Vhost || *role == Role::Unknown
        }),
        ("iothread-on-vcpu", "iothread", |role| matches!(role, Role::Iothread { .. })),
        ("vhost-on-vcpu", "vhost", |role| *role == Role::Vhost),
    ];
    for (id, what, is_kind) in kinds {
        let mut by_affinity: BTreeMap<String, (PcpuSet, Vec<&RunningThread>)> = BTreeMap::new();
        for thread in vm.threads.iter().filter(|thread| is_kind(&thread.role)) {
            let Some(affinity) = &thread.affinity else { continue };
            if !affinity.is_disjoint(&taken) {
                let key = affinity.to_string();
                let entry = by_affinity.entry(key).or_insert((affinity.clone(), Vec::new()));
                entry.1.push(thread);
            }
        }
        for (affinity, threads) in by_affinity.into_values() {
            let met = affinity.intersection(&taken);
            let numbers = held.iter().filter(|(_, on)| !on.is_disjoint(&met)).map(|(v, _)| *v);
            let whose = vcpus(numbers);
            let nowhere_else = affinity.is_subset(&taken);
            let names = if what == "iothread" {
                threads.iter().map(|thread| thread.role.to_string()).collect::<Vec<_>>().join(", ")
            } else {
                format!("its {what} ({})", count(threads.len()))
            };
            let only = if nowhere_else { "can only run" } else { "may run" };
            let mut message = format!("{names} {only} on {} of {whose}", pcpus(&met));
            let realtime = vm.threads.iter().any(|thread| {
                thread.role.is_vcpu() && thread.policy.is_some_and(|policy| policy.is_realtime())
            });
            if realtime && nowhere_else {
                message += "; vCPUs are real-time: it waits until they sleep";
            }
            findings.push(finding(
                vm,
                id,
                Severity::Warning,
                message,
                format!("pin the {what} to pCPUs outside {taken}"),
            ));
        }
    }
}

fn count(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// The group says one thing, the thread's own affinity another.
fn against_cpuset(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    for thread in &vm.threads {
        let (Some(affinity), Some(cpuset)) = (&thread.affinity, &thread.limits.pcpus) else {
            continue;
        };
        // A cpuset of everything says nothing.
        let allowed = cpuset.intersection(&ground.online);
        if !ground.holds(cpuset) || *affinity == allowed {
            continue;
        }
        let group = thread.limits.cpuset_group.as_deref().unwrap_or("its cgroup");
        findings.push(finding(
            vm,
            "affinity-not-cpuset",
            Severity::Hint,
            format!(
                "{} (thread {}) may run on {affinity}, and its cpuset {group} says {cpuset}",
                thread.role, thread.tid
            ),
            "set one of the two: the kernel forgets a thread's own affinity when its cpuset changes",
        ));
    }
}

/// CPU time limits on vCPUs that are held.
fn quota(vm: &RunningVm, ground: &Ground<'_>, findings: &mut Vec<Finding>) {
    let mut by_group: BTreeMap<&str, Vec<&RunningThread>> = BTreeMap::new();
    for thread in vm.threads.iter().filter(|thread| thread.role.is_vcpu()) {
        let held = thread.affinity.as_ref().is_some_and(|affinity| ground.holds(affinity));
        if let Some(quota) = thread.limits.quota.as_ref().filter(|_| held) {
            by_group.entry(&quota.group).or_default().push(thread);
        }
    }
    for (group, threads) in by_group {
        let Some(quota) = threads.first().and_then(|thread| thread.limits.quota.as_ref()) else {
            continue;
        };
        let whose = match &threads[..] {
            [one] => one.role.to_string(),
            more => format!("{} vCPU threads", more.len()),
        };
        findings.push(finding(
            vm,
            "quota-on-held",
            Severity::Warning,
            format!(
                "{whose} held on pCPUs may use {} µs of every {} µs together (cgroup {group}): \
                 then they stand still",
                quota.quota_us, quota.period_us
            ),
            "take the limit away: pins are limit enough",
        ));
    }
}

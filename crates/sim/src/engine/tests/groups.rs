//! Shares of pCPUs: by weights, within control groups, and their quota.

use super::*;

/// Weights share a pCPU, whatever the kernel.
#[test]
fn weights_share_a_pcpu() {
    for (kernel, _) in SchedKernel::ALL {
        let mut model = free(host(1, 2, 1), kernel);
        model.duration_ns = 10_000_000_000;
        let work = [Op::Work(Duration::Constant(100_000), WorkClass::COMPUTE), Op::Done(0)];
        for (name, weight) in [("light", 1024), ("heavy", 2048)] {
            model.vms.push(SimVm { weight, ..vm(name, &[0, 1], 0, &work) });
        }
        let outcome = run(&model, || true).unwrap();
        let ran = |vm: usize| outcome.vms[vm].ran_ns as f64;
        near(ran(1) / ran(0), 2.0, kernel.name());
    }
}

/// VMs in control groups with these shares, each with so many busy vCPUs on two pCPUs.
fn grouped(kernel: SchedKernel, groups: &[(SimGroup, u32)]) -> SimModel {
    let mut model = free(host(1, 2, 1), kernel);
    model.warmup_ns = 0;
    let work = [Op::Work(Duration::Constant(100_000), WorkClass::COMPUTE), Op::Done(0)];
    for (index, (group, vcpus)) in groups.iter().enumerate() {
        let pins: Vec<u32> = (0..*vcpus).map(|vcpu| vcpu % 2).collect();
        let group_of = Some(index as u16);
        model.vms.push(SimVm { group: group_of, ..vm(&format!("vm {index}"), &pins, 0, &work) });
        model.groups.push(*group);
    }
    model
}

/// `calc_group_shares`: groups share by their weights, however many threads they have,
/// within a percent; and beside a thread of the root.
#[test]
fn groups_share_by_their_weights() {
    for (kernel, name) in SchedKernel::ALL {
        let group = |shares| SimGroup { shares, quota: None };
        let mut model = grouped(kernel, &[(group(1024), 6), (group(3072), 2)]);
        model.warmup_ns = 100_000_000;
        model.duration_ns = 10_000_000_000;
        let outcome = run(&model, || true).unwrap();
        let ran = |vm: usize| outcome.vms[vm].ran_ns as f64;
        near(ran(1) / ran(0), 3.0, name);
        near(ran(0) + ran(1), 2e10, name);
        // 512 and 1536 on each pCPU beside a thread of 2048.
        let task = |pcpu| HostTask {
            name: "busy".to_owned(),
            pins: vec![pcpu],
            weight: 2048,
            group: None,
            burst: None,
        };
        model.host_tasks = vec![task(0), task(1)];
        let outcome = run(&model, || true).unwrap();
        near(outcome.time.host_tasks as f64, 1e10, name);
        near(outcome.vms[1].ran_ns as f64, 0.375 * 2e10, name);
    }
}

/// `cpu.max` bounds what a group runs in a period, on all pCPUs, within one slice.
#[test]
fn a_quota_bounds_what_a_group_runs() {
    for (kernel, name) in SchedKernel::ALL {
        for quota_ms in [5u64, 30, 50, 120] {
            let quota = CfsBandwidth { quota_ns: quota_ms * 1_000_000, period_ns: 100_000_000 };
            let limited = SimGroup { shares: 1024, quota: Some(quota) };
            let free = SimGroup { shares: 1024, quota: None };
            for others in [0, 4] {
                let mut model = grouped(kernel, &[(limited, 3), (free, others)]);
                model.duration_ns = 2_000_000_000;
                let outcome = run(&model, || true).unwrap();
                let (ran, most) = (outcome.vms[0].ran_ns, 20 * quota.quota_ns);
                let slice = model.policy.bandwidth_slice_ns;
                assert!(ran <= most + slice, "{name} {quota_ms} {others}: {ran}");
                if others == 0 {
                    assert!(outcome.counters.throttles > 0, "{name} {quota_ms}");
                    // What a pCPU took and did not use may expire with the period.
                    assert!(ran + 20 * slice >= most, "{name} {quota_ms}: {ran}");
                    if !model.policy.bandwidth_expires {
                        assert!(ran + slice >= most, "{name} {quota_ms}: {ran}");
                    }
                }
            }
        }
    }
}

/// Who wakes for next to nothing on each of seven other pCPUs takes 5 ms of the quota there and
/// gives 4 ms back (`return_cfs_rq_runtime`): the rest expires, or is there for the next time.
#[test]
fn what_pcpus_keep_of_a_quota_expires_in_some_versions() {
    let ran = |release: &str, others: u32| {
        let policy = SchedPolicy::defaults(KernelRelease::parse(release).unwrap(), 8);
        let quota = CfsBandwidth { quota_ns: 10_000_000, period_ns: 100_000_000 };
        let mut model = free(host(1, 8, 1), policy.kernel);
        model.policy = policy;
        model.kvm.halt_poll_ns = 0;
        model.groups = vec![SimGroup { shares: 1024, quota: Some(quota) }];
        (model.warmup_ns, model.duration_ns) = (0, 5_000_000_000);
        let mut guest = vm("vm", &[0, 1, 2, 3, 4, 5, 6, 7], 0, &[]);
        guest.group = Some(0);
        let work = |ns| Op::Work(Duration::Constant(ns), WorkClass::COMPUTE);
        for (at, task) in guest.tasks.iter_mut().enumerate() {
            task.program = match at {
                0 => vec![work(100_000), Op::Done(0)],
                _ => vec![Op::Sleep(Duration::Constant(10_000_000)), work(100)],
            };
        }
        guest.tasks.truncate(1 + others as usize);
        model.vms = vec![guest];
        run(&model, || true).unwrap().meters[0].done as f64 / 5_000.0
    };
    for release in ["4.14", "5.3", "5.4"] {
        near(ran(release, 0), 1.0, release);
    }
    // Nothing is lost but what they keep once.
    for release in ["4.14", "5.4", "6.12"] {
        let left = ran(release, 7);
        assert!((0.97..1.0).contains(&left), "{release}: {left}");
    }
    let left = ran("5.3", 7);
    assert!((0.3..0.95).contains(&left), "{left}");
    let expires = |release: &str| {
        SchedPolicy::defaults(KernelRelease::parse(release).unwrap(), 8).bandwidth_expires
    };
    assert_eq!(
        ["3.6", "3.13", "3.16", "4.17", "4.18", "5.3"].map(expires),
        [true, true, false, false, true, true]
    );
}

/// By hand: 8 ms of 50, in slices of 5 and 3 ms (`assign_cfs_rq_runtime`). The tick at
/// 8 ms finds nothing left and the pool empty: `throttle_cfs_rq`. The timer at 50 ms fills
/// the pool, pays the debt of 0 with 1 ns, and the group comes back
/// (`unthrottle_cfs_rq`); it then takes 5 ms less that, and 3.
#[test]
fn a_group_is_throttled_and_comes_back() {
    for (kernel, name) in SchedKernel::ALL {
        let quota = CfsBandwidth { quota_ns: 8_000_000, period_ns: 50_000_000 };
        let mut model = grouped(kernel, &[(SimGroup { shares: 1024, quota: Some(quota) }, 1)]);
        model.duration_ns = 120_000_000;
        model.map_from_ns = Some(0);
        let outcome = run(&model, || true).unwrap();
        let ran: Vec<(u64, u64)> = outcome
            .map
            .iter()
            .filter_map(|segment| match segment {
                TraceSegment::Ran { from_ns, to_ns, .. } => Some((*from_ns, *to_ns)),
                _ => None,
            })
            .collect();
        let ms = |from: u64, to: u64| (from * 1_000_000, to * 1_000_000);
        assert_eq!(ran, [ms(0, 8), ms(50, 58), ms(100, 108)], "{name}");
        assert_eq!(outcome.counters.throttles, 3);
    }
}

//! Tests of the host load.

use rustix::process::{Signal, kill_process};

use suite::{PATIENCE, SharedThing, Tier, Turn, needs, until};

use super::*;
use crate::owner::end_orphans;

fn set(text: &str) -> PcpuSet {
    text.parse().expect("a pCPU list")
}

fn load(percent_of_host: f64, host_pcpus: u32, pcpus: &str) -> StressLoad {
    let time_limit = Duration::from_secs(60);
    StressLoad { percent_of_host, host_pcpus, pcpus: set(pcpus), time_limit }
}

#[test]
fn loads_become_workers() {
    let check = |percent: f64, host: u32, pcpus: &str, expected: (u32, u32)| {
        let plan = load(percent, host, pcpus).plan().expect("fits");
        assert_eq!((plan.workers, plan.percent_each), expected, "{percent} % of {host}");
        let made = plan.percent_of_host(host);
        let tolerance = 0.5 * f64::from(plan.workers) / f64::from(host) + 0.01;
        assert!((made - percent).abs() <= tolerance, "{percent} % of {host} became {made}");
    };
    // 1400 % and 2800 % of 3200 %.
    check(43.75, 32, "0-31", (14, 100));
    check(87.5, 32, "0-31", (28, 100));
    check(87.5, 32, "4-31", (28, 100));
    check(100.0, 32, "0-31", (32, 100));
    check(44.0, 32, "0-31", (15, 94));
    check(50.0, 1, "0", (1, 50));
    check(50.0, 3, "0-2", (2, 75));
    check(100.0 / 3.0, 3, "0-2", (1, 100));
    check(1.0, 1, "0", (1, 1));
    check(0.5, 512, "0-511", (3, 85));
}

#[test]
fn loads_that_cannot_be_made_are_refused() {
    let check = |percent: f64, host: u32, pcpus: &str, message: &str| {
        let error = load(percent, host, pcpus).plan().expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    };
    check(0.0, 4, "0-3", "more than 0");
    check(-1.0, 4, "0-3", "more than 0");
    check(f64::NAN, 4, "0-3", "more than 0");
    check(f64::INFINITY, 4, "0-3", "at most 100");
    check(100.5, 4, "0-3", "at most 100");
    check(0.1, 1, "0", "less than 1 % of one of 1 pCPUs");
    check(0.000_01, 1, "0", "less than 1 %");
    check(50.0, 32, "0-7", "needs 16 of 32 pCPUs, but may only run on 8 (0-7)");
    check(50.0, 32, "", "may only run on 0");
}

proptest::proptest! {
    #[test]
    fn a_plan_is_what_was_asked_for(percent in 0.5_f64..=100.0, host in 2_u32..=512) {
        let all = format!("0-{}", host - 1);
        let plan = load(percent, host, &all).plan().expect("fits");
        let error = (plan.percent_of_host(host) - percent).abs();
        proptest::prop_assert!(error <= 0.5 * f64::from(plan.workers) / f64::from(host) + 0.01);
        proptest::prop_assert!((1..=100).contains(&plan.percent_each));
        proptest::prop_assert!(plan.workers <= host);
    }
}

/// A turn to start stress-ng, if it is there.
fn turn() -> Option<Turn> {
    // What they leave for a moment is not for `vmlab clean`.
    let turn = needs(Tier::Test).pcpus(1).alone_with(SharedThing::Leftovers).turn()?;
    if Command::new("stress-ng").arg("--version").output().is_err() {
        suite::skip("stress-ng is not installed");
        return None;
    }
    Some(turn)
}

fn here() -> PcpuSet {
    thread_affinity(std::process::id()).expect("own affinity")
}

fn owner() -> Owner {
    Owner::current("load").expect("this process")
}

#[test]
fn a_load_runs_where_it_should_and_ends() {
    let Some(_turn) = turn() else { return };
    let all = here();
    let host_pcpus = u32::try_from(all.len()).expect("few");
    let one = PcpuSet::from_iter(all.last());
    let percent = 50.0 / f64::from(host_pcpus);
    let load = StressLoad { pcpus: one.clone(), ..load(percent, host_pcpus, "") };
    let mut running = load.start(&owner()).expect("starts");
    assert_eq!(running.plan(), StressPlan { workers: 1, percent_each: 50 });
    let workers = running.workers();
    assert_eq!(workers.len(), 1);
    assert_eq!(thread_affinity(workers[0].0).expect("runs"), one);
    until("the load has used a pCPU", || {
        running.look_again().expect("runs");
        running.achieved_percent().filter(|percent| *percent > 0.0)
    });
    running.check_alive().expect("runs");
    assert!(running.counters().get("load.run_s").is_some_and(|used| used > 0.0));
    let environ = fs::read(format!("/proc/{}/environ", workers[0].0)).expect("readable");
    assert!(String::from_utf8_lossy(&environ).contains("VMLAB_OWNER="), "workers keep the mark");
    let group = running.child.id();
    running.stop().expect("stops");
    let left = proc::pids()
        .into_iter()
        .filter(|pid| proc::stat(*pid).is_some_and(|stat| stat.pgrp == group && !stat.is_dead()));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_load_that_dies_or_stops_is_noticed() {
    let Some(_turn) = turn() else { return };
    let all = here();
    let load = StressLoad {
        pcpus: all.clone(),
        ..load(100.0, u32::try_from(all.len()).expect("few"), "")
    };
    let asked = load.plan().expect("fits").workers;
    let signal_worker = |running: &RunningLoad, signal: Signal| {
        let (pid, _) = running.workers()[0];
        let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("sent");
    };
    let wait_for = |running: &mut RunningLoad, wanted: &dyn Fn(&LoadFailure) -> bool| {
        until("the load's end is noticed", || {
            running.check_alive().is_err_and(|died| wanted(&died)).then_some(())
        });
    };
    let one_less = |died: &LoadFailure| matches!(died, LoadFailure::Workers { running, .. } if *running + 1 == asked as usize);
    for signal in [Signal::STOP, Signal::KILL] {
        let mut running = load.start(&owner()).expect("starts");
        signal_worker(&running, signal);
        wait_for(&mut running, &|died| one_less(died) || matches!(died, LoadFailure::Ended { .. }));
        running.stop().expect("stops");
    }
    let mut running = load.start(&owner()).expect("starts");
    let workers = running.workers();
    running.child.kill().expect("killed");
    wait_for(&mut running, &|died| matches!(died, LoadFailure::Ended { .. }));
    for (pid, stat) in workers {
        let now = proc::stat(pid).filter(|now| now.starttime_ticks == stat.starttime_ticks);
        assert!(now.is_none_or(|now| now.is_dead()), "worker {pid} is left");
    }
}

#[test]
fn a_load_ends_at_its_time_limit() {
    let Some(_turn) = turn() else { return };
    let one = PcpuSet::from_iter(here().first());
    let load = StressLoad { time_limit: Duration::from_secs(1), pcpus: one, ..load(50.0, 1, "") };
    // On a busy host the limit may be over before the load has come up.
    let died = match load.start(&owner()) {
        Ok(mut running) => {
            assert!(wait_exit(&running.leader, Instant::now() + PATIENCE));
            running.check_alive().expect_err("it is over").to_string()
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(died, "stress-ng ended (exit status: 0): it said nothing");
}

#[test]
fn the_load_of_a_killed_vmlab_is_found_and_ended() {
    let Some(_turn) = turn() else { return };
    let mut vmlab = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let starttime_ticks = proc::stat(vmlab.id()).expect("it runs").starttime_ticks;
    let owner = Owner { pid: vmlab.id(), starttime_ticks, ..owner() };
    let all = here();
    let host_pcpus = u32::try_from(all.len()).expect("few");
    let load = StressLoad { pcpus: all, ..load(100.0, host_pcpus, "") };
    let running = load.start(&owner).expect("starts");
    let group = running.child.id();
    vmlab.kill().expect("killed");
    vmlab.wait().expect("reaped");
    let ended = end_orphans(|orphan| orphan.owner == owner, PATIENCE);
    assert_eq!(ended.len(), 1 + running.plan().workers as usize, "{ended:?}");
    for (orphan, how) in &ended {
        assert!(how.is_ok() && orphan.process_group == group, "{orphan:?} {how:?}");
    }
    assert!(running.workers().is_empty());
}

#[test]
fn a_load_off_this_host_says_so() {
    let owner = owner();
    let error = load(50.0, 2, "1022-1023").start(&owner).expect_err("no such pCPUs");
    assert!(error.to_string().contains("1022-1023 offline or not allowed"), "{error}");
}

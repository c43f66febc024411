//! Load on the host beside the VM: stress-ng keeps some pCPUs' worth of time
//! busy, at normal priority, so that it competes with the VM as another VM
//! would.
//!
//! A load of `percent_of_host` percent is `percent / 100 * pCPUs` pCPUs of
//! time: 43.75 percent of 32 pCPUs are 14 workers that never pause (1400 % in
//! the words of top). A load that is no whole number of pCPUs is spread
//! evenly over one worker more than fits, each pausing a little.
//!
//! Source: `stress-ng(1)`, `--cpu` and `--cpu-load`.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use record::CounterSet;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use topology::PcpuSet;

use crate::affinity::{SetAffinityError, allowed_in_status, set_thread_affinity, thread_affinity};
use crate::counters::ticks_per_second;
use crate::owner::{Owner, stop_group, wait_exit};
use crate::proc;

/// How long stress-ng may take until all its workers run.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long the load may take to come up to its rate on a host that has room
/// for it.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);
/// What counts as having come up: this part of the rate.
const SETTLED_PART: f64 = 0.8;
/// Shortest time over which a rate is taken; `/proc` counts in 10 ms.
const RATE_WINDOW: Duration = Duration::from_millis(200);
/// Time between two looks at the workers; the end of stress-ng cuts it short.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Time between SIGTERM and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// A load that keeps a part of the host's pCPUs busy.
#[derive(Debug, Clone, PartialEq)]
pub struct StressLoad {
    /// Part of all the host's pCPUs' time, percent: above 0, at most 100.
    pub percent_of_host: f64,
    /// How many pCPUs the host has online.
    pub host_pcpus: u32,
    /// Where the load may run.
    pub pcpus: PcpuSet,
    /// When the load ends by itself if nobody stops it.
    pub time_limit: Duration,
}

/// How a load is realised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StressPlan {
    /// stress-ng workers.
    pub workers: u32,
    /// Share of a pCPU that each uses, 1 to 100.
    pub percent_each: u32,
}

impl StressPlan {
    /// The load that this makes, in percent of `host_pcpus` pCPUs. Differs
    /// from what was asked for by at most half a percent of each worker.
    #[must_use]
    pub fn percent_of_host(&self, host_pcpus: u32) -> f64 {
        f64::from(self.workers) * f64::from(self.percent_each) / f64::from(host_pcpus)
    }
}

/// Error type for [`StressLoad::plan`].
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum PlanLoadError {
    /// Not a percentage.
    #[error("Host load of {0} %: give more than 0 and at most 100")]
    Percent(f64),
    /// Too little for even one worker.
    #[error("Host load of {percent} % is less than 1 % of one of {host_pcpus} pCPUs")]
    TooSmall {
        /// What was asked for.
        percent: f64,
        /// pCPUs of the host.
        host_pcpus: u32,
    },
    /// The allowed pCPUs have less time than that.
    #[error(
        "Host load of {percent} % needs {needed} of {host_pcpus} pCPUs, but may only run on {allowed} ({pcpus})"
    )]
    NoRoom {
        /// What was asked for.
        percent: f64,
        /// That many pCPUs' time.
        needed: f64,
        /// pCPUs of the host.
        host_pcpus: u32,
        /// pCPUs that are allowed.
        allowed: usize,
        /// Which.
        pcpus: PcpuSet,
    },
}

/// Error type for [`StressLoad::start`].
#[derive(Debug, thiserror::Error)]
pub enum StartLoadError {
    /// The load can't be made.
    #[error(transparent)]
    Plan(#[from] PlanLoadError),
    /// The program is not there.
    #[error("Cannot find stress-ng on this host; install the package stress-ng")]
    Missing,
    /// The program can't be started.
    #[error("Cannot start stress-ng")]
    Spawn(#[source] io::Error),
    /// It can't be put on the allowed pCPUs.
    #[error(transparent)]
    Affinity(#[from] SetAffinityError),
    /// A worker is not where it should be.
    #[error("stress-ng's process {pid} runs on pCPUs {found} instead of {asked}")]
    Misplaced {
        /// The worker.
        pid: u32,
        /// Where it may run.
        found: PcpuSet,
        /// Where it should.
        asked: PcpuSet,
    },
    /// Not all workers came.
    #[error("stress-ng started {found} of {asked} workers in {} s", START_LIMIT.as_secs())]
    Slow {
        /// Workers that run.
        found: usize,
        /// Workers that should.
        asked: u32,
    },
    /// It ended at once.
    #[error(transparent)]
    Died(#[from] LoadFailure),
}

/// The load is not what it was.
#[derive(Debug, thiserror::Error)]
pub enum LoadFailure {
    /// stress-ng has ended, by itself or because its time limit was over.
    #[error("stress-ng ended ({status}): {}", if .stderr.is_empty() { "it said nothing" } else { .stderr })]
    Ended {
        /// How, as far as it is known.
        status: String,
        /// The end of what it said.
        stderr: String,
    },
    /// Workers have ended or are stopped.
    #[error("stress-ng has {running} of {asked} workers running")]
    Workers {
        /// Workers that run.
        running: usize,
        /// Workers that should.
        asked: u32,
    },
}

impl StressLoad {
    /// How many workers, each with what load, this takes.
    ///
    /// # Errors
    /// [`PlanLoadError`] when the percentage is none, or does not fit onto
    /// the allowed pCPUs.
    pub fn plan(&self) -> Result<StressPlan, PlanLoadError> {
        let percent = self.percent_of_host;
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(PlanLoadError::Percent(percent));
        }
        let host_pcpus = self.host_pcpus;
        // In percent of one pCPU, as top counts; to a hundredth, so that 1/3
        // of 3 pCPUs is one worker.
        let total = (percent * f64::from(host_pcpus) * 100.0).round() / 100.0;
        let allowed = self.pcpus.len();
        if total > allowed as f64 * 100.0 {
            let needed = total / 100.0;
            let pcpus = self.pcpus.clone();
            return Err(PlanLoadError::NoRoom { percent, needed, host_pcpus, allowed, pcpus });
        }
        let workers = (total / 100.0).ceil();
        let percent_each = (total / workers).round();
        if workers < 1.0 || percent_each < 1.0 {
            return Err(PlanLoadError::TooSmall { percent, host_pcpus });
        }
        Ok(StressPlan { workers: workers as u32, percent_each: percent_each as u32 })
    }

    /// Starts the load and waits until it is there: all workers run, on the
    /// pCPUs that they should run on, and use time. On a host that is busy
    /// otherwise they may get less than they want;
    /// [`RunningLoad::achieved_percent`] tells.
    ///
    /// # Errors
    /// [`StartLoadError`]; nothing is left running then.
    pub fn start(&self, owner: &Owner) -> Result<RunningLoad, StartLoadError> {
        let plan = self.plan()?;
        let seconds = self.time_limit.as_secs().max(1);
        let mut command = Command::new("stress-ng");
        command
            .args(["--cpu", &plan.workers.to_string()])
            .args(["--cpu-load", &plan.percent_each.to_string()])
            .args(["--timeout", &format!("{seconds}s")])
            // Workers that write their titles overwrite the owner's mark;
            // a worker that was killed must not come back unnoticed.
            .args(["--keep-name", "--oomable", "--quiet", "--temp-path"])
            .arg(env::temp_dir())
            .current_dir(env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        owner.apply(&mut command);
        let child = spawn_on(&mut command, &self.pcpus)?;
        let mut load = RunningLoad::new(child, self, plan)?;
        match load.wait_started() {
            Ok(()) => Ok(load),
            Err(StartLoadError::Died(LoadFailure::Ended { .. })) => Err(load.last_words().into()),
            Err(error) => Err(error),
        }
    }
}

/// Spawns a process that may run on `pcpus` only, from its first instruction:
/// children inherit their affinity from the thread that spawns them, so a
/// thread is made for that.
fn spawn_on(command: &mut Command, pcpus: &PcpuSet) -> Result<Child, StartLoadError> {
    let spawn = || {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        set_thread_affinity(tid, pcpus)?;
        command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StartLoadError::Missing,
            _ => StartLoadError::Spawn(source),
        })
    };
    thread::scope(|scope| scope.spawn(spawn).join().expect("spawning does not panic"))
}

/// A load that runs. Ended, with all its workers, on drop.
#[derive(Debug)]
pub struct RunningLoad {
    child: Child,
    leader: OwnedFd,
    plan: StressPlan,
    host_pcpus: u32,
    pcpus: PcpuSet,
    started: Instant,
    started_s: f64,
    stopped: bool,
}

impl RunningLoad {
    fn new(child: Child, load: &StressLoad, plan: StressPlan) -> Result<Self, StartLoadError> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| StartLoadError::Spawn(rustix::io::Errno::SRCH.into()))?;
        let leader = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|source| StartLoadError::Spawn(source.into()))?;
        Ok(Self {
            child,
            leader,
            plan,
            host_pcpus: load.host_pcpus,
            pcpus: load.pcpus.clone(),
            started: Instant::now(),
            started_s: 0.0,
            stopped: false,
        })
    }

    fn wait_started(&mut self) -> Result<(), StartLoadError> {
        let deadline = Instant::now() + START_LIMIT;
        let workers = loop {
            let workers = self.workers();
            let busy = workers.iter().filter(|(_, stat)| stat.used_ticks > 0).count();
            // A light load's worker may need a while for its first 10 ms.
            let works = busy > 0 && workers.len() == self.plan.workers as usize;
            if works {
                break workers;
            }
            if Instant::now() > deadline {
                let (found, asked) = (workers.len(), self.plan.workers);
                return Err(StartLoadError::Slow { found, asked });
            }
            self.look_again()?;
        };
        for (pid, _) in workers {
            self.check_place(pid)?;
        }
        self.started = Instant::now();
        self.started_s = self.used_s();
        let wanted = self.plan.percent_of_host(self.host_pcpus) * SETTLED_PART;
        while self.started.elapsed() < SETTLE_LIMIT {
            let settled = self.started.elapsed() >= RATE_WINDOW
                && self.achieved_percent().is_some_and(|percent| percent >= wanted);
            if settled {
                break;
            }
            self.look_again()?;
        }
        // What counts from here on is the load as it is, not its coming up.
        self.started = Instant::now();
        self.started_s = self.used_s();
        Ok(())
    }

    /// Returns after a moment, or as soon as stress-ng has ended.
    fn look_again(&self) -> Result<(), LoadFailure> {
        match wait_exit(&self.leader, Instant::now() + LOOK_INTERVAL) {
            // The caller asks for the last words, which needs the child.
            true => Err(LoadFailure::Ended { status: String::new(), stderr: String::new() }),
            false => Ok(()),
        }
    }

    fn check_place(&self, pid: u32) -> Result<(), StartLoadError> {
        let online = thread_affinity(pid).ok();
        let found = online.or_else(|| {
            allowed_in_status(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
        });
        match found {
            Some(found) if found != self.pcpus => {
                Err(StartLoadError::Misplaced { pid, found, asked: self.pcpus.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The workers: children of the group's leader.
    fn workers(&self) -> Vec<(u32, proc::ProcStat)> {
        let leader = self.child.id();
        let worker = |pid: u32| {
            let stat = proc::stat(pid)?;
            (stat.ppid == leader && stat.pgrp == leader && !stat.is_dead()).then_some((pid, stat))
        };
        proc::children(leader).into_iter().filter_map(worker).collect()
    }

    /// How the load is realised.
    #[must_use]
    pub fn plan(&self) -> StressPlan {
        self.plan
    }

    /// pCPU time that the load has used so far, s.
    #[must_use]
    pub fn used_s(&self) -> f64 {
        let leader =
            proc::stat(self.child.id()).map_or(0, |stat| stat.used_ticks + stat.children_ticks);
        let workers: u64 = self.workers().iter().map(|(_, stat)| stat.used_ticks).sum();
        (leader + workers) as f64 / ticks_per_second()
    }

    /// The counter `load.run_s`.
    #[must_use]
    pub fn counters(&self) -> CounterSet {
        let mut counters = CounterSet::default();
        counters.set("load.run_s", self.used_s());
        counters
    }

    /// The load since it came up, percent of all the host's pCPUs' time;
    /// absent right after the start, when too little was counted.
    #[must_use]
    pub fn achieved_percent(&self) -> Option<f64> {
        let elapsed = self.started.elapsed();
        if elapsed < RATE_WINDOW {
            return None;
        }
        let used_s = self.used_s() - self.started_s;
        Some(used_s / elapsed.as_secs_f64() / f64::from(self.host_pcpus) * 100.0)
    }

    /// Whether all workers still run.
    ///
    /// # Errors
    /// [`LoadFailure`] when stress-ng has ended, or some workers have, or are stopped.
    pub fn check_alive(&mut self) -> Result<(), LoadFailure> {
        if self.stopped || wait_exit(&self.leader, Instant::now()) {
            return Err(self.last_words());
        }
        let workers = self.workers();
        let running = workers.iter().filter(|(_, stat)| !matches!(stat.state, 'T' | 't')).count();
        match running == self.plan.workers as usize {
            true => Ok(()),
            false => Err(LoadFailure::Workers { running, asked: self.plan.workers }),
        }
    }

    /// Ends the load; returns once its last process is gone.
    ///
    /// # Errors
    /// The kernel's error, when a process could not be ended.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.stopped {
            stop_group(&mut self.child, STOP_GRACE)?;
            self.stopped = true;
        }
        Ok(())
    }

    /// What stress-ng said before it ended.
    fn last_words(&mut self) -> LoadFailure {
        let mut stderr = String::new();
        let mut status = "not to be waited for".to_owned();
        // Its workers hold the pipe's other end, too.
        if self.end().is_ok() {
            if let Ok(how) = self.child.wait() {
                status = how.to_string();
            }
            if let Some(mut pipe) = self.child.stderr.take() {
                // Cut off, the text is still worth telling.
                let _ = pipe.read_to_string(&mut stderr);
            }
        }
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        LoadFailure::Ended { status, stderr: last.trim().to_owned() }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        // What can't be ended here is found as an orphan later.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests;

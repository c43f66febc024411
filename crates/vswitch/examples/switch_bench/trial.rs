//! One trial: a fresh connection, traffic for a while, and whether it is to be kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use vswitch::frontend::{Frontend, FrontendOptions, Traffic, TrafficCounts, TrafficPlan};

use crate::machine::{Distance, Pcpus, distance, hot_copy_ns, own_wait_ns, waits_ns};
use crate::peers::Peer;

/// Traffic before anything is counted.
const WARM_UP: Duration = Duration::from_millis(30);
/// How long ports may take to hear of each other.
pub(crate) const GREETING: Duration = Duration::from_secs(20);
/// How often a trial that was disturbed is done again.
const AGAIN: u32 = 4;
/// The share of a trial that a thread may have waited for its pCPU.
const MOST_WAITING: f64 = 0.07;
/// Where a p99 is told: while a thread waits, all frames do, and a hundredth decides.
const MOST_WAITING_P99: f64 = 0.005;
/// How much longer than the best of the last ones a hot copy may take.
const MOST_SLOWER: f64 = 1.25;
/// How many that are. On a machine that is slower for minutes, that is what it is like, for
/// both switches of a round.
const LAST_COPIES: usize = 16;

/// What a trial says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Frames a second that were received and checked.
    Rate,
    /// The time in ns within which 99 % of the frames came.
    P99,
}

/// A trial's result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrialValue {
    pub(crate) value: f64,
    pub(crate) distance: Distance,
    pub(crate) lost: u64,
    /// The share of its time for which the generator had something to do: where that is
    /// all, the switch is not what limits.
    pub(crate) generator_busy: f64,
}

/// Why a trial has no result.
#[derive(Debug)]
pub(crate) enum UnusableTrial {
    /// The machine was another one before than after, or somebody else was there.
    Disturbed(&'static str),
    /// It failed: nothing of its switch can be compared.
    Failed(String),
}

/// What all trials are judged by.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) pcpus: Pcpus,
    pub(crate) length: Duration,
    /// What hot copies took, the last at the end.
    pub(crate) copies_ns: VecDeque<f64>,
}

impl Judge {
    pub(crate) fn trial(
        &mut self,
        peer: &mut Peer,
        options: FrontendOptions,
        plan: &TrafficPlan,
        ports: usize,
        figure: Figure,
    ) -> Result<TrialValue, UnusableTrial> {
        peer.wake(true).map_err(UnusableTrial::Failed)?;
        let result = self.awake(peer, options, plan, ports, figure);
        peer.wake(false).map_err(UnusableTrial::Failed)?;
        result
    }

    fn awake(
        &mut self,
        peer: &Peer,
        options: FrontendOptions,
        plan: &TrafficPlan,
        ports: usize,
        figure: Figure,
    ) -> Result<TrialValue, UnusableTrial> {
        let failed =
            |error: String| UnusableTrial::Failed(format!("{}: {error}", peer.kind.name()));
        let before = distance(self.pcpus);
        let connect = |socket: &std::path::PathBuf| connect(socket, options);
        let ends: Result<Vec<_>, _> = peer.sockets[..ports].iter().map(connect).collect();
        let mut traffic = Traffic::new(ends.map_err(failed)?, plan.clone());
        traffic.greet(GREETING).map_err(failed)?;
        // Since when frames count, how many there were, and what both threads had waited.
        let mut counted: Option<(Instant, u64, Waits)> = None;
        let mut result = None;
        let began = Instant::now();
        let mut asked = 0_u32;
        let length = self.length;
        let pid = peer.pid();
        traffic.run(|tally| {
            asked += 1;
            if !asked.is_multiple_of(32) {
                return false;
            }
            match &counted {
                None if began.elapsed() >= WARM_UP => {
                    counted = Some((Instant::now(), tally.received, Waits::begin(pid)));
                    false
                }
                Some((since, frames, waits)) if since.elapsed() >= length => {
                    let seconds = since.elapsed().as_secs_f64();
                    result = Some(((tally.received - frames) as f64 / seconds, waits.share()));
                    true
                }
                _ => false,
            }
        });
        let (rate, waiting) = result.expect("it ran to its end");
        let generator_busy = traffic.busy_share().expect("it has run");
        let TrafficCounts { lost, disordered, corrupt, .. } = *traffic.tally();
        if disordered + corrupt > 0 {
            let what = format!("{disordered} frames out of order, {corrupt} damaged");
            return Err(failed(what));
        }
        let value = match figure {
            Figure::Rate => rate,
            Figure::P99 => {
                // The warm-up's share is the first.
                let all = traffic.latencies_ns();
                let share = WARM_UP.as_secs_f64() / (WARM_UP + length).as_secs_f64();
                let mut kept = all[(all.len() as f64 * share) as usize..].to_vec();
                if kept.is_empty() {
                    return Err(failed("no frame came".to_owned()));
                }
                let at = (kept.len() * 99 / 100).min(kept.len() - 1);
                f64::from(*kept.select_nth_unstable(at).1)
            }
        };
        drop(traffic);
        self.undisturbed(before, waiting, figure)?;
        Ok(TrialValue { value, distance: before, lost, generator_busy })
    }

    /// Whether a trial that has just ended is to be kept: `before` it, the pCPUs were this
    /// far from each other, and a thread waited `waiting` of its time for its pCPU.
    pub(crate) fn undisturbed(
        &mut self,
        before: Distance,
        waiting: f64,
        figure: Figure,
    ) -> Result<(), UnusableTrial> {
        let most = match figure {
            Figure::Rate => MOST_WAITING,
            Figure::P99 => MOST_WAITING_P99,
        };
        if waiting > most {
            return Err(UnusableTrial::Disturbed("others had a pCPU"));
        }
        let copy_ns = hot_copy_ns();
        let best_ns = self.copies_ns.iter().copied().fold(copy_ns, f64::min);
        self.copies_ns.push_back(copy_ns);
        if self.copies_ns.len() > LAST_COPIES {
            self.copies_ns.pop_front();
        }
        if copy_ns > MOST_SLOWER * best_ns {
            return Err(UnusableTrial::Disturbed("a pCPU was slower"));
        }
        if distance(self.pcpus) != before {
            return Err(UnusableTrial::Disturbed("the pCPUs moved"));
        }
        Ok(())
    }
}

/// What generator and switch have waited for their pCPUs, from when it is made.
#[derive(Debug)]
pub(crate) struct Waits {
    pid: u32,
    began: Instant,
    before: [u64; 2],
}

impl Waits {
    pub(crate) fn begin(pid: u32) -> Self {
        Self { pid, began: Instant::now(), before: [own_wait_ns(), waits_ns(pid)] }
    }

    /// The share of the time until now that the one of both waited that waited more.
    pub(crate) fn share(&self) -> f64 {
        let now = [own_wait_ns(), waits_ns(self.pid)];
        let waited = now.iter().zip(self.before).map(|(now, before)| now.saturating_sub(before));
        waited.max().unwrap_or(0) as f64 / self.began.elapsed().as_nanos() as f64
    }
}

/// Why trials were dropped, and how many.
pub(crate) type DropCounts = BTreeMap<&'static str, u32>;

/// A trial, done again while it was disturbed; none if it always was. What failed is said.
pub(crate) fn again<T>(
    dropped: &mut DropCounts,
    mut trial: impl FnMut() -> Result<T, UnusableTrial>,
) -> Result<Option<T>, String> {
    for _ in 0..AGAIN {
        match trial() {
            Ok(result) => return Ok(Some(result)),
            Err(UnusableTrial::Disturbed(why)) => *dropped.entry(why).or_default() += 1,
            Err(UnusableTrial::Failed(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// The last connection may not have ended yet.
pub(crate) fn connect(
    socket: &std::path::Path,
    options: FrontendOptions,
) -> Result<Frontend, String> {
    let deadline = Instant::now() + GREETING;
    loop {
        match Frontend::connect(socket, options) {
            Ok(frontend) => return Ok(frontend),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("{}: {error}", socket.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

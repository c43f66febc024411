//! One trial: a fresh connection, traffic for a while, and whether it is to be kept.

use std::time::{Duration, Instant};

use vswitch::frontend::{Frontend, FrontendOptions, Tally, Traffic, TrafficPlan};

use crate::machine::{Distance, Pcpus, distance, hot_copy_ns, own_wait_ns, waits_ns};
use crate::peers::Peer;

/// Traffic before anything is counted.
const WARM_UP: Duration = Duration::from_millis(30);
/// How long ports may take to hear of each other.
const GREETING: Duration = Duration::from_secs(20);
/// The share of a trial that a thread may have waited for its pCPU.
const MOST_WAITING: f64 = 0.07;
/// How much longer than its best a hot copy may take.
const MOST_SLOWER: f64 = 1.25;

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
pub(crate) struct Measured {
    pub(crate) value: f64,
    pub(crate) distance: Distance,
    pub(crate) lost: u64,
    /// The share of its time for which the generator had something to do: where that is
    /// all, the switch is not what limits.
    pub(crate) generator_busy: f64,
}

/// Why a trial has no result.
#[derive(Debug)]
pub(crate) enum Unusable {
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
    pub(crate) best_copy_ns: f64,
}

impl Judge {
    pub(crate) fn trial(
        &mut self,
        peer: &mut Peer,
        options: FrontendOptions,
        plan: &TrafficPlan,
        ports: usize,
        figure: Figure,
    ) -> Result<Measured, Unusable> {
        peer.wake(true).map_err(Unusable::Failed)?;
        let result = self.awake(peer, options, plan, ports, figure);
        peer.wake(false).map_err(Unusable::Failed)?;
        result
    }

    fn awake(
        &mut self,
        peer: &Peer,
        options: FrontendOptions,
        plan: &TrafficPlan,
        ports: usize,
        figure: Figure,
    ) -> Result<Measured, Unusable> {
        let failed = |error: String| Unusable::Failed(format!("{}: {error}", peer.kind.name()));
        let before = distance(self.pcpus);
        let connect = |socket: &std::path::PathBuf| connect(socket, options);
        let ends: Result<Vec<_>, _> = peer.sockets[..ports].iter().map(connect).collect();
        let mut traffic = Traffic::new(ends.map_err(failed)?, plan.clone());
        traffic.greet(GREETING).map_err(failed)?;
        // Since when frames count, how many there were, and what both threads had waited.
        let mut counted: Option<(Instant, u64, [u64; 2])> = None;
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
            let waits = || [own_wait_ns(), waits_ns(pid)];
            match counted {
                None if began.elapsed() >= WARM_UP => {
                    counted = Some((Instant::now(), tally.received, waits()));
                    false
                }
                Some((since, frames, [own, theirs])) if since.elapsed() >= length => {
                    let seconds = since.elapsed().as_secs_f64();
                    let [own_now, theirs_now] = waits();
                    let waited = (own_now - own).max(theirs_now.saturating_sub(theirs));
                    result = Some((
                        (tally.received - frames) as f64 / seconds,
                        waited as f64 / 1e9 / seconds,
                    ));
                    true
                }
                _ => false,
            }
        });
        let (rate, waiting) = result.expect("it ran to its end");
        let generator_busy = traffic.busy_share().expect("it has run");
        let Tally { lost, disordered, corrupt, .. } = *traffic.tally();
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
        if waiting > MOST_WAITING {
            return Err(Unusable::Disturbed("others had a pCPU"));
        }
        let copy_ns = hot_copy_ns();
        self.best_copy_ns = self.best_copy_ns.min(copy_ns);
        if copy_ns > MOST_SLOWER * self.best_copy_ns {
            return Err(Unusable::Disturbed("a pCPU was slower"));
        }
        if distance(self.pcpus) != before {
            return Err(Unusable::Disturbed("the pCPUs moved"));
        }
        Ok(Measured { value, distance: before, lost, generator_busy })
    }
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

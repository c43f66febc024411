//! The host beside a trial: was it the same before and after, and did anything
//! else run on the VM's pCPUs?
//!
//! A *canary* is a fixed piece of computing, timed on the VM's pCPUs just
//! before and just after a trial. It knows nothing of the VM, so where it
//! takes longer than usual, the host is not what it was.
//!
//! Source: Linux `Documentation/accounting/psi.rst`,
//! `Documentation/admin-guide/pm/cpufreq.rst` (`scaling_cur_freq`),
//! `Documentation/ABI/testing/sysfs-devices-system-cpu` (`thermal_throttle`).

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use record::HostWatch;
use topology::PcpuSet;

use crate::affinity::set_thread_affinity;
use crate::counters;
use crate::counters::ticks_per_second;

/// How long a canary is watched. Shorter pieces are at the mercy of one timer
/// interrupt; longer ones delay the trials.
const CANARY: Duration = Duration::from_millis(200);

/// Steps of one piece of a canary: about 10 ms of a pCPU at 3 GHz.
const CANARY_STEPS: u64 = 10_000_000;

/// The host at one moment.
#[derive(Debug, Clone)]
pub struct Moment {
    pcpus: PcpuSet,
    taken: Instant,
    canary_s: Option<f64>,
    clock_hz: Option<f64>,
    /// Busy and stolen time of the pCPUs since boot, s.
    busy_steal_s: Option<(f64, f64)>,
    /// pCPU time of this process and its ended children, s.
    own_s: Option<f64>,
    throttles: Option<f64>,
    pressure_memory_s: Option<f64>,
    pressure_io_s: Option<f64>,
}

impl Moment {
    /// Looks at `pcpus`, after running a canary on them for 0.2 s.
    #[must_use]
    pub fn before(pcpus: &PcpuSet) -> Self {
        // The canary's own time must not count as the trial's.
        let canary_s = canary(pcpus);
        Self { canary_s, ..Self::read(pcpus) }
    }

    /// What the host did since this moment; runs the second canary.
    #[must_use]
    pub fn watched_until_now(&self) -> HostWatch {
        let now = Self::read(&self.pcpus);
        let canary_after_s = canary(&self.pcpus);
        // Idle pCPUs clock down: both clocks are read just after a canary.
        let clock_after_hz = clock_hz(Path::new("/"), &self.pcpus);
        let since = |before: Option<f64>, now: Option<f64>| Some((now? - before?).max(0.0));
        let busy = |moment: &Self| moment.busy_steal_s.map(|(busy, _)| busy);
        let steal = |moment: &Self| moment.busy_steal_s.map(|(_, steal)| steal);
        let busy_s = since(busy(self), busy(&now));
        let own_s = since(self.own_s, now.own_s);
        HostWatch {
            pcpus: u32::try_from(self.pcpus.len()).unwrap_or(u32::MAX),
            wall_s: now.taken.duration_since(self.taken).as_secs_f64(),
            canary_before_s: self.canary_s,
            canary_after_s,
            foreign_s: busy_s.zip(own_s).map(|(busy, own)| (busy - own).max(0.0)),
            own_s,
            steal_s: since(steal(self), steal(&now)),
            pressure_memory_s: since(self.pressure_memory_s, now.pressure_memory_s),
            pressure_io_s: since(self.pressure_io_s, now.pressure_io_s),
            throttles: since(self.throttles, now.throttles),
            clock_before_hz: self.clock_hz,
            clock_after_hz,
        }
    }

    fn read(pcpus: &PcpuSet) -> Self {
        Self::read_in(Path::new("/"), pcpus)
    }

    fn read_in(root: &Path, pcpus: &PcpuSet) -> Self {
        let host = counters::read_host_in(&root.join("proc"));
        let stat = fs::read_to_string(root.join("proc/stat")).ok();
        Self {
            pcpus: pcpus.clone(),
            taken: Instant::now(),
            canary_s: None,
            clock_hz: clock_hz(root, pcpus),
            busy_steal_s: stat.and_then(|text| busy_steal_s(&text, pcpus)),
            own_s: counters::process_run_s(std::process::id()),
            throttles: throttles(root, pcpus),
            pressure_memory_s: host.get("host.pressure_memory_s"),
            pressure_io_s: host.get("host.pressure_io_s"),
        }
    }
}

/// Median time of one piece of computing on `pcpus`, s; none where no thread
/// may run there.
fn canary(pcpus: &PcpuSet) -> Option<f64> {
    let pcpus = pcpus.clone();
    let run = move || {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        set_thread_affinity(tid, &pcpus).ok()?;
        let started = Instant::now();
        let mut pieces_s = Vec::new();
        while pieces_s.is_empty() || started.elapsed() < CANARY {
            let piece = Instant::now();
            compute(CANARY_STEPS);
            pieces_s.push(piece.elapsed().as_secs_f64());
        }
        pieces_s.sort_by(f64::total_cmp);
        Some(pieces_s[pieces_s.len() / 2])
    };
    thread::Builder::new().name("canary".to_owned()).spawn(run).ok()?.join().ok()?
}

/// Steps of xorshift64 (Marsaglia, 2003): each waits for the one before, so
/// nothing of it can be done at once or left out.
fn compute(steps: u64) {
    let mut x = std::hint::black_box(0x9E37_79B9_7F4A_7C15_u64);
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x);
}

/// Busy and stolen time of `pcpus` together, from `/proc/stat`.
fn busy_steal_s(stat: &str, pcpus: &PcpuSet) -> Option<(f64, f64)> {
    let mut sum = None;
    for line in stat.lines() {
        let Some((name, _)) = line.split_once(' ') else { continue };
        let number = name.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok());
        if !number.is_some_and(|number| pcpus.contains(number)) {
            continue;
        }
        let times = counters::parse_times(line, name)?;
        let (busy, steal) = sum.unwrap_or((0.0, 0.0));
        sum = Some((busy + times.busy_ticks, steal + times.steal_ticks));
    }
    let ticks = ticks_per_second();
    sum.map(|(busy, steal)| (busy / ticks, steal / ticks))
}

fn pcpu_file(root: &Path, pcpu: u32, file: &str) -> Option<f64> {
    let path = root.join(format!("sys/devices/system/cpu/cpu{pcpu}/{file}"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Mean clock of `pcpus`, if all of them tell it.
fn clock_hz(root: &Path, pcpus: &PcpuSet) -> Option<f64> {
    let khz: Option<Vec<f64>> =
        pcpus.iter().map(|pcpu| pcpu_file(root, pcpu, "cpufreq/scaling_cur_freq")).collect();
    let khz = khz.filter(|khz| !khz.is_empty())?;
    Some(khz.iter().sum::<f64>() / khz.len() as f64 * 1e3)
}

/// Throttling events of `pcpus` and their packages since boot, if any of them
/// counts them.
fn throttles(root: &Path, pcpus: &PcpuSet) -> Option<f64> {
    let files = ["thermal_throttle/core_throttle_count", "thermal_throttle/package_throttle_count"];
    let counts = pcpus.iter().flat_map(|pcpu| files.map(|file| pcpu_file(root, pcpu, file)));
    counts.flatten().fold(None, |sum, count| Some(sum.unwrap_or(0.0) + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> PcpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_named_pcpus_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\n\
                    cpu0 10 20 30 400 5 6 7 8 0 0\n\
                    cpu1 1 2 3 4 5 6 7 100 0 0\n\
                    cpu10 1000 0 0 0 0 0 0 0 0 0\n\
                    intr 1 2 3\n";
        let ticks = ticks_per_second();
        let check = |pcpus: &str, expected: Option<(f64, f64)>| {
            let expected = expected.map(|(busy, steal)| (busy / ticks, steal / ticks));
            assert_eq!(busy_steal_s(stat, &set(pcpus)), expected, "{pcpus}");
        };
        check("0", Some((73.0, 8.0)));
        check("0-1", Some((92.0, 108.0)));
        check("7", None);
    }

    #[test]
    fn what_a_tree_does_not_tell_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let moment = Moment::read_in(root.path(), &set("0"));
        assert_eq!((moment.clock_hz, moment.throttles, moment.busy_steal_s), (None, None, None));

        let pcpu = root.path().join("sys/devices/system/cpu/cpu0");
        for (file, text) in [
            ("cpufreq/scaling_cur_freq", "2400000\n"),
            ("thermal_throttle/core_throttle_count", "3\n"),
        ] {
            fs::create_dir_all(pcpu.join(file).parent().unwrap()).unwrap();
            fs::write(pcpu.join(file), text).unwrap();
        }
        let moment = Moment::read_in(root.path(), &set("0"));
        assert_eq!((moment.clock_hz, moment.throttles), (Some(2.4e9), Some(3.0)));
        assert_eq!(Moment::read_in(root.path(), &set("0-1")).clock_hz, None);
    }

    #[test]
    fn a_canary_needs_a_pcpu() {
        let here = set("0");
        let moment = Moment::before(&here);
        let watch = moment.watched_until_now();
        assert_eq!(watch.pcpus, 1);
        let canary_s = watch.canary_s().unwrap();
        assert!(canary_s > 0.0, "{watch:?}");
        assert!(watch.wall_s < 60.0, "{watch:?}");
        // No pCPU at all is no place for a canary.
        assert_eq!(canary(&PcpuSet::default()), None);
    }
}

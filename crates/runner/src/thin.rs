//! What the thin guest does of the workloads: from a command to what it is ordered, and
//! from its records to what the command would have printed.
//!
//! It has no programs. What it knows of `vmlab-probe` it does itself, as its kernel
//! parameters say (`calls=`, `wait=`), with the same steps of work and the same metrics.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use thinguest::{Item, MAX_IO_BYTES, MAX_N, Measurement, Operation};
use vmconfig::{BootSource, VmSpec};

/// The program that is the guest itself.
pub(crate) const PROGRAM: &str = "vmlab-thin";

/// Its metric that is the time of all samples, of which alone KVM's counters are.
pub(crate) const ELAPSED: &str = "elapsed";

/// Operations by which the time of one is learnt, and after which all is warm.
const PILOT: u32 = 1000;

/// True if `spec` boots the thin guest.
pub(crate) fn is_thin(spec: &VmSpec) -> bool {
    matches!(spec.boot, BootSource::Kernel { .. })
}

/// Measures items in a thin guest.
pub(crate) type MeasureItems<'a, E> = dyn FnMut(&[Item]) -> Result<Vec<Measurement>, E> + 'a;

/// How much a repeat does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RepeatAmount {
    /// So many operations.
    Count(u32),
    /// As many as fit into so many seconds.
    Seconds(f64),
}

/// A command that the thin guest understands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ThinCommand {
    /// Samples of an operation.
    Operation { operation: Operation, n: u32 },
    /// `vmlab-probe syscalls`, `vmlab-probe sem`.
    Probe { operation: Operation, work: u32, much: RepeatAmount, repeats: u32 },
}

/// The options of a command, `--name value` each.
struct Options<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    fn of(words: &'a [String]) -> Result<Self, String> {
        let pair = |pair: &'a [String]| match pair {
            [name, value] => name.strip_prefix("--").map(|name| (name, value.as_str())),
            _ => None,
        };
        let all: Option<_> = words.chunks(2).map(pair).collect();
        all.map(Self).ok_or_else(|| format!("it does not know the options {}", words.join(" ")))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let value = self.0.get(name).copied().unwrap_or("0");
        value.parse().map_err(|_| format!("--{name} {value} is no number"))
    }

    fn up_to(&self, name: &str, most: u32) -> Result<u32, String> {
        let number = self.number(name)?;
        let fits = u32::try_from(number).ok().filter(|number| *number <= most);
        fits.ok_or_else(|| format!("{name} = {number} is more than its {most}"))
    }

    /// Refuses an option that has another value than `only`.
    fn only(&self, name: &str, only: &str) -> Result<(), String> {
        match self.0.get(name) {
            Some(value) if *value != only => {
                Err(format!("it has no {name} = {value:?}, only {only:?}"))
            }
            _ => Ok(()),
        }
    }

    fn much(&self, count: &str) -> Result<RepeatAmount, String> {
        match self.up_to(count, u32::MAX)? {
            0 => {
                let seconds = self.0.get("seconds").copied().unwrap_or("1");
                let number = seconds.parse::<f64>().ok().filter(|s| s.is_finite() && *s > 0.0);
                number.map(RepeatAmount::Seconds).ok_or_else(|| format!("--seconds {seconds}"))
            }
            count => Ok(RepeatAmount::Count(count)),
        }
    }
}

impl ThinCommand {
    /// What a workload's command means to the thin guest.
    ///
    /// # Errors
    /// Why it can't do that, as half a sentence about it.
    pub(crate) fn of(argv: &[String]) -> Result<Self, String> {
        let (program, rest) = argv.split_first().ok_or("there is no command")?;
        let (what, options) = rest.split_first().ok_or("it has no programs")?;
        let options = Options::of(options);
        match (program.as_str(), what.as_str()) {
            (PROGRAM, name) => {
                let operation = Operation::from_name(name)
                    .ok_or_else(|| format!("it has no operation {name:?}"))?;
                let n = options?.up_to("n", MAX_N)?.max(1);
                Ok(Self::Operation { operation, n })
            }
            (crate::probe::PROGRAM, "syscalls") => {
                let options = options?;
                options.only("call", "devnull")?;
                options.only("threads", "1")?;
                Ok(Self::Probe {
                    operation: Operation::NullIo,
                    work: options.up_to("size", MAX_IO_BYTES)?,
                    much: options.much("loops")?,
                    repeats: options.up_to("repeat", u32::MAX)?.max(1),
                })
            }
            (crate::probe::PROGRAM, "sem") => {
                let options = options?;
                options.only("hog", "none")?;
                Ok(Self::Probe {
                    operation: Operation::Items,
                    work: options.up_to("loops", u32::MAX)?,
                    much: options.much("items")?,
                    repeats: options.up_to("repeat", u32::MAX)?.max(1),
                })
            }
            _ => Err(format!(
                "it has no program {program}: it does thin, probe-syscalls and probe-sem"
            )),
        }
    }

    /// vCPUs that it takes.
    pub(crate) fn vcpus(self) -> u32 {
        match self {
            Self::Operation { operation, .. } | Self::Probe { operation, .. } => operation.vcpus(),
        }
    }

    /// Does it: `order` has items measured, `khz` is the guest's clock. What the
    /// command would print.
    pub(crate) fn run<E>(self, khz: u64, order: &mut MeasureItems<'_, E>) -> Result<String, E> {
        let mut said = ThinOutput { seconds: 1.0 / (khz as f64 * 1000.0), metrics: Vec::new() };
        match self {
            Self::Operation { operation, n } => {
                let items = [Operation::Nothing, operation]
                    .map(|one| Item::new(one, n, one.default_warmup(n)));
                if let [empty, done] = order(&items)?[..] {
                    said.operation(&empty, &done);
                }
            }
            Self::Probe { operation, work, much, repeats } => {
                let pilot = order(&[Item::once(operation, PILOT, work)])?;
                let each_s = pilot.iter().map(|done| done.sum as f64).sum::<f64>() * said.seconds
                    / f64::from(PILOT);
                let batch = match much {
                    RepeatAmount::Count(count) => count,
                    // A float is held to the bounds.
                    RepeatAmount::Seconds(seconds) => ((seconds / each_s) as u32).max(1),
                };
                for repeat in 0..repeats {
                    for done in order(&[Item::once(operation, batch, work)])? {
                        said.repeat(repeat, &done);
                    }
                }
            }
        }
        Ok(said.document())
    }
}

/// What was found.
struct ThinOutput {
    /// Seconds in a cycle.
    seconds: f64,
    metrics: Vec<Value>,
}

impl ThinOutput {
    fn push(&mut self, repeat: u32, name: &str, unit: &str, value: f64) {
        self.metrics.push(json!({ "name": name, "value": value, "unit": unit, "repeat": repeat }));
    }

    fn operation(&mut self, empty: &Measurement, done: &Measurement) {
        // An empty sample is what the clock's two readings take.
        let each =
            |cycles: u64| (cycles.saturating_sub(empty.median)) as f64 / f64::from(done.batch);
        let (median, p99, min) = (each(done.median), each(done.p99), each(done.min));
        let n = f64::from(done.n);
        let mean = (done.sum as f64 / n - empty.median as f64).max(0.0) / f64::from(done.batch);
        for (name, cycles) in
            [("op-time", median), ("op-mean", mean), ("op-p99", p99), ("op-min", min)]
        {
            self.push(0, name, "s", cycles * self.seconds);
        }
        let operations = n * f64::from(done.batch);
        self.push(0, ELAPSED, "s", done.sum as f64 * self.seconds);
        self.push(0, "op-cycles", "count", median);
        self.push(0, "ipis-per-op", "ratio", done.ipis as f64 / operations);
        self.push(0, "halts-per-op", "ratio", done.hlts as f64 / operations);
    }

    /// One sample of so many operations, in a probe's metrics.
    fn repeat(&mut self, repeat: u32, done: &Measurement) {
        let (elapsed, count) = (done.sum as f64 * self.seconds, f64::from(done.batch));
        if done.operation == Operation::NullIo {
            self.push(repeat, "calls-per-s", "1/s", 2.0 * count / elapsed);
            self.push(repeat, "call-time", "s", elapsed / (2.0 * count));
        } else {
            self.push(repeat, "items-per-s", "1/s", count / elapsed);
            let (ipis, halts) = (done.ipis as f64 / count, done.hlts as f64 / count);
            // A vCPU sleeps by halting, and is woken by an IPI of one kind; nothing is
            // ever switched.
            for (name, value) in [
                ("sleeps-per-item", halts),
                ("wakes-per-item", ipis),
                ("ipis-per-item", ipis),
                ("resched-ipis-per-item", ipis),
                ("call-ipis-per-item", 0.0),
                ("switches-per-item", 0.0),
            ] {
                self.push(repeat, name, "ratio", value);
            }
        }
        self.push(repeat, ELAPSED, "s", elapsed);
    }

    fn document(self) -> String {
        // The guest answers only with what came to its end and was right.
        let checks = json!([{ "name": "thin", "ok": true, "detail": "the guest verified it" }]);
        let version = concat!("thin guest ", env!("CARGO_PKG_VERSION"));
        let Self { metrics, .. } = self;
        let all =
            json!({ "version": version, "verified": true, "checks": checks, "metrics": metrics });
        format!("{all}\n")
    }
}

#[cfg(test)]
mod tests {
    use workload::{CommandOutput, GuestFacts};

    use super::*;

    fn argv(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn done(item: &Item, cycles: u64) -> Measurement {
        let Item { operation, n, warmup, batch, .. } = *item;
        let all = u64::from(batch) * cycles;
        Measurement {
            operation,
            n,
            warmup,
            batch,
            min: all,
            median: all,
            p99: all,
            sum: all * u64::from(n),
            ipis: 2 * u64::from(n) * u64::from(batch),
            hlts: u64::from(n) * u64::from(batch),
        }
    }

    #[test]
    fn its_answers_are_read_as_the_workload_s_own() {
        let check = |name: &str, params: &str, orders: &[&str], expected: &[(&str, f64)]| {
            let entry = workload::find(name).unwrap();
            let given: toml::Table = toml::from_str(params).unwrap();
            let given = given.into_iter().map(|(key, value)| match value {
                toml::Value::Integer(number) => (key, workload::ParamValue::Int(number)),
                other => (key, workload::ParamValue::Text(other.as_str().unwrap().to_owned())),
            });
            let params = entry.resolve(&given.collect()).unwrap();
            let facts = GuestFacts::alone(2, false);
            let task = ThinCommand::of(&entry.command(&params, &facts)).unwrap();
            let mut ordered = Vec::new();
            // 100 cycles each, at 1 GHz.
            let said = task.run::<()>(1_000_000, &mut |items| {
                ordered.extend(items.iter().map(Item::to_string));
                Ok(items.iter().map(|item| done(item, 100)).collect())
            });
            assert_eq!(ordered, orders);
            let output = CommandOutput { stdout: &said.unwrap(), stderr: "" };
            let parsed = entry.parse(output, &params, &facts).unwrap();
            for (metric, value) in expected {
                let sample = parsed.samples.iter().find(|one| one.metric == *metric).unwrap();
                assert!((sample.value / value - 1.0).abs() < 1e-9, "{metric}: {sample:?}");
            }
        };
        check(
            "probe-syscalls",
            "loops = 5000\nrepeats = 2",
            &["null-io:1:0:1000:40", "null-io:1:0:5000:40", "null-io:1:0:5000:40"],
            &[("call-time", 5e-8), ("calls-per-s", 2e7), ("elapsed", 5e-4)],
        );
        check(
            "probe-sem",
            "time_ms = 1\nrepeats = 1\nloops = 7",
            &["items:1:0:1000:7", "items:1:0:10000:7"],
            &[("elapsed", 1e-3), ("ipis-per-item", 2.0), ("sleeps-per-item", 1.0)],
        );
        check(
            "thin",
            "operation = \"cpuid\"\nn = 50",
            &["nothing:50:5", "cpuid:50:5"],
            &[("ipis-per-op", 2.0), ("elapsed", 5e-6)],
        );
    }

    #[test]
    fn what_it_cannot_do_is_said() {
        let fails = |text: &str, why: &str| {
            let error = ThinCommand::of(&argv(text)).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        };
        fails("hackbench -g 1", "hackbench");
        fails("vmlab-thin no-such", "no-such");
        fails("vmlab-thin cpuid --n 65537", "65536");
        fails("vmlab-probe syscalls --call getppid", "getppid");
        fails("vmlab-probe syscalls --threads 2", "threads");
        fails("vmlab-probe sem --hog nice", "hog");
        fails("vmlab-probe sem --items 5000000000", "4294967295");
        fails("vmlab-probe sem --items", "options");
        fails("vmlab-probe stream --repeat 1", "no program");
    }
}

//! How fast logs are read, and in how much memory: `cargo run --release -p
//! logs --example import_bench [MEGABYTES [PART]]`. Every kept output, or
//! those with PART in their names, is repeated until it has MEGABYTES (100; 0.2 will do);
//! one line a format. `RAYON_NUM_THREADS=1` reads in one thread. Asserts nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// The release's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let megabytes: f64 =
        std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100.0);
    let part = std::env::args().nth(2).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "MB/s by two clocks. `cpu`: of processor time, that of all threads added up, whatever"
    );
    println!("else the machine does. `wall`: of the time that passed, on {processors} processors.");
    println!("`find`: of processor time, to find the runs only. `memory` is the peak above the");
    println!("log itself, which is held whole.\n");
    println!(
        "{:42} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "log", "cpu MB/s", "wall MB/s", "find MB/s", "memory MB", "values", "runs"
    );
    let (mut cpu, mut wall) = (Total::default(), Total::default());
    let mut slowest: BTreeMap<&str, (f64, String)> = BTreeMap::new();
    for (name, unit) in outputs().iter().filter(|(name, _)| name.contains(&part)) {
        let times = ((megabytes * 1e6) as usize / unit.len().max(1)).max(1);
        let measured = measure(name, &unit.repeat(times));
        let as_tool = as_tool(name);
        for log in logs::read(unit, as_tool).iter().filter(|_| !name.starts_with('(')) {
            let speed = measured.megabytes / measured.cpu_s;
            let slowest = slowest.entry(log.tool).or_insert((f64::INFINITY, String::new()));
            if speed < slowest.0 {
                *slowest = (speed, name.clone());
            }
        }
        // A document is read at the speed of its parser, and what was made up
        // here is no tool's.
        if !name.contains("json") && !name.starts_with('(') {
            cpu.add(measured.megabytes, measured.cpu_s, name);
            wall.add(measured.megabytes, measured.wall_s, name);
        }
    }
    println!("\nformats of lines, nothing but results:");
    for (clock, total) in [("cpu", cpu), ("wall", wall)] {
        println!(
            "{clock:4} mean {:.0} MB/s, slowest {:.0} MB/s ({})",
            total.megabytes / total.seconds,
            total.slowest.0,
            total.slowest.1
        );
    }
    if part.is_empty() {
        print_slowest(slowest);
    }
}

/// The slowest log of each tool, the slowest first, and the tools of which none
/// is kept.
fn print_slowest(slowest: BTreeMap<&str, (f64, String)>) {
    println!("\nthe slowest log of each tool, MB/s of processor time:");
    let mut of_tools: Vec<_> = slowest.iter().collect();
    of_tools.sort_by(|one, other| one.1.0.total_cmp(&other.1.0));
    for (tool, (speed, name)) in of_tools {
        println!("{tool:16} {speed:5.0}  {name}");
    }
    let known = logs::TOOLS.iter().map(|tool| tool.name);
    let missing: Vec<&str> = known.filter(|name| !slowest.contains_key(name)).collect();
    println!(
        "tools without a log: {}",
        if missing.is_empty() { "none".to_owned() } else { missing.join(", ") }
    );
}

/// The tool that a log's name says, where only that tells whose it is.
fn as_tool(name: &str) -> Option<&'static logs::Tool> {
    name.rsplit_once(".as-").and_then(|(_, tool)| logs::tool(tool))
}

/// Every kept output by its name, what no tool wrote, a run without end, and
/// results among other lines.
fn outputs() -> BTreeMap<String, String> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut outputs = BTreeMap::new();
    for folder in fs::read_dir(testdata).expect("the repository is whole").flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "log") {
                let folder = folder.file_name().to_string_lossy().into_owned();
                let name = file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
                let text = fs::read_to_string(file.path()).expect("logs are UTF-8");
                outputs.insert(format!("{folder}/{}", name.unwrap_or_default()), text);
            }
        }
    }
    // Nothing in its output tells it from dbench's.
    outputs.insert("dbench-4.0/tbench.as-tbench".to_owned(), outputs["dbench-4.0/tbench"].clone());
    let noise = "the quick brown fox, 12.5 of them\n";
    outputs.insert("(noise)".to_owned(), noise.to_owned());
    let state = "T: 0 ( 4909) P:80 I:1000 C:  12345 Min:      1 Act:    2 Avg:    2 Max:      9\n";
    outputs.insert("(one long cyclictest)".to_owned(), state.to_owned());
    outputs.insert("(mpstat of an hour)".to_owned(), mpstat_of_an_hour());
    // As users keep them: results among what else a machine says.
    let build: String =
        (0..200).map(|file| format!("  CC      kernel/sched/policy_{file}.o\n")).collect();
    let journal: String = (1000..1060)
        .map(|at| format!("[ {at}.000042] audit: type=1400 apparmor=\"STATUS\" pid={at}\n"))
        .collect();
    for (around, name, of) in [
        (build, "(kernbench behind a build)", "kernbench-forms/0.50"),
        (journal, "(hackbench in a journal)", "rt-tests-2.4/hackbench-two"),
    ] {
        outputs.insert(name.to_owned(), around + &outputs[of]);
    }
    outputs
}

/// A table whose rows have ever new labels, as those of a real log do.
fn mpstat_of_an_hour() -> String {
    let mut text = "Linux 6.1.0 (vm) \t01/02/2024 \t_x86_64_\t(4 CPU)\n".to_owned();
    for second in 0..3600 {
        let time = format!("10:{:02}:{:02}", second / 60, second % 60);
        text += &format!("\n{time}     CPU    %usr   %nice    %sys %iowait    %irq   %idle\n");
        for cpu in ["all", "0", "1", "2", "3"] {
            let user = second % 50;
            let idle = 97 - user;
            text += &format!(
                "{time}     {cpu:>3}   {user:2}.25    0.00    1.50    0.75    0.50   {idle:2}.00\n"
            );
        }
    }
    text
}

/// What reading a log took.
#[derive(Clone, Copy)]
struct ReadingSpeed {
    megabytes: f64,
    cpu_s: f64,
    wall_s: f64,
}

struct Total {
    megabytes: f64,
    seconds: f64,
    slowest: (f64, String),
}

impl Default for Total {
    fn default() -> Self {
        Self { megabytes: 0.0, seconds: 0.0, slowest: (f64::INFINITY, String::new()) }
    }
}

impl Total {
    fn add(&mut self, megabytes: f64, seconds: f64, name: &str) {
        self.megabytes += megabytes;
        self.seconds += seconds;
        if megabytes / seconds < self.slowest.0 {
            self.slowest = (megabytes / seconds, name.to_owned());
        }
    }
}

/// Reads a log as `vmlab import` does.
fn measure(name: &str, text: &str) -> ReadingSpeed {
    let started = cpu_s();
    let _ = logs::recognise(text);
    let find_s = cpu_s() - started;
    let tool = as_tool(name);
    let before_mb = peak_mb(true);
    let (started, clock) = (cpu_s(), Instant::now());
    let (values, runs) = read(text, tool);
    let wall_s = clock.elapsed().as_secs_f64();
    let read_s = cpu_s() - started;
    let memory_mb = peak_mb(false) - before_mb;
    let megabytes = text.len() as f64 / 1e6;
    println!(
        "{name:42} {:8.0} {:9.0} {:9.0} {memory_mb:9.0} {values:9} {runs:9}",
        megabytes / read_s,
        megabytes / wall_s,
        megabytes / find_s
    );
    ReadingSpeed { megabytes, cpu_s: read_s, wall_s }
}

/// Values and runs. Apart, so that profilers can be told of it.
#[inline(never)]
fn read(text: &str, tool: Option<&logs::Tool>) -> (usize, usize) {
    let (mut values, mut runs) = (0, 0);
    let Ok(()) = logs::visit(
        text,
        tool,
        |log| log.values.len(),
        |held| {
            values += held;
            runs += 1;
            Ok::<(), std::convert::Infallible>(())
        },
    );
    (values, runs)
}

/// Processor time of this process's threads. Source: Linux
/// `Documentation/scheduler/sched-stats.rst`.
fn cpu_s() -> f64 {
    let threads = fs::read_dir("/proc/self/task").expect("Linux lists threads").flatten();
    let ns = threads.map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
        ns.expect("Linux counts the time of tasks")
    });
    ns.sum::<f64>() / 1e9
}

/// Most memory in use at once, since the last reset. Source: proc_pid_status(5)
/// and proc_pid_clear_refs(5).
fn peak_mb(reset: bool) -> f64 {
    if reset {
        let _ = fs::write("/proc/self/clear_refs", "5");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.expect("Linux counts memory") * 1024.0 / 1e6
}

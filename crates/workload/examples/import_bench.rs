//! How fast logs are read: `cargo run --release -p workload --example
//! import_bench [MEGABYTES]`. Every kept output is repeated until it is that
//! large (100); one line a format: MB a second of processor time, whatever else
//! the machine does. Asserts nothing about time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use workload::logs;

fn main() {
    let megabytes: usize =
        std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut logs: BTreeMap<String, String> = BTreeMap::new();
    for folder in fs::read_dir(testdata).expect("the repository is whole").flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|extension| extension == "log") {
                let folder = folder.file_name().to_string_lossy().into_owned();
                let name = file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
                let text = fs::read_to_string(file.path()).expect("logs are UTF-8");
                logs.insert(format!("{folder}/{}", name.unwrap_or_default()), text);
            }
        }
    }
    println!("{:40} {:>8} {:>8} {:>10}", "log", "read", "found", "values");
    for (name, text) in &logs {
        measure(name, &text.repeat(megabytes * 1_000_000 / text.len().max(1)), text.len());
    }
    // What no tool wrote, and one run that never ends.
    measure("(noise)", &"the quick brown fox, 12.5 of them\n".repeat(megabytes * 30_000), 34);
    let progress =
        "T: 0 ( 4909) P:80 I:1000 C:  12345 Min:      1 Act:    2 Avg:    2 Max:      9\n";
    measure("(one long cyclictest)", &progress.repeat(megabytes * 12_000), progress.len());
}

/// Processor time of this process. Source: Linux
/// `Documentation/scheduler/sched-stats.rst`.
fn cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("Linux counts the time of tasks") / 1e9
}

fn measure(name: &str, text: &str, unit: usize) {
    let started = cpu_s();
    let recognised = logs::recognise(text);
    let recognised_s = cpu_s() - started;
    let tool = name.rsplit_once(".as-").and_then(|(_, tool)| logs::tool(tool));
    let started = cpu_s();
    let read = logs::read(text, tool);
    let read_s = cpu_s() - started;
    let values: usize = read.iter().map(|log| log.values.len()).sum();
    let megabytes = text.len() as f64 / 1e6;
    println!(
        "{name:40} {:8.0} {:8.0} {values:10} values of {} runs, {unit} bytes each; {}",
        megabytes / read_s,
        megabytes / recognised_s,
        read.len(),
        recognised.first().map_or("-", |(tool, _)| tool.name),
    );
}

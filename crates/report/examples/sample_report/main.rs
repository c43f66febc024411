//! Writes made-up reports (`report.html`, `report.txt`, `report.json`, ...), a
//! trend and a roll-out into a folder, to look at their design and for `scripts/check-pages`:
//! `cargo run -p report --example sample_report -- FOLDER`.

mod made_up;
mod profiled;
mod rollout;

use std::path::Path;
use std::{env, fs, io};

use report::trend::{self, Trend, TrendSubject};
use report::{Report, TerminalStyle};
use stats::ChangeRule;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = Path::new(&folder);
    let reports = [
        ("report", made_up::two_loads()),
        ("latency", made_up::latency()),
        ("counted", made_up::counted()),
        ("accounted", made_up::accounted()),
        ("profiled", profiled::profiled()),
        ("many", made_up::many()),
        ("poor", made_up::poor()),
    ];
    for (name, report) in reports {
        fs::write(folder.join(format!("{name}.html")), report::html(&report))?;
        let text = report::terminal(&report, 80, TerminalStyle { colour: false });
        fs::write(folder.join(format!("{name}.txt")), text)?;
        fs::write(folder.join(format!("{name}.json")), report.to_json())?;
    }
    let trend = Trend::new(fortnight(), TrendSubject::Value, &ChangeRule::default());
    fs::write(folder.join("trend.html"), trend::html(&trend))?;
    fs::write(folder.join("rollout.html"), report::rollout_html(&rollout::month()))
}

/// The report of each of 14 days; from the ninth on all takes a fifth longer.
fn fortnight() -> Vec<(String, Report)> {
    let day = |day: u32| {
        let mut report = made_up::two_loads();
        let factor = (1.0 + 0.003 * f64::from(day % 3)) * if day < 9 { 1.0 } else { 1.2 };
        for fact in report.about.iter_mut().filter(|fact| fact.name == "started") {
            fact.value = format!("2026-03-{day:02}T03:00:00Z");
        }
        for cell in report.groups.iter_mut().flat_map(|group| &mut group.cells) {
            if let Some(estimate) = &mut cell.estimate {
                estimate.centre *= factor;
                if let Some(span) = &mut estimate.interval {
                    (span.lo, span.hi) = (span.lo * factor, span.hi * factor);
                }
            }
        }
        (format!("results/{day:02}"), report)
    };
    (1..=14).map(day).collect()
}

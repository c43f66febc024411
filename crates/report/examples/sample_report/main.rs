//! Writes a made-up report (`report.html`, `report.txt`, `report.json`) into a
//! folder, to look at its design: `cargo run -p report --example sample_report -- FOLDER`.

mod made_up;

use std::path::Path;
use std::{env, fs, io};

use report::Style;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = Path::new(&folder);
    let reports = [
        ("report", made_up::two_loads()),
        ("latency", made_up::latency()),
        ("counted", made_up::counted()),
        ("many", made_up::many()),
        ("poor", made_up::poor()),
    ];
    for (name, report) in reports {
        fs::write(folder.join(format!("{name}.html")), report::html(&report))?;
        let text = report::terminal(&report, 80, Style { colour: false });
        fs::write(folder.join(format!("{name}.txt")), text)?;
        fs::write(folder.join(format!("{name}.json")), report.to_json())?;
    }
    Ok(())
}

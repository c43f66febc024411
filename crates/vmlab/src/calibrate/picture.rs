//! Price lists drawn: a row an operation, a mark a list, on a scale of powers of ten.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use report::escape;
use report::palette::{COMPARED, light_style};
use runner::calibration::{Agreement, Calibration, Count};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 64.0;
const ROW: f64 = 18.0;
/// Between the marks of a row's lists.
const STEP: f64 = 5.0;

/// What tells the lists apart beside their colours.
const MARKS: [&str; 4] = ["circle", "square", "diamond", "bar"];
/// Beside the colours of the lists, `.c1` and so on.
const STYLE: &str = "\
.ground{fill:var(--paper)}\
text{fill:var(--ink)}\
line{stroke-width:2}.grid{stroke:var(--grid);stroke-width:1}\
.ring{fill:none;stroke:var(--alarm);stroke-width:1.5}";

/// The class of a list's colour; `c0` would be a baseline's.
fn class(list: usize) -> String {
    format!("c{}", 1 + list % (COMPARED - 1))
}

fn style() -> String {
    let lists: String = (1..COMPARED)
        .map(|list| format!(".c{list}{{fill:var(--c{list});stroke:var(--c{list})}}"))
        .collect();
    light_style(&format!("{STYLE}{lists}"))
}

/// A price, in the picture's unit.
struct DrawnPrice {
    centre: f64,
    interval: Option<(f64, f64)>,
    /// That KVM counted otherwise than the guest, in words.
    disagreement: Option<String>,
}

fn price(list: &Calibration, operation: &str, in_ns: bool) -> Option<DrawnPrice> {
    let price = list.price(operation).filter(|price| !price.boots.is_empty())?;
    let disagreement = match list.agreement(price) {
        Agreement::Differs(differs) => {
            let name = differs.counter.trim_start_matches("kvm.");
            Some(format!("KVM counted {} {name}, NOT the guest's {}", differs.found, differs.guest))
        }
        Agreement::Agrees { .. } | Agreement::NotCounted => None,
    };
    if in_ns {
        let (centre, interval) = list.estimate_ns(price)?;
        let interval = interval.map(|one| (one.lo, one.hi));
        return Some(DrawnPrice { centre, interval, disagreement });
    }
    let found = list.estimate(price)?;
    // What is counted is the same in every boot.
    let counted = list.count == Count::Instructions;
    let interval = found.interval.filter(|_| !counted).map(|one| (one.lo, one.hi));
    Some(DrawnPrice { centre: found.centre, interval, disagreement })
}

/// What each of these pictures says of itself, and no other.
const TITLE: &str = "<title>What operations cost, ";
/// Where that stands, at the most.
const TITLE_WITHIN: u64 = 1024;

/// True if the file holds a picture of this kind.
pub(super) fn is_one(file: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(file)?.take(TITLE_WITHIN).read_to_end(&mut begin)?;
    let begin = String::from_utf8_lossy(&begin);
    Ok(begin.starts_with("<svg ") && begin.contains(TITLE))
}

/// The picture.
pub(super) fn svg(lists: &[(String, &Calibration)]) -> String {
    let in_ns = lists.iter().all(|(_, list)| list.ns_of_count().is_some());
    let mut operations: Vec<&str> = Vec::new();
    for (_, list) in lists {
        for price in list.prices.iter().filter(|price| !price.boots.is_empty()) {
            let name = price.operation.as_str();
            if name != "nothing" && !operations.contains(&name) {
                operations.push(name);
            }
        }
    }
    let unit = match (in_ns, lists.first().map(|(_, list)| list.count)) {
        (true, _) => "ns",
        (false, Some(count)) => count.name(),
        (false, None) => "",
    };
    let all = operations
        .iter()
        .flat_map(|name| lists.iter().filter_map(|(_, list)| price(list, name, in_ns)));
    let (lo, hi) = all.fold((f64::MAX, 1.0_f64), |(lo, hi), one| {
        let (from, to) = one.interval.unwrap_or((one.centre, one.centre));
        (lo.min(from.max(0.1)), hi.max(to))
    });
    let decades = (lo.min(hi).log10().floor() as i32, hi.log10().ceil().max(1.0) as i32);
    let span = f64::from((decades.1 - decades.0).max(1));
    let x = |value: f64| {
        let at = (value.max(0.1).log10() - f64::from(decades.0)) / span;
        LEFT + at.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    let rows = operations.len() as f64;
    let row = ROW.max(STEP * (lists.len() as f64 + 1.0));
    let height = TOP + rows * row + 34.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         {TITLE}{unit}</title>\n<style>{}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
        style()
    );
    let say = |at_x: f64, at_y: f64, anchor: &str, words: &str| {
        format!(
            "<text x=\"{at_x:.1}\" y=\"{at_y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            escape(words)
        )
    };
    let sentence = lists.first().map_or("", |(_, list)| list.environment_sentence());
    text += &say(12.0, 18.0, "start", sentence);
    let mut at = 12.0;
    for (number, (name, _)) in lists.iter().enumerate() {
        text += &mark(number, at + 5.0, 34.0);
        text += &say(at + 14.0, 38.0, "start", name);
        at += 30.0 + 7.5 * name.chars().count() as f64;
    }
    for decade in decades.0..=decades.1 {
        let value = 10_f64.powi(decade);
        let at = x(value);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
            TOP + rows * row
        );
        // The last one ends at the border: a unit may be longer than the room beside it.
        let (at, anchor) = if decade == decades.1 { (WIDTH - 4.0, "end") } else { (at, "middle") };
        text += &say(at, TOP + rows * row + 18.0, anchor, &format!("{value} {unit}"));
    }
    let mut differs = false;
    for (number, name) in operations.iter().enumerate() {
        let middle = TOP + (number as f64 + 0.5) * row;
        text += &say(LEFT - 10.0, middle + 4.0, "end", name);
        for (which, (list_name, list)) in lists.iter().enumerate() {
            let Some(one) = price(list, name, in_ns) else { continue };
            let at = middle + (which as f64 - (lists.len() as f64 - 1.0) / 2.0) * STEP;
            let mut words = match one.interval {
                Some((lo, hi)) => {
                    format!("{list_name}: {name} {:.1} [{lo:.1}, {hi:.1}] {unit}", one.centre)
                }
                None => format!("{list_name}: {name} {:.1} {unit}", one.centre),
            };
            if let Some(disagreement) = &one.disagreement {
                words += &format!("; {disagreement}");
                differs = true;
            }
            let _ = write!(text, "<g><title>{}</title>", escape(&words));
            if one.disagreement.is_some() {
                text += &ring(x(one.centre), at);
            }
            if let Some((lo, hi)) = one.interval {
                let _ = write!(
                    text,
                    "<line class=\"{}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                    class(which),
                    x(lo),
                    x(hi)
                );
            }
            text += &mark(which, x(one.centre), at);
            text += "</g>\n";
        }
    }
    if differs {
        text += &ring(at + 5.0, 34.0);
        text += &say(at + 16.0, 38.0, "start", "KVM counted otherwise than the guest");
    }
    text + "</svg>\n"
}

/// What marks a price of which nobody knows what it is of.
fn ring(x: f64, y: f64) -> String {
    format!("<circle class=\"ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>")
}

/// The mark of the list `number` at a place.
fn mark(number: usize, x: f64, y: f64) -> String {
    let class = class(number);
    match MARKS[number % MARKS.len()] {
        "circle" => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
        "square" => format!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\"/>",
            x - 3.0,
            y - 3.0
        ),
        "diamond" => format!(
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z\"/>",
            y - 4.5,
            x + 4.5,
            y + 4.5,
            x - 4.5
        ),
        _ => format!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"3\" height=\"9\"/>",
            x - 1.5,
            y - 4.5
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_that_kvm_counted_otherwise_is_marked() {
        let list = |exits: f64| {
            let boot = serde_json::json!({
                "min": 1000.0, "median": 1000.0, "p99": 1000.0, "ipis": 0, "hlts": 0,
                "kvm": { "kvm.io_exits": exits },
            });
            let text = serde_json::json!({
                "format": "vmlab-calibration", "version": 1, "environment": "kvm",
                "count": "cycles", "kernel": null, "cpu_model": null, "qemu": "QEMU 9",
                "machine": "q35", "cpu": "host", "vcpus": 1, "apic": "x2apic",
                "tsc_khz": 1_000_000, "notes": [],
                "prices": [{
                    "operation": "pio-qemu", "summary": "", "n": 1000, "batch": 1,
                    "boots": [boot],
                }],
            });
            Calibration::from_json(&text.to_string()).unwrap()
        };
        let drawn = |exits: f64| svg(&[("here".to_owned(), &list(exits))]);
        let marked = "KVM counted 500 io_exits, NOT the guest's 1000";
        assert!(drawn(500.0).contains(&escape(marked)), "{}", drawn(500.0));
        assert!(drawn(500.0).contains(&ring(17.0 + 30.0 + 7.5 * 4.0, 34.0)), "{}", drawn(500.0));
        assert!(!drawn(1000.0).contains("otherwise"), "{}", drawn(1000.0));
        // It is known again, and nothing else is taken for it.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.svg");
        for (text, known) in [
            (drawn(1.0), true),
            ("mine".to_owned(), false),
            ("<svg xmlns=\"\"><title>Mine</title></svg>".to_owned(), false),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(is_one(&file).unwrap(), known);
        }
    }
}

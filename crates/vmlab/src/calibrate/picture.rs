//! DrawnPrice lists drawn: a row an operation, a mark a list, on a scale of powers of ten.

use std::fmt::Write as _;

use report::escape;
use runner::calibration::{Calibration, Count};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 64.0;
const ROW: f64 = 18.0;
/// Between the marks of a row's lists.
const STEP: f64 = 5.0;

/// What tells the lists apart beside their colours.
const MARKS: [&str; 4] = ["circle", "square", "diamond", "bar"];
const COLOURS: [&str; 4] = ["#2563a8", "#b3431a", "#2f7d4f", "#7a4fa3"];

/// A price, in the picture's unit.
struct DrawnPrice {
    centre: f64,
    interval: Option<(f64, f64)>,
}

fn price(list: &Calibration, operation: &str, in_ns: bool) -> Option<DrawnPrice> {
    let price = list.price(operation).filter(|price| !price.boots.is_empty())?;
    if in_ns {
        let (centre, interval) = list.estimate_ns(price)?;
        return Some(DrawnPrice { centre, interval: interval.map(|one| (one.lo, one.hi)) });
    }
    let found = list.estimate(price)?;
    // What is counted is the same in every boot.
    let counted = list.count == Count::Instructions;
    let interval = found.interval.filter(|_| !counted).map(|one| (one.lo, one.hi));
    Some(DrawnPrice { centre: found.centre, interval })
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
         <title>What operations cost, {unit}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let say = |at_x: f64, at_y: f64, anchor: &str, words: &str| {
        format!(
            "<text x=\"{at_x:.1}\" y=\"{at_y:.1}\" text-anchor=\"{anchor}\" fill=\"#1d2430\">{}</text>\n",
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
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#d5dae1\"/>",
            TOP + rows * row
        );
        text += &say(at, TOP + rows * row + 18.0, "middle", &format!("{value} {unit}"));
    }
    for (number, name) in operations.iter().enumerate() {
        let middle = TOP + (number as f64 + 0.5) * row;
        text += &say(LEFT - 10.0, middle + 4.0, "end", name);
        for (which, (list_name, list)) in lists.iter().enumerate() {
            let Some(one) = price(list, name, in_ns) else { continue };
            let at = middle + (which as f64 - (lists.len() as f64 - 1.0) / 2.0) * STEP;
            let words = match one.interval {
                Some((lo, hi)) => {
                    format!("{list_name}: {name} {:.1} [{lo:.1}, {hi:.1}] {unit}", one.centre)
                }
                None => format!("{list_name}: {name} {:.1} {unit}", one.centre),
            };
            let _ = write!(text, "<g><title>{}</title>", escape(&words));
            if let Some((lo, hi)) = one.interval {
                let _ = write!(
                    text,
                    "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{}\" stroke-width=\"2\"/>",
                    x(lo),
                    x(hi),
                    COLOURS[which % COLOURS.len()]
                );
            }
            text += &mark(which, x(one.centre), at);
            text += "</g>\n";
        }
    }
    text + "</svg>\n"
}

/// The mark of the list `number` at a place.
fn mark(number: usize, x: f64, y: f64) -> String {
    let colour = COLOURS[number % COLOURS.len()];
    match MARKS[number % MARKS.len()] {
        "circle" => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
        "square" => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\" fill=\"{colour}\"/>",
            x - 3.0,
            y - 3.0
        ),
        "diamond" => format!(
            "<path d=\"M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z\" fill=\"{colour}\"/>",
            y - 4.5,
            x + 4.5,
            y + 4.5,
            x - 4.5
        ),
        _ => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"3\" height=\"9\" fill=\"{colour}\"/>",
            x - 1.5,
            y - 4.5
        ),
    }
}

//! The difference of two profiles: a box a frame, as wide as its share, coloured by how
//! much more or less of the samples it has than the baseline's.
//!
//! Source: B. Gregg, "The Flame Graph", ACM Queue 14 (2), 2016; the outermost frame is
//! at the top here, as texts are read.

use crate::ProfiledSide;
use crate::figure::svg::{Svg, text_width};
use crate::profile_text::differs;

/// Width of the figure: stacks need more than other figures.
const WIDTH: f64 = 900.0;
/// Height of a frame, and room below it.
const ROW: f64 = 17.0;
const GAP: f64 = 1.0;
/// Deeper frames are not drawn; the table of functions has them.
const MAX_DEPTH: u32 = 40;
/// Points from which a colour is as strong as it gets.
const STRONGEST: f64 = 0.1;
const STRONG: f64 = 0.03;

/// Draws the frames of `side`; empty without any.
pub(crate) fn draw(side: &ProfiledSide, id: &str, title: &str) -> String {
    let mut svg = Svg::new();
    let mean = |shares: [f64; 2]| (shares[0] + shares[1]) / 2.0;
    // Where the next frame of each depth begins.
    let mut begins: Vec<f64> = vec![0.0];
    let mut deepest = 0;
    for frame in side.frames.iter().filter(|frame| frame.depth < MAX_DEPTH) {
        let depth = frame.depth as usize;
        let Some(x) = begins.get(depth).copied() else { continue };
        let width = mean(frame.shares) * WIDTH;
        let y = f64::from(frame.depth) * (ROW + GAP);
        let size = frame.change.centre.abs();
        let strength = if size >= STRONGEST {
            3
        } else if size >= STRONG {
            2
        } else {
            1
        };
        let class = match (differs(&frame.change), frame.change.centre > 0.0) {
            (false, _) => "frame same".to_owned(),
            (true, true) => format!("frame more s{strength}"),
            (true, false) => format!("frame less s{strength}"),
        };
        let shown = (width - GAP).max(0.5);
        let d = format!("M{x:.1} {y:.1}h{shown:.1}v{ROW}h-{shown:.1}z");
        svg.path(&class, &d, Some(&frame.words()));
        if width > text_width("xxxx") {
            svg.fitted("tick", (x + 3.0, y + ROW - 5.0), &frame.name, width - 6.0);
        }
        begins[depth] = x + width;
        begins.truncate(depth + 1);
        begins.push(x);
        deepest = deepest.max(frame.depth);
    }
    if side.frames.is_empty() {
        return String::new();
    }
    let height = f64::from(deepest + 1) * (ROW + GAP);
    svg.finish_of(id, (WIDTH, height), title, &side.sentence())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ShownEstimate, ShownInterval, StackFrame};
    use record::ProfileSide;

    #[test]
    fn frames_lie_below_their_callers_and_side_by_side() {
        let frame = |depth, name: &str, a: f64, b: f64, half: f64| {
            let span = ShownInterval { lo: b - a - half, hi: b - a + half };
            let change = ShownEstimate { centre: b - a, interval: Some(span) };
            StackFrame { depth, name: name.to_owned(), shares: [a, b], change }
        };
        let side = ProfiledSide {
            side: ProfileSide::Guest,
            event: "cycles".to_owned(),
            blocks: 3,
            samples: [100, 100],
            cut: false,
            frames: vec![
                frame(0, "swapper", 0.5, 0.3, 0.01),
                frame(1, "do_idle<&>", 0.4, 0.2, 0.3),
                frame(0, "sh", 0.5, 0.7, 0.05),
                frame(1, "main", 0.5, 0.7, 0.05),
            ],
            functions: Vec::new(),
        };
        let drawn = draw(&side, "f", "A profile");
        let document = roxmltree::Document::parse(&drawn).unwrap();
        let paths: Vec<_> =
            document.descendants().filter(|node| node.has_tag_name("path")).collect();
        let of = |name: &str| {
            let is = |node: &&roxmltree::Node<'_, '_>| {
                node.descendants()
                    .any(|text| text.text().is_some_and(|text| text.starts_with(name)))
            };
            let path = *paths.iter().find(is).unwrap();
            (path.attribute("class").unwrap(), path.attribute("d").unwrap())
        };
        assert_eq!(of("swapper"), ("frame less s3", "M0.0 0.0h359.0v17h-359.0z"));
        assert_eq!(of("do_idle"), ("frame same", "M0.0 18.0h269.0v17h-269.0z"));
        assert_eq!(of("sh"), ("frame more s3", "M360.0 0.0h539.0v17h-539.0z"));
        assert_eq!(of("main").1, "M360.0 18.0h539.0v17h-539.0z");
        assert!(drawn.contains("swapper: 50 % to 30 %, -20.0 points [-21.0, -19.0]"), "{drawn}");
        assert_eq!(draw(&ProfiledSide { frames: Vec::new(), ..side }, "f", ""), "");
    }
}

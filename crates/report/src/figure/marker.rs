//! The shape and the colour of a variant: never the colour alone.

use crate::figure::svg::n;
use crate::palette::COMPARED;

/// Number of shapes.
const SHAPES: usize = 8;

/// The style-sheet class of the variant at `index`.
pub(crate) fn colour(index: usize) -> String {
    format!("c{}", index % COMPARED)
}

/// The path of the marker of the variant at `index`, `r` units around `at`.
///
/// Each of the first eight variants has its own shape and colour; later ones
/// have a pair of both that no other has (up to 64).
pub(crate) fn path(index: usize, at: (f64, f64), r: f64) -> String {
    let shape = (index + index / COMPARED) % SHAPES;
    let points: &[(f64, f64)] = match shape {
        0 => {
            let (x, y, d) = (n(at.0 - r), n(at.1), n(2.0 * r));
            let r = n(r);
            return format!("M{x} {y}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z");
        }
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)],
        3 => &[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)],
        4 => &[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)],
        5 => &PLUS,
        6 => &[(0.0, -1.15), (1.1, -0.35), (0.7, 0.95), (-0.7, 0.95), (-1.1, -0.35)],
        _ => &CROSS,
    };
    let mut d = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        d.push_str(&format!("{command}{} {}", n(at.0 + x * r), n(at.1 + y * r)));
    }
    d.push('z');
    d
}

const PLUS: [(f64, f64); 12] = [
    (-0.4, -1.2),
    (0.4, -1.2),
    (0.4, -0.4),
    (1.2, -0.4),
    (1.2, 0.4),
    (0.4, 0.4),
    (0.4, 1.2),
    (-0.4, 1.2),
    (-0.4, 0.4),
    (-1.2, 0.4),
    (-1.2, -0.4),
    (-0.4, -0.4),
];

const CROSS: [(f64, f64); 12] = [
    (0.0, -0.55),
    (0.6, -1.15),
    (1.15, -0.6),
    (0.55, 0.0),
    (1.15, 0.6),
    (0.6, 1.15),
    (0.0, 0.55),
    (-0.6, 1.15),
    (-1.15, 0.6),
    (-0.55, 0.0),
    (-1.15, -0.6),
    (-0.6, -1.15),
];

/// The marker as an element of its own, for legends and tables.
pub(crate) fn inline(index: usize) -> String {
    format!(
        r#"<svg class="plot key" viewBox="-7 -7 14 14" aria-hidden="true"><path class="mark {}" d="{}"/></svg>"#,
        colour(index),
        path(index, (0.0, 0.0), 4.6)
    )
}

/// A diamond with nothing in it: what others published.
pub(crate) fn published(at: (f64, f64)) -> String {
    let (x, y) = at;
    format!(
        "M{} {}L{} {}L{} {}L{} {}z",
        n(x),
        n(y - 6.0),
        n(x + 5.0),
        n(y),
        n(x),
        n(y + 6.0),
        n(x - 5.0),
        n(y)
    )
}

/// A number between -1 and 1 that depends on `seed` alone, for spreading dots
/// that would cover each other. (The fraction of multiples of the golden
/// ratio: neighbours land far apart.)
pub(crate) fn jitter(seed: usize) -> f64 {
    let golden = 0.618_033_988_749_895;
    2.0 * ((seed as f64 + 0.5) * golden).fract() - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sixty_four_variants_can_be_told_apart() {
        let look = |i| (colour(i), path(i, (0.0, 0.0), 4.0));
        assert_eq!((0..64).map(look).collect::<BTreeSet<_>>().len(), 64);
    }

    #[test]
    fn jitter_is_the_same_every_time_and_spreads() {
        let spread: Vec<f64> = (0..8).map(jitter).collect();
        assert_eq!(spread, (0..8).map(jitter).collect::<Vec<_>>());
        assert!(spread.iter().all(|v| v.abs() <= 1.0));
        assert!(spread.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 0.3));
    }
}

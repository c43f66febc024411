//! A forest plot's bar in characters: the interval, its middle, 1, and the
//! margin.

use crate::analyse::{ComparedData, VariantComparison};

/// Characters of a bar; odd, so that 1 has a place of its own.
pub(super) const WIDTH: usize = 21;

/// What the bars of one metric range over: natural logarithms, either way.
pub(super) fn range(comparison: &ComparedData, metric: u32) -> f64 {
    let mut ends: Vec<f64> = comparison
        .rows
        .iter()
        .filter(|row| row.metric == metric)
        .flat_map(|row| row.judged.iter().flatten())
        .filter_map(|judged| judged.judgement.interval)
        .map(|interval| interval.lo.ln().abs().max(interval.hi.ln().abs()))
        .filter(|end| end.is_finite())
        .collect();
    ends.sort_by(f64::total_cmp);
    // A few wide ones may reach over the edge, which an arrow shows.
    let most = ends.get(ends.len() * 9 / 10).copied().unwrap_or(0.0);
    most.min(WIDEST.ln()).max(2.0 * comparison.margin.ln_1p())
}

/// No axis goes further than this factor: what does excludes nothing.
const WIDEST: f64 = 1000.0;

/// The bar of one comparison, [`WIDTH`] characters.
pub(super) fn bar(judged: &VariantComparison, range: f64) -> String {
    let margin = judged.judgement.margin;
    let mut places = [' '; WIDTH];
    let middle = WIDTH / 2;
    let place = |log: f64| (middle as f64 + log / range * middle as f64).round();
    let inside = |place: f64| place.clamp(0.0, (WIDTH - 1) as f64) as usize;
    for end in [-margin.ln_1p(), margin.ln_1p()] {
        places[inside(place(end))] = '┊';
    }
    places[middle] = '│';
    let Some(ratio) = judged.judgement.ratio.filter(|ratio| *ratio > 0.0) else {
        return places.iter().collect();
    };
    if let Some(interval) = judged.judgement.interval {
        let (lo, hi) = (place(interval.lo.ln()), place(interval.hi.ln()));
        places[inside(lo)..=inside(hi)].fill('─');
        if lo < 0.0 {
            places[0] = '◂';
        }
        if hi > (WIDTH - 1) as f64 {
            places[WIDTH - 1] = '▸';
        }
        if interval.contains(1.0) {
            places[middle] = '┼';
        }
    }
    places[inside(place(ratio.ln()))] = '●';
    places.iter().collect()
}

//! Racing: which variants can still be the best?

use crate::{BetterDirection, Interval};

/// Which of these variants are worth more blocks, by the intervals of their
/// ratios to a common baseline (sequential ones: they are looked at again and
/// again). A variant is out once even its best end is worse than the worst end
/// of some other by more than `margin`; one without an interval stays.
#[must_use]
pub fn still_racing(
    ratios: &[Option<Interval>],
    better: BetterDirection,
    margin: f64,
) -> Vec<bool> {
    // As costs: the lower the better.
    let costs = |interval: &Interval| match better {
        BetterDirection::Lower => (interval.lo, interval.hi),
        BetterDirection::Higher => (1.0 / interval.hi, 1.0 / interval.lo),
    };
    let known = ratios.iter().flatten().map(costs);
    let best = known.map(|(_, worst_end)| worst_end).fold(f64::INFINITY, f64::min);
    let stays = |interval: &Interval| costs(interval).0 <= best * (1.0 + margin);
    ratios.iter().map(|interval| interval.as_ref().is_none_or(stays)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hopeless_are_out() {
        let interval = |lo, hi| Some(Interval { lo, hi, level: 0.95 });
        let ratios = [
            interval(0.5, 0.6),
            interval(0.55, 0.9),
            interval(0.61, 0.7),
            interval(0.7, 1.2),
            None,
        ];
        assert_eq!(
            still_racing(&ratios, BetterDirection::Lower, 0.03),
            [true, true, true, false, true]
        );
        assert_eq!(
            still_racing(&ratios, BetterDirection::Higher, 0.03),
            [false, true, true, true, true]
        );
        assert!(still_racing(&[], BetterDirection::Lower, 0.03).is_empty());
    }
}

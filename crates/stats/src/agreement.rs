//! Whether what was measured agrees with what somebody published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BetterDirection, Interval};

/// What a measured interval says to something that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedAgreement {
    /// The interval shows it.
    Agrees,
    /// The interval excludes it.
    Contradicts,
    /// Neither, or there is no interval.
    CannotTell,
}

/// How one variant was published to stand to another, in the metric's better
/// direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// It is better.
    Better,
    /// It is better, or there is no difference that matters.
    AtLeastAsGood,
    /// There is no difference that matters.
    Equal,
}

impl Relation {
    /// Whether the ratio of the first variant to the second, which lies in
    /// `measured`, is as published. Differences below `margin` (0.03 is 3 %) do
    /// not matter: neither is "better" contradicted before the interval
    /// excludes an advantage larger than that, nor "at least as good" shown
    /// before it excludes such a loss.
    #[must_use]
    pub fn agreement(
        self,
        measured: Option<Interval>,
        better: BetterDirection,
        margin: f64,
    ) -> PublishedAgreement {
        let Some(Interval { lo, hi, .. }) = measured else { return PublishedAgreement::CannotTell };
        // Below 1 is better from here on.
        let (lo, hi) = match better {
            BetterDirection::Lower => (lo, hi),
            BetterDirection::Higher => (hi.recip(), lo.recip()),
        };
        let most = 1.0 + margin;
        let (agrees, contradicts) = match self {
            Self::Better => (hi < 1.0, lo > most.recip()),
            Self::AtLeastAsGood => (hi < most, lo > 1.0),
            Self::Equal => (lo > most.recip() && hi < most, hi < 1.0 || lo > 1.0),
        };
        of(agrees, contradicts)
    }
}

/// What is less than this part of the other is nothing.
const NOTHING: f64 = 0.01;

/// Whether a ratio in `measured` is the published one, which lies in
/// `published`, a single number or a range, give or take `margin`.
///
/// It contradicts where the two have no ratio in common. Where a difference
/// larger than the margin was published, it agrees if it also excludes 1; where
/// none was, if it lies inside what was published: an interval that is too wide
/// to say anything agrees with nothing. Nothing at all, a ratio of 0, is less than a
/// hundredth: no count that was measured has a logarithm below all others.
#[must_use]
pub fn ratio_agreement(
    published: (f64, f64),
    measured: Option<Interval>,
    margin: f64,
) -> PublishedAgreement {
    let Some(Interval { lo, hi, .. }) = measured else { return PublishedAgreement::CannotTell };
    let most = 1.0 + margin;
    let (least, greatest) = (published.0 / most, published.1.max(NOTHING) * most);
    let agrees = if greatest < 1.0 {
        hi < 1.0
    } else if least > 1.0 {
        lo > 1.0
    } else {
        lo >= least && hi <= greatest
    };
    let apart = hi < least || lo > greatest;
    of(agrees && !apart, apart)
}

fn of(agrees: bool, contradicts: bool) -> PublishedAgreement {
    match (agrees, contradicts) {
        (true, _) => PublishedAgreement::Agrees,
        (false, true) => PublishedAgreement::Contradicts,
        (false, false) => PublishedAgreement::CannotTell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PublishedAgreement::{Agrees, CannotTell, Contradicts};

    fn interval(lo: f64, hi: f64) -> Option<Interval> {
        Some(Interval { lo, hi, level: 0.95 })
    }

    #[test]
    fn an_order_is_judged_by_the_interval_and_the_margin() {
        let check = |lo: f64, hi: f64, expected: [PublishedAgreement; 3]| {
            let relations = [Relation::Better, Relation::AtLeastAsGood, Relation::Equal];
            let found =
                relations.map(|one| one.agreement(interval(lo, hi), BetterDirection::Lower, 0.03));
            assert_eq!(found, expected, "[{lo}, {hi}]");
            let turned = interval(hi.recip(), lo.recip());
            let found = relations.map(|one| one.agreement(turned, BetterDirection::Higher, 0.03));
            assert_eq!(found, expected, "[{lo}, {hi}] the other way round");
        };
        check(0.5, 0.8, [Agrees, Agrees, Contradicts]);
        check(0.98, 0.99, [Agrees, Agrees, Agrees]);
        check(0.98, 1.02, [Contradicts, Agrees, Agrees]);
        check(1.01, 1.02, [Contradicts, Agrees, Agrees]);
        check(1.2, 1.5, [Contradicts, Contradicts, Contradicts]);
        check(0.8, 1.02, [CannotTell, Agrees, CannotTell]);
        check(0.99, 1.5, [Contradicts, CannotTell, CannotTell]);
        check(0.5, 2.0, [CannotTell; 3]);
        assert_eq!(Relation::Equal.agreement(None, BetterDirection::Lower, 0.03), CannotTell);
    }

    #[test]
    fn a_ratio_is_judged_by_what_both_intervals_have_in_common() {
        let check = |published: (f64, f64), (lo, hi): (f64, f64), expected: PublishedAgreement| {
            let found = ratio_agreement(published, interval(lo, hi), 0.03);
            assert_eq!(found, expected, "{published:?} beside [{lo}, {hi}]");
            let upside_down = (published.1.recip(), published.0.recip());
            let found = ratio_agreement(upside_down, interval(hi.recip(), lo.recip()), 0.03);
            assert_eq!(found, expected, "{published:?} beside [{lo}, {hi}], upside down");
        };
        check((0.5, 0.5), (0.4, 0.6), Agrees);
        check((0.5, 0.5), (0.51, 0.6), Agrees);
        check((0.5, 0.5), (0.4, 1.2), CannotTell);
        check((0.5, 0.5), (0.6, 0.7), Contradicts);
        check((0.5, 0.5), (1.2, 1.3), Contradicts);
        check((0.3, 0.6), (0.55, 0.9), Agrees);
        check((1.0, 1.0), (0.99, 1.01), Agrees);
        check((1.0, 1.0), (0.8, 1.2), CannotTell);
        check((1.0, 1.0), (1.1, 1.2), Contradicts);
        check((0.9, 1.2), (0.95, 1.1), Agrees);
        check((0.9, 1.2), (0.95, 1.5), CannotTell);
        assert_eq!(ratio_agreement((0.5, 0.5), None, 0.03), CannotTell);
        let none = |lo, hi| ratio_agreement((0.0, 0.0), interval(lo, hi), 0.03);
        assert_eq!(none(0.001, 0.004), Agrees);
        assert_eq!(none(0.001, 0.5), Agrees);
        assert_eq!(none(0.001, 1.5), CannotTell);
        assert_eq!(none(0.02, 0.04), Contradicts);
    }
}

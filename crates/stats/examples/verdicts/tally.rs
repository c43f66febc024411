//! Verdicts against the truth.

use crate::laboratory::MARGIN;

/// What a rule says at the end of a case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    /// Less than 0 if B is said to take less time, greater than 0 if more.
    pub(crate) sign: i8,
    /// True for "no difference larger than the margin".
    pub(crate) equivalent: bool,
    /// Interval of the log ratio, for rules that have one.
    pub(crate) interval: Option<(f64, f64)>,
}

/// Counts over many cases.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    cases: f64,
    without_effect: f64,
    pub(crate) false_claims: f64,
    at_margin: f64,
    pub(crate) false_equivalent: f64,
    with_effect: f64,
    pub(crate) wrong_sign: f64,
    intervals: f64,
    pub(crate) covered: f64,
    pub(crate) right: f64,
    pub(crate) spent_s: f64,
}

impl Tally {
    pub(crate) fn count(&mut self, truth: f64, verdict: &Verdict, spent_s: f64) {
        let margin = MARGIN.ln_1p();
        let one = |is: bool| f64::from(u8::from(is));
        let at_margin = (truth.abs() - margin).abs() < 1e-9;
        let claims = verdict.sign != 0;
        let right_sign = claims && (verdict.sign > 0) == (truth > 0.0) && truth != 0.0;
        self.cases += 1.0;
        self.spent_s += spent_s;
        self.without_effect += one(truth == 0.0);
        self.false_claims += one(truth == 0.0 && claims);
        self.at_margin += one(at_margin);
        self.false_equivalent += one(at_margin && verdict.equivalent);
        self.with_effect += one(truth != 0.0);
        self.wrong_sign += one(truth != 0.0 && claims && !right_sign);
        if let Some((lo, hi)) = verdict.interval {
            self.intervals += 1.0;
            self.covered += one(lo <= truth && truth <= hi);
        }
        let truly_equivalent = truth.abs() < margin && !at_margin;
        self.right += one(right_sign || (verdict.equivalent && truly_equivalent));
    }

    pub(crate) fn false_claims_percent(&self) -> f64 {
        100.0 * self.false_claims / self.without_effect
    }

    pub(crate) fn false_equivalent_percent(&self) -> f64 {
        100.0 * self.false_equivalent / self.at_margin
    }

    pub(crate) fn wrong_sign_percent(&self) -> f64 {
        100.0 * self.wrong_sign / self.with_effect
    }

    /// None for rules without an interval.
    pub(crate) fn covered_percent(&self) -> Option<f64> {
        (self.intervals > 0.0).then(|| 100.0 * self.covered / self.intervals)
    }

    pub(crate) fn seconds_by_right(&self) -> f64 {
        self.spent_s / self.right
    }

    pub(crate) fn head(first: &str) -> String {
        format!(
            "| {first} | false claims | false \"equivalent\" | wrong sign | coverage | right | s a case | s a right verdict |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|\n"
        )
    }

    pub(crate) fn row(&self, name: &str) -> String {
        let covered =
            self.covered_percent().map_or("-".to_owned(), |covered| format!("{covered:.1} %"));
        format!(
            "| {name} | {:.1} % | {:.1} % | {:.2} % | {covered} | {:.0} % | {:.0} | {:.0} |\n",
            self.false_claims_percent(),
            self.false_equivalent_percent(),
            self.wrong_sign_percent(),
            100.0 * self.right / self.cases,
            self.spent_s / self.cases,
            self.seconds_by_right(),
        )
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |a, b| Self {
            cases: a.cases + b.cases,
            without_effect: a.without_effect + b.without_effect,
            false_claims: a.false_claims + b.false_claims,
            at_margin: a.at_margin + b.at_margin,
            false_equivalent: a.false_equivalent + b.false_equivalent,
            with_effect: a.with_effect + b.with_effect,
            wrong_sign: a.wrong_sign + b.wrong_sign,
            intervals: a.intervals + b.intervals,
            covered: a.covered + b.covered,
            right: a.right + b.right,
            spent_s: a.spent_s + b.spent_s,
        })
    }
}

//! How much machine time a case has used, and what a block will take.

/// What the trials were planned to cost, and when they began.
#[derive(Debug, Clone, Default)]
pub(super) struct TrialClock {
    /// Cost of all trials so far, as planned.
    planned: f64,
    /// When the first and the last trial with a time began, and what had been
    /// planned by then.
    first: Option<(f64, f64)>,
    last: Option<(f64, f64)>,
}

impl TrialClock {
    /// Counts a trial that was planned to cost so much. Times that are no
    /// numbers or run backwards are as good as none.
    pub(super) fn add(&mut self, started_s: Option<f64>, cost: f64) {
        let known = self.last.map_or(f64::NEG_INFINITY, |(last_s, _)| last_s);
        if let Some(started_s) = started_s.filter(|s| s.is_finite() && *s > known) {
            self.last = Some((started_s, self.planned));
            self.first = self.first.or(self.last);
        }
        self.planned += cost;
    }

    /// Seconds that a unit of cost takes: 1 until two trials tell it.
    fn seconds_a_unit(&self) -> f64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last.1 > first.1 => {
                (last.0 - first.0) / (last.1 - first.1)
            }
            _ => 1.0,
        }
    }

    /// Seconds that something of such a cost will take.
    pub(super) fn seconds(&self, cost: f64) -> f64 {
        cost * self.seconds_a_unit()
    }

    /// Seconds from the beginning of the case to the end of the last trial.
    pub(super) fn used_s(&self) -> f64 {
        let (started_s, before) = self.last.unwrap_or((0.0, 0.0));
        started_s + self.seconds(self.planned - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_seconds_until_times_say_otherwise() {
        let mut clock = TrialClock::default();
        clock.add(None, 10.0);
        clock.add(None, 10.0);
        assert_eq!((clock.used_s(), clock.seconds(3.0)), (20.0, 3.0));
        // Trials of 10 that take 25 s each.
        let mut clock = TrialClock::default();
        for start_s in [5.0, 30.0, 55.0] {
            clock.add(Some(start_s), 10.0);
        }
        assert_eq!((clock.used_s(), clock.seconds(2.0)), (80.0, 5.0));
        clock.add(Some(f64::NAN), 10.0);
        clock.add(Some(1.0), 10.0);
        assert_eq!((clock.used_s(), clock.seconds(2.0)), (130.0, 5.0));
    }
}

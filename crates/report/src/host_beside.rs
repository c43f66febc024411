//! What the host did beside the trials, in words and as a table.

use record::{HostSign, UnsteadyCause};
use stats::{DisturbanceWeight, HostDifference, Interval, Invalidity};

use crate::quantity::percent;
use crate::{HostActivity, Report, TimeShare};

/// Others' share of the pCPUs from which on a host is called busy.
const BUSY: f64 = 0.1;

/// Share of the time from which on the terminal tells what the host did.
const NOTABLE: f64 = 0.05;

/// What to say of how the host differed beside the two of a comparison, where
/// that matters for its verdict.
pub(crate) fn notes(judged: &stats::Judgement) -> Vec<String> {
    let held = judged.interval.map(|Interval { lo, hi, .. }| (hi / lo).sqrt());
    let held = held.filter(|held| held.is_finite() && *held < 1e9);
    if let stats::Verdict::Invalid { why: Invalidity::HostDiffered { .. } } = judged.verdict {
        // Why it is invalid says the rest.
        return held.map(|held| format!("The interval holds ×{held:.2}.")).into_iter().collect();
    }
    let matters = judged.host.iter().filter(|found| found.weight >= DisturbanceWeight::Unclear);
    let note = |found: &HostDifference| {
        let held = held.map(|held| format!("; the interval holds ×{held:.2}")).unwrap_or_default();
        match found.weight {
            DisturbanceWeight::Unclear => format!(
                "The host may have disturbed one side more: {found}, which may be chance{held}."
            ),
            DisturbanceWeight::Own => format!(
                "The host was busy, and the two used it differently: {found}. Others get what a \
                 VM leaves, so this may be the variants' own doing{held}."
            ),
            _ => format!(
                "The host disturbed one side more, so part of the ratio may be the host's: {found}{held}."
            ),
        }
    };
    matters.map(note).collect()
}

/// Why a block was called unsteady, without the final stop.
#[must_use]
pub fn unsteady(why: &UnsteadyCause) -> String {
    let (workload, variant, sign, excess) = match why {
        UnsteadyCause::Told(text) => return text.clone(),
        UnsteadyCause::Trial { workload, variant, sign, excess } => {
            (workload, variant, sign, *excess)
        }
    };
    let part = || percent((-excess).exp_m1().abs());
    let change = || percent(excess.exp_m1().abs());
    let [more, slower, longer] = match excess < 0.0 {
        true => ["less", "faster", "less time"],
        false => ["more", "slower", "longer"],
    };
    let seen = match sign {
        HostSign::Others => format!("others used {} {more} of the time than usual", part()),
        HostSign::Steal => format!("the host's hypervisor took {} {more} than usual", part()),
        HostSign::Memory => format!("something waited for memory for {} {more} than usual", part()),
        HostSign::Clock => format!("the clock was {} {slower} than usual", change()),
        HostSign::Canary => format!("a canary took {} {longer} than usual", change()),
        HostSign::RunDelay => format!("vCPUs waited for a pCPU for {} {more} than usual", part()),
        HostSign::Throttles => {
            format!("the pCPUs were throttled {} time(s) {more} than usual", excess.abs())
        }
    };
    format!("{variant} at {workload}: {seen}")
}

/// One line about a host on which others used much of the pCPUs, and what to do;
/// none of a quiet one.
#[must_use]
pub fn busy(beside: &[HostActivity]) -> Option<String> {
    let quiet = beside.iter().filter(|beside| beside.is_quiet);
    let all = quiet.flat_map(|beside| &beside.variants).filter_map(|variant| {
        let share = |share: Option<TimeShare>| share.unwrap_or(TimeShare { mean: 0.0, most: 0.0 });
        let (others, steal) = (share(variant.others), share(variant.steal));
        let trials = f64::from(variant.trials);
        (variant.trials > 0).then(|| {
            (trials, (others.mean + steal.mean) * trials, (others.most + steal.most).min(1.0))
        })
    });
    let (trials, sum, most) = all
        .fold((0.0, 0.0, 0.0_f64), |(n, sum, most), one| (n + one.0, sum + one.1, most.max(one.2)));
    let mean = sum / trials;
    (mean >= BUSY).then(|| {
        format!(
            "The host was busy: others used {} of the VM's pCPUs' time, up to {} beside a trial. That widens the intervals and invalidates nothing; stop what else runs, or add blocks (`vmlab run --extend DIR --blocks N`), for a sharper answer.",
            percent((mean * 100.0).round() / 100.0),
            percent((most * 100.0).round() / 100.0)
        )
    })
}

/// Heads of the table of what the host did beside each variant.
pub(crate) const HEADS: [&str; 7] =
    ["variant", "trials", "others", "steal", "waits for memory", "vCPUs wait", "canary"];

/// Its rows: shares as mean and greatest.
pub(crate) fn rows(beside: &HostActivity) -> Vec<[String; 7]> {
    let share = |share: Option<TimeShare>| match share {
        None => "-".to_owned(),
        Some(TimeShare { mean, most }) => {
            format!("{:.1} % (to {:.1})", mean * 100.0, most * 100.0)
        }
    };
    let row = |variant: &crate::VariantDisturbance| {
        [
            variant.variant.clone(),
            variant.trials.to_string(),
            share(variant.others),
            share(variant.steal),
            share(variant.memory),
            share(variant.run_delay),
            variant.canary_s.map_or("-".to_owned(), |seconds| format!("{:.2} ms", seconds * 1e3)),
        ]
    };
    beside.variants.iter().map(row).collect()
}

/// True if the host did something beside these trials that a reader of the
/// verdicts should see first.
pub(crate) fn is_notable(report: &Report, beside: &HostActivity) -> bool {
    let shares =
        |variant: &crate::VariantDisturbance| [variant.others, variant.steal, variant.memory];
    let is_much = |share: TimeShare| share.mean >= NOTABLE;
    let here = report
        .groups
        .iter()
        .filter(|group| group.load == beside.load && group.workload == beside.workload);
    let mut host = here
        .flat_map(|group| &group.cells)
        .filter_map(|cell| cell.judgement.as_ref())
        .flat_map(|judgement| &judgement.host);
    let mut variants = beside.variants.iter();
    (beside.is_quiet && variants.any(|variant| shares(variant).into_iter().flatten().any(is_much)))
        || host.any(|found| found.weight >= DisturbanceWeight::Unclear)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_usual_is_said_as_less() {
        let said = |sign, excess: f64| {
            let (workload, variant) = ("fio".to_owned(), "one".to_owned());
            unsteady(&UnsteadyCause::Trial { workload, variant, sign, excess })
        };
        let took = "one at fio: the host's hypervisor took";
        assert_eq!(said(HostSign::Steal, 0.0513), format!("{took} 5 % more than usual"));
        assert_eq!(said(HostSign::Steal, -0.0488), format!("{took} 5 % less than usual"));
        let canary = said(HostSign::Canary, -0.105_360_5);
        assert!(canary.ends_with("a canary took 10 % less time than usual"), "{canary}");
        let throttled = said(HostSign::Throttles, -2.0);
        assert!(throttled.ends_with("were throttled 2 time(s) less than usual"), "{throttled}");
    }
}

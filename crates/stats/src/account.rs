//! A difference taken apart: how much of it each kind of event explains, at so
//! much an event, and what none of them explains.
//!
//! Both factors are uncertain: the counts differ from block to block, and a
//! price has the spread of the boots that it was measured in. The variance of
//! their product is carried to first order (delta method), its degrees of
//! freedom are those of Welch and Satterthwaite. What is unexplained is computed
//! block by block, so that counts that move with the difference make it no less
//! sure.
//!
//! Source: B. L. Welch, "The generalization of Student's problem when several
//! different population variances are involved", Biometrika 34, 1947; G. Casella,
//! R. L. Berger, "Statistical Inference", 5.5.4 (delta method).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::student::{moments, student_critical_df};
use crate::{Estimate, Interval};

/// A number and its interval, in the unit of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EstimatedAmount {
    /// The best guess.
    pub centre: f64,
    /// Where it lies; none where the counts are of one block, or a price of one
    /// boot.
    pub interval: Option<Interval>,
}

/// One kind of event: what one costs, and how many more a variant has than its
/// baseline, block by block. Events are in one kind only.
#[derive(Debug, Clone, Copy)]
pub struct PricedEvents<'a> {
    /// What one costs.
    pub price: Estimate,
    /// Variant less baseline, one for each block, in the blocks' order.
    pub counts: &'a [f64],
}

/// A difference taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// The mean difference inside the blocks.
    pub difference: EstimatedAmount,
    /// What each kind of event explains of it, in the order of the kinds.
    pub parts: Vec<EstimatedAmount>,
    /// The difference less all parts.
    pub unexplained: EstimatedAmount,
}

/// A part of a variance.
#[derive(Debug, Clone, Copy)]
struct VarianceComponent {
    variance: f64,
    /// Degrees of freedom that it was estimated with.
    freedom: f64,
}

/// The standard error of a price, and its degrees of freedom; none of one boot.
fn price_error(price: &Estimate) -> Option<(f64, f64)> {
    // The spread is that of the logarithms.
    let error = price.centre * price.spread? / f64::from(price.boots).sqrt();
    Some((error, f64::from(price.boots) - 1.0))
}

/// The variance of the mean of values, one a block; none of one block.
fn of_blocks(values: &[f64]) -> Option<VarianceComponent> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let (_, sd) = moments(values);
    Some(VarianceComponent { variance: sd * sd / n, freedom: n - 1.0 })
}

fn amount(centre: f64, components: Option<&[VarianceComponent]>, level: f64) -> EstimatedAmount {
    let interval = components.map(|components| {
        let variance: f64 = components.iter().map(|one| one.variance).sum();
        let parts: f64 = components.iter().map(|one| one.variance.powi(2) / one.freedom).sum();
        let half_width = if variance > 0.0 {
            student_critical_df(variance.powi(2) / parts, 1.0 - level) * variance.sqrt()
        } else {
            0.0
        };
        Interval { lo: centre - half_width, hi: centre + half_width, level }
    });
    EstimatedAmount { centre, interval }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Takes `differences` apart, one for each block, with intervals at `level`.
///
/// Prices of one list go up and down together, so the errors that they bring to
/// what is unexplained are added, not their squares: it is no surer than said.
///
/// None without blocks, if a kind has another number of blocks, or if anything is
/// no finite number.
#[must_use]
pub fn account(differences: &[f64], kinds: &[PricedEvents<'_>], level: f64) -> Option<Account> {
    let numbers = kinds.iter().flat_map(|kind| kind.counts).chain(differences);
    let prices = kinds.iter().map(|kind| &kind.price.centre);
    let sound = numbers.chain(prices).all(|number| number.is_finite());
    let aligned = kinds.iter().all(|kind| kind.counts.len() == differences.len());
    if differences.is_empty() || !sound || !aligned {
        return None;
    }
    let part = |kind: &PricedEvents<'_>| {
        let count = mean(kind.counts);
        let components = of_blocks(kind.counts).zip(price_error(&kind.price)).map(
            |(blocks, (error, freedom))| {
                let of_counts = kind.price.centre.powi(2) * blocks.variance;
                let of_price = (count * error).powi(2);
                [
                    VarianceComponent { variance: of_counts, ..blocks },
                    VarianceComponent { variance: of_price, freedom },
                ]
            },
        );
        amount(count * kind.price.centre, components.as_ref().map(|all| &all[..]), level)
    };
    let left: Vec<f64> = (0..differences.len())
        .map(|block| {
            let explained: f64 =
                kinds.iter().map(|kind| kind.price.centre * kind.counts[block]).sum();
            differences[block] - explained
        })
        .collect();
    let of_prices: Option<VarianceComponent> = kinds.iter().try_fold(
        VarianceComponent { variance: 0.0, freedom: f64::INFINITY },
        |sum, kind| {
            let (error, freedom) = price_error(&kind.price)?;
            let error = sum.variance.sqrt() + (mean(kind.counts) * error).abs();
            Some(VarianceComponent { variance: error * error, freedom: sum.freedom.min(freedom) })
        },
    );
    let of_difference = of_blocks(differences);
    let of_left = of_blocks(&left).zip(of_prices).map(|(blocks, prices)| [blocks, prices]);
    Some(Account {
        difference: amount(
            mean(differences),
            of_difference.as_ref().map(std::slice::from_ref),
            level,
        ),
        parts: kinds.iter().map(part).collect(),
        unexplained: amount(mean(&left), of_left.as_ref().map(|all| &all[..]), level),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BootStatistic, SampleKind, describe};

    const LEVEL: f64 = 0.95;

    fn price(boots: &[f64]) -> Estimate {
        let boots: Vec<BootStatistic> =
            boots.iter().map(|value| BootStatistic { value: *value, log: value.ln() }).collect();
        describe(SampleKind::Time, &boots, LEVEL).unwrap()
    }

    fn half_width(amount: EstimatedAmount) -> f64 {
        let interval = amount.interval.unwrap();
        (interval.hi - interval.lo) / 2.0
    }

    #[test]
    fn what_is_exact_has_no_width_and_leaves_nothing() {
        let (ipi, exit) = (price(&[2e-6; 3]), price(&[1e-6; 3]));
        let (ipis, exits) = ([100.0; 4], [-30.0; 4]);
        let kinds = [
            PricedEvents { price: ipi, counts: &ipis },
            PricedEvents { price: exit, counts: &exits },
        ];
        let found = account(&[1.7e-4; 4], &kinds, LEVEL).unwrap();
        assert!((found.parts[0].centre - 2e-4).abs() < 1e-15, "{found:?}");
        assert!((found.parts[1].centre + 3e-5).abs() < 1e-15, "{found:?}");
        assert!(found.unexplained.centre.abs() < 1e-15, "{found:?}");
        assert!(half_width(found.unexplained) < 1e-15);
    }

    /// By hand: two blocks, exact price: t with 1 degree of freedom times the
    /// price times sd / sqrt 2. Exact counts, price of three boots: t with 2 times
    /// the count times the price times the logarithms' sd / sqrt 3.
    #[test]
    fn each_factor_brings_its_own_error() {
        let counts = [90.0, 110.0];
        let exact = PricedEvents { price: price(&[2.0; 3]), counts: &counts };
        let found = account(&[0.0, 0.0], &[exact], LEVEL).unwrap();
        assert!((half_width(found.parts[0]) - 12.706 * 2.0 * 10.0).abs() < 0.01, "{found:?}");
        let uncertain = price(&[0.9, 1.0, 1.0 / 0.9]);
        let kind = PricedEvents { price: uncertain, counts: &[100.0; 5] };
        let found = account(&[0.0; 5], &[kind], LEVEL).unwrap();
        let error = (1.0_f64 / 0.9).ln() / 3.0_f64.sqrt() * 100.0;
        assert!((half_width(found.parts[0]) - 4.303 * error).abs() < 0.01, "{found:?}");
        assert!((half_width(found.unexplained) - 4.303 * error).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn what_moves_together_is_no_noise_of_the_rest() {
        let counts = [10.0, 1000.0, 300.0, 50.0];
        let differences = counts.map(|count| 2.0 * count + 7.0);
        let kind = PricedEvents { price: price(&[2.0; 3]), counts: &counts };
        let found = account(&differences, &[kind], LEVEL).unwrap();
        assert!((found.unexplained.centre - 7.0).abs() < 1e-9);
        assert!(half_width(found.unexplained) < 1e-9 && half_width(found.parts[0]) > 100.0);
    }

    #[test]
    fn one_block_or_one_boot_has_no_interval() {
        let kind = |price, counts| PricedEvents { price, counts };
        let found = account(&[5.0], &[kind(price(&[1.0; 3]), &[2.0])], LEVEL).unwrap();
        assert_eq!(found.unexplained, EstimatedAmount { centre: 3.0, interval: None });
        let kinds = [kind(price(&[1.0]), &[2.0, 2.0])];
        let found = account(&[5.0, 5.0], &kinds, LEVEL).unwrap();
        assert!(found.difference.interval.is_some());
        assert_eq!((found.parts[0].interval, found.unexplained.interval), (None, None));
        assert_eq!(account(&[], &[], LEVEL), None);
        assert_eq!(account(&[1.0], &[kind(price(&[1.0]), &[1.0, 2.0])], LEVEL), None);
        assert_eq!(account(&[f64::NAN], &[], LEVEL), None);
    }

    /// Differences that really are the sum of two kinds of events and of noise,
    /// with prices that are measured with error: the interval of what is
    /// unexplained holds 0 at least as often as it says.
    #[test]
    fn the_interval_holds_as_often_as_it_says() {
        use rand::{RngExt, SeedableRng};
        use rand_pcg::Pcg64;
        let mut random = Pcg64::seed_from_u64(21);
        let mut normal = move || -> f64 {
            // The sum of twelve: mean 6, variance 1.
            (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
        };
        let mut held = 0;
        let rounds = 1000;
        for _ in 0..rounds {
            let (a, b) = (2.0_f64, 0.5_f64);
            let mut measured =
                |true_price: f64| price(&[0; 3].map(|_| true_price * (0.03 * normal()).exp()));
            let prices = [measured(a), measured(b)];
            let blocks = 5;
            let counts: Vec<[f64; 2]> =
                (0..blocks).map(|_| [100.0 + 5.0 * normal(), 400.0 + 20.0 * normal()]).collect();
            let differences: Vec<f64> =
                counts.iter().map(|[x, y]| a * x + b * y + 4.0 * normal()).collect();
            let [of_a, of_b] =
                [0, 1].map(|kind| counts.iter().map(|c| c[kind]).collect::<Vec<_>>());
            let kinds = [
                PricedEvents { price: prices[0], counts: &of_a },
                PricedEvents { price: prices[1], counts: &of_b },
            ];
            let found = account(&differences, &kinds, LEVEL).unwrap();
            held += u32::from(found.unexplained.interval.unwrap().contains(0.0));
        }
        assert!(f64::from(held) >= 0.94 * f64::from(rounds), "{held} of {rounds}");
    }
}

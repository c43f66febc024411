//! Where the noise comes from, and how many iterations that makes worth their
//! time.
//!
//! Source: T. Kalibera, R. Jones, "Rigorous Benchmarking in Reasonable Time",
//! ISMM 2013: a level is repeated as often as its share of the variance by its
//! cost says, `r = sqrt(cost_above / cost * variance / variance_above)`; the
//! top level, here the boot, is repeated until the question is answered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a repetition costs, all in the same unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepetitionCosts {
    /// A boot, with what must be done to the host before.
    pub boot: f64,
    /// Starting one more invocation in a boot, its warm-up included.
    pub invocation: f64,
    /// One more iteration in an invocation.
    pub iteration: f64,
}

/// Variances by their source, on whatever scale the values have (relative
/// variances on logarithms).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Components {
    /// Between boots, beyond what invocations explain.
    pub boot: f64,
    /// Between invocations in a boot, beyond what iterations explain; 0 where
    /// boots have only one.
    pub invocation: f64,
    /// Between iterations in an invocation.
    pub iteration: f64,
}

/// How often the lower levels are repeated in each boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Allocation {
    /// Invocations in a boot.
    pub invocations: u32,
    /// Iterations in an invocation.
    pub iterations: u32,
}

/// Mean, and sum of squares about it.
fn squares(values: impl Iterator<Item = f64> + Clone) -> (f64, f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    (n, mean, values.map(|value| (value - mean).powi(2)).sum())
}

/// Splits the variance of one configuration's boots, each a list of
/// invocations, each a list of iterations. None unless there are two boots and
/// some invocation has two iterations.
///
/// Where a level's own variance comes out below 0 it is 0: the level below
/// explains it all.
#[must_use]
pub fn components(boots: &[Vec<Vec<f64>>]) -> Option<Components> {
    let invocations: Vec<(usize, f64, f64, f64)> = boots
        .iter()
        .enumerate()
        .flat_map(|(boot, runs)| runs.iter().map(move |run| (boot, run)))
        .filter(|(_, run)| !run.is_empty())
        .map(|(boot, run)| {
            let (n, mean, squares) = squares(run.iter().copied());
            (boot, n, mean, squares)
        })
        .collect();
    let freedom: f64 = invocations.iter().map(|(_, n, ..)| n - 1.0).sum();
    if freedom < 1.0 {
        return None;
    }
    let iteration = invocations.iter().map(|(.., squares)| squares).sum::<f64>() / freedom;
    // What iterations add to the variance of an invocation's mean.
    let added = |list: &[&(usize, f64, f64, f64)]| {
        iteration * list.iter().map(|(_, n, ..)| 1.0 / n).sum::<f64>() / list.len() as f64
    };
    let by_boot: Vec<Vec<&(usize, f64, f64, f64)>> = (0..boots.len())
        .map(|boot| invocations.iter().filter(|(of, ..)| *of == boot).collect())
        .filter(|list: &Vec<_>| !list.is_empty())
        .collect();
    if by_boot.len() < 2 {
        return None;
    }
    let (mut freedom, mut between) = (0.0, 0.0);
    for list in &by_boot {
        let (n, _, squares) = squares(list.iter().map(|(_, _, mean, _)| *mean));
        freedom += n - 1.0;
        between += squares;
    }
    let all: Vec<_> = invocations.iter().collect();
    let invocation = if freedom > 0.0 { (between / freedom - added(&all)).max(0.0) } else { 0.0 };
    let means = by_boot
        .iter()
        .map(|list| list.iter().map(|(_, _, mean, _)| mean).sum::<f64>() / list.len() as f64);
    let (n, _, squares) = squares(means);
    let below: f64 =
        by_boot.iter().map(|list| (invocation + added(list)) / list.len() as f64).sum::<f64>()
            / by_boot.len() as f64;
    Some(Components { boot: (squares / (n - 1.0) - below).max(0.0), invocation, iteration })
}

/// The repetitions that reach a given precision in the least time, each within
/// `least..=most`.
#[must_use]
pub fn allocate(
    components: Components,
    costs: RepetitionCosts,
    least: Allocation,
    most: Allocation,
) -> Allocation {
    let repeat = |above: f64, below: f64, cost_above: f64, cost: f64, least: u32, most: u32| {
        let wanted = ((cost_above / cost) * (below / above)).sqrt();
        // 0 by 0 asks for nothing; the cast saturates.
        let wanted = if wanted.is_nan() { least } else { wanted.ceil() as u32 };
        wanted.clamp(least, most.max(least))
    };
    let Components { boot, invocation, iteration } = components;
    if invocation > 0.0 {
        let iterations = repeat(
            invocation,
            iteration,
            costs.invocation,
            costs.iteration,
            least.iterations,
            most.iterations,
        );
        let cost = costs.invocation + f64::from(iterations) * costs.iteration;
        let variance = invocation + iteration / f64::from(iterations);
        let invocations =
            repeat(boot, variance, costs.boot, cost, least.invocations, most.invocations);
        return Allocation { invocations, iterations };
    }
    // Nothing is gained by starting again.
    let cost_above = costs.boot + costs.invocation;
    let iterations =
        repeat(boot, iteration, cost_above, costs.iteration, least.iterations, most.iterations);
    Allocation { invocations: least.invocations, iterations }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::normal;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    const LEAST: Allocation = Allocation { invocations: 1, iterations: 1 };
    const MOST: Allocation = Allocation { invocations: 20, iterations: 60 };
    const COSTS: RepetitionCosts = RepetitionCosts { boot: 8.0, invocation: 1.0, iteration: 1.0 };

    #[test]
    fn noise_is_traced_to_its_source() {
        let mut random = Pcg64::seed_from_u64(31);
        let [boot, invocation, iteration] = [3.0, 2.0, 1.0];
        let boots: Vec<Vec<Vec<f64>>> = (0..2000)
            .map(|_| {
                let by_boot = boot * normal(&mut random);
                let mut run = || {
                    let by_run = by_boot + invocation * normal(&mut random);
                    (0..3).map(|_| by_run + iteration * normal(&mut random)).collect()
                };
                vec![run(), run()]
            })
            .collect();
        let found = components(&boots).unwrap();
        assert!((found.boot / 9.0 - 1.0).abs() < 0.15, "{found:?}");
        assert!((found.invocation / 4.0 - 1.0).abs() < 0.15, "{found:?}");
        assert!((found.iteration - 1.0).abs() < 0.1, "{found:?}");
    }

    /// The worked example: boots of 2 % and iterations of 1 % ask for two
    /// iterations, boots of 0.3 % for ten.
    #[test]
    fn iterations_pay_where_boots_are_alike() {
        let check = |boot: f64, iteration: f64, expected| {
            let components =
                Components { boot: boot * boot, invocation: 0.0, iteration: iteration * iteration };
            assert_eq!(allocate(components, COSTS, LEAST, MOST).iterations, expected);
        };
        check(2.0, 1.0, 2);
        check(0.3, 1.0, 10);
        check(0.0, 1.0, 60);
        check(1.0, 0.0, 1);
        check(0.0, 0.0, 1);
        let nested = Components { boot: 1.0, invocation: 4.0, iteration: 4.0 };
        let found = allocate(nested, COSTS, LEAST, MOST);
        assert_eq!(found, Allocation { invocations: 6, iterations: 1 });
    }

    #[test]
    fn too_little_has_no_components() {
        assert_eq!(components(&[]), None);
        assert_eq!(components(&[vec![vec![1.0, 2.0]]]), None);
        assert_eq!(components(&[vec![vec![1.0]], vec![vec![2.0]]]), None);
        let flat = components(&[vec![vec![1.0, 1.0]], vec![vec![1.0, 1.0], vec![]]]).unwrap();
        assert_eq!(flat, Components { boot: 0.0, invocation: 0.0, iteration: 0.0 });
    }
}

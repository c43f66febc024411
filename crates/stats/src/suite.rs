//! A suite of workloads as one number: the geometric mean of their ratios, with
//! an interval.

use crate::{Comparison, PairedBlocks};

/// The comparison of a whole suite: in each block the mean of the workloads'
/// log ratios, so that the ratio is their geometric mean and the interval knows
/// how the workloads of a block go together. All count the same.
///
/// Blocks are matched by their place; those that a workload lacks are left out.
/// None without workloads. The direction is that of the first; a workload whose
/// better direction is the other one counts upside down.
#[must_use]
pub fn suite(workloads: &[Comparison]) -> Option<Comparison> {
    let first = workloads.first()?;
    let blocks = workloads.iter().map(|workload| workload.blocks.log_ratios.len()).min()?;
    let turn = |workload: &Comparison| if workload.better == first.better { 1.0 } else { -1.0 };
    let mean = |block: usize| {
        let sum: f64 = workloads
            .iter()
            .map(|workload| turn(workload) * workload.blocks.log_ratios[block])
            .sum();
        sum / workloads.len() as f64
    };
    Some(Comparison {
        blocks: PairedBlocks { log_ratios: (0..blocks).map(mean).collect() },
        host: Vec::new(),
        ..first.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BetterDirection, Engine, FixedBlocks};

    #[test]
    fn the_ratio_is_the_geometric_mean() {
        let workload = |log_ratios: &[f64], better| Comparison {
            blocks: PairedBlocks { log_ratios: log_ratios.to_vec() },
            better,
            margin: 0.03,
            aa: false,
            host: Vec::new(),
        };
        let workloads = [
            workload(&[0.2, 0.21, 0.19, 0.2], BetterDirection::Lower),
            workload(&[0.1, 0.1, 0.12, 0.08, 0.5], BetterDirection::Higher),
        ];
        let whole = suite(&workloads).unwrap();
        assert_eq!(whole.blocks.log_ratios.len(), 4);
        let judged = FixedBlocks::new(4, 0.05).unwrap().judge(&whole);
        // Faster by 0.1 and slower by 0.2: as a whole slower.
        assert!((judged.ratio.unwrap().ln() - 0.05).abs() < 1e-9);
        assert!(judged.interval.unwrap().lo > 1.0);
        assert_eq!(suite(&[]), None);
    }
}

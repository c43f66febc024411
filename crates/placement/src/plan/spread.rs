//! Sharing amounts among places as evenly as their room allows.

/// As even a split of an amount as the places' room allows.
pub(crate) struct WaterFill {
    /// What each place gets at least.
    pub(crate) base: Vec<u32>,
    /// How many places get one more.
    pub(crate) extra: usize,
    /// The places that have room for one more.
    pub(crate) open: Vec<usize>,
}

/// Fills all places to one level, the small ones to their brim. No other split
/// has a smaller difference between its biggest and its smallest share.
///
/// `None` if there isn't room enough.
pub(crate) fn water_fill(room: &[u32], amount: u32) -> Option<WaterFill> {
    let held = |level: u32| room.iter().map(|room| u64::from((*room).min(level))).sum::<u64>();
    let amount = u64::from(amount);
    let brim = room.iter().copied().max()?;
    if held(brim) < amount {
        return None;
    }
    let (mut low, mut high) = (0, brim);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if held(middle) <= amount { low = middle } else { high = middle - 1 }
    }
    let base: Vec<u32> = room.iter().map(|room| (*room).min(low)).collect();
    let open = (0..room.len()).filter(|at| room[*at] > low).collect();
    Some(WaterFill { base, extra: (amount - held(low)) as usize, open })
}

/// Shares pages in proportion to weights, each place at least one. Where a
/// place has too little room, what it can't take goes to those with the most
/// left; the flag says whether that was so.
///
/// `None` if there isn't room enough.
pub(crate) fn in_proportion(room: &[u64], weights: &[u32], pages: u64) -> Option<(Vec<u64>, bool)> {
    let whole: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let places = room.len() as u64;
    if whole == 0 || pages < places || room.contains(&0) {
        return None;
    }
    let exact = |weight: u32| u128::from(pages) * u128::from(weight);
    let mut shares: Vec<u64> =
        weights.iter().map(|weight| (exact(*weight) / u128::from(whole)) as u64).collect();
    let mut by_remainder: Vec<usize> = (0..room.len()).collect();
    by_remainder
        .sort_by_key(|at| (std::cmp::Reverse(exact(weights[*at]) % u128::from(whole)), *at));
    let given: u64 = shares.iter().sum();
    for at in by_remainder.iter().take((pages - given) as usize) {
        shares[*at] += 1;
    }
    let mut moved = false;
    // A cell of few cores may have come out empty.
    let (mut owed, mut over) = (0, 0);
    for share in &mut shares {
        if *share == 0 {
            *share = 1;
            owed += 1;
        }
    }
    while owed > 0 {
        let biggest = shares.iter_mut().max()?;
        *biggest -= 1;
        owed -= 1;
    }
    for (share, room) in shares.iter_mut().zip(room) {
        over += share.saturating_sub(*room);
        *share = (*share).min(*room);
    }
    while over > 0 {
        moved = true;
        let slack = |at: &usize| room[*at] - shares[*at];
        let at = (0..room.len()).max_by_key(|at| (slack(at), std::cmp::Reverse(*at)))?;
        let part = over.min(slack(&at));
        if part == 0 {
            return None;
        }
        shares[at] += part;
        over -= part;
    }
    Some((shares, moved))
}

/// How many ways are tried before only the first is.
const MAX_SUBSETS: u64 = 20_000;

/// Every way to take `size` of the items; just the first items if there are
/// too many ways to try.
pub(crate) fn subsets(items: &[usize], size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    if size > items.len() {
        return Vec::new();
    }
    let mut ways: u64 = 1;
    for at in 0..size.min(items.len() - size) {
        ways = ways.saturating_mul((items.len() - at) as u64) / (at as u64 + 1);
    }
    if ways > MAX_SUBSETS {
        return vec![items[..size].to_vec()];
    }
    let mut all = Vec::with_capacity(ways as usize);
    let mut chosen: Vec<usize> = (0..size).collect();
    loop {
        all.push(chosen.iter().map(|at| items[*at]).collect());
        let Some(at) = (0..size).rev().find(|at| chosen[*at] < items.len() - size + at) else {
            return all;
        };
        chosen[at] += 1;
        for later in at + 1..size {
            chosen[later] = chosen[later - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_subsets_come_in_order() {
        let all = subsets(&[3, 5, 7, 9], 2);
        assert_eq!(all, [[3, 5], [3, 7], [3, 9], [5, 7], [5, 9], [7, 9]]);
        assert_eq!(subsets(&[1], 2).len(), 0);
        assert_eq!(subsets(&(0..64).collect::<Vec<_>>(), 32).len(), 1);
    }

    #[test]
    fn memory_follows_the_cores() {
        for (room, weights, pages, expected) in [
            (vec![10, 10], vec![4, 4], 8, Some((vec![4, 4], false))),
            (vec![10, 10], vec![4, 4], 9, Some((vec![5, 4], false))),
            (vec![10, 10], vec![3, 1], 12, Some((vec![9, 3], false))),
            (vec![5, 10], vec![3, 1], 12, Some((vec![5, 7], true))),
            (vec![5, 6], vec![3, 1], 12, None),
            (vec![9, 9], vec![9, 1], 2, Some((vec![1, 1], false))),
            (vec![9, 9], vec![1, 1], 1, None),
        ] {
            assert_eq!(in_proportion(&room, &weights, pages), expected, "{room:?} {weights:?}");
        }
    }

    proptest! {
        #[test]
        fn water_is_level(room in proptest::collection::vec(0u32..20, 1..8), amount in 0u32..100) {
            let total: u32 = room.iter().sum();
            match water_fill(&room, amount) {
                None => prop_assert!(amount > total),
                Some(fill) => {
                    prop_assert_eq!(fill.base.iter().sum::<u32>() + fill.extra as u32, amount);
                    prop_assert!(fill.extra == 0 || fill.extra < fill.open.len());
                    prop_assert!(fill.base.iter().zip(&room).all(|(base, room)| base <= room));
                }
            }
        }

        #[test]
        fn pages_add_up(
            places in proptest::collection::vec((1u64..50, 1u32..20), 1..6), pages in 1u64..200,
        ) {
            let (room, weights): (Vec<u64>, Vec<u32>) = places.into_iter().unzip();
            let fits = pages >= room.len() as u64 && pages <= room.iter().sum();
            let shared = in_proportion(&room, &weights, pages);
            prop_assert_eq!(shared.is_some(), fits);
            if let Some((shares, _)) = shared {
                prop_assert_eq!(shares.iter().sum::<u64>(), pages);
                prop_assert!(shares.iter().zip(&room).all(|(share, room)| 1 <= *share && share <= room));
            }
        }
    }
}

//! Metrics without noise, such as bytes on disk or exits that a fixed loop
//! makes: one look is enough, and a mean would only blur it.

/// What two configurations say in a metric that should not vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exact {
    /// Every value of both is the same.
    Same,
    /// Each says the same each time, but not what the other says.
    Differs {
        /// A's value.
        a: f64,
        /// B's value.
        b: f64,
    },
    /// One of them says different things: the metric is not exact, and belongs
    /// to the engines. With its first two different values.
    Varies {
        /// The value that came first.
        first: f64,
        /// The one that differs from it.
        then: f64,
    },
}

/// Compares all values of A with all of B. None if one of them has no value.
#[must_use]
pub fn exact(a: &[f64], b: &[f64]) -> Option<Exact> {
    let (first_a, first_b) = (*a.first()?, *b.first()?);
    let odd = |values: &[f64], first: f64| {
        let then = values.iter().copied().find(|value| value.to_bits() != first.to_bits())?;
        Some(Exact::Varies { first, then })
    };
    let same = first_a.to_bits() == first_b.to_bits();
    let verdict = if same { Exact::Same } else { Exact::Differs { a: first_a, b: first_b } };
    Some(odd(a, first_a).or_else(|| odd(b, first_b)).unwrap_or(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_means_to_the_last_bit() {
        assert_eq!(exact(&[4096.0, 4096.0], &[4096.0]), Some(Exact::Same));
        assert_eq!(exact(&[1.0], &[2.0, 2.0]), Some(Exact::Differs { a: 1.0, b: 2.0 }));
        let varies = Some(Exact::Varies { first: 1.0, then: 3.0 });
        assert_eq!(exact(&[1.0], &[1.0, 1.0, 3.0]), varies);
        assert_eq!(exact(&[1.0, 3.0], &[1.0]), varies);
        assert_eq!(exact(&[], &[1.0]), None);
    }
}

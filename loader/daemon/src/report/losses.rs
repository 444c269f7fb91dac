//! Quantiles of the losses that were reported for an epoch.

/// Three quantiles of finite losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossQuantiles {
    pub(super) p10: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
}

/// Losses of one epoch.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<f32>);

impl Losses {
    /// Adds those of a report. A loss that is no finite number has no place among quantiles.
    pub(super) fn add(&mut self, losses: &[Option<f32>]) {
        self.0.extend(losses.iter().flatten().filter(|loss| loss.is_finite()));
    }

    /// The quantiles; `None` without a loss.
    pub(super) fn quantiles(mut self) -> Option<LossQuantiles> {
        self.0.sort_unstable_by(f32::total_cmp);
        let last = self.0.len().checked_sub(1)?;
        let at = |tenths: usize| self.0.get(last * tenths / 10).map(|loss| f64::from(*loss));
        Some(LossQuantiles { p10: at(1)?, p50: at(5)?, p90: at(9)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_losses_of_the_epoch() {
        assert_eq!(Losses::default().quantiles(), None);
        let mut losses = Losses::default();
        losses.add(&[None, Some(f32::NAN)]);
        let tens: Vec<_> = (0..=10u8).rev().map(|loss| Some(f32::from(loss))).collect();
        losses.add(&tens);
        assert_eq!(losses.quantiles(), Some(LossQuantiles { p10: 1.0, p50: 5.0, p90: 9.0 }));
    }
}

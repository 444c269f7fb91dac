//! Mean and confidence interval of a few trainings.

/// Student's t for a two-sided 95 % interval, by degrees of freedom from 1 on.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The mean; 0 without values.
pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

/// Half of the 95 % interval of the mean of independent, normally distributed values; `None` for
/// fewer than two.
pub(super) fn half_width_95(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|&freedom| freedom > 0)?;
    let mean = mean(values.iter().copied());
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    // Beyond the table within 0.1 %.
    let t = T_95.get(freedom - 1).copied().unwrap_or(1.96 + 2.48 / freedom as f64);
    Some(t * (variance / values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        assert_eq!(half_width_95(&[]), None);
        assert_eq!(half_width_95(&[3.0]), None);
        assert_eq!(half_width_95(&[3.0; 4]), Some(0.0));
        // Mean 3, standard deviation 1.5811, 4 degrees of freedom: 2.776 · 1.5811 / √5.
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert!((mean(values.into_iter()) - 3.0).abs() < 1e-12);
        assert!((half_width_95(&values).unwrap() - 1.963).abs() < 0.001);
        // 100 degrees of freedom: t is 1.984.
        let many: Vec<f64> = (0..=100u8).map(|at| f64::from(at % 2)).collect();
        // 50 of 101 are 1, the standard deviation is 0.5025.
        assert!((half_width_95(&many).unwrap() - 1.984 * 0.5025 / 101f64.sqrt()).abs() < 2e-4);
    }
}

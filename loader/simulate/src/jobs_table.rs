//! The result of several jobs as text.

use std::fmt;

use indicatif::HumanCount;
use serde::Serialize;

use crate::jobs::JobsRow;

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct JobsReport {
    /// The accesses, in words.
    pub(super) accesses: String,
    pub(super) samples: u32,
    pub(super) jobs: usize,
    pub(super) epochs: u32,
    /// Number of first epochs that do not count.
    pub(super) skipped_epochs: u32,
    pub(super) seeds: u32,
    pub(super) store: Option<String>,
    pub(super) rows: Vec<JobsRow>,
}

impl fmt::Display for JobsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = HumanCount(u64::from(self.samples));
        let Self { accesses, jobs, epochs, skipped_epochs, seeds, .. } = self;
        writeln!(
            f,
            "{samples} samples; {jobs} jobs, {accesses}; epochs: {epochs}, counted from epoch \
             {skipped_epochs} on; means of {seeds} seeds"
        )?;
        if let Some(store) = &self.store {
            writeln!(f, "SIMULATED store {store}")?;
        }
        writeln!(
            f,
            "\n{:<12}  {:<8}  {:<12}  {:>14}  {:>6}  {:>9}  {:>14}  {:>6}",
            "policy", "cache", "shared", "datasets/epoch", "hit %", "decoded %", "stall %", "Jain"
        )?;
        for row in &self.rows {
            let spread = row.datasets_per_epoch_ci95.map_or_else(String::new, |half| format!(" ±{half:.3}"));
            let datasets = format!("{:.3}{spread}", row.datasets_per_epoch);
            let stalls = row.stall_shares.as_deref().map_or_else(|| "-".to_owned(), range);
            let jain = row.jain.map_or_else(|| "-".to_owned(), |jain| format!("{jain:.3}"));
            let shared = if row.is_shared { "one cache" } else { "a part each" };
            writeln!(
                f,
                "{:<12}  {:<8}  {shared:<12}  {datasets:>14}  {:>6.2}  {:>9.1}  {stalls:>14}  {jain:>6}",
                row.policy,
                row.cache,
                100.0 * row.hit_ratio,
                100.0 * row.decoded_share
            )?;
        }
        Ok(())
    }
}

/// The least and the greatest share, in per cent.
fn range(shares: &[f64]) -> String {
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    format!("{:.1} to {:.1}", 100.0 * least, 100.0 * most)
}

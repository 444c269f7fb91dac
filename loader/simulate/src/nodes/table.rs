//! The result of several nodes as text.

use std::fmt;

use indicatif::{BinaryBytes, HumanCount};
use serde::Serialize;

use crate::nodes::row::NodesRow;

/// The result.
#[derive(Debug, Serialize)]
pub(in super::super) struct NodesReport {
    /// The accesses, in words.
    pub(in super::super) accesses: String,
    pub(in super::super) samples: u32,
    pub(in super::super) nodes: u32,
    pub(in super::super) ranks_per_node: u32,
    /// Parts of the dataset; `None` with a plan for all nodes.
    pub(in super::super) strata: Option<u32>,
    pub(in super::super) epochs: u32,
    /// Number of first epochs that do not count.
    pub(in super::super) skipped_epochs: u32,
    pub(in super::super) seeds: u32,
    pub(in super::super) store: Option<String>,
    /// Size of each node's tier, as given; `None` without one.
    pub(in super::super) tier: Option<String>,
    /// How fast it is; `None` without a store.
    pub(in super::super) tier_store: Option<String>,
    pub(in super::super) compute_s_per_sample: f64,
    pub(in super::super) rows: Vec<NodesRow>,
}

impl fmt::Display for NodesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = HumanCount(u64::from(self.samples));
        let Self { accesses, nodes, ranks_per_node, epochs, skipped_epochs, seeds, .. } = self;
        let strata = self.strata.map_or_else(
            || "one plan for all".to_owned(),
            |strata| format!("{} strata", HumanCount(u64::from(strata))),
        );
        writeln!(
            f,
            "{samples} samples; {nodes} nodes, ranks on each: {ranks_per_node}; {strata}; {accesses}; \
             epochs: {epochs}, counted from epoch {skipped_epochs} on; seeds: {seeds}"
        )?;
        if let Some(store) = &self.store {
            let ms = self.compute_s_per_sample * 1e3;
            writeln!(f, "SIMULATED store {store}; {ms} ms of compute a sample")?;
        }
        if let Some(tier) = &self.tier {
            let speed = self.tier_store.as_ref().map_or_else(String::new, |store| format!(": {store}"));
            writeln!(f, "each node has a tier of {tier}{speed}")?;
        }
        writeln!(
            f,
            "\n{:<12}  {:<8}  {:>13}  {:>7}  {:>7}  {:>14}  {:>10}  {:>13}  {:>12}  {:>10}  {:>12}  {:>10}",
            "policy",
            "cache",
            "hit %",
            "tier %",
            "store %",
            "datasets/epoch",
            "bytes read",
            "stall %",
            "stragglers %",
            "boundary s",
            "efficiency %",
            "loader's %"
        )?;
        for row in &self.rows {
            let bytes =
                row.bytes_read.map_or_else(|| "-".to_owned(), |bytes| BinaryBytes(whole(bytes)).to_string());
            writeln!(
                f,
                "{:<12}  {:<8}  {:>13}  {:>7}  {:>7}  {:>14}  {bytes:>10}  {:>13}  {:>12}  {:>10}  {:>12}  {:>10}",
                row.policy,
                row.cache,
                percent(Some(row.hit_ratio), row.hit_ratio_ci95, 2),
                percent(self.tier.as_ref().map(|_| row.tier_ratio), None, 2),
                percent(Some(row.store_ratio), None, 2),
                spread(row.datasets_per_epoch, row.datasets_per_epoch_ci95, 3),
                percent(row.stall_share, row.stall_share_ci95, 1),
                percent(row.straggle_share, None, 1),
                row.boundary_s.map_or_else(|| "-".to_owned(), |boundary_s| format!("{boundary_s:.3}")),
                percent(row.efficiency, row.efficiency_ci95, 1),
                percent(row.loader_efficiency, row.loader_efficiency_ci95, 1),
            )?;
        }
        self.losses(f)
    }
}

impl NodesReport {
    /// What the loss of nodes did, if any was lost.
    fn losses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = |row: &NodesRow| row.by_epoch.iter().any(|epoch| epoch.strata_moved > 0);
        for row in self.rows.iter().filter(|row| moved(row)) {
            writeln!(f, "\n{} at {}, by epoch: strata moved before it, hit %", row.policy, row.cache)?;
            for epoch in &row.by_epoch {
                writeln!(
                    f,
                    "{:>5}  {:>7}  {:>6.2}",
                    epoch.epoch,
                    epoch.strata_moved,
                    100.0 * epoch.hit_ratio
                )?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

/// A share in per cent, or a dash.
fn percent(share: Option<f64>, half: Option<f64>, digits: usize) -> String {
    let of = |share: f64| spread(100.0 * share, half.map(|half| 100.0 * half), digits);
    share.map_or_else(|| "-".to_owned(), of)
}

fn spread(value: f64, half: Option<f64>, digits: usize) -> String {
    let half = half.map_or_else(String::new, |half| format!(" ±{half:.digits$}"));
    format!("{value:.digits$}{half}")
}

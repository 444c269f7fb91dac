//! The result as text: what was simulated, an aligned table, and what is recommended.

use std::fmt;

use indicatif::{BinaryBytes, HumanCount};

use crate::recommend::Recommendation;
use crate::row::Row;
use crate::run::{Recorded, Report};

/// Between two columns.
const GAP: &str = "  ";
/// Columns whose text begins at the left; numbers end at the right.
const LEFT: usize = 2;

const HEADS: [&str; 11] = [
    "policy",
    "cache",
    "hit %",
    "D/N %",
    "seen %",
    "max repeat",
    "bytes read",
    "evictions",
    "bypasses",
    "stall %",
    "ns/access",
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.about())?;
        if let Some(store) = &self.store {
            let ms = self.compute_s_per_sample.unwrap_or_default() * 1e3;
            writeln!(f, "SIMULATED store {store}; {ms} ms of compute a sample")?;
        }
        if let Some(Recorded { policy, cache_bytes, accesses, hits }) = &self.recorded {
            let percent = 100.0 * *hits as f64 / (*accesses).max(1) as f64;
            let (cache, accesses) = (BinaryBytes(*cache_bytes), HumanCount(*accesses));
            writeln!(f, "recorded: {percent:.2} % of {accesses} hit, with {policy} and a cache of {cache}")?;
        }
        writeln!(f)?;
        let cells: Vec<[String; HEADS.len()]> =
            self.rows.iter().map(|row| cells(row, self.bytes.is_some())).collect();
        write_table(f, &cells)?;
        if let Some(all) = &self.recommend {
            writeln!(f, "\nto remove 90 % of the stall that caching everything would remove")?;
            for found in all {
                writeln!(f, "  {}", self.advice(found))?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn about(&self) -> String {
        let size = self.bytes.map_or_else(String::new, |bytes| format!(", {}", BinaryBytes(bytes)));
        let skipped = match self.skipped_epochs {
            0 => String::new(),
            first => format!(", counted from epoch {first} on"),
        };
        let seeds = if self.seeds == 1 { String::new() } else { format!("; means of {} seeds", self.seeds) };
        let samples = HumanCount(u64::from(self.samples));
        format!("{samples} samples{size}; {}; epochs: {}{skipped}{seeds}", self.accesses, self.epochs)
    }

    fn advice(&self, found: &Recommendation) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let Recommendation { policy, capacity, .. } = found;
        let uncached = percent(found.stall_share_uncached);
        if *capacity == 0 {
            return format!("{policy}: no memory; without a cache training waits {uncached} of its compute");
        }
        format!(
            "{policy}: {} ({} of the data); training then waits {} of its compute; without a cache \
             {uncached}, with everything cached {}",
            amount(*capacity, self.bytes.is_some()),
            percent(found.capacity_share),
            percent(found.stall_share),
            percent(found.stall_share_all_cached)
        )
    }
}

/// A capacity: bytes, or samples where sizes are not known.
fn amount(capacity: u64, sizes_known: bool) -> String {
    if sizes_known { BinaryBytes(capacity).to_string() } else { format!("{} samples", HumanCount(capacity)) }
}

fn cells(row: &Row, sizes_known: bool) -> [String; HEADS.len()] {
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let spread = |half: Option<f64>| half.map_or_else(String::new, |half| format!(" ±{:.2}", 100.0 * half));
    let cache = amount(row.capacity, sizes_known);
    [
        row.policy.clone(),
        if row.cache.ends_with('%') { format!("{} {cache}", row.cache) } else { cache },
        format!("{:.2}{}", 100.0 * row.hit_ratio, spread(row.hit_ratio_ci95)),
        percent(row.distinct_share),
        percent(row.ever_seen_share),
        HumanCount(u64::from(row.repeat_max)).to_string(),
        row.bytes_read.map_or_else(|| "-".to_owned(), |bytes| BinaryBytes(bytes).to_string()),
        HumanCount(row.evictions).to_string(),
        HumanCount(row.bypasses).to_string(),
        match row.stall_share {
            Some(share) => format!("{}{}", percent(share), spread(row.stall_share_ci95)),
            None => "-".to_owned(),
        },
        format!("{:.0}", row.ns_per_access),
    ]
}

fn write_table(f: &mut fmt::Formatter<'_>, rows: &[[String; HEADS.len()]]) -> fmt::Result {
    let heads = HEADS.map(str::to_owned);
    let mut widths = [0; HEADS.len()];
    for row in std::iter::once(&heads).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in std::iter::once(&heads).chain(rows) {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { GAP };
            if column < LEFT { write!(f, "{gap}{cell:<width$}")? } else { write!(f, "{gap}{cell:>width$}")? }
        }
        writeln!(f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            policy: "lru".to_owned(),
            sampler: Some("uniform"),
            order: Some("shuffled"),
            cache: "20%".to_owned(),
            capacity: 1 << 20,
            capacity_share: 0.2,
            accesses: 1000,
            hits: 211,
            misses: 789,
            prefetched: 0,
            exchanged: 0,
            hit_ratio: 0.211,
            hit_ratio_ci95: Some(0.0012),
            evictions: 1234,
            bypasses: 0,
            reads: 789,
            bytes_read: Some(5 << 30),
            bytes_between: 0,
            distinct_share: 0.634,
            ever_seen_share: 1.0,
            repeat_max: 7,
            absorbing_epochs: 0,
            position_entropy: Some(1.0),
            stall_s: Some(1.5),
            stall_share: Some(1.204),
            stall_share_ci95: Some(0.005),
            ns_per_access: 81.4,
        }
    }

    fn report(rows: Vec<Row>, recommend: Option<Vec<Recommendation>>) -> Report {
        Report {
            accesses: "uniform plans".to_owned(),
            samples: 1000,
            bytes: Some(5 << 20),
            epochs: 12,
            skipped_epochs: 4,
            seeds: 5,
            store: Some("latency=2ms".to_owned()),
            compute_s_per_sample: Some(0.001),
            rows,
            recorded: None,
            recommend,
        }
    }

    #[test]
    fn columns_are_aligned_and_in_units_for_people() {
        let other = Row {
            policy: "lookahead".to_owned(),
            cache: "64KiB".to_owned(),
            capacity: 65_536,
            bytes_read: None,
            stall_share: None,
            hit_ratio_ci95: None,
            ..row()
        };
        let text = report(vec![row(), other], None).to_string();
        let expected = "\
1,000 samples, 5.00 MiB; uniform plans; epochs: 12, counted from epoch 4 on; means of 5 seeds
SIMULATED store latency=2ms; 1 ms of compute a sample

policy     cache               hit %  D/N %  seen %  max repeat  bytes read  evictions  bypasses      stall %  ns/access
lru        20% 1.00 MiB  21.10 ±0.12   63.4   100.0           7    5.00 GiB      1,234         0  120.4 ±0.50         81
lookahead  64.00 KiB           21.10   63.4   100.0           7           -      1,234         0            -         81
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn advice_says_what_it_leaves_and_when_there_is_none() {
        let found = Recommendation {
            policy: "app".to_owned(),
            capacity: 3 << 20,
            capacity_share: 0.6,
            stall_share: 0.1,
            stall_share_uncached: 1.0,
            stall_share_all_cached: 0.0,
        };
        let none = Recommendation { capacity: 0, stall_share_uncached: 0.0, ..found.clone() };
        let text = report(Vec::new(), Some(vec![found, none])).to_string();
        let expected = "\
to remove 90 % of the stall that caching everything would remove
  app: 3.00 MiB (60.0 % of the data); training then waits 10.0 % of its compute; without a cache 100.0 %, with \
everything cached 0.0 %
  app: no memory; without a cache training waits 0.0 % of its compute
";
        assert!(text.ends_with(expected), "\n{text}");
    }
}

//! The result as text: what was simulated, aligned tables, and what is recommended.

use std::fmt;

use indicatif::{BinaryBytes, HumanCount};

use crate::recommend::{FewerReads, Recommendation};
use crate::row::Row;
use crate::run::{Recorded, Report};

/// Longest line of a table, and of what stands above it.
const WIDTH_MAX: usize = 100;
/// Between two columns.
const GAP: &str = "  ";

/// What a column says. Where all are too wide for one table, each part stays together.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Which row it is: in every table, from the left. Numbers end at the right.
    Row,
    Reads,
    Waits,
    Scaling,
}

/// A column of the table.
struct Column {
    part: Part,
    head: &'static str,
    /// Which results have it.
    is_in: fn(&Report) -> bool,
    cell: fn(&Report, &Row) -> Option<String>,
}

const fn column(
    part: Part,
    head: &'static str,
    is_in: fn(&Report) -> bool,
    cell: fn(&Report, &Row) -> Option<String>,
) -> Column {
    Column { part, head, is_in, cell }
}

const COLUMNS: &[Column] = &[
    column(Part::Row, "policy", always, |_, row| Some(row.policy.clone())),
    column(Part::Row, "cache", always, |report, row| Some(cache(report, row))),
    column(Part::Row, "shared", of_jobs, |_, row| {
        Some(if row.is_shared? { "one cache" } else { "a part each" }.to_owned())
    }),
    column(Part::Reads, "hit %", always, |_, row| percent(Some(row.hit_ratio), row.hit_ratio_ci95, 2)),
    column(Part::Reads, "tier %", of_nodes, |report, row| {
        percent(report.tier.as_ref().map(|_| row.tier_ratio), None, 2)
    }),
    column(Part::Reads, "store %", of_nodes, |_, row| percent(Some(row.store_ratio), None, 2)),
    column(Part::Reads, "datasets/epoch", of_several, |_, row| {
        Some(spread(row.datasets_per_epoch, row.datasets_per_epoch_ci95, 3, 3))
    }),
    column(Part::Reads, "decoded %", of_jobs, |_, row| percent(Some(row.decoded_share), None, 1)),
    column(Part::Reads, "seen %", of_one, |_, row| percent(row.ever_seen_share, None, 1)),
    column(Part::Reads, "max repeat", of_one, |_, row| {
        Some(HumanCount(u64::from(row.repeat_max)).to_string())
    }),
    column(Part::Reads, "bytes read", always, |_, row| Some(BinaryBytes(row.bytes_read?).to_string())),
    column(Part::Reads, "evictions", of_one, |_, row| Some(HumanCount(row.evictions).to_string())),
    column(Part::Waits, "waits %", always, |_, row| match &row.stall_shares {
        Some(of_jobs) => Some(range(of_jobs)),
        None => waits(row.stall_share, row.stall_share_ci95),
    }),
    column(Part::Waits, "Jain", of_jobs, |_, row| Some(format!("{:.3}", row.jain?))),
    column(Part::Waits, "stragglers %", of_nodes, |_, row| percent(row.straggle_share, None, 1)),
    column(Part::Waits, "boundary s", of_nodes, |_, row| Some(format!("{:.3}", row.boundary_s?))),
    column(Part::Scaling, "efficiency %", of_nodes, |_, row| percent(row.efficiency, row.efficiency_ci95, 1)),
    column(Part::Scaling, "loader's %", of_nodes, |_, row| {
        percent(row.loader_efficiency, row.loader_efficiency_ci95, 1)
    }),
];

/// A column with its text: the head first, then a cell for each row.
struct Filled {
    part: Part,
    lines: Vec<String>,
    width: usize,
}

impl Filled {
    /// `None` if no row has a value.
    fn new(column: &Column, report: &Report) -> Option<Self> {
        let cells: Vec<Option<String>> = report.rows.iter().map(|row| (column.cell)(report, row)).collect();
        cells.iter().any(Option::is_some).then(|| {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            let lines: Vec<String> = std::iter::once(column.head.to_owned()).chain(cells).collect();
            let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            Self { part: column.part, lines, width }
        })
    }
}

/// All columns in one table where they fit, else in several that each say which row it is. A part
/// that fits into one table is in one.
fn tables(columns: &[Filled]) -> Vec<Vec<&Filled>> {
    let fits = |table: &[&Filled], more: &[&Filled]| {
        let width = |column: &&Filled| column.width + GAP.len();
        table.iter().chain(more).map(width).sum::<usize>() <= WIDTH_MAX + GAP.len()
    };
    let all: Vec<&Filled> = columns.iter().collect();
    let parts: Vec<&[&Filled]> = all.chunk_by(|left, right| left.part == right.part).collect();
    let Some((&rows, parts)) = parts.split_first() else {
        return Vec::new();
    };
    let mut tables = vec![rows.to_vec()];
    for &part in parts {
        let is_whole = fits(rows, part);
        for more in if is_whole { vec![part] } else { part.chunks(1).collect() } {
            match tables.last_mut().filter(|table| fits(table, more) || table.len() == rows.len()) {
                Some(table) => table.extend(more),
                None => tables.push([rows, more].concat()),
            }
        }
    }
    tables
}

fn always(_: &Report) -> bool {
    true
}

fn of_jobs(report: &Report) -> bool {
    report.jobs.is_some()
}

fn of_nodes(report: &Report) -> bool {
    report.nodes.is_some()
}

fn of_several(report: &Report) -> bool {
    of_jobs(report) || of_nodes(report)
}

fn of_one(report: &Report) -> bool {
    !of_several(report)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.about())?;
        if let Some(store) = &self.store {
            let ms = self.compute_s_per_sample.unwrap_or_default() * 1e3;
            writeln!(f, "SIMULATED store {store}; {ms} ms of compute a sample")?;
        }
        if let Some(tier) = &self.tier {
            let speed = self.tier_store.as_ref().map_or_else(String::new, |store| format!(": {store}"));
            writeln!(f, "each node has a tier of {tier}{speed}")?;
        }
        if let Some(Recorded { policy, cache_bytes, accesses, hits }) = &self.recorded {
            let percent = 100.0 * *hits as f64 / (*accesses).max(1) as f64;
            let (cache, accesses) = (BinaryBytes(*cache_bytes), HumanCount(*accesses));
            writeln!(f, "recorded: {percent:.2} % of {accesses} hit, with {policy} and a cache of {cache}")?;
        }
        self.write_tables(f)?;
        if let Some(all) = &self.recommend {
            writeln!(f, "\nto remove 90 % of the stall that caching everything would remove")?;
            for found in all {
                writeln!(f, "  {}", self.advice(found))?;
            }
        }
        self.write_fewer_reads(f)?;
        self.write_losses(f)
    }
}

impl Report {
    /// What was simulated, wrapped between two facts.
    fn about(&self) -> String {
        let mut text = String::new();
        let mut column = 0;
        for fact in self.facts() {
            let gap = match column {
                0 => "",
                _ if column + "; ".len() + fact.chars().count() < WIDTH_MAX => "; ",
                _ => ";\n  ",
            };
            column = if gap.ends_with("\n  ") { 2 } else { column + gap.len() };
            column += fact.chars().count();
            text = text + gap + &fact;
        }
        text
    }

    fn facts(&self) -> Vec<String> {
        let size = self.bytes.map_or_else(String::new, |bytes| format!(", {}", BinaryBytes(bytes)));
        let mut facts = vec![format!("{} samples{size}", HumanCount(u64::from(self.samples)))];
        if let (Some(nodes), Some(ranks)) = (self.nodes, self.ranks_per_node) {
            facts.extend([format!("{nodes} nodes, ranks on each: {ranks}"), self.parts()]);
        }
        let jobs = self.jobs.map_or_else(String::new, |jobs| format!("{jobs} jobs, "));
        let skipped = match self.skipped_epochs {
            0 => String::new(),
            first => format!(", counted from epoch {first} on"),
        };
        facts.extend([format!("{jobs}{}", self.accesses), format!("epochs: {}{skipped}", self.epochs)]);
        if self.seeds != 1 {
            facts.push(format!("means of {} seeds", self.seeds));
        }
        facts
    }

    fn parts(&self) -> String {
        let strata = |strata| format!("{} strata", HumanCount(u64::from(strata)));
        self.strata.map_or_else(|| "one plan for all".to_owned(), strata)
    }

    fn advice(&self, found: &Recommendation) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let Recommendation { policy, capacity, .. } = found;
        let uncached = percent(of_time(found.stall_share_uncached));
        if *capacity == 0 {
            return format!("{policy}: no memory; without a cache training waits {uncached} of the time");
        }
        format!(
            "{policy}: {} ({} of the data); training then waits {} of the time\n    \
             (without a cache {uncached}, with everything cached {})",
            amount(*capacity, self.bytes.is_some()),
            percent(found.capacity_share),
            percent(of_time(found.stall_share)),
            percent(of_time(found.stall_share_all_cached))
        )
    }

    /// Samplers that read less than permutations.
    fn write_fewer_reads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.fewer_reads.is_empty() {
            writeln!(f, "\nto read less than permutations do; what it costs: docs/which-sampler.md")?;
        }
        for FewerReads { cache, batches, with_losses, without_losses } in &self.fewer_reads {
            let words = |sampler: Option<&str>| match sampler {
                Some("pads") => "pads with draw_ahead".to_owned(),
                sampler => sampler.unwrap_or("none").to_owned(),
            };
            let (with, without, batches) =
                (words(*with_losses), words(*without_losses), HumanCount(*batches));
            writeln!(f, "  {cache}, {batches} batches: {with}; {without} if no losses are reported")?;
        }
        Ok(())
    }

    /// Each table after an empty line.
    fn write_tables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = COLUMNS.iter().filter(|column| (column.is_in)(self));
        let columns: Vec<Filled> = columns.filter_map(|column| Filled::new(column, self)).collect();
        for table in tables(&columns) {
            for line in 0..=self.rows.len() {
                writeln!(f)?;
                for (nth, Filled { part, lines, width }) in table.iter().enumerate() {
                    let gap = if nth == 0 { "" } else { GAP };
                    match part {
                        Part::Row => write!(f, "{gap}{:<width$}", lines[line])?,
                        Part::Reads | Part::Waits | Part::Scaling => {
                            write!(f, "{gap}{:>width$}", lines[line])?
                        }
                    }
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// What the loss of nodes did, if any was lost.
    fn write_losses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = |row: &Row| row.by_epoch.iter().any(|epoch| epoch.strata_moved > 0);
        for row in self.rows.iter().filter(|row| moved(row)) {
            writeln!(f, "\n{} at {}, by epoch: strata moved before it, hit %", row.policy, row.cache)?;
            for epoch in &row.by_epoch {
                let hits = 100.0 * epoch.hit_ratio;
                writeln!(f, "{:>5}  {:>7}  {hits:>6.2}", epoch.epoch, epoch.strata_moved)?;
            }
        }
        Ok(())
    }
}

/// A capacity: bytes, or samples where sizes are not known.
fn amount(capacity: u64, sizes_known: bool) -> String {
    if sizes_known { BinaryBytes(capacity).to_string() } else { format!("{} samples", HumanCount(capacity)) }
}

fn cache(report: &Report, row: &Row) -> String {
    let cache = amount(row.capacity, report.bytes.is_some());
    if row.cache.ends_with('%') { format!("{} {cache}", row.cache) } else { cache }
}

/// A share in per cent. Half of its interval has two digits.
fn percent(share: Option<f64>, half: Option<f64>, digits: usize) -> Option<String> {
    Some(spread(100.0 * share?, half.map(|half| 100.0 * half), digits, 2))
}

fn spread(value: f64, half: Option<f64>, digits: usize, half_digits: usize) -> String {
    let half = half.map_or_else(String::new, |half| format!(" ±{half:.half_digits$}"));
    format!("{value:.digits$}{half}")
}

/// A stall, which is a share of compute, as a share of the time.
fn of_time(stall: f64) -> f64 {
    stall / (1.0 + stall)
}

/// A stall as a share of the time in per cent. Half of its interval is that of the stall, times the
/// slope of [`of_time`].
fn waits(stall: Option<f64>, half: Option<f64>) -> Option<String> {
    let stall = stall?;
    percent(Some(of_time(stall)), half.map(|half| half / (1.0 + stall).powi(2)), 1)
}

/// The least and the greatest of several stalls, as shares of the time in per cent.
fn range(stalls: &[f64]) -> String {
    let least = stalls.iter().copied().fold(f64::INFINITY, f64::min);
    let most = stalls.iter().copied().fold(0.0, f64::max);
    format!("{:.1} to {:.1}", 100.0 * of_time(least), 100.0 * of_time(most))
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;

    fn row() -> Row {
        Row {
            policy: "lru".to_owned(),
            cache: "20%".to_owned(),
            capacity: 1 << 20,
            capacity_share: 0.2,
            accesses: 1000,
            hits: 211,
            misses: 789,
            hit_ratio: 0.211,
            hit_ratio_ci95: Some(0.0012),
            evictions: 1234,
            reads: 789,
            bytes_read: Some(5 << 30),
            distinct_share: 0.634,
            ever_seen_share: Some(1.0),
            repeat_max: 7,
            stall_share: Some(1.204),
            stall_share_ci95: Some(0.005),
            ns_per_access: 81.4,
            ..Row::default()
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
            recommend,
            ..Report::default()
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

policy     cache               hit %  seen %  max repeat  bytes read  evictions     waits %
lru        20% 1.00 MiB  21.10 ±0.12   100.0           7    5.00 GiB      1,234  54.6 ±0.10
lookahead  64.00 KiB           21.10   100.0           7           -      1,234           -
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn what_is_too_wide_for_one_table_has_several() {
        let wide = Row {
            is_shared: Some(true),
            datasets_per_epoch: 1.306,
            datasets_per_epoch_ci95: Some(0.02),
            store_ratio: 0.789,
            decoded_share: 1.0,
            stall_shares: Some(vec![0.01, 0.02]),
            jain: Some(0.9),
            straggle_share: Some(0.0),
            boundary_s: Some(0.029),
            efficiency: Some(0.997),
            loader_efficiency: Some(0.998),
            ..row()
        };
        let apart = Row { is_shared: Some(false), jain: None, ..wide.clone() };
        let report = Report {
            nodes: Some(2),
            ranks_per_node: Some(1),
            strata: Some(6),
            jobs: Some(2),
            ..report(vec![wide, apart], None)
        };
        let text = report.to_string();
        let expected = "\
1,000 samples, 5.00 MiB; 2 nodes, ranks on each: 1; 6 strata; 2 jobs, uniform plans;
  epochs: 12, counted from epoch 4 on; means of 5 seeds
SIMULATED store latency=2ms; 1 ms of compute a sample

policy  cache         shared             hit %  store %  datasets/epoch  decoded %  bytes read
lru     20% 1.00 MiB  one cache    21.10 ±0.12    78.90    1.306 ±0.020      100.0    5.00 GiB
lru     20% 1.00 MiB  a part each  21.10 ±0.12    78.90    1.306 ±0.020      100.0    5.00 GiB

policy  cache         shared          waits %   Jain  stragglers %  boundary s
lru     20% 1.00 MiB  one cache    1.0 to 2.0  0.900           0.0       0.029
lru     20% 1.00 MiB  a part each  1.0 to 2.0      -           0.0       0.029

policy  cache         shared       efficiency %  loader's %
lru     20% 1.00 MiB  one cache            99.7        99.8
lru     20% 1.00 MiB  a part each          99.7        99.8
";
        assert_eq!(text, expected, "\n{text}");
    }

    proptest! {
        /// Widths of the columns of each part.
        #[test]
        fn every_column_is_in_one_table_beside_its_rows_names(
            rows in collection::vec(1..20_usize, 1..4),
            others in collection::vec(collection::vec(1..30_usize, 0..9), 3),
        ) {
            let parts = [Part::Reads, Part::Waits, Part::Scaling].into_iter().zip(others);
            let columns: Vec<Filled> = std::iter::once((Part::Row, rows))
                .chain(parts)
                .flat_map(|(part, widths)| widths.into_iter().map(move |width| (part, width)))
                .enumerate()
                .map(|(nth, (part, width))| Filled { part, lines: vec![nth.to_string()], width })
                .collect();
            let width = |of: &[&Filled]| of.iter().map(|column| column.width + GAP.len()).sum::<usize>();
            let (rows, others): (Vec<&Filled>, Vec<&Filled>) =
                columns.iter().partition(|column| column.part == Part::Row);
            let names = |of: &[&Filled]| of.iter().map(|column| column.lines[0].clone()).collect::<Vec<_>>();
            let tables = tables(&columns);
            let mut found = Vec::new();
            for table in &tables {
                prop_assert_eq!(names(&table[..rows.len()]), names(&rows));
                prop_assert!(width(table) <= WIDTH_MAX + GAP.len());
                found.extend(names(&table[rows.len()..]));
            }
            prop_assert_eq!(found, names(&others));
            for part in others.chunk_by(|left, right| left.part == right.part) {
                let has_some = |table: &&Vec<&Filled>| table.iter().any(|column| column.part == part[0].part);
                let is_narrow = width(&rows) + width(part) <= WIDTH_MAX + GAP.len();
                prop_assert!(!is_narrow || tables.iter().filter(has_some).count() == 1);
            }
        }
    }

    #[test]
    fn a_sampler_that_reads_less_is_named_for_each_cache() {
        let of = |batches, with_losses, without_losses| FewerReads {
            cache: "20%".to_owned(),
            batches,
            with_losses,
            without_losses,
        };
        let fewer_reads = vec![of(1562, Some("pads"), Some("echo")), of(39, None, None)];
        let text = Report { fewer_reads, ..report(Vec::new(), Some(Vec::new())) }.to_string();
        let expected = "
to read less than permutations do; what it costs: docs/which-sampler.md
  20%, 1,562 batches: pads with draw_ahead; echo if no losses are reported
  20%, 39 batches: none; none if no losses are reported
";
        assert!(text.ends_with(expected), "\n{text}");
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
  app: 3.00 MiB (60.0 % of the data); training then waits 9.1 % of the time
    (without a cache 50.0 %, with everything cached 0.0 %)
  app: no memory; without a cache training waits 0.0 % of the time
";
        assert!(text.ends_with(expected), "\n{text}");
    }
}

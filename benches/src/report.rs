//! All rows of a run, with when and where it ran, as a table and as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::figure::Figure;
use crate::machine::{Machine, cores, first_line_of, load};

/// A run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    date: String,
    machine: Machine,
    versions: Versions,
    load_before: f64,
    load_after: f64,
    /// Whether more processes wanted to run than there are cores before it began: the run is void.
    busy: bool,
    pub(crate) rows: Vec<Figure>,
}

/// Versions of shade and its rival.
#[derive(Debug, Serialize)]
struct Versions {
    shade: &'static str,
    git: Option<String>,
    tar: Option<String>,
}

impl Report {
    pub(crate) fn start() -> Self {
        let load_before = load();
        Self {
            date: first_line_of("date", &["-u", "+%FT%TZ"]).unwrap_or_default(),
            machine: Machine::here(),
            versions: Versions {
                shade: env!("CARGO_PKG_VERSION"),
                git: first_line_of("git", &["describe", "--always", "--dirty"]),
                tar: first_line_of("tar", &["--version"]),
            },
            load_before,
            load_after: f64::NAN,
            busy: load_before > cores() as f64,
            rows: Vec::new(),
        }
    }

    pub(crate) fn finish(&mut self) {
        self.load_after = load();
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(crate) fn busy_text(&self) -> String {
        format!(
            "the machine was busy before this run (load {:.1}, {} cores): its figures are void, but for \
             rough comparisons within it",
            self.load_before,
            cores()
        )
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}  {}\n", self.date, self.machine);
        if self.busy {
            text += &format!("WARNING: {}\n", self.busy_text());
        }
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:width$}  {:>11}  ({} .. {}) {:9}  {:>10}  {}",
                row.name,
                number(row.median),
                number(row.min),
                number(row.max),
                row.unit.as_str(),
                row.mb_per_s.map_or_else(String::new, |rate| format!("{} MB/s", number(rate))),
                comparison(row),
            );
        }
        text
    }
}

fn comparison(row: &Figure) -> String {
    let verdict = row.budget.map(|budget| {
        let verdict = if row.median <= budget { "within" } else { "OVER" };
        format!("{verdict} budget {}", number(budget))
    });
    let rival = row.rival.as_ref().zip(row.ratio).map(|(rival, ratio)| format!("{ratio:.2} x {rival}"));
    verdict.into_iter().chain(rival).collect::<Vec<_>>().join(", ")
}

/// Three significant digits for small numbers, whole ones with separators for large.
fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .map(|group| std::str::from_utf8(group).unwrap_or_default())
                .collect();
            groups.join(",")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.234, 12.34, 123.4, 1_234_567.8].map(number), ["1.23", "12.3", "123", "1,234,568"]);
    }
}

//! Daemons are killed with SIGKILL under every kind of training, at any moment, again and again. No
//! loop sees an exception, every row is that of an undisturbed run, and nothing is left behind.
//!
//! `SHADE_KILLS=1000` kills more than `make test`, `SHADE_SEED` at other moments, `SHADE_ROW`
//! only in the trainings whose names have this in them. What was seen is printed as a table:
//! `make kills` shows it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what was seen is told")]

mod killer;
mod ledger;
mod left;
mod play;
mod rows;
mod stores;

use std::time::Duration;

use crate::killer::{Habits, Killer, Seen};
use crate::ledger::{Compared, Ledger, compare, stalls};
use crate::left::{left, look};
use crate::play::{Loop, Played, play};
use crate::rows::{ROWS, Row, Training};

/// Kills of each training in `make test`.
const KILLS: usize = 5;

/// What was seen of a training.
struct Outcome {
    name: &'static str,
    wanted: usize,
    kills: usize,
    successors: u32,
    compared: Compared,
    stalls: Vec<Duration>,
    starts: Vec<Duration>,
    exceptions: Vec<String>,
    left: Vec<String>,
}

impl Outcome {
    fn tell(&self) {
        let ms = |times: &[Duration], share: usize| {
            let at = times.get(times.len().saturating_sub(1) * share / 100);
            at.map_or_else(|| "-".to_owned(), |time| format!("{:.0}", time.as_secs_f64() * 1e3))
        };
        let Self { name, kills, successors, compared: Compared { rows, wrong }, stalls, starts, .. } = self;
        println!(
            "| {name} | {kills} | {successors} | {rows} | {wrong} | {} | {} | {} | {} | {} | {} |",
            ms(stalls, 50),
            ms(stalls, 99),
            ms(stalls, 100),
            ms(starts, 50),
            self.exceptions.len(),
            self.left.len()
        );
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.exceptions.clone();
        faults.extend(self.left.iter().map(|left| format!("left behind: {left}")));
        if self.compared.wrong > 0 {
            faults.push(format!("{} rows are wrong", self.compared.wrong));
        }
        if self.kills < self.wanted || self.stalls.is_empty() {
            faults.push(format!("{} of {} kills, {} stalls", self.kills, self.wanted, self.stalls.len()));
        }
        faults.into_iter().map(|fault| format!("{}: {fault}", self.name)).collect()
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Plays a training under kills, and again undisturbed for as many epochs.
fn outcome(row: &Row, kills: usize) -> Option<Outcome> {
    let Training { loops, places, all_at_once, store, root, .. } = &mut (row.training)()?;
    let words: Vec<String> = places.iter().map(|place| place.word.clone()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let around = || look(root, &words);
    let before = around();
    let has_reports = loops.iter().flat_map(|of| &of.ranks).any(|rank| rank.reports);
    let seed = number("SHADE_SEED", 1) as u64;
    let habits = Habits { seed, kills, has_reports, all_at_once: *all_at_once };
    let killer = Killer::new(places.clone(), seen(loops), habits, store.take());
    let played = play(loops, &killer, None);
    let left = left(&before, around);
    let calm = Habits { seed, kills: 0, has_reports, all_at_once: false };
    let calm = Killer::new(places.clone(), seen(loops), calm, None);
    let calm = play(loops, &calm, Some(&played.last));
    let Played { ledgers, mut exceptions, successors, .. } = played;
    exceptions.extend(calm.exceptions.iter().map(|error| format!("undisturbed: {error}")));
    let mut compared = Compared::default();
    let mut times = Vec::new();
    for (of, expected) in ledgers.iter().zip(&calm.ledgers) {
        for (ledger, expected) in of.iter().zip(expected) {
            let Compared { rows, wrong } = compare(ledger, expected);
            compared.rows += rows;
            compared.wrong += wrong;
        }
        times.extend(stalls(&of.iter().collect::<Vec<&Ledger>>()));
    }
    times.sort_unstable();
    let mut starts = [played.starts, calm.starts].concat();
    starts.sort_unstable();
    let (name, kills, wanted) = (row.name, killer.kills(), kills);
    Some(Outcome { name, wanted, kills, successors, compared, stalls: times, starts, exceptions, left })
}

fn seen(loops: &[Loop]) -> Vec<Seen> {
    let ranks = loops.iter().flat_map(|of| &of.ranks);
    ranks.map(|rank| Seen { place: rank.place, ..Seen::default() }).collect()
}

#[test]
fn every_row_is_that_of_an_undisturbed_run() {
    let only = std::env::var("SHADE_ROW").unwrap_or_default();
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name.contains(&only)).collect();
    let kills = number("SHADE_KILLS", KILLS * rows.len()).div_ceil(rows.len());
    println!(
        "| training | kills | successors | rows | wrong | stall, median ms | 99 % | worst | first batch of a start, \
         ms | exceptions | left behind |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut faults = Vec::new();
    for row in rows {
        let Some(outcome) = outcome(row, kills) else { continue };
        outcome.tell();
        faults.extend(outcome.faults());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

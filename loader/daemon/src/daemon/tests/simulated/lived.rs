//! What came of a life, and of many.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use shade_core::SessionId;

/// See the [module](self).
#[derive(Debug, Default, PartialEq)]
pub(super) struct Lived {
    pub(super) lives: u64,
    /// Events and actions that daemons lived through, and acts around them.
    pub(super) actions: u64,
    /// Daemons that were killed.
    pub(super) deaths: u64,
    /// Those that were killed before they had delivered anything.
    pub(super) fruitless: u64,
    /// Ranks that went over to a successor.
    pub(super) successions: u64,
    /// Trainings that no successor could serve, and that came again.
    pub(super) restarts: u64,
    /// Batches that were taken.
    pub(super) batches: u64,
    /// Epochs that were trained.
    pub(super) epochs: u64,
    /// Trainings that went on from a state in mid-epoch.
    pub(super) resumed: u64,
    /// Deaths by what the daemon was about to do.
    pub(super) before: BTreeMap<&'static str, u64>,
    /// Deaths by what was under way. One death may have several.
    pub(super) amid: BTreeMap<&'static str, u64>,
    /// When which session was given which descriptor.
    pub(super) taken: Vec<(u64, SessionId, u64)>,
}

impl Lived {
    /// Adds a life.
    pub(super) fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.actions += other.actions;
        self.deaths += other.deaths;
        self.fruitless += other.fruitless;
        self.successions += other.successions;
        self.restarts += other.restarts;
        self.batches += other.batches;
        self.epochs += other.epochs;
        self.resumed += other.resumed;
        for (what, count) in other.before {
            *self.before.entry(what).or_default() += count;
        }
        for (what, count) in other.amid {
            *self.amid.entry(what).or_default() += count;
        }
    }

    /// In words, with its paces.
    pub(super) fn told(&self, time: Duration) -> String {
        let pace = |count: u64| count as f64 / time.as_secs_f64().max(1e-9);
        format!(
            "{self}\nin {:.1} s: {:.0} actions, {:.0} deaths and {:.1} lives a second",
            time.as_secs_f64(),
            pace(self.actions),
            pace(self.deaths),
            pace(self.lives),
        )
    }
}

impl fmt::Display for Lived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} lives: {} daemons were killed, {} of them before they had delivered anything; ranks went over to a \
             successor {} times, {} trainings came again, {} of them in mid-epoch; {} epochs, {} batches, {} actions",
            self.lives,
            self.deaths,
            self.fruitless,
            self.successions,
            self.restarts,
            self.resumed,
            self.epochs,
            self.batches,
            self.actions,
        )?;
        let list = |counts: &BTreeMap<&'static str, u64>| {
            let texts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
            texts.join(", ")
        };
        writeln!(f, "killed amid: {}", list(&self.amid))?;
        write!(f, "killed before it would: {}", list(&self.before))
    }
}

//! The shares of a wait by cause, what a wait means, and what to do about it: the one table of it.

use serde::Serialize;

use crate::ask::target_of;

/// Shares of the time that a trainer waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shares {
    /// For records that are being read, or wait to be.
    pub(crate) storage: f64,
    /// For workers, which copy or decode.
    pub(crate) workers: f64,
    /// For the plan, or for batches to be opened.
    pub(crate) plan: f64,
    /// For other ranks.
    pub(crate) ranks: f64,
}

impl Shares {
    pub(crate) fn all(&self) -> f64 {
        self.storage + self.workers + self.plan + self.ranks
    }

    /// Adds `part` of another one's.
    pub(crate) fn add(&mut self, part: f64, other: &Self) {
        self.storage += part * other.storage;
        self.workers += part * other.workers;
        self.plan += part * other.plan;
        self.ranks += part * other.ranks;
    }

    /// Each with its name, the largest first.
    pub(crate) fn named(&self) -> [(&'static str, f64); 4] {
        let mut named = self.in_order();
        named.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        named
    }

    /// Each with its name, always in this order.
    pub(crate) fn in_order(&self) -> [(&'static str, f64); 4] {
        let Self { storage, workers, plan, ranks } = *self;
        [("storage", storage), ("workers", workers), ("plan", plan), ("ranks", ranks)]
    }
}

/// A trainer that waits less than this has nothing to gain.
pub(crate) const WAITS_MIN: f64 = 0.02;
/// A wait beyond this is worth a remedy today.
pub(crate) const WAITS_MUCH: f64 = 0.1;
/// Workers that work for more of their time are the bound; else they wait for something, too.
const BUSY_MIN: f64 = 0.7;
/// A cache with less room than this is full.
const FULL_MIN: f64 = 0.9;

/// What a remedy depends on, beside the waits.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Share of the time in which the rings were full.
    pub(crate) ring_full: f64,
    /// Share of the workers' time in which they worked; `None`: not known.
    pub(crate) workers_busy: Option<f64>,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_used_bytes: u64,
    pub(crate) reads_late: u32,
    pub(crate) store_trouble: Option<String>,
}

/// The largest cause of a wait, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Remedy {
    /// `storage`, `workers`, `plan` or `ranks`; `None` while trainers hardly wait.
    pub(crate) cause: Option<&'static str>,
    /// What the store says, where the cause is `storage` and it has trouble.
    pub(crate) reason: Option<String>,
    /// For people.
    pub(crate) text: &'static str,
}

/// The commands of remedies, as the texts have them.
const RESIZE: &str = "shade-load resize";
const RECOMMEND: &str = "shade-load simulate --recommend";
const DOCTOR: &str = "shade-load doctor";

/// Unit of sizes in commands.
const MIB: u64 = 1 << 20;

/// A daemon, for the commands of a remedy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// How a command line names it.
    pub(crate) target: String,
    /// Its dataset, as a shell takes it.
    pub(crate) dataset: String,
    pub(crate) cache_bytes: u64,
}

impl Place {
    /// The daemon of this dataset at this address; "" for the address that the dataset has.
    pub(crate) fn of(address: &str, dataset: &str, cache_bytes: u64) -> Self {
        Self { target: target_of(address, dataset), dataset: target_of("", dataset), cache_bytes }
    }
}

impl Remedy {
    /// The text with whole commands for this daemon, to be pasted. A larger cache is twice as
    /// large.
    pub(crate) fn text_for(&self, place: &Place) -> String {
        let Place { target, dataset, cache_bytes } = place;
        let twice_mib = cache_bytes.saturating_mul(2).div_ceil(MIB).max(1);
        self.text
            .replace(RESIZE, &format!("{RESIZE} {twice_mib}MiB {target}"))
            .replace(RECOMMEND, &format!("shade-load simulate {dataset} --recommend"))
            .replace(DOCTOR, &format!("{DOCTOR} {dataset}"))
    }
}

/// The remedy for a job's waits.
pub(crate) fn remedy(waits: &Shares, facts: &Facts) -> Remedy {
    if waits.all() < WAITS_MIN {
        let text = if facts.ring_full > WAITS_MIN {
            "batches are ready before they are wanted: the training itself takes the time"
        } else {
            "batches come in time"
        };
        return Remedy { cause: None, reason: None, text };
    }
    let [(cause, _), ..] = waits.named();
    let is_full = facts.cache_used_bytes as f64 >= FULL_MIN * facts.cache_bytes as f64;
    let reason = facts.store_trouble.clone().filter(|_| cause == "storage");
    let text = match cause {
        "storage" if reason.is_some() => {
            "the store refuses requests, which are tried again: see the daemon's log, and shade-load doctor; fewer of \
             them: a larger cache (shade-load resize)"
        }
        "storage" if facts.reads_late > 0 => {
            "the store does not answer some reads: see the daemon's log, and shade-load doctor"
        }
        "storage" if !is_full => {
            "the cache is still filling: epochs get faster until it is full; shade-load doctor says what the store gives"
        }
        "storage" => {
            "a larger cache: shade-load resize (shade-load simulate --recommend says how large is enough), or a faster \
             store: shade-load doctor"
        }
        "workers" if facts.workers_busy.is_none_or(|busy| busy >= BUSY_MIN) => {
            "decoding: more cores or --workers, smaller images (shade-pack create --max-side), decode in a group of jobs"
        }
        "workers" => {
            "workers are not busy all the time: other programs take the cores, or batches wait for single slow rows"
        }
        "plan" => {
            "the daemon's main thread: larger batches; other programs take its core, or an epoch is being drawn"
        }
        _ => {
            "ranks that have not begun the epoch: one that validates or saves while the others wait, or one that is gone"
        }
    };
    Remedy { cause: Some(cause), reason, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(cache_used_bytes: u64, reads_late: u32, busy: f64) -> Facts {
        let workers_busy = Some(busy);
        Facts {
            ring_full: 0.0,
            workers_busy,
            cache_bytes: 100,
            cache_used_bytes,
            reads_late,
            store_trouble: None,
        }
    }

    #[test]
    fn each_cause_has_its_remedy() {
        let waits = |storage, workers, plan, ranks| Shares { storage, workers, plan, ranks };
        let cases = [
            (waits(0.005, 0.005, 0.0, 0.0), facts(100, 0, 1.0), None, "in time"),
            (waits(0.3, 0.1, 0.0, 0.0), facts(100, 0, 1.0), Some("storage"), "larger cache"),
            (waits(0.3, 0.1, 0.0, 0.0), facts(50, 0, 1.0), Some("storage"), "still filling"),
            (waits(0.3, 0.1, 0.0, 0.0), facts(100, 2, 1.0), Some("storage"), "does not answer"),
            (waits(0.1, 0.3, 0.0, 0.0), facts(100, 0, 0.9), Some("workers"), "more cores"),
            (waits(0.1, 0.3, 0.0, 0.0), facts(100, 0, 0.2), Some("workers"), "not busy"),
            (waits(0.0, 0.0, 0.3, 0.1), facts(100, 0, 0.2), Some("plan"), "main thread"),
            (waits(0.0, 0.0, 0.1, 0.3), facts(100, 0, 0.2), Some("ranks"), "have not begun"),
        ];
        for (waits, facts, cause, text) in cases {
            let remedy = remedy(&waits, &facts);
            assert!(remedy.cause == cause && remedy.text.contains(text), "{waits:?}: {remedy:?}");
        }
        let trouble = Some("503: asks for a slower pace".to_owned());
        for (waits, told) in [(waits(0.3, 0.1, 0.0, 0.0), &trouble), (waits(0.1, 0.3, 0.0, 0.0), &None)] {
            let facts = Facts { store_trouble: trouble.clone(), ..facts(100, 2, 1.0) };
            let remedy = remedy(&waits, &facts);
            assert_eq!(remedy.reason, *told, "the store is the cause or is not");
            assert_eq!(remedy.text.contains("refuses requests"), told.is_some(), "{remedy:?}");
        }
        let idle = remedy(&Shares::default(), &Facts { ring_full: 0.5, ..facts(100, 0, 0.0) });
        assert!(idle.cause.is_none() && idle.text.contains("training itself"));
        let full = remedy(&waits(0.3, 0.1, 0.0, 0.0), &facts(100, 0, 1.0));
        let text = full.text_for(&Place::of("/run/a.sock", "/d/my photos", 3 * MIB / 2));
        for command in [
            "shade-load resize 3MiB --socket /run/a.sock (",
            "shade-load simulate '/d/my photos' --recommend ",
            "shade-load doctor '/d/my photos'",
        ] {
            assert!(text.contains(command), "{text}");
        }
        let unknown = Facts { workers_busy: None, ..facts(100, 0, 0.0) };
        assert!(remedy(&waits(0.1, 0.3, 0.0, 0.0), &unknown).text.contains("more cores"));
    }
}

//! The shares of a wait by cause, what a wait means, and what to do about it: the one table of it.

use serde::Serialize;
use shade_core::JobStatus;
use shade_core::plan::{FewerReads, fewer_reads};
use shade_job::{Order, PlanSpec, Sampler};

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
        let socket = if target == dataset { String::new() } else { format!(" {target}") };
        self.text
            .replace(RESIZE, &format!("{RESIZE} {twice_mib}MiB {target}"))
            .replace(RECOMMEND, &format!("shade-load simulate {dataset} --recommend{socket}"))
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

/// A sampler that reads less than the job's, which takes each sample once an epoch: for a training
/// on one node that waits much for its store while the cache, which has this share of the data, is
/// full, from the second epoch on. `None` if that does not help, or is not known to.
pub(crate) fn advice(job: &JobStatus, cache_share: f64, waits: &Shares, facts: &Facts) -> Option<String> {
    // The shares below are of a whole dataset.
    let is_whole = |plan: PlanSpec| plan.parts.is_empty() && plan.subset_digest == 0;
    let is_one = job.plan.is_none_or(is_whole) && job.group.is_none();
    let is_plain = job.sampler == Sampler::Uniform && job.order == Order::Shuffled && is_one;
    let is_on_one_node = job.ranks_here == job.world_size;
    let is_full = facts.cache_used_bytes as f64 >= FULL_MIN * facts.cache_bytes as f64;
    let is_later = job.epoch.is_some_and(|epoch| epoch > 0);
    let waits_much = waits.storage >= WAITS_MUCH && waits.named().first()?.0 == "storage";
    let has_trouble = facts.reads_late > 0 || facts.store_trouble.is_some();
    if !(job.admit && is_plain && is_on_one_node && is_full && is_later && waits_much) || has_trouble {
        return None;
    }
    let told = |losses: bool| fewer_reads(job.cache_batches, cache_share, losses);
    let plan = |FewerReads { sampler, reads_share }| {
        let plan = match sampler {
            Sampler::Pads => "Plan(sampler=\"pads\", draw_ahead=True), if you report losses,".to_owned(),
            sampler => format!("Plan(sampler=\"{sampler}\")"),
        };
        format!("{plan} would read some {:.0} % of this", 100.0 * reads_share)
    };
    let (with, without) = (told(true), told(false));
    let plans = [with, without.filter(|_| without != with)].into_iter().flatten().map(plan);
    let plans: Vec<_> = plans.collect();
    (!plans.is_empty()).then(|| format!("{}; what it costs: docs/which-sampler.md", plans.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shade_job::{Parts, PlanSpec};

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
    fn a_training_on_permutations_that_waits_for_its_store_is_told_what_reads_less() {
        let waits = |storage| Shares { storage, ..Shares::default() };
        let (ranks_here, world_size, epoch) = (2, 2, Some(1));
        let cache_batches = 60;
        let job =
            JobStatus { admit: true, epoch, ranks_here, world_size, cache_batches, ..JobStatus::default() };
        let told = |job: &JobStatus, share| advice(job, share, &waits(0.3), &facts(95, 0, 0.5));
        let costs = "; what it costs: docs/which-sampler.md";
        let echo = "Plan(sampler=\"echo\") would read some 55 % of this";
        let pads = "Plan(sampler=\"pads\", draw_ahead=True), if you report losses, would read some";
        assert_eq!(told(&job, 0.1).unwrap(), format!("{echo}{costs}"));
        assert_eq!(told(&job, 0.4).unwrap(), format!("{pads} 50 % of this, {echo}{costs}"));
        let parts = Parts::new(&[(9, 1.0), (9, 1.0)]).unwrap();
        let mixture = PlanSpec { parts, ..PlanSpec::default() };
        let small = JobStatus { cache_batches: 59, ..job.clone() };
        assert_eq!(told(&small, 0.1).unwrap(), format!("{pads} 65 % of this{costs}"));
        assert_eq!(told(&small, 0.01), None);
        for other in [
            JobStatus { admit: false, ..job.clone() },
            JobStatus { sampler: Sampler::Echo, ..job.clone() },
            JobStatus { order: Order::Spaced, ..job.clone() },
            JobStatus { plan: Some(mixture), ..job.clone() },
            JobStatus { plan: Some(PlanSpec { subset_digest: 1, ..PlanSpec::default() }), ..job.clone() },
            JobStatus { epoch: Some(0), ..job.clone() },
            JobStatus { ranks_here: 1, ..job.clone() },
        ] {
            assert_eq!(told(&other, 0.1), None, "{other:?}");
        }
        for (storage, facts) in
            [(0.09, facts(95, 0, 0.5)), (0.3, facts(80, 0, 0.5)), (0.3, facts(95, 1, 0.5))]
        {
            assert_eq!(advice(&job, 0.1, &waits(storage), &facts), None, "{facts:?}");
        }
        let decodes = Shares { storage: 0.2, workers: 0.3, ..Shares::default() };
        assert_eq!(advice(&job, 0.1, &decodes, &facts(95, 0, 0.5)), None);
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
            "shade-load simulate '/d/my photos' --recommend --socket /run/a.sock ",
            "shade-load doctor '/d/my photos'",
        ] {
            assert!(text.contains(command), "{text}");
        }
        let unknown = Facts { workers_busy: None, ..facts(100, 0, 0.0) };
        assert!(remedy(&waits(0.1, 0.3, 0.0, 0.0), &unknown).text.contains("more cores"));
    }
}

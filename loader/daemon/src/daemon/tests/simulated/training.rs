//! One training: its ranks, what they were given, and whether that is what was promised.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use rand_chacha::ChaCha8Rng;
use shade_core::Resumed;

use super::dataset::SAMPLES;
use super::job::{Job, Promise};
use super::rank::{Rank, Stage};
use super::rows::Row;
use super::undisturbed::Undisturbed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It will say hello.
    Away,
    /// Its ranks are attached, or about to be.
    Here,
    /// Its ranks leave, one after the other.
    Leaving {
        /// It is through, or cannot go on.
        for_ever: bool,
    },
    Over,
}

/// A batch that a rank is given.
pub(super) struct Given {
    pub(super) rank: u32,
    pub(super) number: u32,
    pub(super) rows: Vec<Row>,
    pub(super) skipped: u32,
}

/// An epoch under way.
#[derive(Default)]
struct Epoch {
    /// What the job is given in a life of its own, if its plan follows from its document.
    plan: Option<Rc<Undisturbed>>,
    /// It is divided into batches anew, for other ranks than it began with.
    is_divided_anew: bool,
    /// What was given before it went on from a state.
    before: Vec<Row>,
    skipped_before: u32,
    given: Vec<Given>,
    /// By rank: the number of batches that it was told at the epoch's end.
    ends: BTreeMap<u32, u32>,
}

/// A saved state, and what the training had of its epoch.
#[derive(Clone)]
pub(super) struct Saved {
    pub(super) bytes: Vec<u8>,
    epoch: u32,
    batch: u32,
    rows: Vec<Row>,
    skipped: u32,
    plan: Option<Rc<Undisturbed>>,
    is_divided_anew: bool,
    world_size: u32,
}

/// See the [module](self).
pub(super) struct Training {
    pub(super) job: Job,
    /// What it is given is compared with an undisturbed life.
    pub(super) is_comparable: bool,
    /// It reports losses.
    pub(super) reports: bool,
    pub(super) state: State,
    /// How often it said hello.
    pub(super) run: u32,
    pub(super) ranks: Vec<Rank>,
    /// It has been told that it does not go on.
    pub(super) is_doomed: bool,
    pub(super) saved: Option<Saved>,
    /// The ranks that have loaded it in this run: all of them, before one of them begins.
    loaded: usize,
    undisturbed: Option<Rc<Undisturbed>>,
    epochs: BTreeMap<u32, Epoch>,
    bad: HashSet<u32>,
}

impl Training {
    pub(super) fn new(job: Job, undisturbed: Option<Undisturbed>, bad: &HashSet<u32>) -> Self {
        Self {
            job,
            is_comparable: undisturbed.is_some(),
            reports: false,
            state: State::Away,
            run: 0,
            ranks: Vec::new(),
            is_doomed: false,
            saved: None,
            loaded: 0,
            undisturbed: undisturbed.map(Rc::new),
            epochs: BTreeMap::new(),
            bad: bad.clone(),
        }
    }

    /// Its ranks come, perhaps others than before. It goes on where it was saved, or begins anew.
    pub(super) fn come(&mut self, random: &mut ChaCha8Rng) {
        (self.state, self.is_doomed) = (State::Here, false);
        self.run += 1;
        self.loaded = 0;
        // Batches of a few rows may be void where records are bad.
        if self.saved.is_some() && self.bad.is_empty() && self.job.may_change_ranks() {
            self.job.change_ranks(random);
            if self.is_comparable {
                self.undisturbed = Undisturbed::of(&self.job, &self.bad).map(Rc::new);
                assert!(self.undisturbed.is_some(), "a job that was served is refused with other ranks");
            }
        }
        self.ranks = self.job.ranks.iter().map(|&number| Rank::new(number)).collect();
        self.epochs.clear();
        if let Some(saved) = &self.saved {
            // A state of an epoch's end has no plan of the next one, for which seats are told.
            let is_drawn = !self.job.has_moving_seats() || !saved.rows.is_empty();
            let epoch = Epoch {
                plan: saved.plan.clone().filter(|_| is_drawn),
                is_divided_anew: saved.is_divided_anew || saved.world_size != self.job.spec.world_size,
                before: saved.rows.clone(),
                skipped_before: saved.skipped,
                ..Epoch::default()
            };
            self.epochs.insert(saved.epoch, epoch);
            if self.job.departs_with_a_state() {
                self.undisturbed = None;
            }
        }
    }

    /// A rank's state is loaded. Returns whether that is so of all of them.
    pub(super) fn load(&mut self, resumed: Resumed) -> bool {
        let saved = self.saved.as_ref().expect("a state that was saved");
        assert_eq!(resumed.epoch, saved.epoch, "it goes on in the epoch that it saved");
        if saved.world_size == self.job.spec.world_size {
            assert_eq!(resumed.first_batch, saved.batch, "it goes on at the batch that it saved");
        }
        self.loaded += 1;
        self.loaded == self.ranks.len()
    }

    /// Whether its state is one of the middle of an epoch.
    pub(super) fn is_saved_within(&self) -> bool {
        self.saved.as_ref().is_some_and(|saved| !saved.rows.is_empty())
    }

    fn epoch(&mut self, epoch: u32) -> &mut Epoch {
        let plan = &self.undisturbed;
        self.epochs.entry(epoch).or_insert_with(|| Epoch { plan: plan.clone(), ..Epoch::default() })
    }

    /// A rank is given a batch, where it expects this one or a later one.
    pub(super) fn give(&mut self, epoch: u32, expected: u32, given: Given) {
        let Given { rank, number, ref rows, .. } = given;
        let name = self.job.name.clone();
        let of_epoch = self.epoch(epoch);
        assert!(number >= expected, "{name}, rank {rank}: batch {number} of epoch {epoch} comes twice");
        if let Some(plan) = of_epoch.plan.as_ref().filter(|_| !of_epoch.is_divided_anew) {
            let (due, rows_due) = plan.next(epoch, rank, expected).unwrap_or((u32::MAX, &[]));
            assert_eq!(number, due, "{name}, rank {rank}: the batch after {expected} of epoch {epoch}");
            assert_eq!(&rows[..], rows_due, "{name}, rank {rank}: rows of batch {number} of epoch {epoch}");
        }
        of_epoch.given.push(given);
    }

    /// A rank is told that its epoch, which has this number of `batches`, ends before its batch
    /// `expected`. Returns whether all ranks were told so.
    pub(super) fn end(&mut self, rank: u32, epoch: u32, expected: u32, batches: u32) -> bool {
        let (name, ranks) = (self.job.name.clone(), self.job.ranks.len());
        let of_epoch = self.epoch(epoch);
        if let Some(plan) = of_epoch.plan.as_ref().filter(|_| !of_epoch.is_divided_anew) {
            let next = plan.next(epoch, rank, expected).map(|(number, _)| number);
            assert_eq!(next, None, "{name}, rank {rank}: epoch {epoch} ends before this batch");
        }
        of_epoch.ends.insert(rank, batches);
        if of_epoch.ends.len() < ranks {
            return false;
        }
        let of_epoch = self.epochs.remove(&epoch).unwrap_or_default();
        self.check_epoch(epoch, &of_epoch);
        true
    }

    /// What came in an epoch is what was promised.
    fn check_epoch(&self, epoch: u32, of_epoch: &Epoch) {
        let name = &self.job.name;
        let batches: HashSet<u32> = of_epoch.ends.values().copied().collect();
        assert_eq!(batches.len(), 1, "{name}: ranks are told of different batches in epoch {epoch}");
        let count = |rank: &u32| of_epoch.given.iter().filter(|given| given.rank == *rank).count();
        let counts: HashSet<usize> = self.job.ranks.iter().map(count).collect();
        assert_eq!(counts.len(), 1, "{name}: ranks have different numbers of batches in epoch {epoch}");
        let (mut rows, skipped) = of_epoch.had(u32::MAX);
        rows.retain(|row| !row.is_padding);
        rows.sort_unstable();
        match (&of_epoch.plan, self.job.promise()) {
            (Some(plan), _) => assert_eq!(rows, plan.rows_of(epoch), "{name}: rows of epoch {epoch}"),
            (None, Promise::EachOnce) => {
                let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
                let mut good = (0..SAMPLES).filter(|id| !self.bad.contains(id)).map(i64::from);
                // Where rows were skipped and others exchanged, nobody knows which were which.
                let missing = good.clone().count().saturating_sub(ids.len());
                let is_once =
                    ids.is_sorted_by(|one, next| one < next) && ids.iter().all(|id| good.any(|of| of == *id));
                assert!(
                    is_once && missing <= self.bad.len(),
                    "{name}: not each sample once in epoch {epoch}"
                );
            }
            (None, Promise::AsMany) => {
                let all = rows.len() + skipped as usize;
                // A batch whose rows are all skipped is not delivered.
                let is_whole = self.bad.is_empty() || all > SAMPLES as usize;
                assert!(!is_whole || all == SAMPLES as usize, "{name}: {all} rows of epoch {epoch}");
            }
            (None, Promise::Batches) => {}
        }
    }

    /// Before which batch a state can be saved in this rank's epoch: all ranks have what is before.
    pub(super) fn next_batch(&self, rank: usize) -> Option<u32> {
        let epoch = self.ranks[rank].place.epoch;
        let is_there = |rank: &Rank| rank.place.stage != Stage::NotStarted && rank.place.epoch >= epoch;
        if !self.ranks.iter().all(is_there) {
            return None;
        }
        let here = self.ranks.iter().filter(|rank| rank.place.epoch == epoch);
        here.map(|rank| rank.place.batch).min()
    }

    /// A state is there, of before this batch.
    pub(super) fn save(&mut self, epoch: u32, batch: u32, bytes: Vec<u8>) {
        let world_size = self.job.spec.world_size;
        let of_epoch = self.epoch(epoch);
        let (rows, skipped) = of_epoch.had(batch);
        let (plan, is_divided_anew) = (of_epoch.plan.clone(), of_epoch.is_divided_anew);
        self.saved = Some(Saved { bytes, epoch, batch, rows, skipped, plan, is_divided_anew, world_size });
    }
}

impl Epoch {
    /// What was given of it before this batch, and the rows that were skipped.
    fn had(&self, next_batch: u32) -> (Vec<Row>, u32) {
        let (mut rows, mut skipped) = (self.before.clone(), self.skipped_before);
        for given in self.given.iter().filter(|given| given.number < next_batch) {
            rows.extend(given.rows.iter().cloned());
            skipped += given.skipped;
        }
        (rows, skipped)
    }
}

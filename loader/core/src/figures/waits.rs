//! How long a rank's trainer has waited, and for what. `attribution` says for what it waits now.

use serde::{Deserialize, Serialize};

/// What a rank's next batch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Records that are being read, or wait to be: from the store, or from the tier.
    Storage,
    /// Workers, which copy or decode the rows.
    Workers,
    /// The core itself: the epoch's plan is drawn, or no batch is opened yet.
    Plan,
    /// Other ranks of the job, or of its group, which do not want the epoch yet.
    Ranks,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Storage, Self::Workers, Self::Plan, Self::Ranks];

    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Workers => "workers",
            Self::Plan => "plan",
            Self::Ranks => "ranks",
        }
    }
}

/// Times of a rank since it attached, ns. Its trainer waited in the first four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Waits {
    /// It waited for [`Cause::Storage`].
    pub storage_ns: u64,
    /// It waited for [`Cause::Workers`].
    pub workers_ns: u64,
    /// It waited for [`Cause::Plan`].
    pub plan_ns: u64,
    /// It waited for [`Cause::Ranks`].
    pub ranks_ns: u64,
    /// The ring was full of finished batches: the daemon waited for the trainer.
    pub ring_full_ns: u64,
}

impl Waits {
    /// The time that the trainer waited for this.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        match cause {
            Cause::Storage => self.storage_ns,
            Cause::Workers => self.workers_ns,
            Cause::Plan => self.plan_ns,
            Cause::Ranks => self.ranks_ns,
        }
    }

    /// All of the time that the trainer waited.
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        Cause::ALL.iter().map(|&cause| self.of(cause)).sum()
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            storage_ns: self.storage_ns.saturating_sub(before.storage_ns),
            workers_ns: self.workers_ns.saturating_sub(before.workers_ns),
            plan_ns: self.plan_ns.saturating_sub(before.plan_ns),
            ranks_ns: self.ranks_ns.saturating_sub(before.ranks_ns),
            ring_full_ns: self.ring_full_ns.saturating_sub(before.ring_full_ns),
        }
    }

    fn add(&mut self, bound: Bound, time_ns: u64) {
        *match bound {
            Bound::Waits(Cause::Storage) => &mut self.storage_ns,
            Bound::Waits(Cause::Workers) => &mut self.workers_ns,
            Bound::Waits(Cause::Plan) => &mut self.plan_ns,
            Bound::Waits(Cause::Ranks) => &mut self.ranks_ns,
            Bound::RingFull => &mut self.ring_full_ns,
        } += time_ns;
    }
}

/// One rank's figures.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RankStatus {
    /// The rank.
    pub rank: u32,
    /// Finished batches that it has not released, those that its trainer uses among them.
    pub in_ring: u32,
    /// Batches that are being filled, or wait for their epoch.
    pub open: u32,
    /// Time since it attached.
    pub attached_ns: u64,
    /// What its trainer waits for now; `None` while it has batches.
    pub waits_for: Option<Cause>,
    /// Times since it attached.
    #[serde(flatten)]
    pub waits: Waits,
}

/// Who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The trainer.
    Waits(Cause),
    /// The daemon, for room in the ring.
    RingFull,
}

/// The clock of a rank's waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitClock {
    attached_ns: u64,
    /// When time was counted last, and for whom it is counted since.
    noted_ns: u64,
    bound: Option<Bound>,
    /// The last descriptor that the trainer is known to have waited for.
    awaited: Option<u64>,
    waits: Waits,
    /// When it began the epoch, and how long it had waited until then.
    begun_ns: u64,
    waits_before: Waits,
    /// When it released the epoch's last batch.
    ended_ns: Option<u64>,
}

impl WaitClock {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            attached_ns: now_ns,
            noted_ns: now_ns,
            bound: None,
            awaited: None,
            waits: Waits::default(),
            begun_ns: now_ns,
            waits_before: Waits::default(),
            ended_ns: None,
        }
    }

    /// The rank begins an epoch, whose first descriptor is this one at the earliest.
    pub(crate) fn begin_epoch(&mut self, now_ns: u64, first: u64) {
        // What it waited until now is no part of it.
        self.note(now_ns, self.bound);
        self.awaited = Some(first);
        self.begun_ns = now_ns;
        self.waits_before = self.waits;
        self.ended_ns = None;
    }

    /// The rank has released all of its epoch.
    pub(crate) fn end_epoch(&mut self, now_ns: u64) {
        self.ended_ns.get_or_insert(now_ns);
    }

    /// The trainer waits for this descriptor.
    pub(crate) fn awaits(&mut self, seq: u64) {
        self.awaited = self.awaited.max(Some(seq));
    }

    /// Whether it waits for a descriptor that is not published: none is from this number on.
    pub(crate) fn is_awaited(&self, first_unpublished: u64) -> bool {
        self.awaited.is_some_and(|seq| seq >= first_unpublished)
    }

    /// Counts the time up to now. That from now on is counted for `bound`.
    pub(crate) fn note(&mut self, now_ns: u64, bound: Option<Bound>) {
        let since_ns = std::mem::replace(&mut self.noted_ns, now_ns);
        if let Some(bound) = std::mem::replace(&mut self.bound, bound) {
            self.waits.add(bound, now_ns.saturating_sub(since_ns));
        }
    }

    /// What it waits for; `None` while it does not.
    pub(crate) fn waits_for(&self) -> Option<Cause> {
        match self.bound {
            Some(Bound::Waits(cause)) => Some(cause),
            Some(Bound::RingFull) | None => None,
        }
    }

    /// Its times since it attached, and how long ago that was, ns.
    pub(crate) fn times(&self) -> (Waits, u64) {
        (self.waits, self.noted_ns.saturating_sub(self.attached_ns))
    }

    /// Its times since it began the epoch, and how long the epoch has taken it, ns.
    pub(crate) fn of_epoch(&self) -> (Waits, u64) {
        let until_ns = self.ended_ns.unwrap_or(self.noted_ns);
        (self.waits.since(&self.waits_before), until_ns.saturating_sub(self.begun_ns))
    }
}

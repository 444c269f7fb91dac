//! The jobs of a life: what a seed makes of the job's document and its tables.

use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use shade_job::{
    Decode, JobSpec, OnError, Order, PlanSpec, Policy, Sampler, Seats, Subset, Tables, Tail, WeightTable,
};

use super::dataset::SAMPLES;

/// A job, as each of its ranks asks for it.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) spec: JobSpec,
    pub(super) tables: Tables,
    /// What the ranks tell of seats.
    pub(super) seats: Option<Vec<u8>>,
    /// The ranks at this daemon.
    pub(super) ranks: Vec<u32>,
    pub(super) epochs: u32,
}

/// What a trainer may count on, whatever its plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// An epoch has each sample that can be read once.
    EachOnce,
    /// An epoch has as many samples as there are.
    AsMany,
    /// Batches come, as long as there is one.
    Batches,
}

impl Job {
    /// Draws a job that trains in a group, unless that is 0, at daemons with this policy.
    pub(super) fn draw(random: &mut ChaCha8Rng, nth: u32, group: u64, policy: Policy) -> Self {
        let sampler = if random.random_bool(0.3) { by_losses(random) } else { by_document(random) };
        let mut plan = PlanSpec {
            sampler,
            group,
            seed: random.random(),
            draw_ahead: random.random(),
            // The undisturbed training has another cache, from which it would follow.
            gap: Some(9),
            ..PlanSpec::default()
        };
        if random.random_bool(0.2) {
            plan.order = *[Order::Spaced, Order::HitsFirst].choose(random).unwrap();
        }
        // Without it, what was delivered decides.
        plan.cover = if sampler == Sampler::Replacement { random.random_range(0..2) } else { 5 };
        plan.replacement = random.random();
        plan.echo = *[1.5, 2.0, 3.0].choose(random).unwrap();
        let spec = JobSpec {
            plan,
            batch_size: *[3, 4, 6].choose(random).unwrap(),
            world_size: *[1, 2, 4].choose(random).unwrap(),
            tail: Tail::Even,
            decode: decode(random),
            on_error: OnError::Skip,
            bad_max: 1.0,
            admit: random.random_bool(0.9),
            ring_bytes: *[0, 1 << 20, 4 << 20].choose(random).unwrap(),
            ..JobSpec::default()
        };
        let ranks = (0..spec.world_size).collect();
        let (name, tables, epochs) = (format!("job{nth}"), Tables::default(), random.random_range(1..=4));
        let mut job = Self { name, spec, tables, seats: None, ranks, epochs };
        if sampler == Sampler::Weighted {
            let weights: Vec<f64> = (0..SAMPLES).map(|_| f64::from(random.random_range(0..4))).collect();
            job.tables.weights = WeightTable::new(weights.iter().copied()).ok();
        }
        if job.is_comparable(policy) {
            job.vary(random);
        }
        job.tables.name_in(&mut job.spec.plan);
        if job.spec.validate().is_err() {
            job.spec.plan.group = 0;
        }
        job
    }

    /// What plans may have besides, where they follow from the document.
    fn vary(&mut self, random: &mut ChaCha8Rng) {
        self.spec.tail = *[Tail::Even, Tail::Even, Tail::Pad, Tail::Drop].choose(random).unwrap();
        if random.random_bool(0.3) {
            self.spec.batch_size = random.random_range(1..=9);
            self.spec.world_size = random.random_range(1..=4);
        }
        match random.random_range(0..4) {
            0 => {
                let mut ids: Vec<u32> = (0..SAMPLES).collect();
                ids.shuffle(random);
                ids.truncate(random.random_range(17..=47));
                self.tables.subset = Subset::new(ids).ok();
            }
            1 if self.spec.plan.drawn_whole().is_none() => self.divide(random),
            _ => {}
        }
        let world_size = self.spec.world_size;
        self.ranks = (0..world_size).collect();
        if world_size > 1 && !self.spec.plan.depends_on_its_node() && random.random_bool(0.2) {
            // The others have a daemon of their own.
            self.ranks.shuffle(random);
            self.ranks.truncate(random.random_range(1..world_size as usize));
            self.ranks.sort_unstable();
            self.spec.ranks_here = u32::try_from(self.ranks.len()).unwrap();
        }
    }

    /// Divides the plan into strata.
    fn divide(&mut self, random: &mut ChaCha8Rng) {
        let strata = *[2, 4, 6, 12].choose(random).unwrap();
        self.spec.plan.strata = strata;
        self.spec.plan.mix = *[0.0, 0.5].choose(random).unwrap();
        if random.random_bool(0.5) {
            let mut order: Vec<u32> = (0..strata).collect();
            order.shuffle(random);
            self.seats = Seats::new(order, SAMPLES).ok().map(|seats| seats.to_bytes());
        }
    }

    /// What its ranks may count on.
    pub(super) fn promise(&self) -> Promise {
        match self.spec.plan.sampler {
            Sampler::Uniform | Sampler::Sequential if self.is_whole() => Promise::EachOnce,
            Sampler::Pads | Sampler::Cis if self.is_whole() => Promise::AsMany,
            _ => Promise::Batches,
        }
    }

    /// Whether all samples are delivered here, without padding.
    fn is_whole(&self) -> bool {
        let JobSpec { plan, tail, ranks_here, .. } = &self.spec;
        *tail == Tail::Even && *ranks_here == 0 && plan.subset_digest == 0
    }

    /// Whether its batches are those of a life in which nothing happens, at daemons with this
    /// policy: nothing of them goes by what is cached.
    pub(super) fn is_comparable(&self, policy: Policy) -> bool {
        let exchanges = self.spec.admit && matches!(policy, Policy::Icache | Policy::Quiver);
        !exchanges && !self.spec.plan.depends_on_residents()
    }

    /// Whether a state leaves open what later epochs have: seats are told anew, and count from the
    /// next plan on; losses that came after the state come once more, but not all at once.
    pub(super) fn departs_with_a_state(&self) -> bool {
        self.has_moving_seats() || self.spec.plan.sampler.is_by_importance()
    }

    /// Whether seats are told, and change from epoch to epoch.
    pub(super) fn has_moving_seats(&self) -> bool {
        self.seats.is_some() && self.spec.plan.mix > 0.0
    }

    /// Whether its epochs may be of any length, and so batches of a single row.
    pub(super) fn is_of_any_length(&self) -> bool {
        matches!(self.spec.plan.sampler, Sampler::Iis | Sampler::Infobatch | Sampler::Seta)
    }

    /// One rank trains it: several must have equally many batches, though all rows of one be bad.
    pub(super) fn train_alone(&mut self) {
        (self.spec.world_size, self.ranks) = (1, vec![0]);
    }

    /// Whether it may go on from a state with other ranks, without any row being left out.
    pub(super) fn may_change_ranks(&self) -> bool {
        let PlanSpec { sampler, strata, .. } = self.spec.plan;
        self.is_whole() && matches!(sampler, Sampler::Uniform | Sampler::Pads) && strata == 1
    }

    /// Other ranks train it.
    pub(super) fn change_ranks(&mut self, random: &mut ChaCha8Rng) {
        self.spec.world_size = *[1, 2, 4].choose(random).unwrap();
        self.ranks = (0..self.spec.world_size).collect();
    }
}

fn by_losses(random: &mut ChaCha8Rng) -> Sampler {
    let samplers =
        [Sampler::Pads, Sampler::Pads, Sampler::Cis, Sampler::Iis, Sampler::Infobatch, Sampler::Seta];
    *samplers.choose(random).unwrap()
}

fn by_document(random: &mut ChaCha8Rng) -> Sampler {
    let samplers = [
        Sampler::Uniform,
        Sampler::Uniform,
        Sampler::Uniform,
        Sampler::Sequential,
        Sampler::Weighted,
        Sampler::Balanced,
        Sampler::Echo,
        Sampler::Replacement,
    ];
    *samplers.choose(random).unwrap()
}

fn decode(random: &mut ChaCha8Rng) -> Decode {
    let of_one_view = || Decode::cover(8, 8);
    match random.random_range(0..4) {
        0 => Decode::Raw,
        1 => Decode::Whole,
        2 => of_one_view(),
        _ => match (of_one_view(), of_one_view()) {
            (Decode::Views(mut views), Decode::Views(others)) => {
                views.extend(others);
                Decode::Views(views)
            }
            (other, _) => other,
        },
    }
}

/// The losses that a trainer finds for a batch: equal ones wherever it is computed.
pub(super) fn losses(ids: impl Iterator<Item = i64>, epoch: u32) -> Vec<f32> {
    let loss = |id: i64| {
        let mixed = (id.unsigned_abs() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ u64::from(epoch));
        f32::from(u16::try_from(mixed >> 48).unwrap()) / 8192.0
    };
    ids.map(loss).collect()
}

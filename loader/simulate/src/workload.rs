//! The workload: samples, sizes and accesses, from the arguments, checked.

use std::sync::Arc;
use std::time::Duration;

use shade_core::{Samples, WholeSamples};
use shade_formats::SampleId;
use shade_job::{LatencyModel, PlanSpec, StoreModel, WeightTable};

use crate::access_list;
use crate::cli::{Simulate, Training};
use crate::error::SimulateError;
use crate::lines::Source;
use crate::loss_table::LossTable;
use crate::losses::LossSource;
use crate::recording::{Recording, is_recording};
use crate::script::Script;
use crate::sizes::Sizes;
use crate::store::{SizesOnly, in_one_shard};
use crate::weights::Classes;

/// Largest latency of a store: more is a typing error, and a sum of very many must not overflow.
const LATENCY_MAX: Duration = Duration::from_secs(3600);
/// Compute time of a sample by default; `--compute` documents it.
const COMPUTE_DEFAULT: Duration = Duration::from_millis(1);

/// The workload of one simulation.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) dataset: Arc<SizesOnly>,
    pub(super) accesses: Accesses,
    pub(super) batch_size: u32,
    /// Sight of `Policy::Lookahead`, in epochs.
    pub(super) lookahead: f64,
    /// Whether neighbours are read together.
    pub(super) coalesces: bool,
    /// Bytes of a shard that a miss brings along; 0 brings none.
    pub(super) package_bytes: Option<u32>,
    /// The first epoch that counts.
    pub(super) skip_epochs: u32,
    /// The store; without one reads take no time.
    pub(super) store: Option<StoreModel>,
    /// Compute time of a sample, where anything takes time.
    pub(super) compute: Duration,
}

/// The accesses.
#[derive(Debug)]
pub(super) enum Accesses {
    /// The accesses of plans.
    Training {
        /// Parameters of the plans.
        plan: Box<PlanSpec>,
        /// The table of the sampler `weighted`.
        weights: Option<WeightTable>,
        /// Number of epochs.
        epochs: u32,
        /// Number of trainings, each with another seed.
        seeds: u32,
        /// Losses of the batches.
        losses: LossSource,
    },
    /// The accesses of a list.
    List(Script),
    /// Accesses recorded by `shade-load trace`.
    Recording(Box<Recording>),
}

impl Accesses {
    /// The accesses, if they are known.
    fn script(&self) -> Option<&Script> {
        match self {
            Self::Training { .. } => None,
            Self::List(script) => Some(script),
            Self::Recording(recording) => Some(&recording.script),
        }
    }
}

impl Workload {
    /// Reads and checks what the arguments name.
    ///
    /// # Errors
    /// A file cannot be used, or options do not go together.
    pub(super) fn load(args: &Simulate) -> Result<Self, SimulateError> {
        let mut labels = Vec::new();
        let mut places = Vec::new();
        let (samples, sizes, accesses) = match (&args.dataset, args.samples, &args.trace) {
            (Some(path), _, _) => {
                let index = shade_dataset::Dataset::open(path)?.index;
                let whole = WholeSamples::new(Arc::clone(&index), &args.fields);
                let classes = Classes::load(args, index.len(), Some(&index))?;
                labels = classes.labels;
                if args.reads_neighbours() {
                    let entries = (0..whole.len()).filter_map(|id| whole.entry(SampleId(id)));
                    places = entries.map(|entry| (entry.shard, entry.offset)).collect();
                }
                (index.len(), Sizes::of_index(&whole), training(args, index.len(), classes.weights)?)
            }
            (_, Some(samples), _) => {
                let sizes = sizes(args, samples, Some, |id| id)?;
                let classes = Classes::load(args, samples, None)?;
                labels = classes.labels;
                (samples, sizes, training(args, samples, classes.weights)?)
            }
            (_, _, Some(path)) => {
                let (is_recording, source) = is_recording(Source::open(path)?)?;
                if is_recording { recording(args, source)? } else { list(args, source)? }
            }
            _ => return Err(SimulateError::Usage("give a dataset, --samples or --trace".to_owned())),
        };
        if samples == 0 {
            return Err(SimulateError::Usage("the dataset has no samples".to_owned()));
        }
        args.store.as_ref().map_or(Ok(()), check_store)?;
        let (store, compute) = (args.store, compute(args, &accesses));
        if args.reads_neighbours() && places.is_empty() {
            places = in_one_shard(&sizes, samples);
        }
        let &Simulate { batch_size, skip_epochs, lookahead, package_bytes, .. } = args;
        let dataset = Arc::new(SizesOnly { samples, sizes, labels, places, strata: None });
        let coalesces = args.reads_neighbours();
        let workload = Self {
            dataset,
            accesses,
            batch_size,
            lookahead,
            coalesces,
            package_bytes,
            skip_epochs,
            store,
            compute,
        };
        workload.check()?;
        Ok(workload)
    }

    /// Number of epochs.
    pub(super) fn epochs(&self) -> u32 {
        match self.accesses {
            Accesses::Training { epochs, .. } => epochs,
            _ => self.accesses.script().map_or(0, Script::epoch_count),
        }
    }

    /// Number of trainings, at least 1. A trace is one.
    pub(super) fn seeds(&self) -> u32 {
        if let Accesses::Training { seeds, .. } = self.accesses { seeds } else { 1 }
    }

    /// Number of accesses of one training, with those that do not count.
    pub(super) fn accesses_each(&self) -> u64 {
        let drawn = || u64::from(self.epochs()) * u64::from(self.dataset.samples);
        self.accesses.script().map_or_else(drawn, |script| script.accesses.len() as u64)
    }

    /// Cache size of all samples: bytes, or samples where sizes are not known.
    pub(super) fn total(&self) -> u64 {
        self.dataset.sizes.total(self.dataset.samples)
    }

    fn check(&self) -> Result<(), SimulateError> {
        let (skipped, epochs) = (self.skip_epochs, self.epochs());
        if skipped >= epochs {
            let what =
                format!("--skip-epochs {skipped}: there are {epochs} epochs, so none is left to count");
            return Err(SimulateError::Usage(what));
        }
        if self.coalesces && !self.dataset.sizes.are_known() {
            let what =
                "--coalesce and --package-bytes need to know where records lie: give --sizes or --sizes-file";
            return Err(SimulateError::Usage(what.to_owned()));
        }
        let bandwidth = self.store.is_some_and(|store| store.bandwidth_bytes_per_s.is_some());
        if bandwidth && !self.dataset.sizes.are_known() {
            let what = "a --store with a bandwidth needs to know what is read: give --sizes or --sizes-file";
            return Err(SimulateError::Usage(what.to_owned()));
        }
        Ok(())
    }
}

/// Samples, sizes and accesses of a list of accesses.
fn list(args: &Simulate, source: Source) -> Result<(u32, Sizes, Accesses), SimulateError> {
    let (script, names) = access_list::read(source)?;
    let sizes = sizes(args, names.samples(), |id| names.place(id), |place| names.id(place))?;
    Ok((names.samples(), sizes, Accesses::List(script)))
}

/// Samples, sizes and accesses of a recorded training. Other sizes may be given.
fn recording(args: &Simulate, source: Source) -> Result<(u32, Sizes, Accesses), SimulateError> {
    let (recording, recorded) = Recording::read(source)?;
    let samples = recording.header.samples;
    let sizes = match sizes(args, samples, Some, |id| id)? {
        Sizes::Unit => recorded,
        others => others,
    };
    Ok((samples, sizes, Accesses::Recording(Box::new(recording))))
}

/// Compute time of a sample: as given, as recorded, or the default.
fn compute(args: &Simulate, accesses: &Accesses) -> Duration {
    let recorded = match accesses {
        Accesses::Recording(recording) => recording.compute,
        Accesses::Training { .. } | Accesses::List(_) => None,
    };
    args.compute.or(recorded).unwrap_or(COMPUTE_DEFAULT)
}

/// Sizes as given, for samples whose ids `place` and `id` translate.
fn sizes(
    args: &Simulate,
    samples: u32,
    place: impl Fn(u32) -> Option<u32>,
    id: impl Fn(u32) -> u32,
) -> Result<Sizes, SimulateError> {
    match (args.sizes, &args.sizes_file) {
        (Some(model), _) => Ok(Sizes::drawn(model, samples, args.training.plan().seed)),
        (None, Some(path)) => Sizes::read(path, samples, place, id),
        (None, None) => Ok(Sizes::Unit),
    }
}

fn training(args: &Simulate, samples: u32, weights: Option<WeightTable>) -> Result<Accesses, SimulateError> {
    let weights_digest = weights.as_ref().map_or(0, WeightTable::digest);
    let plan = Box::new(PlanSpec { weights_digest, ..args.training.plan() });
    plan.validate()?;
    let losses = match &args.training.losses {
        Some(path) => LossSource::Table(LossTable::read(path, samples)?),
        None => LossSource::Model,
    };
    let &Training { epochs, seeds, .. } = &args.training;
    Ok(Accesses::Training { plan, weights, epochs, seeds, losses })
}

/// All reads of the store must succeed.
fn check_store(store: &StoreModel) -> Result<(), SimulateError> {
    let faults = store.faults;
    if faults.short + faults.interrupted + faults.again + faults.io + faults.stale > 0.0 {
        let what = "--store: of all faults only `stuck` is simulated, as no bytes are read";
        return Err(SimulateError::Usage(what.to_owned()));
    }
    let (LatencyModel::Fixed(latency) | LatencyModel::LogNormal { median: latency, .. }) = store.latency;
    if latency > LATENCY_MAX {
        return Err(SimulateError::Usage(format!("--store: a latency of {latency:?} is more than an hour")));
    }
    Ok(())
}

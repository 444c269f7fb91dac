//! A training process without the training.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use shade_client::{
    Batch, BatchId, ClientError, JobSpec, Next, OnError, Options, Order, PlanSpec, Sampler, Session, Tables,
    Tail, WeightTable,
};
use shade_formats::control::REFUSE_BUSY;
use shade_formats::index::{INDEX_FILE, Index};

use crate::columns::values;
use crate::eventually;

/// Longest wait for an answer or a batch. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A batch copied out of the ring.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Which batch of which session it is, to report its losses.
    pub id: BatchId,
    /// Its epoch.
    pub epoch: u32,
    /// Its number within the rank's epoch.
    pub number: u32,
    /// Sample ids.
    pub ids: Vec<u32>,
    /// Class labels.
    pub labels: Vec<u32>,
    /// Loss weights.
    pub weights: Vec<f32>,
    /// `FLAG_` bits.
    pub flags: Vec<u32>,
    /// The records of a raw batch; empty for a decoded one.
    pub records: Vec<Vec<u8>>,
    /// The pixels of the first view of a decoded batch; empty for a raw one.
    pub pixels: Vec<u8>,
    /// The pixels of each further view.
    pub later_views: Vec<Vec<u8>>,
    /// Rows served from the cache.
    pub hits: u32,
    /// Rows read.
    pub misses: u32,
    /// Rows left out.
    pub skipped: u32,
    /// Rows with another sample than planned.
    pub substituted: u32,
}

/// The same job of one rank without batches that are filled ahead of their epoch, so that the
/// counts of an epoch are its own.
#[must_use]
pub fn spec_by_epochs(batch_size: u32) -> JobSpec {
    let job = spec(batch_size, 1);
    JobSpec { plan: PlanSpec { draw_ahead: true, ..job.plan }, ..job }
}

/// A job of raw batches: uniform, every sample in a batch, errors raised.
#[must_use]
pub fn spec(batch_size: u32, world_size: u32) -> JobSpec {
    JobSpec { batch_size, world_size, tail: Tail::Even, on_error: OnError::Raise, ..JobSpec::default() }
}

/// Attaches to the default job of the running daemon of `dataset`.
///
/// # Errors
/// As [`Session::connect`].
pub fn try_attach(dataset: &Path, rank: u32, spec: JobSpec) -> Result<Session, ClientError> {
    attach_to(dataset, "default", rank, spec)
}

/// Attaches to the job with this name of the running daemon of `dataset`.
///
/// # Errors
/// As [`Session::connect`].
pub fn attach_to(dataset: &Path, job: &str, rank: u32, spec: JobSpec) -> Result<Session, ClientError> {
    // A test sees how a daemon ends, and starts the next one itself.
    let options = Options { timeout: PATIENCE, survive: false, ..Options::default() };
    Session::connect(dataset, job, rank, spec, &options)
}

/// Attaches to a job of one rank with batches of 8, by this sampler and order. Weights are 0 to 4,
/// by sample.
///
/// # Panics
/// When that fails.
#[must_use]
pub fn attach_by(dataset: &Path, job: &str, sampler: Sampler, order: Order) -> Session {
    let samples = Index::open(std::fs::read(dataset.join(INDEX_FILE)).unwrap()).unwrap().len();
    let weights = WeightTable::new((0..samples).map(|id| f64::from(id % 5))).unwrap();
    let weights = (sampler == Sampler::Weighted).then_some(weights);
    let weights_digest = weights.as_ref().map_or(0, WeightTable::digest);
    let plan = PlanSpec { sampler, order, weights_digest, seed: 11, ..PlanSpec::default() };
    let (job_spec, tables) = (JobSpec { plan, ..spec(8, 1) }, Tables { weights, subset: None });
    let options = Options { timeout: PATIENCE, survive: false, ..Options::default() };
    Session::connect_with(dataset, job, 0, job_spec, tables, &options).unwrap()
}

/// Two epochs with losses that follow from the samples.
///
/// # Panics
/// When a batch fails, or a report.
#[must_use]
pub fn take_with_losses(session: &Session) -> [Vec<Taken>; 2] {
    [0, 1].map(|epoch| {
        let batches = take_epoch(session, epoch).unwrap();
        for batch in &batches {
            let losses: Vec<f32> = batch.ids.iter().map(|id| (id * 37 % 101) as f32 / 10.0 + 0.01).collect();
            session.report(batch.id, &losses).unwrap();
        }
        batches
    })
}

/// Attaches to the default job, once the rank's former session has ended.
///
/// # Panics
/// When that fails.
#[must_use]
pub fn attach(dataset: &Path, rank: u32, spec: JobSpec) -> Session {
    attach_when_free(dataset, "default", rank, spec)
}

/// Attaches to the job with this name, once the rank's former session has ended.
///
/// # Panics
/// When that fails.
#[must_use]
pub fn attach_when_free(dataset: &Path, job: &str, rank: u32, spec: JobSpec) -> Session {
    let mut session = None;
    eventually("the rank is free", || match attach_to(dataset, job, rank, spec.clone()) {
        Err(ClientError::Refused { code: REFUSE_BUSY, .. }) => false,
        attached => {
            session = Some(attached.unwrap());
            true
        }
    });
    session.unwrap()
}

/// The next batch; `None` at the epoch's end.
///
/// # Errors
/// As [`Session::next`].
///
/// # Panics
/// When neither comes.
pub fn next(session: &Session) -> Result<Option<Batch>, ClientError> {
    match session.next(PATIENCE)? {
        Next::Batch(batch) => Ok(Some(batch)),
        Next::EpochEnd => Ok(None),
        Next::Pending => panic!("no batch within {PATIENCE:?}"),
    }
}

/// Equal content, whatever the session.
impl PartialEq for Taken {
    fn eq(&self, other: &Self) -> bool {
        let rows = |taken: &Self| {
            (taken.epoch, taken.number, taken.hits, taken.misses, taken.skipped, taken.substituted)
        };
        let columns = (&self.ids, &self.labels, &self.weights, &self.flags);
        let data = (&self.records, &self.pixels, &self.later_views);
        rows(self) == rows(other)
            && columns == (&other.ids, &other.labels, &other.weights, &other.flags)
            && data == (&other.records, &other.pixels, &other.later_views)
    }
}

/// Copies a batch.
///
/// # Panics
/// When its columns make no sense.
#[must_use]
pub fn copy(batch: &Batch) -> Taken {
    let descriptor = batch.descriptor();
    let number = |value: i64| u32::try_from(value).unwrap();
    let records = (0..batch.records()).map_while(|row| batch.record(row).unwrap()).collect();
    let has_pixels = !batch.views().is_empty();
    let pixels = if has_pixels { values(batch, |batch| batch.images(0).unwrap()) } else { Vec::new() };
    let later_views = (1..batch.views().len()).map(|view| values(batch, |batch| batch.images(view).unwrap()));
    Taken {
        id: batch.id(),
        epoch: descriptor.epoch,
        number: descriptor.batch,
        ids: values(batch, Batch::ids).into_iter().map(number).collect(),
        labels: values(batch, Batch::labels).into_iter().map(number).collect(),
        weights: values(batch, Batch::weights),
        flags: values(batch, Batch::flags),
        records,
        pixels,
        later_views: later_views.collect(),
        hits: descriptor.hits,
        misses: descriptor.misses,
        skipped: descriptor.skipped,
        substituted: descriptor.substituted,
    }
}

/// Takes the rest of the epoch, releasing each batch at once.
///
/// # Errors
/// As [`Session::next`].
pub fn take_rest(session: &Session) -> Result<Vec<Taken>, ClientError> {
    let mut taken = Vec::new();
    while let Some(batch) = next(session)? {
        taken.push(copy(&batch));
    }
    Ok(taken)
}

/// Starts an epoch and takes all of it.
///
/// # Errors
/// As [`Session::start_epoch`] and [`Session::next`].
pub fn take_epoch(session: &Session, epoch: u32) -> Result<Vec<Taken>, ClientError> {
    session.start_epoch(epoch, 0)?;
    take_rest(session)
}

/// The ids of all rows of `batches`, in order.
#[must_use]
pub fn sorted_ids(batches: &[Taken]) -> Vec<u32> {
    let mut ids: Vec<u32> = batches.iter().flat_map(|batch| &batch.ids).copied().collect();
    ids.sort_unstable();
    ids
}

/// Runs `work` for every rank of `spec`, each with its own session and thread. Returns the results
/// in the order of ranks.
///
/// # Panics
/// When one of them does.
pub fn all_ranks<T: Send>(dataset: &Path, spec: JobSpec, work: impl Fn(u32, &Session) -> T + Sync) -> Vec<T> {
    all_ranks_of(dataset, "default", spec, work)
}

/// The same for the job with this name.
///
/// # Panics
/// When one of them does.
pub fn all_ranks_of<T: Send>(
    dataset: &Path,
    job: &str,
    spec: JobSpec,
    work: impl Fn(u32, &Session) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let ranks = (0..spec.world_size)
            .map(|rank| {
                let session = attach_when_free(dataset, job, rank, spec.clone());
                scope.spawn(move || work(rank, &session))
            })
            .collect::<Vec<_>>();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The daemon's figures.
///
/// # Panics
/// When it does not tell.
#[must_use]
pub fn stats(session: &Session) -> Value {
    serde_json::from_str(&session.stats().unwrap()).unwrap()
}

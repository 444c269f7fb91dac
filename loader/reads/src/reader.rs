//! The front: the configuration of reads, the start of an engine, and reads for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::io::Errno;
use shade_dataset::{Files, StoreTrouble, choose, connections_max, shards_address};
use shade_formats::ShardId;
use shade_formats::index::Index;
use shade_formats::limits::READS_DEPTH_MAX;
use shade_job::{EngineChoice, IoMode, StoreModel};

use crate::blocks::Arena;
use crate::fault::{ReadsError, ShardWarning};
use crate::flight::{Engine, Flight, Shared};
use crate::gate::{Depth, Gate};
use crate::land::BouncePool;
use crate::objects::ObjectReads;
use crate::op::{Completion, ReadOp};
use crate::sim::SimThread;
use crate::survey::{any_shard, survey, survey_objects};
use crate::threads::Threads;
use crate::uring::Uring;

/// How records are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadsConfig {
    /// What reads.
    pub engine: EngineChoice,
    /// Past the page cache or through it.
    pub io: IoMode,
    /// Reads in flight; more may be submitted, they wait for their turn.
    pub depth: Depth,
    /// The store that the simulator pretends to read from; only with [`EngineChoice::Sim`] or
    /// [`Auto`](EngineChoice::Auto), which then is the simulator.
    pub store: Option<StoreModel>,
    /// How long a shard that cannot be opened or may not be read is tried again
    /// ([`PATIENCE`](crate::PATIENCE)): trouble of the store, which may pass, not of a record.
    /// Zero: not at all.
    pub patience: Duration,
}

/// Reads records of one dataset. Dropping it stops: reads that have begun end, those that have not
/// come back as [`Stopped`](crate::ReadFault::Stopped), and all have been sent before the drop
/// returns.
pub struct Reads {
    engine: Box<dyn Engine>,
    shared: Arc<Shared>,
    description: String,
    warnings: Vec<ShardWarning>,
}

impl Reads {
    /// Starts reading the shards in `folder`, which `index` describes, into blocks of `arena`.
    /// Every read that is submitted comes back through `completions`, in any order. Shards are
    /// opened when first read. If the engine itself fails, `on_failure` is told why: reads that are
    /// submitted later do not come back.
    ///
    /// # Errors
    ///
    /// The depth is out of range, or a demand ([`Uring`](crate::EngineChoice::Uring),
    /// [`Direct`](crate::IoMode::Direct)) cannot be met. Missing shards are no error, but
    /// [`warnings`](Self::warnings).
    pub fn start(
        folder: &Path,
        index: Arc<Index>,
        arena: Arc<Arena>,
        config: ReadsConfig,
        completions: Sender<Completion>,
        on_failure: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, ReadsError> {
        if let Depth::Fixed(got) = config.depth
            && !(1..=READS_DEPTH_MAX).contains(&got)
        {
            return Err(ReadsError::Depth { got });
        }
        if shards_address(folder, &index).is_some() {
            let files = Files::surveyed(folder, index, None, &[], config.patience);
            return Self::start_objects(files, arena, &config, &completions, Box::new(on_failure));
        }
        let surveyed = survey(folder, &index);
        let simulated = config.engine == EngineChoice::Sim || config.store.is_some();
        // A simulated store has its own latencies; the disk's must not show.
        let io = if simulated && config.io == IoMode::Auto { IoMode::Buffered } else { config.io };
        let shard = any_shard(folder, &index);
        // Those of several datasets have one folder in common, which may be on another mount.
        let shards = shard.as_deref().and_then(Path::parent).unwrap_or(folder);
        let choice = choose(io, shards, shard.as_deref(), arena.align_bytes())?;
        let how = choice.to_string();
        let shared = Arc::new(Shared {
            files: Files::surveyed(
                folder,
                index,
                choice.direct_align_bytes,
                &missing(&surveyed),
                config.patience,
            ),
            arena,
            // Without it every record is read on its own.
            bounce: BouncePool::create().ok(),
            gate: Gate::new(config.depth),
            flights: AtomicU64::new(0),
            on_failure: Box::new(on_failure),
        });
        let (engine, name) = start_engine(&config, &shared, &completions)?;
        let warnings = surveyed.into_iter().map(|(_, warning)| warning).collect();
        Ok(Self { engine, shared, description: format!("{name}, {how}"), warnings })
    }

    /// Starts reading shards that are objects in a bucket.
    fn start_objects(
        files: Files,
        arena: Arc<Arena>,
        config: &ReadsConfig,
        completions: &Sender<Completion>,
        on_failure: Box<dyn Fn(String) + Send + Sync>,
    ) -> Result<Self, ReadsError> {
        if config.store.is_some() || config.engine != EngineChoice::Auto || config.io != IoMode::Auto {
            return Err(ReadsError::ObjectStore);
        }
        let objects = files.objects().map_err(|fault| ReadsError::Store { fault })?;
        let objects = objects.ok_or(ReadsError::ObjectStore)?;
        let surveyed = survey_objects(&objects, files.index());
        let shared = Arc::new(Shared {
            files: files.without(&missing(&surveyed)),
            arena,
            bounce: BouncePool::create().ok(),
            gate: Gate::of_objects(config.depth, connections_max()),
            flights: AtomicU64::new(0),
            on_failure,
        });
        let engine = ObjectReads::start(objects, &shared, completions);
        let engine: Box<dyn Engine> = Box::new(engine);
        let description = engine.description();
        let warnings = surveyed.into_iter().map(|(_, warning)| warning).collect();
        Ok(Self { engine, shared, description, warnings })
    }

    /// Hands a read over. Never blocks; what exceeds the depth waits for its turn.
    pub fn submit(&self, op: ReadOp) {
        self.engine.submit(Flight::record(op, &self.shared));
    }

    /// Hands over records of one shard, in the order of their offsets, for one read
    /// ([`Neighbours`](shade_core::Neighbours)). Each comes back on its own.
    pub fn submit_together(&self, ops: Vec<ReadOp>) {
        for flight in Flight::neighbours(ops, &self.shared) {
            self.engine.submit(flight);
        }
    }

    /// Says how many nodes read from the store, this one included: they look for its depth
    /// together.
    pub fn share(&self, nodes: u32) {
        self.shared.gate.share(nodes);
    }

    /// A rank has batches of a daemon before this one, so the store has answered: what it refuses
    /// from now on is trouble that may pass.
    pub fn store_has_answered(&self) {
        self.shared.files.answered();
    }

    /// Reads that may be in flight now.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.shared.gate.depth()
    }

    /// Trouble of the store that reads wait for, or did a moment ago.
    #[must_use]
    pub fn trouble(&self) -> Option<StoreTrouble> {
        self.shared.files.trouble(Instant::now())
    }

    /// How records are read and why, on one line.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Shards that were missing or had a wrong size at start. Reading on is sound: their records
    /// fail one by one.
    #[must_use]
    pub fn warnings(&self) -> &[ShardWarning] {
        &self.warnings
    }
}

/// The shards that do not exist.
fn missing(surveyed: &[(ShardId, ShardWarning)]) -> Vec<ShardId> {
    let is_missing =
        |warning: &ShardWarning| matches!(warning, ShardWarning::Missing { errno: Errno::NOENT, .. });
    surveyed.iter().filter(|(_, warning)| is_missing(warning)).map(|(shard, _)| *shard).collect()
}

/// Starts the engine that was asked for. Returns its description too.
fn start_engine(
    config: &ReadsConfig,
    shared: &Arc<Shared>,
    completions: &Sender<Completion>,
) -> Result<(Box<dyn Engine>, String), ReadsError> {
    let no_thread = |source| ReadsError::Thread { source };
    let threads = || Threads::start(shared, completions).map_err(no_thread);
    let mut why = String::new();
    let engine: Box<dyn Engine> = match (config.engine, config.store) {
        (EngineChoice::Uring | EngineChoice::Threads, Some(_)) => return Err(ReadsError::RealStore),
        (EngineChoice::Sim, store) | (EngineChoice::Auto, store @ Some(_)) => {
            let model = store.unwrap_or_default();
            Box::new(SimThread::start(model, shared, completions).map_err(no_thread)?)
        }
        (EngineChoice::Threads, None) => Box::new(threads()?),
        (choice @ (EngineChoice::Auto | EngineChoice::Uring), None) => {
            match Uring::start(shared, completions) {
                Ok(uring) => Box::new(uring),
                Err(source) if choice == EngineChoice::Uring => return Err(ReadsError::Uring { source }),
                Err(error) => {
                    why = format!(" because {error}");
                    Box::new(threads()?)
                }
            }
        }
    };
    let description = engine.description() + &why;
    Ok((engine, description))
}

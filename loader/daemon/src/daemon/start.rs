//! Starts the daemon's parts from its configuration, and runs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use indicatif::BinaryBytes;
use serde::Serialize;
use shade_core::{
    AsideResult, Core, CoreConfig, GAP_BYTES_MAX, PREFETCHES_MAX, Refusal, STAGING_BYTES_MAX, Samples,
    WholeSamples, block_bytes_for, capacity_bytes, staging_bytes, window_bytes,
};
use shade_dataset::{Dataset, DatasetError, raise_open_files_limit};
use shade_formats::SampleId;
use shade_formats::control::{REFUSE_DATASET, REFUSE_RESOURCES, socket_name};
use shade_formats::limits::RING_DESCRIPTORS;
use shade_formats::trace::{Header, VERSION};
use shade_job::{Capacity, DaemonSpec, FieldsRead};
use shade_reads::blocks::{Arena, FreeList};
use shade_reads::{Completion, Depth, PATIENCE, Reads, ReadsConfig, ReadsError};
use shade_shm::memfd::lacking;

use super::aside::Aside;
use super::cache_memory::CacheMemory;
use super::lifecycle::Lifecycle;
use super::memory::{AutoCache, CacheTooLarge, check_cache};
use super::serve::{Daemon, Helpers, Inbox, Stop};
use super::settings::{Running, ServeConfig};
use super::tier;
use crate::batches::{Filled, Workers};
use crate::control::{Address, Call, CallError, Listener, ServedDataset};
use crate::{panics, signals};

/// Fill orders that a worker has or finds next while there are several jobs: some milliseconds of
/// work, so that no worker waits for the core.
const ORDERS_A_WORKER: usize = 3;
/// Most reserve for records of an object store that are being read or filled: 2,400 of 110 KB, and
/// never more than the dataset.
const OBJECTS_STAGING_BYTES_MAX: u64 = 256 << 20;
/// How long a daemon that makes room for this one may take to be gone, and the pause between two
/// looks. It gives up reads after 2 s; freeing a large cache takes longer.
const END: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
/// Messages of sessions that may wait for the core: twice what eight ranks can have in flight,
/// whose rings have 64 batches each. A session with more messages waits, and so does its trainer.
const MESSAGES_MAX: usize = 1024;
const _: () = assert!(MESSAGES_MAX >= 2 * 8 * RING_DESCRIPTORS);

/// Why the daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The dataset cannot be opened.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The reads cannot start.
    #[error(transparent)]
    Reads(#[from] ReadsError),
    /// There is not enough memory for the cache.
    #[error("cannot have {bytes} bytes for the cache and the reads beside it: {source}")]
    Arena {
        /// Bytes of both.
        bytes: u64,
        /// Why not.
        source: std::io::Error,
    },
    /// Another daemon has the socket.
    #[error(
        "address in use: a daemon serves this dataset already ({address}), with any number of jobs; shade-load status \
         shows it, shade-load stop ends it, and --socket gives another one a socket of its own"
    )]
    AddressInUse {
        /// The socket's address.
        address: String,
    },
    /// A tier's records could not be told from damaged ones.
    #[error(
        "--tier needs the checksum of each record, and {folder} has none: `shade-pack index --checksums` reads them, or \
         `shade-pack create` packs the images"
    )]
    NoChecksums {
        /// The dataset.
        folder: String,
    },
    /// Nobody knows the checksum of a record with its fields in a tar of others.
    #[error(
        "--tier has no records with extra fields of tars that were not packed, as those of {folder}: leave out \
         --fields, or pack them with `shade-pack create`"
    )]
    FieldsInPlace {
        /// The dataset.
        folder: String,
    },
    /// The socket cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The socket's address.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The daemon that serves the dataset does not make room.
    #[error("--replace: {0}")]
    Replace(#[from] CallError),
    /// A thread or handler cannot be set up.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// The cache is larger than this machine's memory.
    #[error(transparent)]
    Memory(#[from] CacheTooLarge),
    /// A thread panicked or cannot go on, so the daemon has ended and told all sessions.
    #[error("the daemon ends: {0}")]
    Defect(String),
}

impl DaemonError {
    /// Whether it is a defect of this program. These occur only after the daemon has said that it
    /// is ready.
    #[must_use]
    pub fn is_defect(&self) -> bool {
        matches!(self, Self::Defect(_))
    }

    /// The answer to ranks that have connected already.
    fn refusal(&self) -> Refusal {
        let code = if matches!(self, Self::Dataset(_)) { REFUSE_DATASET } else { REFUSE_RESOURCES };
        Refusal { code, text: self.to_string() }
    }

    /// The process's exit code: 3 for a damaged dataset, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Dataset(error) if error.is_damage()) { 3 } else { 1 }
    }
}

/// The daemon's message once it accepts sessions.
#[derive(Debug, Serialize)]
pub struct Ready {
    ready: bool,
    pid: u32,
    socket: String,
}

/// Serves until stopped by a signal, or, with `linger`, until the last rank has left. `announce` is
/// called once, when sessions are accepted.
///
/// # Errors
/// [`DaemonError`] when it cannot start.
pub fn serve(config: &ServeConfig, announce: impl FnOnce(&Ready)) -> Result<(), DaemonError> {
    raise_open_files_limit();
    // Before the index is read: a node's ranks may start several daemons at once, and all but one
    // end here. A rank that connects meanwhile waits until it is accepted.
    let folder = Dataset::folder(&config.dataset)?;
    let (listener, prepared) = if config.replaces {
        let prepared = prepare(folder.clone(), config, &address(config, &folder))?;
        (replace(config, &folder)?, Some(prepared))
    } else {
        (bind(config, &folder)?, None)
    };
    serve_at(&listener, folder, prepared, config, announce).inspect_err(|error| {
        // Every session was told of a defect.
        if !error.is_defect() {
            listener.turn_away(&error.refusal());
        }
    })
}

/// Refuses a tier for what has no checksums.
fn refuse_tier(settings: &DaemonSpec, dataset: &Dataset) -> Result<(), DaemonError> {
    let (index, folder) = (&dataset.index, dataset.folder.display().to_string());
    if settings.tier.is_none() {
        return Ok(());
    }
    if !index.has_checksums() {
        return Err(DaemonError::NoChecksums { folder });
    }
    if settings.fields != FieldsRead::None && index.has_fields() && index.is_of_others() {
        return Err(DaemonError::FieldsInPlace { folder });
    }
    Ok(())
}

/// What takes a daemon long, or may fail, before it serves. It has no memory for the cache yet.
struct Prepared {
    dataset: Dataset,
    samples: Arc<WholeSamples>,
    records: Records,
    reads: Reads,
    helpers: Helpers,
    results: Results,
    /// A panic of any thread is told here.
    stop: (Sender<Stop>, Receiver<Stop>),
}

/// What reads and helpers answer.
struct Results {
    completions: Receiver<Completion>,
    done: Receiver<Filled>,
    aside: Receiver<AsideResult>,
}

/// Opens the dataset in `folder`, reserves memory and starts all threads, for a daemon at
/// `address`.
fn prepare(folder: PathBuf, config: &ServeConfig, address: &str) -> Result<Prepared, DaemonError> {
    let settings = &config.settings;
    let dataset = Dataset::open_in(folder)?;
    refuse_tier(settings, &dataset)?;
    let samples = Arc::new(WholeSamples::new(Arc::clone(&dataset.index), &settings.fields));
    let records = records(config, &dataset, &samples, address)?;
    let arena = &records.arena;

    let (completions_in, completions) = crossbeam_channel::unbounded();
    let (done_in, done) = crossbeam_channel::unbounded();
    let stop = crossbeam_channel::bounded(1);
    let defect_in = stop.0.clone();
    panics::watch(move |text| drop(defect_in.try_send(Stop::Defect(text))));
    let reads = Reads::start(
        &dataset.folder,
        Arc::clone(&dataset.index),
        Arc::clone(arena),
        reads_config(settings),
        completions_in,
        panics::give_up,
    )?;
    let workers = Workers::start(worker_count(settings), settings.jpeg, &samples, Arc::clone(arena), done_in)
        .map_err(DaemonError::Start)?;
    let (aside, aside_results) = Aside::start().map_err(DaemonError::Start)?;
    let helpers = Helpers { workers, aside };
    let results = Results { completions, done, aside: aside_results };
    Ok(Prepared { dataset, samples, records, reads, helpers, results, stop })
}

/// Has the daemon of the same address make room, and takes the address.
fn replace(config: &ServeConfig, folder: &Path) -> Result<Listener, DaemonError> {
    let place = config.socket.as_deref().map_or_else(|| Address::of_dataset(folder), Address::given);
    match Call::connect(&place).and_then(|call| Ok((call.replace()?, call))) {
        Ok(((pid, socket), call)) => {
            tracing::info!("process {pid} makes room");
            // It hangs up at once, and its memory takes longer.
            let _ = call.wait_for_end(END);
            let (path, address) = (config.socket.as_deref(), address(config, folder));
            return Listener::inherit(socket, path, address.clone(), Instant::now() + END)
                .map_err(|source| DaemonError::Bind { address, source });
        }
        Err(CallError::NoDaemon { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    // One that is ending by itself has the address yet.
    let deadline = Instant::now() + END;
    loop {
        match bind(config, folder) {
            Err(DaemonError::AddressInUse { .. }) if Instant::now() < deadline => std::thread::sleep(LOOK),
            bound => return bound,
        }
    }
}

/// Serves the dataset in `folder` at `listener`.
fn serve_at(
    listener: &Listener,
    folder: PathBuf,
    prepared: Option<Prepared>,
    config: &ServeConfig,
    announce: impl FnOnce(&Ready),
) -> Result<(), DaemonError> {
    let prepared = prepared.map_or_else(|| prepare(folder, config, &listener.address), Ok)?;
    let Prepared { dataset, samples, records, reads, helpers, results, stop: (stop_in, stop) } = prepared;
    let index = Arc::clone(&dataset.index);
    let settings = &config.settings;
    let Records { arena, free, cache_bytes, staging_bytes, words } = records;
    let block_bytes = arena.block_bytes();
    // Only now: a daemon before this one may have stored records until it ended.
    let (tier, tier_events) = tier::start(settings, &samples, &arena).map_err(DaemonError::Start)?;
    let cache_memory = CacheMemory::new(arena, Arc::clone(&samples), settings.policy, staging_bytes);
    // A later signal finds the channel full: the end is under way.
    signals::watch(move || drop(stop_in.try_send(Stop::Asked))).map_err(DaemonError::Start)?;

    let served = ServedDataset {
        folder: dataset.folder.display().to_string(),
        address: listener.address.clone(),
        samples: index.len(),
        classes: index.class_count(),
        content_id: index.content_id().0,
        is_private: config.is_private,
    };
    let running = Running::new(config, &*samples, cache_bytes, block_bytes);
    let (messages_in, messages) = crossbeam_channel::bounded(MESSAGES_MAX);
    listener.listen(served.clone(), messages_in).map_err(DaemonError::Start)?;
    tracing::info!(
        "serving {} ({} samples): cache {words}; reads: {}; at {}",
        dataset.folder.display(),
        index.len(),
        reads.description(),
        listener.address,
    );
    for warning in reads.warnings() {
        tracing::warn!("{warning}");
    }
    announce(&Ready { ready: true, pid: std::process::id(), socket: listener.address.clone() });

    let workers = worker_count(settings);
    let core_config =
        core_config(settings, &*samples, dataset.are_objects(), cache_bytes, block_bytes, workers);
    let trace_header = trace_header(settings, &dataset, &core_config, reads.description(), workers);
    let core = Core::new(samples, free, core_config);
    let lifecycle = Lifecycle::new(served, running);
    let mut daemon = Daemon::new(core, reads, helpers, trace_header, lifecycle, cache_memory);
    daemon.tier = tier;
    let Results { completions, done, aside } = results;
    let inbox = Inbox { completions, done, tier: tier_events, aside, messages, stop };
    daemon.run(&inbox).map_err(DaemonError::Defect)
}

/// What the core goes by.
pub(super) fn core_config(
    settings: &DaemonSpec,
    samples: &dyn Samples,
    are_objects: bool,
    cache_bytes: u64,
    block_bytes: u32,
    workers: usize,
) -> CoreConfig {
    CoreConfig {
        cache_bytes,
        policy: settings.policy,
        lookahead: settings.lookahead,
        reads_max: Depth::from(settings.depth).submitted_max(are_objects),
        prefetches_max: PREFETCHES_MAX,
        gap_bytes_max: GAP_BYTES_MAX,
        package_bytes: DaemonSpec::package_bytes_of(settings.package_bytes, settings.policy),
        window_bytes: window_bytes(samples, cache_bytes, block_bytes, settings.policy),
        opens_ahead: true,
        block_bytes,
        orders_max: ORDERS_A_WORKER * workers,
        decoded_bytes: settings.decode_once,
    }
}

/// The memory of records.
struct Records {
    arena: Arc<Arena>,
    free: FreeList,
    cache_bytes: u64,
    staging_bytes: u64,
    /// The cache, as the log says it.
    words: String,
}

/// Maps the arena: the cache, and blocks for what is being read. `address` is this daemon's.
fn records(
    config: &ServeConfig,
    dataset: &Dataset,
    samples: &WholeSamples,
    address: &str,
) -> Result<Records, DaemonError> {
    let entries = (0..samples.len()).filter_map(|id| samples.entry(SampleId(id)));
    let block_bytes = block_bytes_for(entries.map(|entry| entry.stored_len));
    let dataset_bytes = capacity_bytes(Capacity::Share(1.0), samples, block_bytes);
    let are_objects = dataset.are_objects();
    let most_bytes = if are_objects {
        dataset_bytes.clamp(STAGING_BYTES_MAX, OBJECTS_STAGING_BYTES_MAX)
    } else {
        STAGING_BYTES_MAX
    };
    let reads_max = Depth::from(config.settings.depth).submitted_max(are_objects);
    let staging_bytes = staging_bytes(samples, block_bytes, reads_max, most_bytes);
    let (cache_bytes, of_free_bytes) = match config.settings.cache {
        Some(cache) => (cache.within(dataset_bytes), None),
        None => {
            let auto = AutoCache::now(address, dataset_bytes, staging_bytes);
            (auto.bytes, auto.of_free_bytes)
        }
    };
    let arena_bytes = cache_bytes + staging_bytes;
    // A cache of the whole dataset, should it be asked for later.
    let most_bytes = dataset_bytes.saturating_add(staging_bytes);
    check_cache(cache_bytes, arena_bytes)?;
    let (arena, free) = Arena::create_up_to(arena_bytes, most_bytes, block_bytes).map_err(|error| {
        DaemonError::Arena { bytes: arena_bytes, source: lacking(error, Some("--cache")) }
    })?;
    let words = cache_words(cache_bytes, dataset_bytes, of_free_bytes, arena.locked());
    Ok(Records { arena: Arc::new(arena), free, cache_bytes, staging_bytes, words })
}

/// A cache in words: its size, and of what.
fn cache_words(cache_bytes: u64, dataset_bytes: u64, of_free_bytes: Option<u64>, locked: bool) -> String {
    let share = if cache_bytes == dataset_bytes {
        "all of the dataset".to_owned()
    } else {
        format!("{:.1} % of the dataset", 100.0 * cache_bytes as f64 / dataset_bytes as f64)
    };
    let why = of_free_bytes.map(|free| format!(", half of the free {}", BinaryBytes(free)));
    let unlocked = if locked { "" } else { ", not locked in memory (RLIMIT_MEMLOCK is too low)" };
    format!("{} ({share}{}){unlocked}", BinaryBytes(cache_bytes), why.unwrap_or_default())
}

/// Threads that decode: as many as there are cores, if nobody says.
fn worker_count(settings: &DaemonSpec) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.workers.map_or_else(cores, usize::from)
}

/// How records are read.
fn reads_config(settings: &DaemonSpec) -> ReadsConfig {
    let &DaemonSpec { engine, io, depth, store, .. } = settings;
    ReadsConfig { engine, io, depth: depth.into(), store, patience: PATIENCE }
}

/// The first line of this daemon's traces, without their job and the time at which a recording
/// begins.
fn trace_header(
    settings: &DaemonSpec,
    dataset: &Dataset,
    core: &CoreConfig,
    engine: &str,
    workers: usize,
) -> Header {
    Header {
        shade_trace: VERSION,
        shade_load: env!("CARGO_PKG_VERSION").to_owned(),
        dataset: dataset.folder.display().to_string(),
        content_id: dataset.index.content_id().to_string(),
        samples: dataset.index.len(),
        job: String::new(),
        policy: settings.policy.as_str().to_owned(),
        lookahead: Some(settings.lookahead),
        cache_bytes: core.cache_bytes,
        block_bytes: core.block_bytes,
        engine: engine.to_owned(),
        workers: u32::try_from(workers).unwrap_or(u32::MAX),
        fields: settings.fields.to_string(),
        began_unix_s: 0,
    }
}

fn bind(config: &ServeConfig, folder: &Path) -> Result<Listener, DaemonError> {
    let bound = match &config.socket {
        Some(path) => Listener::bind_file(path),
        None => Listener::bind_abstract(&socket_name(rustix::process::geteuid().as_raw(), folder)),
    };
    bound.map_err(|source| {
        let address = address(config, folder);
        if source.kind() == std::io::ErrorKind::AddrInUse {
            DaemonError::AddressInUse { address }
        } else {
            DaemonError::Bind { address, source }
        }
    })
}

/// The address as text: a path, or `@name` for an abstract one.
fn address(config: &ServeConfig, folder: &Path) -> String {
    config
        .socket
        .as_ref()
        .map_or_else(|| Address::of_dataset(folder).to_string(), |path| path.display().to_string())
}

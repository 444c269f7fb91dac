//! Reads random records as the daemon would, at one depth after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde::Serialize;
use shade_core::charged_bytes;
use shade_dataset::Dataset;
use shade_formats::SampleId;
use shade_formats::index::Index;
use shade_job::{EngineChoice, IoMode};
use shade_reads::blocks::{Arena, FreeList};
use shade_reads::{Completion, Depth, ReadOp, Reads, ReadsConfig, verify};

use super::cli::DoctorError;
use super::mountstats::ReadsSoFar;
use super::path_facts::DatasetFacts;
use super::picks::Picks;
use super::sweep::{Step, Tally, Wire, knee, store};
use crate::terminal::spinner;

/// The depths, from one read at a time to more than any server takes.
const DEPTHS: [u32; 5] = [1, 4, 16, 64, 256];
const DEPTH_MAX: u32 = {
    let [.., last] = DEPTHS;
    last
};
/// Equal parts of the time, one per depth.
const SHARES: u32 = 5;
const _: () = assert!(DEPTHS.len() == SHARES as usize);
/// Reads in flight while shards are opened.
const WARM_UP_DEPTH: u32 = 8;
/// Memory limit for records in flight; fewer are in flight if it does not hold them.
const ARENA_BYTES_MAX: u64 = 256 << 20;
/// Interval of checks whether to stop.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for reads when no more are submitted. Nothing cancels a read, and none comes
/// back from a hard mount whose server is gone.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// How long to wait for reads after Ctrl-C.
const STOP_MAX: Duration = Duration::from_secs(2);

/// What the probe found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Probe {
    /// Engine and I/O mode with their reasons, as the daemon's log has them.
    pub(super) engine: String,
    /// One for each depth at which a record came back.
    pub(super) steps: Vec<Step>,
    /// The smallest depth within 5 % of the best rate; `None` unless all depths were measured.
    pub(super) knee_depth: Option<u32>,
    /// A `--store` that reads as fast, for `shade-load simulate`; `None` as above.
    pub(super) store: Option<String>,
    /// Reads that failed.
    pub(super) errors: u64,
    /// Why the first of them failed.
    pub(super) first_error: Option<String>,
    /// Why the shards may not be read; this has ended the probe.
    pub(super) forbidden: Option<String>,
    /// The wire at the step that had most on it; `None` without an NFS mount, or unless all depths
    /// were measured.
    pub(super) wire: Option<Wire>,
    /// Reads that did not come back within 20 s.
    pub(super) unanswered: u32,
    /// Shards that are missing or have another size than the index says.
    pub(super) bad_shards: usize,
    /// The first of them.
    pub(super) first_bad_shard: Option<String>,
    /// Whether Ctrl-C ended it.
    pub(super) interrupted: bool,
}

/// Probes `dataset` for about `length`, or until `stop` is set. The dataset must not be empty.
/// `so_far` returns the reads of its NFS mount, if it is on one.
pub(super) fn probe(
    dataset: &Dataset,
    facts: &DatasetFacts,
    length: Duration,
    stop: &AtomicBool,
    so_far: &dyn Fn() -> Option<ReadsSoFar>,
) -> Result<Probe, DoctorError> {
    let most = charged_bytes(facts.record_max_bytes, facts.block_bytes);
    let usual = charged_bytes(facts.record_p99_bytes, facts.block_bytes) * u64::from(DEPTH_MAX);
    let arena_bytes = (usual + most).min(ARENA_BYTES_MAX.max(most));
    let (arena, free) = Arena::create(arena_bytes, facts.block_bytes).map_err(DoctorError::Probe)?;
    let (completions_in, completions) = crossbeam_channel::unbounded();
    let config = ReadsConfig {
        engine: EngineChoice::Auto,
        io: IoMode::Auto,
        depth: Depth::Fixed(DEPTH_MAX),
        store: None,
        // A probe reports what is wrong and does not wait for repair.
        patience: Duration::ZERO,
    };
    let index = Arc::clone(&dataset.index);
    let arena = Arc::new(arena);
    let reads = Reads::start(
        &dataset.folder,
        index,
        Arc::clone(&arena),
        config,
        completions_in,
        crate::panics::give_up,
    )?;
    let found = Probe {
        engine: reads.description().to_owned(),
        bad_shards: reads.warnings().len(),
        first_bad_shard: reads.warnings().first().map(ToString::to_string),
        ..Probe::default()
    };
    let reader = Reader {
        index: &dataset.index,
        reads,
        completions,
        arena,
        free,
        most_bytes: most,
        in_flight: 0,
        stop,
        so_far,
        found,
    };
    Ok(reader.sweep(length / SHARES))
}

/// Keeps reads in flight.
struct Reader<'a> {
    index: &'a Index,
    reads: Reads,
    completions: Receiver<Completion>,
    arena: Arc<Arena>,
    free: FreeList,
    /// Bytes for the largest record.
    most_bytes: u64,
    in_flight: u32,
    stop: &'a AtomicBool,
    so_far: &'a dyn Fn() -> Option<ReadsSoFar>,
    found: Probe,
}

impl Reader<'_> {
    /// Reads at each depth for `share` of the time, after a record of every shard has been read.
    fn sweep(mut self, share: Duration) -> Probe {
        let bar = spinner("probing: opening shards");
        let mut picks = Picks::new(self.index);
        let warmed_until = Instant::now() + share;
        self.step(WARM_UP_DEPTH, warmed_until, &mut || picks.next_shard(), &|_| ());
        picks.keep_opened(self.index);
        let mut on_the_wire = Vec::new();
        for depth in DEPTHS {
            if self.found.interrupted || self.found.unanswered > 0 || self.found.forbidden.is_some() {
                break;
            }
            let before = (self.so_far)();
            let started = Instant::now();
            let tally = self.step(depth, started + share, &mut || picks.random(), &|tally| {
                if !bar.is_hidden() {
                    let rate = tally.reads() as f64 / started.elapsed().as_secs_f64().max(1e-9);
                    bar.set_message(format!("probing: depth {depth} of {DEPTH_MAX}, {rate:.0} records/s"));
                }
            });
            self.found.steps.extend(tally.step(depth, started.elapsed()));
            let since = before.and_then(|before| Some((self.so_far)()?.since(&before)));
            on_the_wire.extend(since);
        }
        bar.finish_and_clear();
        if self.in_flight > 0 {
            // Dropping the reads would wait for those that hang. The process ends soon, and the
            // kernel keeps the memory.
            Box::leak(Box::new(self.reads));
        }
        if self.found.steps.len() == DEPTHS.len() && !self.found.interrupted {
            self.found.knee_depth = knee(&self.found.steps);
            self.found.store = store(&self.found.steps).map(|store| store.to_string());
            self.found.wire = Wire::of(&self.found.steps, &on_the_wire);
        }
        self.found
    }

    /// Keeps up to `depth` reads of the samples from `next` in flight until `deadline`, one at
    /// least, then waits for them.
    fn step(
        &mut self,
        depth: u32,
        deadline: Instant,
        next: &mut impl FnMut() -> Option<SampleId>,
        watch: &dyn Fn(&Tally),
    ) -> Tally {
        let mut tally = Tally::default();
        let mut patience = deadline + DRAIN_MAX;
        let (mut more, mut is_first) = (true, true);
        loop {
            if self.stop.load(Ordering::Relaxed) && !self.found.interrupted {
                self.found.interrupted = true;
                patience = patience.min(Instant::now() + STOP_MAX);
            }
            // A forbidden shard is not tried again: each try may be a request to a server.
            let stopped = self.found.interrupted || self.found.forbidden.is_some();
            more = more && !stopped && (is_first || Instant::now() < deadline);
            is_first = false;
            while more && self.in_flight < depth && self.has_memory() {
                more = next().is_some_and(|sample| self.submit(sample));
            }
            if self.in_flight == 0 {
                return tally;
            }
            match self.completions.recv_timeout(PAUSE) {
                Ok(completion) => self.take(completion, &mut tally),
                Err(RecvTimeoutError::Timeout) if Instant::now() < patience => {}
                Err(_) => {
                    self.found.unanswered = self.in_flight;
                    return tally;
                }
            }
            watch(&tally);
        }
    }

    /// Whether there are blocks for the largest record.
    fn has_memory(&self) -> bool {
        self.free.free_bytes() >= self.most_bytes
    }

    /// Submits a read; false if the index has no such sample, or there is no memory.
    fn submit(&mut self, sample: SampleId) -> bool {
        let Some(entry) = self.index.entry(sample) else { return false };
        let Some(blocks) = self.free.take(u64::from(entry.stored_len)) else { return false };
        self.reads.submit(ReadOp {
            flight: 0,
            sample,
            shard: entry.shard,
            offset: entry.offset,
            len: entry.stored_len,
            crc32c: entry.crc32c,
            recheck: false,
            blocks,
        });
        self.in_flight += 1;
        true
    }

    fn take(&mut self, completion: Completion, tally: &mut Tally) {
        self.in_flight -= 1;
        let outcome = verify(&completion, &self.arena);
        let Completion { op, latency, .. } = completion;
        match outcome {
            Ok(()) => tally.count(op.len, latency),
            Err(fault) => {
                self.found.errors += 1;
                if fault.is_forbidden() {
                    self.found.forbidden.get_or_insert_with(|| fault.to_string());
                }
                let shard = self.index.shard(op.shard).map_or("?", |shard| shard.name);
                let say =
                    || format!("sample {} in shard {shard} at byte {}: {fault}", op.sample.0, op.offset);
                self.found.first_error.get_or_insert_with(say);
            }
        }
        self.free.give(op.blocks);
    }
}

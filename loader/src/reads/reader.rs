//! The front: starts an engine and takes reads.

use super::config::{READS_DEPTH_MAX, ReadsConfig};
use super::delivery::Delivery;
use super::direct;
use super::engine::{self, Engine};
use super::fault::{ReadsError, ShardWarning};
use super::files::{Files, any_shard, survey};
use super::flight::{Flight, Shared};
use super::op::{Completion, ReadOp};
use super::store::{Link, Store};
use crate::blocks::Arena;
use crossbeam_channel::Sender;
use shade_formats::index::Index;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Reads records of one dataset. Dropping it stops: reads that have begun end, those that have not come back
/// as [`Stopped`](super::ReadFault::Stopped), and all have been sent before the drop returns.
pub struct Reads {
    // Dropped in this order: the engine's threads, then the way to the store, then the store's thread.
    engine: Box<dyn Engine>,
    link: Option<Mutex<Link>>,
    _store: Option<Store>,
    description: String,
    warnings: Vec<ShardWarning>,
}

impl Reads {
    /// Starts reading the shards in `folder`, which `index` describes, into blocks of `arena`. Every read
    /// that is submitted comes back through `completions`, in any order. Shards are opened when first read.
    ///
    /// # Errors
    ///
    /// The depth is out of range, or what was demanded ([`Uring`](super::EngineChoice::Uring),
    /// [`Direct`](super::IoMode::Direct)) cannot be had here. Missing shards are no error, but
    /// [`warnings`](Self::warnings).
    pub fn start(
        folder: &Path,
        index: Arc<Index>,
        arena: Arc<Arena>,
        config: ReadsConfig,
        completions: Sender<Completion>,
    ) -> Result<Self, ReadsError> {
        if !(1..=READS_DEPTH_MAX).contains(&config.depth) {
            return Err(ReadsError::Depth { got: config.depth });
        }
        let warnings = survey(folder, &index);
        let choice =
            direct::choose(config.io, folder, any_shard(folder, &index).as_deref(), arena.align_bytes())
                .map_err(|why| ReadsError::Direct { folder: folder.to_owned(), why })?;
        let io = choice.to_string();
        let (store, to_store) = match config.store {
            Some(_) => {
                let (store, sender) =
                    Store::start(completions.clone()).map_err(|source| ReadsError::Thread { source })?;
                (Some(store), Some(sender))
            }
            None => (None, None),
        };
        let shared = Arc::new(Shared {
            files: Files::new(folder, index, choice),
            arena,
            delivery: Delivery::new(completions, to_store),
        });
        let (engine, name) = engine::start(config.engine, config.depth, &shared)?;
        let simulated = config.store.map_or_else(String::new, |model| format!("; {model}"));
        Ok(Self {
            engine,
            link: config.store.map(|model| Mutex::new(Link::new(model))),
            _store: store,
            description: format!("{name}, {io}{simulated}"),
            warnings,
        })
    }

    /// Hands a read over. Never blocks; what exceeds the depth waits for its turn.
    pub fn submit(&self, op: ReadOp) {
        let now = Instant::now();
        let due = self
            .link
            .as_ref()
            .map(|link| link.lock().unwrap_or_else(PoisonError::into_inner).answer_at(now, op.len));
        self.engine.submit(Flight::new(op, now, due));
    }

    /// How records are read and why so, on one line.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Shards that were missing or had a wrong size at start. Reading on is sound: their records fail one by
    /// one.
    #[must_use]
    pub fn warnings(&self) -> &[ShardWarning] {
        &self.warnings
    }
}

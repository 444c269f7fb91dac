//! Reads spans of shards; safe after a `fork`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use shade_dataset::{Files, IsStopped, ReadFault, ReadMemory};
use shade_formats::ShardId;
use shade_formats::index::Index;

use crate::fork::Owner;

/// The files of a dataset's shards, opened when first read.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Arc<Files>,
    owner: Owner,
}

impl Shards {
    /// The shards in `folder`. `direct` reads past the page cache where the file system allows.
    ///
    /// Choose what the daemon does. On NFS buffered and direct reads of one file wait for each
    /// other, as the client empties the file's page cache between them.
    pub(crate) fn new(folder: &Path, index: &Arc<Index>, direct: bool) -> Self {
        let files = Arc::new(Files::new(folder, Arc::clone(index), direct));
        Self { files, owner: Owner::here() }
    }

    /// The bytes `range` of a shard. Waits for a store to recover unless `is_stopped`.
    pub(crate) fn read<'m>(
        &self,
        shard: ShardId,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
        is_stopped: IsStopped<'_>,
    ) -> Result<&'m [u8], ReadFault> {
        match self.files.read(shard, range, memory, is_stopped) {
            (bytes, None) => Ok(bytes),
            (_, Some(fault)) => Err(fault),
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        // Another thread may have been opening a file during the fork: a child does not touch the
        // files.
        if !self.owner.is_here() {
            Box::leak(Box::new(Arc::clone(&self.files)));
        }
    }
}

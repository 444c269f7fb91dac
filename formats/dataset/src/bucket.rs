//! The bucket that a dataset's shards are in, as seen by those who read them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shade_formats::ShardId;
use shade_formats::index::Index;
use shade_store::{Objects, StoreFault, Url};

use crate::descriptors::connections_max;
use crate::fault::ReadFault;
use crate::object::Object;
use crate::slots::{OpenShard, Source};

/// Objects in place of files.
#[derive(Debug)]
pub(crate) struct Bucket {
    url: Url,
    /// The client, made when it is first needed.
    objects: OnceLock<Result<Arc<Objects>, StoreFault>>,
}

impl Bucket {
    pub(crate) fn new(url: Url) -> Self {
        Self { url, objects: OnceLock::new() }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn objects(&self) -> Result<Arc<Objects>, StoreFault> {
        self.objects
            .get_or_init(|| Objects::open(&self.url, connections_max() as usize).map(Arc::new))
            .clone()
    }

    /// A shard. Nothing is asked of the store for it: the first read finds out what is there.
    pub(crate) fn open(&self, index: &Index, id: ShardId) -> Result<Arc<OpenShard>, ReadFault> {
        let shard = index.shard(id).ok_or(ReadFault::UnknownShard)?;
        let fault = |fault| ReadFault::Store { fault, tried: Duration::ZERO };
        let object =
            Object::new(self.objects().map_err(fault)?, shard.name, shard.bytes, index.changed_ns(id));
        Ok(Arc::new(OpenShard { source: Source::Object(object), direct_align_bytes: None }))
    }
}

//! Writes an index. The samples' ids are the order in which they are pushed.

use super::check::{check, content_id};
use super::entry::Entry;
use super::layout::{
    HEADER_BYTES, Header, KIND_CLASSES, KIND_ENTRIES, KIND_NAMES, KIND_OPTIONS, KIND_SHARDS, SECTION_BYTES,
    Section,
};
use super::names::NamesBuilder;
use super::reader::Shard;
use crate::checksum::crc32c;
use crate::error::FormatError;
use crate::ids::{SampleId, ShardId};

/// Collects shards, classes and samples, then gives the index's bytes.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    shards: Vec<u8>,
    shard_names: NamesBuilder,
    classes: NamesBuilder,
    entries: Vec<u8>,
    paths: NamesBuilder,
    options: String,
}

impl IndexBuilder {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next shard.
    ///
    /// # Errors
    /// There are 2³² already.
    pub fn push_shard(&mut self, shard: Shard<'_>) -> Result<ShardId, FormatError> {
        let id = count("shards", self.shard_names.len())?;
        self.shards.extend(shard.bytes.to_le_bytes());
        self.shards.extend(shard.records.to_le_bytes());
        self.shards.extend(shard.crc32c.to_le_bytes());
        self.shard_names.push(shard.name.as_bytes());
        Ok(ShardId(id))
    }

    /// Adds the next class and gives its label.
    ///
    /// # Errors
    /// There are 2³² already.
    pub fn push_class(&mut self, name: &[u8]) -> Result<u32, FormatError> {
        let label = count("classes", self.classes.len())?;
        self.classes.push(name);
        Ok(label)
    }

    /// Adds the next sample, whose source was `path`, relative to the ImageFolder's root.
    ///
    /// # Errors
    /// `entry.offset` is not a multiple of 512 or is beyond the largest shard; or there are 2³² samples already.
    pub fn push_sample(&mut self, entry: &Entry, path: &[u8]) -> Result<SampleId, FormatError> {
        let id = count("samples", self.paths.len())?;
        entry.encode(&mut self.entries)?;
        self.paths.push(path);
        Ok(SampleId(id))
    }

    /// Says how the dataset was packed, as JSON text.
    pub fn set_options(&mut self, json: &str) {
        json.clone_into(&mut self.options);
    }

    /// The index's bytes, after the checks that [`Index::open`](super::Index::open) will make.
    ///
    /// # Errors
    /// What was pushed does not fit together, for instance a label without class or a record beyond its shard's end.
    pub fn finish(self) -> Result<Vec<u8>, FormatError> {
        let mut shards = self.shards;
        self.shard_names.write(&mut shards);
        let mut classes = Vec::new();
        self.classes.write(&mut classes);
        let mut names = Vec::new();
        self.paths.write(&mut names);
        let content_id = content_id(&self.entries, &classes);
        // Entries come first: 64 + 5 x 32 bytes precede them, so each stays within one cache line.
        let sections = [
            (KIND_ENTRIES, self.entries),
            (KIND_SHARDS, shards),
            (KIND_CLASSES, classes),
            (KIND_NAMES, names),
            (KIND_OPTIONS, self.options.into_bytes()),
        ];
        let mut table = Vec::with_capacity(sections.len() * SECTION_BYTES);
        let mut offset = (HEADER_BYTES + sections.len() * SECTION_BYTES) as u64;
        for (kind, bytes) in &sections {
            let len = bytes.len() as u64;
            table.extend(Section { kind: *kind, flags: 0, offset, len, crc32c: crc32c(bytes) }.encode());
            offset = offset.saturating_add(len);
        }
        let header = Header {
            sections: count("sections", sections.len())?,
            content_id,
            samples: self.paths.len() as u64,
            shards: count("shards", self.shard_names.len())?,
            classes: count("classes", self.classes.len())?,
            table_crc32c: crc32c(&table),
        };
        let mut index = header.encode();
        index.extend(table);
        for (_, bytes) in sections {
            index.extend(bytes);
        }
        check(&index)?;
        Ok(index)
    }
}

fn count(what: &str, count: usize) -> Result<u32, FormatError> {
    u32::try_from(count).map_err(|_| {
        FormatError::new("index being built", 0, format_args!("{count} {what}"), "fewer than 2^32")
    })
}

//! Puts an index together from freshly packed shards, from other datasets, or from both.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use shade_formats::index::{
    Entry, FieldsRow, FieldsSpan, INDEX_FILE, Index, IndexBuilder, PlacesKind, Shard,
};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::{FormatError, SampleId, ShardId};

use crate::catalogue::{Bad, SampleStore};
use crate::error::Error;
use crate::files;
use crate::pack::{DoneRecord, NotDecodable, Packing};
use crate::plan::{PackPlan, shard_name};
use crate::times::{SourceFile, Times, TimesBuilder, write_times};
use crate::workers::Workers;

/// Records of completion of this many samples are read together, 40 bytes or more for each.
const SAMPLES_AT_ONCE: usize = 1 << 18;

/// Builds an index: shards with their samples. Classes come at any time.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    builder: IndexBuilder,
    shards: u32,
    /// One for each sample.
    keys: Vec<u32>,
    /// By sample, up to the last one that has any.
    fields: Vec<FieldsRow>,
    times: TimesBuilder,
    dictionaries: Vec<Vec<u8>>,
}

/// The bytes of an index and of `dataset.times`.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub index: Vec<u8>,
    /// None if no source file is known.
    pub times: Option<Vec<u8>>,
}

/// What a run of [`Packing`] has made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    /// Bytes of its shards.
    pub bytes: u64,
    /// Bytes of the images that are in them, and of their files of pairs, as in the source.
    pub source_bytes: u64,
    /// Records that are stored compressed.
    pub compressed: u64,
    /// What was left out.
    pub bad: Vec<Bad>,
    /// Samples that are in it.
    pub samples: u32,
    /// Labels of classes that had samples and have none left.
    pub lost: Vec<u32>,
    /// Records that trainers cannot decode.
    pub not_decodable: NotDecodable,
}

impl Assembly {
    pub(crate) fn new<'a>(classes: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, FormatError> {
        let mut assembly = Self::default();
        for class in classes {
            assembly.builder.push_class(class)?;
        }
        Ok(assembly)
    }

    /// Adds a class, behind those that are there.
    pub(crate) fn push_class(&mut self, name: &[u8]) -> Result<(), FormatError> {
        self.builder.push_class(name).map(|_| ())
    }

    /// Adds all shards that `packing`, or runs of its parts, have completed, and their samples in
    /// the order of the catalogue.
    pub(crate) fn add_packed(&mut self, packing: &Packing<'_>, readers: &Workers) -> Result<Packed, Error> {
        let fault = |source| Error::Index { path: packing.folder.to_owned(), source };
        let catalogue = packing.catalogue;
        let mut packed = Packed::default();
        let mut records: Vec<Option<Entry>> = vec![None; catalogue.len() as usize];
        // By place in `records`: who says where fields are, and its number there. Most samples have
        // none.
        let mut fields_of: HashMap<usize, (Arc<Index>, SampleId)> = HashMap::new();
        for some in read_together(packing.plan) {
            let done = readers.each(&some, packing.stop, |&number| {
                let gone = || {
                    let path = packing.folder.join(shard_name(packing.shard_id(number).0));
                    Error::Source { path, fault: "vanished after it was packed".to_owned() }
                };
                packing.done(number)?.ok_or_else(gone)
            })?;
            for done in &done {
                let Some(row) = done.shard() else { continue };
                let shard = self.builder.push_shard(row).map_err(fault)?;
                self.shards += 1;
                packed.bytes += row.bytes;
                packed.bad.extend_from_slice(&done.bad);
                packed.not_decodable.extend(&done.not_decodable);
                for DoneRecord { sample, entry, in_shard } in done.records() {
                    if let Some(record) = records.get_mut(sample.index()) {
                        *record = Some(Entry { shard, ..entry });
                        if done.index().fields(in_shard).is_some() {
                            fields_of.insert(sample.index(), (Arc::clone(done.index()), in_shard));
                        }
                    }
                }
            }
        }
        let mut left = vec![0u32; catalogue.classes.len()];
        for ((number, sample), record) in (0u32..).zip(catalogue.samples()).zip(records) {
            let Some(entry) = record else { continue };
            let fields = fields_of.remove(&(number as usize));
            if let Some(left) = left.get_mut(sample.label as usize) {
                *left += 1;
            }
            packed.samples += 1;
            packed.source_bytes += catalogue.bytes_of(SampleId(number));
            packed.compressed += u64::from(entry.codec.is_compressed());
            let key = packing.first_key.saturating_add(number);
            // A file that was written to since it was listed was not packed, so this is the packed
            // file.
            let changed_ns = catalogue.changed_ns_of(SampleId(number));
            let file = SourceFile { changed_ns, bytes: sample.bytes };
            // A stream has no time.
            let file = (!matches!(sample.store, SampleStore::Piece { .. })).then_some(file);
            let fields = fields.as_ref().map(|(index, sample)| (&**index, *sample));
            self.push(&entry, sample.path.as_bytes(), key, fields).map_err(fault)?;
            self.times.push(file, entry.crc32c);
        }
        let lost = (0u32..).zip(catalogue.counts()).zip(left).filter(|((_, had), has)| *had > 0 && *has == 0);
        packed.lost = lost.map(|((label, _), _)| label).collect();
        let dictionary = packing.recipe.dictionary();
        if !dictionary.is_empty() {
            self.push_dictionary(dictionary).map_err(fault)?;
        }
        Ok(packed)
    }

    /// Adds all of `index`: class `n` becomes class `labels[n]`, shard `n` is named
    /// `shard_name(n)`. `times` lay beside it.
    pub(crate) fn add_index(
        &mut self,
        index: &Index,
        times: &Times,
        labels: &[u32],
        shard_name: impl Fn(ShardId) -> String,
    ) -> Result<(), FormatError> {
        let first = self.shards;
        for shard in (0..index.shard_count()).map(ShardId) {
            let Some(row) = index.shard(shard) else { continue };
            self.builder.push_shard(Shard { name: &shard_name(shard), ..row })?;
            self.shards += 1;
        }
        for sample in (0..index.len()).map(SampleId) {
            let (Some(entry), Some(path)) = (index.entry(sample), index.path(sample)) else { continue };
            let shard = ShardId(first.saturating_add(entry.shard.0));
            let label = labels.get(entry.label as usize).copied().unwrap_or(entry.label);
            let key = index.key(sample);
            self.push(&Entry { shard, label, ..entry }, path, key, Some((index, sample)))?;
            self.times.push(times.get(sample, &entry), entry.crc32c);
        }
        index.dictionaries().try_for_each(|dictionary| self.push_dictionary(dictionary))
    }

    /// Says that shards lie below `base`, and not beside the index.
    pub(crate) fn set_base(&mut self, base: &Path) {
        self.builder.set_places(PlacesKind::Shards, base.as_os_str().as_bytes(), Vec::new());
    }

    /// Adds a shard; its number is that of shards before it.
    pub(crate) fn add_shard(&mut self, shard: Shard<'_>) -> Result<(), FormatError> {
        self.builder.push_shard(shard)?;
        self.shards += 1;
        Ok(())
    }

    /// Adds these samples of `index`, each with its entry among the shards that were added. `times`
    /// lay beside it.
    pub(crate) fn add_samples(
        &mut self,
        index: &Index,
        times: &Times,
        samples: &[(SampleId, Entry)],
    ) -> Result<(), FormatError> {
        for (sample, entry) in samples {
            let path = index.path(*sample).unwrap_or_default();
            self.push(entry, path, index.key(*sample), Some((index, *sample)))?;
            self.times.push(times.get(*sample, entry), entry.crc32c);
        }
        index.dictionaries().try_for_each(|dictionary| self.push_dictionary(dictionary))
    }

    /// Adds a sample, with the fields of one of an index, whose shard is its own.
    fn push(
        &mut self,
        entry: &Entry,
        path: &[u8],
        key: u32,
        fields: Option<(&Index, SampleId)>,
    ) -> Result<(), FormatError> {
        self.builder.push_sample(entry, path)?;
        if let Some((index, sample)) = fields
            && let Some(span) = index.fields(sample)
        {
            self.fields.resize(self.keys.len(), FieldsRow::default());
            self.fields.push(row_of(span));
            index.field_ends(sample).try_for_each(|end| self.builder.push_field_end(end))?;
        }
        self.keys.push(key);
        Ok(())
    }

    /// Adds a dictionary, unless it was added: parts of one dataset may be put together again.
    fn push_dictionary(&mut self, dictionary: &[u8]) -> Result<(), FormatError> {
        if !self.dictionaries.iter().any(|known| known == dictionary) {
            self.builder.push_dictionary(dictionary)?;
            self.dictionaries.push(dictionary.to_owned());
        }
        Ok(())
    }

    /// Ends the index. `options` says how the dataset was made, as JSON.
    pub(crate) fn finish(mut self, options: &serde_json::Value) -> Result<Assembled, FormatError> {
        self.builder.set_options(&options.to_string());
        if !self.fields.is_empty() {
            self.fields.resize(self.keys.len(), FieldsRow::default());
            self.builder.set_fields(self.fields);
        }
        self.builder.set_keys(self.keys);
        Ok(Assembled { index: self.builder.finish()?, times: self.times.finish() })
    }
}

/// A sample's row of the fields section, as it was written.
fn row_of(span: FieldsSpan) -> FieldsRow {
    FieldsRow {
        blocks: u32::try_from(span.len / SHARD_ALIGN_BYTES).unwrap_or(u32::MAX),
        // Only shards have rows, and each of theirs has one.
        crc32c: span.crc32c.unwrap_or(0),
    }
}

/// Shards whose records of completion are read together. A distant store answers slowly, and all
/// would take much memory.
fn read_together(plan: &PackPlan) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut room = 0usize;
    for number in 0..plan.shard_count() {
        let samples = plan.shard(number).len();
        match all.last_mut() {
            Some(some) if samples <= room => some.push(number),
            _ => {
                all.push(vec![number]);
                room = SAMPLES_AT_ONCE;
            }
        }
        room = room.saturating_sub(samples);
    }
    all
}

impl Assembled {
    /// Writes both into `dir`, in place of what is there. Readers see the old index or the new one.
    /// The index comes last: it makes the dataset.
    pub(crate) fn write(&self, dir: &Path, sync: bool) -> Result<(), Error> {
        write_times(dir, self.times.as_deref(), sync)?;
        files::put(&dir.join(INDEX_FILE), &self.index, sync)
    }
}

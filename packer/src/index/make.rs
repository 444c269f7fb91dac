//! Builds the index of what was listed and looked at.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::stat;
use shade_formats::index::{Codec, Entry, FieldPlace, IndexBuilder, PlacesKind, Shard};
use shade_formats::limits::FIELDS_BYTES_MAX;
use shade_formats::{FormatError, SampleId, ShardId};

use super::look::Looked;
use crate::catalogue::{Bad, Catalogue, FieldContent, Sample, SampleStore};
use crate::error::Error;
use crate::pack::NotDecodable;
use crate::source::image_folder::changed_ns;
use crate::source_bucket::BucketTar;

/// An index that was built, and what is in it.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) index: Vec<u8>,
    pub(super) samples: u32,
    pub(super) files: u32,
    /// Bytes of the images.
    pub(super) bytes: u64,
    pub(super) bad: Vec<Bad>,
    /// Labels of classes that had samples and have none left.
    pub(super) lost: Vec<u32>,
    pub(super) not_decodable: NotDecodable,
}

/// Builds an index of files in `base`.
pub(super) struct Making<'a> {
    catalogue: &'a Catalogue,
    kind: PlacesKind,
    /// The source, as it was named, and its canonical path.
    source: &'a Path,
    base: &'a Path,
    builder: IndexBuilder,
    /// Shards in the order of their first sample.
    shards: Vec<ShardRow>,
    of_tar: HashMap<PathBuf, u32>,
    made: Made,
}

struct ShardRow {
    /// Empty for an image's own file.
    name: String,
    bytes: u64,
    changed_ns: i64,
    records: u32,
}

impl<'a> Making<'a> {
    pub(super) fn new(catalogue: &'a Catalogue, kind: PlacesKind, source: &'a Path, base: &'a Path) -> Self {
        let (builder, made) = (IndexBuilder::new(), Made::default());
        Self { catalogue, kind, source, base, builder, shards: Vec::new(), of_tar: HashMap::new(), made }
    }

    /// Builds it. `options` says how, as JSON.
    pub(super) fn all(mut self, looked: Vec<Result<Looked, Bad>>, options: &str) -> Result<Made, Error> {
        let path = self.source;
        let fault = |source| Error::Index { path: path.to_owned(), source };
        for class in &self.catalogue.classes {
            self.builder.push_class(class.as_bytes()).map_err(fault)?;
        }
        let mut left = vec![0u32; self.catalogue.classes.len()];
        for (id, looked) in (0u32..).map(SampleId).zip(looked) {
            let Some(sample) = self.catalogue.sample(id) else { continue };
            match looked.and_then(|looked| self.fields_fit(id, &sample).map(|()| looked)) {
                Ok(looked) => {
                    self.sample(id, &sample, &looked)?.map_err(fault)?;
                    left.get_mut(sample.label as usize).into_iter().for_each(|left| *left += 1);
                }
                Err(bad) => self.made.bad.push(bad),
            }
        }
        let lost = (0u32..).zip(self.catalogue.counts()).zip(left);
        self.made.lost =
            lost.filter(|((_, had), has)| *had > 0 && *has == 0).map(|((label, _), _)| label).collect();
        self.made.files = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        for ShardRow { name, bytes, records, .. } in &self.shards {
            let (name, bytes, records) = (name.as_str(), *bytes, *records);
            self.builder.push_shard(Shard { name, bytes, crc32c: 0, records }).map_err(fault)?;
        }
        let times = self.shards.iter().map(|shard| shard.changed_ns).collect();
        self.builder.set_places(self.kind, self.base.as_os_str().as_bytes(), times);
        self.builder.set_options(options);
        self.made.index = self.builder.finish().map_err(fault)?;
        Ok(self.made)
    }

    fn sample(
        &mut self,
        id: SampleId,
        sample: &Sample<'_>,
        looked: &Looked,
    ) -> Result<Result<(), FormatError>, Error> {
        let shard = self.shard(sample)?;
        let Looked { media, width, height, crc32c, fields, not_decodable } = looked;
        let entry = Entry {
            shard: ShardId(shard),
            offset: sample.offset,
            stored_len: sample.bytes,
            raw_len: sample.bytes,
            crc32c: *crc32c,
            label: sample.label,
            width: *width,
            height: *height,
            codec: Codec::None,
            media: *media,
        };
        self.made.samples += 1;
        self.made.bytes += u64::from(sample.bytes);
        not_decodable.iter().for_each(|kind| self.made.not_decodable.note(*kind, sample.path));
        if let Err(fault) = self.builder.push_sample(&entry, sample.path.as_bytes()) {
            return Ok(Err(fault));
        }
        for (field, crc32c) in self.catalogue.fields(id).zip(fields) {
            if let FieldContent::Stored { offset, bytes } = field.content {
                let place = FieldPlace { name: field.name, offset, bytes, crc32c: *crc32c };
                if let Err(fault) = self.builder.push_field(place) {
                    return Ok(Err(fault));
                }
            }
        }
        Ok(Ok(()))
    }

    /// The number of the shard that holds a sample, counted as one more of its records.
    fn shard(&mut self, sample: &Sample<'_>) -> Result<u32, Error> {
        let next = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        let number = match sample.store {
            SampleStore::Container(tar) => match self.of_tar.get(tar) {
                Some(number) => *number,
                None => {
                    let row = self.tar(tar, sample.changed_ns)?;
                    self.shards.push(row);
                    self.of_tar.insert(tar.clone(), next);
                    next
                }
            },
            SampleStore::BucketTar(tar) => match self.of_tar.get(Path::new(&tar.name)) {
                Some(number) => *number,
                None => {
                    let BucketTar { name, bytes, version, .. } = tar.clone();
                    self.of_tar.insert(name.clone().into(), next);
                    self.shards.push(ShardRow { name, bytes, changed_ns: version, records: 0 });
                    next
                }
            },
            SampleStore::Piece { .. } => unreachable!("nothing is left of a stream to point at"),
            SampleStore::Folder(_) | SampleStore::Bucket(_) => {
                let (bytes, changed_ns) = (u64::from(sample.bytes), sample.changed_ns);
                self.shards.push(ShardRow { name: String::new(), bytes, changed_ns, records: 0 });
                next
            }
        };
        self.shards.get_mut(number as usize).into_iter().for_each(|shard| shard.records += 1);
        Ok(number)
    }

    /// A tar, which must be as it was listed.
    fn tar(&self, tar: &Path, listed_ns: i64) -> Result<ShardRow, Error> {
        let found = stat(tar).map_err(|errno| Error::io("look at", tar)(errno.into()))?;
        if changed_ns(&found) != listed_ns {
            return Err(Error::source(tar, "it was written to while it was indexed: try again"));
        }
        let name = tar.strip_prefix(self.source).ok().and_then(Path::to_str);
        let name = name.ok_or_else(|| Error::source(tar, "its name is not UTF-8: rename it"))?.to_owned();
        let bytes = u64::try_from(found.st_size).unwrap_or_default();
        Ok(ShardRow { name, bytes, changed_ns: listed_ns, records: 0 })
    }

    /// Refuses a sample whose fields cannot be read at once.
    fn fields_fit(&self, id: SampleId, sample: &Sample<'_>) -> Result<(), Bad> {
        let places = self.catalogue.fields(id).filter_map(|field| match field.content {
            FieldContent::Stored { offset, bytes } => Some((offset, offset.saturating_add(bytes.into()))),
            FieldContent::Inline(_) | FieldContent::File { .. } => None,
        });
        let (start, end) =
            places.fold((u64::MAX, 0), |(start, end), (from, to)| (start.min(from), end.max(to)));
        if end.saturating_sub(start) <= FIELDS_BYTES_MAX {
            return Ok(());
        }
        let bytes = end - start;
        let text = format!(
            "{}: its fields span {bytes} bytes of the tar; an index takes {FIELDS_BYTES_MAX}: pack it \
             (shade-pack create)",
            sample.path
        );
        Err(Bad::new(&sample.file(), text))
    }
}

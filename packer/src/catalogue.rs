//! What a source holds, sample by sample, in columns: a million samples take some 70 MB, mostly
//! their paths.
//!
//! A sample's id is its position. Sources fill a catalogue in order; later steps only read it.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shade_formats::SampleId;
use shade_formats::limits::{RECORD_BYTES_MAX, SAMPLES_MAX};
use shade_formats::printable::OneLine;

use crate::pair::Pair;
use crate::source_bucket::{BucketTar, SourceBucket};

/// All samples of a source and what they are labelled.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Class names; the label is the position.
    pub classes: Vec<String>,
    pub(crate) stores: Vec<SampleStore>,
    /// Folders with a file for each sample, which is its field of the pair's name.
    pub(crate) pairs: Vec<Pair>,
    /// What was found and cannot be packed. Such samples are not in the catalogue.
    pub bad: Vec<Bad>,
    /// Whether labels are numbers in the source, too.
    pub(crate) has_numbers: bool,
    /// Labels of classes of which the source has something, but all of it is bad.
    pub(crate) lost: Vec<u32>,
    /// Classes of which the source has a folder without an image.
    pub(crate) empty: Vec<EmptyClass>,
    /// Whether samples have no labels although nobody said so.
    pub(crate) is_unlabelled_by_default: bool,
    /// Why its labels may be none.
    pub(crate) doubt: Option<String>,
    /// What people should know of the source, each in one line.
    pub(crate) notes: Vec<String>,
    /// The folders that were listed, by their paths below the source, and when each was last
    /// changed, in nanoseconds since 1970.
    pub(crate) folders: Vec<ListedFolder>,
    paths: Paths,
    rows: Vec<SampleRow>,
    /// Where each record begins in its store; empty when every sample is a file of its own.
    offsets: Vec<u64>,
    fields: Fields,
    /// Ids in the catalogue of which this is a part; empty for a whole one.
    whole_ids: Vec<SampleId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SampleStore {
    /// A folder: each sample is the file at its own path below it.
    Folder(PathBuf),
    /// One file, a tar, that holds samples at offsets.
    Container(PathBuf),
    /// A bucket: each sample is the object at its own path below the address.
    Bucket(SourceBucket),
    /// One object, a tar, that holds samples at offsets.
    BucketTar(BucketTar),
    /// A piece of a stream, a temporary file of this process: no one else writes to it.
    Piece {
        path: PathBuf,
        /// The place of its first byte in the stream.
        base: u64,
    },
}

/// A folder as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedFolder {
    /// Below the source; empty for the source itself.
    pub(crate) path: String,
    /// 0 where it was being changed: nothing is equal to that. What identifies all that was listed
    /// of a bucket.
    pub(crate) changed_ns: i64,
}

/// What messages call a stream.
pub(crate) const STREAM: &str = "standard input";

/// A folder of a class in which no file has the extension of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmptyClass {
    pub(crate) label: u32,
    /// The name of a file that is there instead.
    pub(crate) other: Option<String>,
}

/// A file that cannot become a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[error("{}: {}", OneLine(path), OneLine(fault))]
pub struct Bad {
    /// Its path, for people.
    pub path: String,
    /// What is wrong with it.
    pub fault: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitFault {
    #[error("an empty file")]
    Empty,
    #[error("{0} bytes; a record holds at most {RECORD_BYTES_MAX}")]
    Record(u64),
    #[error("one sample too many: a dataset holds at most {SAMPLES_MAX}")]
    Samples,
    /// Names of fields are numbered by 16 bits.
    #[error("too many different fields: {0} names")]
    FieldNames(usize),
    #[error("a field of more than 4 GiB")]
    Field,
    /// Fields are numbered by 32 bits.
    #[error("too many fields")]
    Fields,
}

/// One sample, seen through its catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Its path in the ImageFolder that `extract` writes, such as `cat/1.png`.
    pub path: &'a str,
    /// Position of its class.
    pub label: u32,
    /// Bytes of its image when it was listed.
    pub(crate) bytes: u32,
    /// When its file was last changed, in nanoseconds since 1970, as listed. The version of an
    /// object in a bucket.
    pub(crate) changed_ns: i64,
    pub(crate) store: &'a SampleStore,
    /// Where it begins there.
    pub(crate) offset: u64,
}

/// An extra field of a sample: something to keep beside its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// Its name, the extension of its member: `json`, `txt`, `mask.png`.
    pub(crate) name: &'a str,
    pub(crate) content: FieldContent<'a>,
}

/// Where a field's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldContent<'a> {
    Inline(&'a [u8]),
    /// In the sample's container, from this offset on.
    Stored {
        offset: u64,
        bytes: u32,
    },
    /// In a file of its own, beside the sample's. A field with the pair's name.
    File {
        pair: &'a Pair,
        bytes: u32,
        /// When it was last changed, in nanoseconds since 1970, as listed.
        changed_ns: i64,
    },
}

/// A sample to be pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSample<'a> {
    pub(crate) path: &'a str,
    pub(crate) label: u32,
    pub(crate) bytes: u32,
    pub(crate) changed_ns: i64,
    /// Position in [`Catalogue::stores`].
    pub(crate) store: u32,
    /// Where it begins in a container; 0 for a file of its own.
    pub(crate) offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct SampleRow {
    changed_ns: i64,
    label: u32,
    bytes: u32,
    store: u32,
}

/// Paths one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    text: String,
    ends: Vec<u64>,
}

/// Extra fields of all samples; empty columns when no sample has any.
#[derive(Debug, Default)]
struct Fields {
    /// Fields of the samples up to and including this one; shorter than the samples when the last
    /// ones have none.
    ends: Vec<u32>,
    rows: Vec<FieldRow>,
    names: Vec<String>,
    inline: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct FieldRow {
    name: u16,
    kind: FieldKind,
    bytes: u32,
    /// Offset in `Fields::inline` or in the container; of a file, the bits of its time.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
enum FieldKind {
    Inline,
    Stored,
    File,
}

impl FieldContent<'_> {
    /// Bytes of it.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Inline(content) => content.len() as u64,
            Self::Stored { bytes, .. } | Self::File { bytes, .. } => u64::from(*bytes),
        }
    }
}

impl Paths {
    pub(crate) fn push(&mut self, path: &str) {
        self.text.push_str(path);
        self.ends.push(self.text.len() as u64);
    }

    /// Adds the path of `name` in a folder; the root has no name.
    pub(crate) fn push_joined(&mut self, folder: &str, name: &str) {
        if !folder.is_empty() {
            self.text.push_str(folder);
            self.text.push('/');
        }
        self.push(name);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&str> {
        let end = usize::try_from(*self.ends.get(number)?).ok()?;
        let start = match number.checked_sub(1) {
            Some(before) => usize::try_from(*self.ends.get(before)?).ok()?,
            None => 0,
        };
        self.text.get(start..end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|number| self.get(number))
    }
}

impl Catalogue {
    pub(crate) fn new(stores: Vec<SampleStore>) -> Self {
        Self { stores, ..Self::default() }
    }

    /// One without samples that has the stores and pairs of `other`.
    pub(crate) fn over(other: &Self) -> Self {
        Self { stores: other.stores.clone(), pairs: other.pairs.clone(), ..Self::default() }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn reserve(&mut self, samples: usize, path_bytes: usize) {
        self.rows.reserve_exact(samples);
        self.paths.ends.reserve_exact(samples);
        self.paths.text.reserve_exact(path_bytes);
    }

    pub(crate) fn push(&mut self, sample: NewSample<'_>) -> Result<SampleId, LimitFault> {
        check_bytes(sample.bytes.into())?;
        let id = self.len();
        if u64::from(id) >= SAMPLES_MAX {
            return Err(LimitFault::Samples);
        }
        let NewSample { path, label, bytes, changed_ns, store, offset } = sample;
        self.paths.push(path);
        self.rows.push(SampleRow { changed_ns, label, bytes, store });
        if offset != 0 || !self.offsets.is_empty() {
            self.offsets.resize(id as usize, 0);
            self.offsets.push(offset);
        }
        Ok(SampleId(id))
    }

    /// Adds sample `whole_id` of the catalogue of which this one is a part.
    pub(crate) fn push_of_whole(
        &mut self,
        whole_id: SampleId,
        sample: NewSample<'_>,
    ) -> Result<(), LimitFault> {
        self.push(sample)?;
        self.whole_ids.push(whole_id);
        Ok(())
    }

    /// Gives the sample that was pushed last an extra field.
    pub(crate) fn push_field(&mut self, name: &str, content: FieldContent<'_>) -> Result<(), LimitFault> {
        let fields = &mut self.fields;
        let number = match fields.names.iter().position(|known| known == name) {
            Some(number) => number,
            None => {
                fields.names.push(name.to_owned());
                fields.names.len() - 1
            }
        };
        let name = u16::try_from(number).map_err(|_| LimitFault::FieldNames(number + 1))?;
        let row = match content {
            FieldContent::Stored { offset, bytes } => {
                FieldRow { name, kind: FieldKind::Stored, bytes, at: offset }
            }
            FieldContent::File { bytes, changed_ns, .. } => {
                FieldRow { name, kind: FieldKind::File, bytes, at: changed_ns.cast_unsigned() }
            }
            FieldContent::Inline(content) => {
                let at = fields.inline.len() as u64;
                fields.inline.extend_from_slice(content);
                let bytes = u32::try_from(content.len()).map_err(|_| LimitFault::Field)?;
                FieldRow { name, kind: FieldKind::Inline, bytes, at }
            }
        };
        let before = fields.ends.last().copied().unwrap_or(0);
        // Samples since then had none.
        fields.ends.resize(self.rows.len(), before);
        fields.rows.push(row);
        if let Some(end) = fields.ends.last_mut() {
            *end = u32::try_from(fields.rows.len()).map_err(|_| LimitFault::Fields)?;
        }
        Ok(())
    }

    /// Adds sample `id` of `from`, a catalogue over the same stores, with its fields, under another
    /// label.
    pub(crate) fn push_from(
        &mut self,
        from: &Self,
        id: SampleId,
        label: u32,
    ) -> Result<Option<SampleId>, LimitFault> {
        let (Some(sample), Some(row)) = (from.sample(id), from.rows.get(id.index())) else {
            return Ok(None);
        };
        let Sample { path, bytes, changed_ns, offset, .. } = sample;
        let new = self.push(NewSample { path, label, bytes, changed_ns, store: row.store, offset })?;
        for field in from.fields(id) {
            self.push_field(field.name, field.content)?;
        }
        Ok(Some(new))
    }

    /// Replaces the class table: class `n` becomes class `labels[n]`.
    pub(crate) fn relabel(&mut self, classes: Vec<String>, labels: &[u32]) {
        for row in &mut self.rows {
            row.label = labels.get(row.label as usize).copied().unwrap_or(row.label);
        }
        let own = self.lost.iter_mut().chain(self.empty.iter_mut().map(|empty| &mut empty.label));
        for label in own {
            *label = labels.get(*label as usize).copied().unwrap_or(*label);
        }
        self.classes = classes;
    }

    /// The number of samples of each class.
    pub(crate) fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0u32; self.classes.len()];
        for row in &self.rows {
            if let Some(count) = counts.get_mut(row.label as usize) {
                *count = count.saturating_add(1);
            }
        }
        counts
    }

    /// Notes which of these labels no sample has: those of classes whose samples are all bad.
    pub(crate) fn note_lost(&mut self, labels: impl Iterator<Item = u32>) {
        let counts = self.counts();
        self.lost = labels.filter(|label| counts.get(*label as usize) == Some(&0)).collect();
        self.lost.sort_unstable();
        self.lost.dedup();
    }

    /// Takes classes, notes and bad samples from `listed`, of whose samples it has those that are
    /// not bad.
    pub(crate) fn take_over(&mut self, listed: &mut Self) {
        let had_samples = (0u32..).zip(listed.counts()).filter(|(_, count)| *count > 0);
        let known: Vec<u32> =
            had_samples.map(|(label, _)| label).chain(listed.lost.iter().copied()).collect();
        self.bad.append(&mut listed.bad);
        self.notes.append(&mut listed.notes);
        self.empty = std::mem::take(&mut listed.empty);
        self.classes = std::mem::take(&mut listed.classes);
        self.note_lost(known.into_iter());
    }

    /// A sample; `None` from [`len`](Self::len) on.
    pub(crate) fn sample(&self, id: SampleId) -> Option<Sample<'_>> {
        let row = self.rows.get(id.index())?;
        Some(Sample {
            path: self.paths.get(id.index())?,
            label: row.label,
            bytes: row.bytes,
            changed_ns: row.changed_ns,
            store: self.stores.get(row.store as usize)?,
            offset: self.offsets.get(id.index()).copied().unwrap_or(0),
        })
    }

    /// The id of a sample in the catalogue of which this is a part: its own in a whole one.
    pub(crate) fn whole_id(&self, id: SampleId) -> SampleId {
        self.whole_ids.get(id.index()).copied().unwrap_or(id)
    }

    /// Makes it the part of another catalogue whose samples have these ids there. With none it is a
    /// whole one: ids are positions.
    pub(crate) fn set_whole_ids(&mut self, ids: Vec<SampleId>) {
        self.whole_ids = ids;
    }

    /// The position of a sample's store in [`Catalogue::stores`].
    pub(crate) fn store_of(&self, id: SampleId) -> Option<u32> {
        Some(self.rows.get(id.index())?.store)
    }

    /// All samples in the order of their ids.
    pub fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        (0..self.len()).filter_map(|id| self.sample(SampleId(id)))
    }

    /// The extra fields of a sample, in the order in which they were pushed.
    pub(crate) fn fields(&self, id: SampleId) -> impl Iterator<Item = Field<'_>> {
        let ends = &self.fields.ends;
        let start = match id.index().checked_sub(1) {
            // The first sample, or one behind the last that has fields.
            None => 0,
            Some(before) => ends.get(before).copied().unwrap_or(u32::MAX),
        };
        let end = ends.get(id.index()).copied().unwrap_or(0);
        let rows = self.fields.rows.get(start as usize..end as usize).unwrap_or_default();
        rows.iter().filter_map(|row| {
            let name = self.fields.names.get(usize::from(row.name))?;
            let content = match row.kind {
                FieldKind::Inline => {
                    let start = usize::try_from(row.at).ok()?;
                    FieldContent::Inline(self.fields.inline.get(start..start + row.bytes as usize)?)
                }
                FieldKind::Stored => FieldContent::Stored { offset: row.at, bytes: row.bytes },
                FieldKind::File => {
                    let pair = self.pairs.iter().find(|pair| pair.name == *name)?;
                    FieldContent::File { pair, bytes: row.bytes, changed_ns: row.at.cast_signed() }
                }
            };
            Some(Field { name, content })
        })
    }

    /// Bytes of all images, and of all files of pairs.
    pub(crate) fn bytes(&self) -> u64 {
        let images: u64 = self.rows.iter().map(|row| u64::from(row.bytes)).sum();
        let files = self.fields.rows.iter().filter(|row| matches!(row.kind, FieldKind::File));
        images + files.map(|row| u64::from(row.bytes)).sum::<u64>()
    }

    /// Bytes of a sample's image and of its files of pairs.
    pub(crate) fn bytes_of(&self, id: SampleId) -> u64 {
        let image = self.rows.get(id.index()).map_or(0, |row| u64::from(row.bytes));
        image + self.files_of(id).map(|(bytes, _)| u64::from(bytes)).sum::<u64>()
    }

    /// When a sample's file, or the last one of its files of pairs, was changed, in nanoseconds
    /// since 1970.
    pub(crate) fn changed_ns_of(&self, id: SampleId) -> i64 {
        let image = self.rows.get(id.index()).map_or(0, |row| row.changed_ns);
        self.files_of(id).map(|(_, changed_ns)| changed_ns).fold(image, i64::max)
    }

    /// Length and time of each of a sample's files of pairs.
    fn files_of(&self, id: SampleId) -> impl Iterator<Item = (u32, i64)> {
        self.fields(id).filter_map(|field| match field.content {
            FieldContent::File { bytes, changed_ns, .. } => Some((bytes, changed_ns)),
            FieldContent::Inline(_) | FieldContent::Stored { .. } => None,
        })
    }
}

impl Sample<'_> {
    /// The file that it is read from, its own or its container, or the address of that.
    pub(crate) fn file(&self) -> PathBuf {
        match self.store {
            SampleStore::Folder(folder) => folder.join(self.path),
            SampleStore::Container(file) | SampleStore::Piece { path: file, .. } => file.clone(),
            SampleStore::Bucket(bucket) => bucket.url().join(self.path).as_str().into(),
            SampleStore::BucketTar(tar) => tar.url().as_str().into(),
        }
    }

    /// Whether it is a file or an object of its own.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.store, SampleStore::Folder(_) | SampleStore::Bucket(_))
    }

    /// The file as people know it.
    pub(crate) fn shown_file(&self) -> PathBuf {
        match self.store {
            SampleStore::Piece { .. } => STREAM.into(),
            _ => self.file(),
        }
    }

    /// Where it begins in that.
    pub(crate) fn shown_offset(&self) -> u64 {
        match self.store {
            SampleStore::Piece { base, .. } => base.saturating_add(self.offset),
            _ => self.offset,
        }
    }

    /// Says what is wrong with it, behind its file and its place there.
    pub(crate) fn bad(&self, fault: impl Display) -> Bad {
        let mut path = self.shown_file().display().to_string();
        if !self.is_alone() {
            path += &format!(" ({} at byte {})", self.path, self.shown_offset());
        }
        Bad { path, fault: fault.to_string() }
    }
}

impl Bad {
    pub(crate) fn new(path: &Path, fault: impl Display) -> Self {
        Self { path: path.display().to_string(), fault: fault.to_string() }
    }
}

/// Whether an image of this many bytes can be a record; gives its length as a record's.
pub(crate) fn check_bytes(bytes: u64) -> Result<u32, LimitFault> {
    const { assert!(RECORD_BYTES_MAX <= u32::MAX as u64) };
    match u32::try_from(bytes) {
        Ok(0) => Err(LimitFault::Empty),
        Ok(fits) if bytes <= RECORD_BYTES_MAX => Ok(fits),
        _ => Err(LimitFault::Record(bytes)),
    }
}

/// Whether this is a relative path of plain names: no root, no `.` or `..`, no empty name, no NUL.
/// `extract` creates files at such paths only.
pub(crate) fn is_safe_path(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str) -> NewSample<'_> {
        NewSample { path, label: 0, bytes: 7, changed_ns: 1, store: 0, offset: 0 }
    }

    #[test]
    fn columns_give_back_what_was_pushed() {
        let mut catalogue = Catalogue::new(vec![SampleStore::Folder("root".into())]);
        for path in ["a/1", "", "b/\u{fc}"] {
            catalogue.push(sample(path)).unwrap();
        }
        let paths: Vec<_> = catalogue.samples().map(|sample| sample.path).collect();
        assert_eq!(paths, ["a/1", "", "b/\u{fc}"]);
        assert_eq!(catalogue.sample(SampleId(2)).unwrap().file(), Path::new("root/b/\u{fc}"));
        assert_eq!(catalogue.sample(SampleId(3)), None);
        assert_eq!(catalogue.bytes(), 21);
        assert_eq!(catalogue.push(NewSample { bytes: 0, ..sample("c") }), Err(LimitFault::Empty));
        assert_eq!(catalogue.len(), 3);
    }

    #[test]
    fn a_part_knows_the_ids_of_the_whole() {
        let mut part = Catalogue::new(vec![SampleStore::Folder("root".into())]);
        for id in [7, 3] {
            part.push_of_whole(SampleId(id), sample("x")).unwrap();
        }
        assert_eq!([0, 1].map(|id| part.whole_id(SampleId(id)).0), [7, 3]);
        let mut whole = Catalogue::new(vec![SampleStore::Folder("root".into())]);
        whole.push(sample("x")).unwrap();
        assert_eq!(whole.whole_id(SampleId(0)), SampleId(0));
    }

    #[test]
    fn offsets_appear_when_the_first_sample_has_one() {
        let mut catalogue = Catalogue::new(vec![SampleStore::Container("a.tar".into())]);
        for offset in [0, 512, 2048] {
            catalogue.push(NewSample { offset, ..sample("x") }).unwrap();
        }
        assert_eq!(catalogue.samples().map(|sample| sample.offset).collect::<Vec<_>>(), [0, 512, 2048]);
    }

    #[test]
    fn fields_belong_to_the_sample_before_them() {
        let mut catalogue = Catalogue::new(vec![SampleStore::Folder("root".into())]);
        let stored = FieldContent::Stored { offset: 9, bytes: 3 };
        catalogue.push(sample("a")).unwrap();
        catalogue.push(sample("b")).unwrap();
        catalogue.push_field("json", FieldContent::Inline(b"{}")).unwrap();
        catalogue.push_field("txt", stored).unwrap();
        catalogue.push(sample("c")).unwrap();
        catalogue.push(sample("d")).unwrap();
        catalogue.push_field("json", FieldContent::Inline(b"[1]")).unwrap();
        catalogue.push(sample("e")).unwrap();
        let all: Vec<Vec<Field<'_>>> = (0..6).map(|id| catalogue.fields(SampleId(id)).collect()).collect();
        let json = |bytes| Field { name: "json", content: FieldContent::Inline(bytes) };
        let txt = Field { name: "txt", content: stored };
        assert_eq!(all, [vec![], vec![json(b"{}"), txt], vec![], vec![json(b"[1]")], vec![], vec![]]);
    }

    #[test]
    fn only_plain_relative_paths_are_safe() {
        for path in ["cat/1.png", "a", ".hidden/x.jpg", "a b/..x/y", "a/...", "ü/ü.png"] {
            assert!(is_safe_path(path), "{path}");
        }
        for path in ["", "/", "/etc/passwd", "..", "a/../b", "../a", ".", "./a", "a/.", "a//b", "a/", "a\0b"]
        {
            assert!(!is_safe_path(path), "{path:?}");
        }
    }
}

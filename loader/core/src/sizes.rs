//! Sizes of memory: the cache's capacity, the staging reserve beside it, a ring's payload, and what
//! a record takes of a batch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::repeat_n;
use std::sync::Arc;

use shade_formats::index::Entry;
use shade_formats::limits::{IMAGE_PIXELS_MAX, PAYLOAD_ALIGN_BYTES, PAYLOAD_BYTES_MAX};
use shade_formats::ring::{BatchLayout, COLUMN_ALIGN_BYTES, FieldColumns, Layout, PayloadSize};
use shade_formats::{FormatError, SampleId, Size};
use shade_job::{
    Buckets, Capacity, FieldKind, Fields, JobSpec, OnError, Output, Parts, Subset, Tail, WeightTable,
};

use crate::block_size::charged_bytes;
use crate::plan::{Repeats, Strata};
use crate::samples::Samples;

/// Batches of a ring by default: enough to hide a slow one, few enough to keep memory small.
pub const RING_BATCHES: u64 = 8;
/// Least payload of a ring by default. Threads wake each other between two batches, and the jitter
/// of that is long beside a small batch.
const RING_BYTES: u64 = 16 << 20;
/// Most reserve for records being read or filled that are not in the cache.
pub const STAGING_BYTES_MAX: u64 = 32 << 20;

/// Why an image cannot be delivered in its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeFault {
    /// The index has no size for it.
    #[error(
        "the index does not know the image's size, so there is no room for it: pack it with --format jpeg or raw"
    )]
    Unknown,
    /// It is too large to be decoded.
    #[error("image of {width} x {height} pixels: expected 1 to {IMAGE_PIXELS_MAX} pixels")]
    TooLarge {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
}

/// Bytes of the row that the record of `entry` becomes in a batch of `output`.
///
/// # Errors
/// An image in its own size has no size in the index, or one that is too large.
pub fn row_bytes(output: &Output, entry: &Entry) -> Result<u64, SizeFault> {
    match output {
        Output::Raw => Ok(entry.raw_len.into()),
        Output::Decoded(_) => Ok(output.row_bytes()),
        Output::Ragged { .. } => indexed_size(entry).map(|size| 3 * size.pixels()),
    }
}

/// The image's size in the index: with 3 bytes a pixel at most 512 MiB.
///
/// # Errors
/// As [`row_bytes`].
pub fn indexed_size(entry: &Entry) -> Result<Size, SizeFault> {
    let size = Size { width: entry.width.into(), height: entry.height.into() };
    match size.pixels() {
        0 => Err(SizeFault::Unknown),
        1..=IMAGE_PIXELS_MAX => Ok(size),
        _ => Err(SizeFault::TooLarge { width: size.width, height: size.height }),
    }
}

/// A capacity in bytes of arena blocks, never more than the whole dataset takes.
#[must_use]
pub fn capacity_bytes<S: Samples + ?Sized>(capacity: Capacity, index: &S, block_bytes: u32) -> u64 {
    let dataset: u64 = entries(index).map(|(_, entry)| charged_bytes(entry.stored_len, block_bytes)).sum();
    capacity.within(dataset)
}

/// The samples of the dataset with their entries.
pub(super) fn entries<S: Samples + ?Sized>(index: &S) -> impl Iterator<Item = (SampleId, Entry)> + '_ {
    (0..index.len()).filter_map(|id| index.entry(SampleId(id)).map(|entry| (SampleId(id), entry)))
}

/// The samples of a job with their entries: those of its subset, else all.
fn entries_of<'a>(
    index: &'a dyn Samples,
    subset: Option<&'a Subset>,
) -> impl Iterator<Item = (SampleId, Entry)> + 'a {
    let ids = subset.map(Subset::ids);
    let samples = ids.map_or(index.len() as usize, <[u32]>::len);
    (0..samples).filter_map(move |at| {
        let id = match ids {
            Some(ids) => *ids.get(at)?,
            None => u32::try_from(at).ok()?,
        };
        Some((SampleId(id), index.entry(SampleId(id))?))
    })
}

/// Bytes of arena beside the cache: room for `reads_max` reads of the largest record, at most
/// `bytes_max` ([`STAGING_BYTES_MAX`]), but always for two of the largest records, so that reading
/// never stops for lack of room.
#[must_use]
pub fn staging_bytes<S: Samples + ?Sized>(
    index: &S,
    block_bytes: u32,
    reads_max: u32,
    bytes_max: u64,
) -> u64 {
    let largest =
        entries(index).map(|(_, entry)| charged_bytes(entry.stored_len, block_bytes)).max().unwrap_or(0);
    let wanted = largest.saturating_mul(u64::from(reads_max.max(2)).saturating_mul(4));
    wanted.min(bytes_max).max(largest.saturating_mul(2)).max(u64::from(block_bytes))
}

/// The ring layout of an output.
fn layout_of(output: &Output) -> Layout {
    match output {
        Output::Raw => Layout::Raw,
        Output::Decoded(_) if output.channels_last() => Layout::Nhwc,
        Output::Decoded(_) => Layout::Nchw,
        Output::Ragged { channels_last: true } => Layout::RaggedHwc,
        Output::Ragged { channels_last: false } => Layout::RaggedChw,
    }
}

/// The layout of a batch of up to `capacity` rows, with `data_len` bytes of samples if it has no
/// views.
pub(super) fn batch_layout(
    output: &Output,
    capacity: u32,
    data_len: u64,
) -> Result<BatchLayout, FormatError> {
    match output {
        Output::Decoded(_) => BatchLayout::of_views(layout_of(output), capacity, &output.shapes()),
        Output::Raw | Output::Ragged { .. } => BatchLayout::new(layout_of(output), capacity, data_len),
    }
}

/// Refuses images in their own sizes if the index knows no size at all: every row would be a fault.
pub(super) fn check_sizes(output: &Output, index: &dyn Samples) -> Result<(), String> {
    if index.len() == 0 || entries(index).any(|(_, entry)| row_bytes(output, &entry).is_ok()) {
        return Ok(());
    }
    Err(no_sizes("images of their own sizes (decode=\"none\")", index))
}

/// Why a job that needs sizes has none.
fn no_sizes(what: &str, index: &dyn Samples) -> String {
    format!(
        "{what}: the index knows the size of none of its {} samples; if they are images, pack them with --format jpeg \
         or raw",
        index.len()
    )
}

/// By sample: its bucket. Empty if there are none.
///
/// # Errors
/// The index knows the size of no image.
pub(super) fn buckets_of(buckets: &Buckets, index: &dyn Samples) -> Result<Arc<[u8]>, String> {
    if buckets.is_empty() {
        return Ok(Arc::default());
    }
    let sizes =
        || (0..index.len()).map(|id| index.entry(SampleId(id)).and_then(|entry| indexed_size(&entry).ok()));
    if index.len() > 0 && sizes().all(|size| size.is_none()) {
        return Err(no_sizes("bucket", index));
    }
    // An image of unknown size is a square to them: it is damaged, or does not tell.
    let square = Size { width: 1, height: 1 };
    Ok(sizes().map(|size| buckets.nearest(size.unwrap_or(square))).collect())
}

/// Refuses fields that are not read with their records, or that the dataset has not. A batch tells
/// of a missing text; a misspelt name of boxes would be a training in which no image has any.
pub(super) fn check_fields(fields: &Fields, index: &dyn Samples) -> Result<(), String> {
    if let Some((name, _)) = fields.iter().find(|(name, _)| !index.reads_field(name)) {
        return Err(format!(
            "fields: this daemon does not read {name:?}: the dataset has none, or it was started without this one \
             (`shade-load serve --fields all`, Daemon(fields=True))"
        ));
    }
    let has_rows = |kind: &FieldKind| {
        matches!(kind, FieldKind::Rows { .. } | FieldKind::Boxes(_) | FieldKind::Keypoints { .. })
    };
    let of_rows: Vec<&str> = fields.iter().filter(|(_, kind)| has_rows(kind)).map(|(name, _)| name).collect();
    if of_rows.is_empty() {
        return Ok(());
    }
    let Some(mut known) = index.field_names() else { return Ok(()) };
    known.sort_unstable();
    let Some(name) = of_rows.iter().find(|name| !known.contains(name)) else { return Ok(()) };
    Err(format!(
        "fields: no sample of the dataset has {name:?}, so all would be without rows of it; there are: {}",
        known.join(", ")
    ))
}

/// Bytes that those fields of a sample take at most which vary from sample to sample, in a batch of
/// `output`.
pub(super) fn varying_bytes(fields: &Fields, output: &Output, index: &dyn Samples, sample: SampleId) -> u64 {
    let copies = fields.copies(output.views().len());
    if copies == 0 {
        return 0;
    }
    let bytes = index.fields_bytes(sample, &|name| fields.varies(name));
    bytes.next_multiple_of(COLUMN_ALIGN_BYTES).saturating_mul(copies)
}

/// Room for substitutes, where records have different lengths: each row has room for some other
/// records of its class, even if its own is the shortest. A class of each part of a mixture is one
/// of its own.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    parts: Parts,
    classes: u32,
    /// By class: the length of the longest of its [`SHORTEST`] shortest records.
    by_class: Vec<u64>,
    /// By class: the most bytes that the fields of one of its samples take.
    fields_by_class: Vec<u64>,
}

/// Shortest records of its class for which each row has room. Two are left where one is bad. More
/// would cost small classes more memory, and a bad substitute is rare.
const SHORTEST: usize = 3;

impl Rooms {
    pub(super) fn new(
        spec: &JobSpec,
        output: &Output,
        fields: &Fields,
        index: &dyn Samples,
        subset: Option<&Subset>,
    ) -> Self {
        if spec.on_error != OnError::Substitute {
            return Self::default();
        }
        let parts = spec.plan.parts;
        let mut rooms = Self { parts, classes: index.class_count(), ..Self::default() };
        let classes = parts.ranges().count().max(1) * rooms.classes as usize;
        if fields.copies(output.views().len()) > 0 {
            let mut longest = vec![0; classes];
            for (sample, entry) in entries_of(index, subset) {
                if let Some(most) = longest.get_mut(rooms.class(sample, entry.label)) {
                    *most = varying_bytes(fields, output, index, sample).max(*most);
                }
            }
            rooms.fields_by_class = longest;
        }
        if matches!(output, Output::Decoded(_)) {
            return rooms;
        }
        // By class: a max-heap of its shortest lengths.
        let mut shortest: Vec<BinaryHeap<u64>> = vec![BinaryHeap::new(); classes];
        for (sample, entry) in entries_of(index, subset) {
            let Ok(len) = row_bytes(output, &entry) else { continue };
            let Some(heap) = shortest.get_mut(rooms.class(sample, entry.label)) else { continue };
            heap.push(len);
            if heap.len() > SHORTEST {
                heap.pop();
            }
        }
        rooms.by_class = shortest.iter().map(|heap| heap.peek().copied().unwrap_or(0)).collect();
        rooms
    }

    /// Least room for fields of the row of a sample with this label.
    pub(super) fn of_fields(&self, sample: SampleId, label: u32) -> u64 {
        self.fields_by_class.get(self.class(sample, label)).copied().unwrap_or(0)
    }

    /// Least room of the row of a sample with this label.
    pub(super) fn of(&self, sample: SampleId, label: u32) -> u64 {
        self.by_class.get(self.class(sample, label)).copied().unwrap_or(0)
    }

    /// The place of a sample's class among those of all parts.
    fn class(&self, sample: SampleId, label: u32) -> usize {
        self.parts.number_of(sample.0) * self.classes as usize + label as usize
    }
}

/// The other samples of a job of the class of `sample`, by id: those after it, then those before
/// it. A mixture's are of the part that `sample` is of.
pub(super) fn same_class<'a>(
    index: &'a dyn Samples,
    strata: &'a Strata,
    parts: &'a Parts,
    sample: SampleId,
) -> impl Iterator<Item = (SampleId, Entry)> + 'a {
    let samples = index.len();
    let label = index.entry(sample).map(|entry| entry.label);
    (1..samples).filter_map(move |step| {
        let round = (u64::from(sample.0) + u64::from(step)) % u64::from(samples);
        let candidate = SampleId(u32::try_from(round).ok()?);
        if !strata.has(candidate) || !parts.are_together(sample.0, candidate.0) {
            return None;
        }
        let entry = index.entry(candidate)?;
        (Some(entry.label) == label).then_some((candidate, entry))
    })
}

/// The payload of one rank's ring: as the job asks, or else eight mean batches and at least 16 MiB.
/// It has room for three of the largest batches, with all repeats of long records that the sampler
/// may put into one. So one that a trainer keeps, wherever it lies, leaves room for another.
pub(super) fn payload_size(
    spec: &JobSpec,
    output: &Output,
    index: &dyn Samples,
    subset: Option<&Subset>,
    weights: Option<&WeightTable>,
    rooms: &Rooms,
) -> Result<PayloadSize, FormatError> {
    // Padding and mixtures repeat samples until the batch is full, however few there are.
    let samples = subset.map_or(index.len(), Subset::len);
    let is_full = spec.tail == Tail::Pad || !spec.plan.parts.is_empty();
    let rows = if is_full { spec.batch_size } else { spec.batch_size.min(samples.max(1)) };
    let capacity = u64::from(rows);
    let has_views = matches!(output, Output::Decoded(_));
    let (largest, longest, mean) = match output {
        // Its views say how long it is.
        Output::Decoded(views) if spec.fields.copies(views.len()) == 0 => (0, 0, 0),
        Output::Decoded(_) | Output::Raw | Output::Ragged { .. } => {
            let len_of = |entry: &Entry| if has_views { Some(0) } else { row_bytes(output, entry).ok() };
            // An image of unknown size has the room of its substitute, which may be any.
            let unknown =
                entries_of(index, subset).filter_map(|(_, entry)| len_of(&entry)).max().unwrap_or(0);
            let room = |sample: SampleId, entry: &Entry| {
                let fields = varying_bytes(&spec.fields, output, index, sample);
                let fields = fields.max(rooms.of_fields(sample, entry.label));
                len_of(entry).unwrap_or(unknown).max(rooms.of(sample, entry.label)) + fields
            };
            let repeats = Repeats::new(spec, samples, subset, weights);
            // The longest, with their repeats: as many as a batch has rows.
            let mut longest: BinaryHeap<Reverse<u64>> = BinaryHeap::with_capacity(rows as usize + 1);
            let mut total = 0;
            for (id, entry) in entries_of(index, subset) {
                let room = room(id, &entry);
                total += room;
                for room in repeat_n(room, repeats.of(id)) {
                    let is_full = longest.len() == rows as usize;
                    if is_full && longest.peek().is_none_or(|Reverse(least)| room <= *least) {
                        break;
                    }
                    longest.push(Reverse(room));
                    is_full.then(|| longest.pop());
                }
            }
            let mean = total / u64::from(samples.max(1)) * capacity;
            let lens: Vec<u64> = longest.into_sorted_vec().into_iter().map(|Reverse(len)| len).collect();
            let longest = lens.first().copied().unwrap_or(0).saturating_mul(capacity);
            (lens.iter().cycle().take(rows as usize).sum(), longest, mean)
        }
    };
    let too_large = |bytes: u64| {
        let expected = format!("at most {PAYLOAD_BYTES_MAX} bytes: lower batch_size");
        FormatError::new("ring payload", 0, bytes, expected)
    };
    let block = |data: u64| -> Result<u64, FormatError> {
        let rows = if has_views { rows } else { spec.batch_size };
        // The data of rows and of fields that vary were counted together.
        let layout = batch_layout(output, rows, data).map_err(|_| too_large(data))?;
        let mut bytes = layout.total;
        if !spec.fields.is_empty() {
            let of_fields = if has_views { data } else { 0 };
            let fields = FieldColumns::new(&spec.fields.widths(&output.shapes()), rows, of_fields);
            bytes = layout.fields_at() + fields.map_err(|_| too_large(data))?.total;
        }
        Ok(bytes.next_multiple_of(PAYLOAD_ALIGN_BYTES))
    };
    let least = 3 * block(largest)?;
    let wanted =
        if spec.ring_bytes > 0 { spec.ring_bytes } else { (RING_BATCHES * block(mean)?).max(RING_BYTES) };
    let bytes = wanted.max(least).next_multiple_of(PAYLOAD_ALIGN_BYTES);
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(too_large(bytes));
    }
    // No batch is longer than one of the longest record only, and none to be expected longer than a
    // third of the ring.
    let third = bytes / 3 / PAYLOAD_ALIGN_BYTES * PAYLOAD_ALIGN_BYTES;
    Ok(PayloadSize { bytes, gap_bytes: block(longest.min(third))?.min(third) })
}

//! Cuts shards into spans that one thread reads at a time, so that a dataset of one shard keeps all
//! threads busy.

use std::ops::Range;
use std::sync::Mutex;

use shade_dataset::{ReadFault, ReadMemory};
use shade_formats::index::Entry;
use shade_formats::{SampleId, ShardId};

use crate::dataset::{Dataset, Shards};
use crate::error::Error;
use crate::interrupt::{Stop, lock};
use crate::pack::{Gate, Pass};

/// A span ends before the sample that would take it over this many bytes; a single larger sample
/// has a span of its own.
pub(crate) const SPAN_BYTES: u64 = 16 << 20;

/// Bytes of all spans that are in memory at a time.
const SPANS_MEMORY_BYTES: u64 = 1 << 30;

/// Neighbouring bytes of a shard, with the samples that lie in them whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) shard: ShardId,
    pub(crate) bytes: Range<u64>,
    /// Positions in the shard's samples. A sample that overlaps the one before it counts to the
    /// span of that one.
    pub(crate) samples: Range<usize>,
}

impl Span {
    pub(crate) fn len(&self) -> u64 {
        self.bytes.end.saturating_sub(self.bytes.start)
    }
}

/// Reads a dataset in spans, from many threads, within a limit of memory.
#[derive(Debug)]
pub(crate) struct SpanReader<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) files: Shards<'a>,
    /// The samples of each shard, in their order on disk.
    pub(crate) shards: &'a [Vec<(SampleId, Entry)>],
    pub(crate) stop: &'a Stop,
    limit: Gate,
    spare: Mutex<Vec<ReadMemory>>,
}

impl<'a> SpanReader<'a> {
    pub(crate) fn new(dataset: &'a Dataset, shards: &'a [Vec<(SampleId, Entry)>], stop: &'a Stop) -> Self {
        let (files, limit) = (dataset.shards(stop), Gate::new(SPANS_MEMORY_BYTES));
        Self { dataset, files, shards, stop, limit, spare: Mutex::default() }
    }

    /// The spans of a shard, in order: every byte of it is in one.
    pub(crate) fn spans_of(&self, shard: ShardId) -> Vec<Span> {
        let samples = self.shards.get(shard.index()).map(Vec::as_slice).unwrap_or_default();
        let extents = samples.iter().map(|(sample, entry)| self.dataset.extent(*sample, entry));
        cut(shard, self.dataset.shard_bytes(shard), extents)
    }

    /// Reads a span and gives `work` its samples and its bytes: as much of their beginning as could
    /// be read, and if that is not all, why.
    pub(crate) fn read<T>(
        &self,
        span: &Span,
        work: impl FnOnce(&[(SampleId, Entry)], &[u8], Option<ReadFault>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _room = self.room(span.len())?;
        let mut memory = lock(&self.spare).pop().unwrap_or_default();
        let samples = self.shards.get(span.shard.index()).and_then(|shard| shard.get(span.samples.clone()));
        let (bytes, fault) = self.files.read(span.shard, span.bytes.clone(), &mut memory)?;
        let done = work(samples.unwrap_or_default(), bytes, fault)?;
        // Memory that a large sample made grow is not kept.
        if memory.capacity() as u64 <= 2 * SPAN_BYTES {
            lock(&self.spare).push(memory);
        }
        Ok(done)
    }

    /// The bytes `extent` of a sample in `span`, of which `bytes` were read. A read ends at the
    /// first byte that cannot be read; samples behind it may be whole and are read by themselves,
    /// into `memory`. So are samples that overlap others.
    pub(crate) fn sample<'b>(
        &self,
        span: &Span,
        bytes: &'b [u8],
        extent: Range<u64>,
        memory: &'b mut ReadMemory,
    ) -> Result<Result<&'b [u8], ReadFault>, Error> {
        let place = |at: u64| usize::try_from(at.saturating_sub(span.bytes.start)).unwrap_or(usize::MAX);
        if let Some(bytes) = bytes.get(place(extent.start)..place(extent.end)) {
            return Ok(Ok(bytes));
        }
        Ok(match self.files.read(span.shard, extent, memory)? {
            (bytes, None) => Ok(bytes),
            (_, Some(fault)) => Err(fault),
        })
    }

    /// Waits for memory of this many bytes.
    fn room(&self, bytes: u64) -> Result<Pass<'_>, Error> {
        self.limit.pass(bytes, self.stop)
    }
}

fn cut(shard: ShardId, bytes: u64, extents: impl ExactSizeIterator<Item = Range<u64>>) -> Vec<Span> {
    let mut spans = Vec::new();
    // The start of the open span, the end of its samples, its first sample.
    let (mut at, mut covered, mut first) = (0, 0, 0);
    let count = extents.len();
    for (number, extent) in extents.enumerate() {
        if extent.start < covered {
            continue;
        }
        if extent.end.saturating_sub(at) > SPAN_BYTES && extent.start > at {
            push(&mut spans, shard, at..extent.start, covered, first..number);
            (at, first) = (extent.start, number);
        }
        covered = extent.end;
    }
    push(&mut spans, shard, at..bytes, covered, first..count);
    spans
}

/// Adds a span. A long rest without samples becomes spans of its own: an index may claim terabytes.
fn push(spans: &mut Vec<Span>, shard: ShardId, bytes: Range<u64>, covered: u64, samples: Range<usize>) {
    let covered = covered.max(bytes.start);
    let rest = bytes.end.saturating_sub(covered);
    let mut at = if rest > SPAN_BYTES { covered } else { bytes.end };
    if at > bytes.start || !samples.is_empty() {
        spans.push(Span { shard, bytes: bytes.start..at, samples });
    }
    while at < bytes.end {
        let end = bytes.end.min(at.saturating_add(SPAN_BYTES));
        spans.push(Span { shard, bytes: at..end, samples: 0..0 });
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_cover_every_byte_and_hold_their_samples(
            parts in proptest::collection::vec((0u64..40 << 20, 1u64..40 << 20), 0..40),
            rest in 0u64..100 << 20,
        ) {
            let mut extents = Vec::new();
            let mut at = 0;
            for (gap, len) in parts {
                extents.push(at + gap..at + gap + len);
                at += gap + len;
            }
            let bytes = at + rest;
            let spans = cut(ShardId(3), bytes, extents.clone().into_iter());
            let (mut at, mut number) = (0, 0);
            for span in spans {
                prop_assert_eq!(span.bytes.start, at);
                at = span.bytes.end;
                if span.samples.is_empty() {
                    prop_assert!(span.len() <= SPAN_BYTES);
                    continue;
                }
                prop_assert_eq!(span.samples.start, number);
                number = span.samples.end;
                for extent in &extents[span.samples.clone()] {
                    prop_assert!(span.bytes.start <= extent.start && extent.end <= span.bytes.end);
                }
                let one = span.samples.len() == 1;
                prop_assert!(span.len() <= 2 * SPAN_BYTES || one, "{} bytes", span.len());
            }
            prop_assert_eq!((at, number), (bytes, extents.len()));
        }
    }

    #[test]
    fn what_overlaps_stays_with_what_it_overlaps() {
        let mib = 1 << 20;
        let extents = [0..10 * mib, 5 * mib..30 * mib, 20 * mib..21 * mib];
        let spans = cut(ShardId(0), 40 * mib, extents.into_iter());
        let found: Vec<_> = spans.into_iter().map(|span| (span.bytes, span.samples)).collect();
        assert_eq!(
            found,
            [
                (0..20 * mib, 0..2),
                (20 * mib..21 * mib, 2..3),
                (21 * mib..37 * mib, 0..0),
                (37 * mib..40 * mib, 0..0)
            ]
        );
    }
}

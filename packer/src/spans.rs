//! Cuts shards into spans that one thread reads at a time, so that a dataset of one shard keeps all threads busy.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use shade_dataset::ReadMemory;
use shade_formats::index::Entry;
use shade_formats::{SampleId, ShardId};

use crate::dataset::Dataset;

/// A span ends before the sample that would take it over this many bytes; a single larger one has a span to itself.
pub(crate) const SPAN_BYTES: u64 = 16 << 20;

/// Bytes of all spans that are in memory at a time.
pub(crate) const SPANS_MEMORY_BYTES: u64 = 1 << 30;

/// Neighbouring bytes of a shard, with the samples that lie in them whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) shard: ShardId,
    pub(crate) bytes: Range<u64>,
    /// Positions in the shard's samples. One that overlaps the one before it is counted to the span of that one.
    pub(crate) samples: Range<usize>,
}

/// Memory that threads hand to one another.
#[derive(Debug, Default)]
pub(crate) struct SpanMemory(Mutex<Vec<ReadMemory>>);

impl Span {
    pub(crate) fn len(&self) -> u64 {
        self.bytes.end.saturating_sub(self.bytes.start)
    }
}

impl SpanMemory {
    /// Some memory, used before if there is any.
    pub(crate) fn take(&self) -> ReadMemory {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps memory for the next span, unless a large sample made it grow.
    pub(crate) fn give_back(&self, memory: ReadMemory) {
        if memory.capacity() as u64 <= 2 * SPAN_BYTES {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}

/// The spans of a shard whose samples are `samples`, in their order on disk: every byte of it is in one.
pub(crate) fn cut(dataset: &Dataset, shard: ShardId, samples: &[(SampleId, Entry)]) -> Vec<Span> {
    let bytes = dataset.index.shard(shard).map_or(0, |shard| shard.bytes);
    let extents = samples.iter().map(|(sample, entry)| dataset.extent(*sample, entry));
    cut_extents(shard, bytes, extents)
}

fn cut_extents(shard: ShardId, bytes: u64, extents: impl ExactSizeIterator<Item = Range<u64>>) -> Vec<Span> {
    let mut spans = Vec::new();
    // Where the open span begins, up to where samples cover it, its first sample.
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

/// Adds a span. A long rest without samples becomes spans of its own: an index may claim terabytes of it.
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
            let spans = cut_extents(ShardId(3), bytes, extents.clone().into_iter());
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
        let spans = cut_extents(ShardId(0), 40 * mib, extents.into_iter());
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

//! Cuts a damaged shard into pieces: those that are copied, and those that are made again.

use std::collections::HashSet;
use std::ops::Range;

use shade_formats::index::Entry;
use shade_formats::shard::END_OF_ARCHIVE;
use shade_formats::{SampleId, ShardId};

use crate::dataset::Dataset;
use crate::spans::SPAN_BYTES;

/// Most samples that one thread makes again one after the other: each is read from a source that
/// may be slow.
const REMADE_MAX: usize = 16;

/// Neighbouring bytes of a shard, all of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) shard: ShardId,
    pub(super) bytes: Range<u64>,
    /// Positions in the shard's samples.
    pub(super) samples: Range<usize>,
    pub(super) kind: PieceKind,
}

/// The index has samples that overlap, so the shard cannot be cut.
#[derive(Debug, thiserror::Error)]
#[error(
    "the index has samples that overlap: sample {sample}, at byte {offset}, ends behind the start of the next"
)]
pub(super) struct Overlap {
    sample: SampleId,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    Copied,
    Remade,
    End,
}

impl Piece {
    pub(super) fn len(&self) -> u64 {
        self.bytes.end.saturating_sub(self.bytes.start)
    }
}

/// The bytes of sample number `number` of a shard, and all up to the next sample.
pub(super) fn slot(dataset: &Dataset, samples: &[(SampleId, Entry)], number: usize) -> Range<u64> {
    let Some((sample, entry)) = samples.get(number) else { return 0..0 };
    let extent = dataset.extent(*sample, entry);
    let end = match samples.get(number + 1) {
        Some((next, entry)) => dataset.extent(*next, entry).start,
        None => end_of_samples(dataset, entry.shard).max(extent.end),
    };
    extent.start..end
}

fn end_of_samples(dataset: &Dataset, shard: ShardId) -> u64 {
    dataset.shard_bytes(shard).saturating_sub(END_OF_ARCHIVE.len() as u64)
}

/// The pieces of a shard, in order, from its first byte to its last.
pub(super) fn pieces(
    dataset: &Dataset,
    shard: ShardId,
    samples: &[(SampleId, Entry)],
    damaged: &HashSet<u32>,
) -> Result<Vec<Piece>, Overlap> {
    let mut pieces: Vec<Piece> = Vec::new();
    let first = samples.first().map(|(sample, entry)| dataset.extent(*sample, entry).start);
    let before = 0..first.unwrap_or_else(|| end_of_samples(dataset, shard));
    if !before.is_empty() {
        pieces.push(Piece { shard, bytes: before, samples: 0..0, kind: PieceKind::Copied });
    }
    for (number, (sample, entry)) in samples.iter().enumerate() {
        let bytes = slot(dataset, samples, number);
        if bytes.end < dataset.extent(*sample, entry).end {
            return Err(Overlap { sample: *sample, offset: entry.offset });
        }
        let kind = if damaged.contains(&sample.0) { PieceKind::Remade } else { PieceKind::Copied };
        let most = if kind == PieceKind::Remade { REMADE_MAX } else { usize::MAX };
        match pieces.last_mut() {
            Some(last)
                if last.kind == kind
                    && last.samples.len() < most
                    && bytes.end - last.bytes.start <= SPAN_BYTES =>
            {
                last.bytes.end = bytes.end;
                last.samples.end = number + 1;
            }
            _ => pieces.push(Piece { shard, bytes, samples: number..number + 1, kind }),
        }
    }
    let at = pieces.last().map_or(0, |last| last.bytes.end);
    pieces.push(Piece { shard, bytes: at..dataset.shard_bytes(shard), samples: 0..0, kind: PieceKind::End });
    Ok(pieces)
}

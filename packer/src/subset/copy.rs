//! Writes a shard again with the chosen samples alone.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use shade_dataset::{Mismatch, ReadMemory};
use shade_formats::checksum::{crc32c, crc32c_append};
use shade_formats::index::Entry;
use shade_formats::shard::{
    END_OF_ARCHIVE, LABEL_MEMBER, MEMBER_HEADER_BYTES, member_name, padded_len, parse_member_header,
};
use shade_formats::{SampleId, ShardId};

use crate::dataset::{Dataset, Shards};
use crate::error::Error;
use crate::files;
use crate::spans::SPAN_BYTES;

/// Bytes between chosen samples that are read along with them: one read costs less than two.
const GAP_BYTES: u64 = 64 << 10;
/// Bytes of a label behind a sample, header included.
const LABEL_BYTES: u64 = 2 * MEMBER_HEADER_BYTES as u64;

/// A shard that was written again.
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
    /// Its samples, with their places in it.
    pub(super) entries: Vec<(SampleId, Entry)>,
}

/// A file that is written in one go.
struct Output {
    file: BufWriter<File>,
    bytes: u64,
    crc32c: u32,
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.crc32c = crc32c_append(self.crc32c, bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

/// Copies these samples of `shard`, in their order on disk, into a new shard at `to`.
pub(super) fn copy_shard(
    dataset: &Dataset,
    shards: &Shards<'_>,
    shard: ShardId,
    samples: &[(SampleId, Entry)],
    to: &Path,
) -> Result<Written, Error> {
    let created = File::create_new(to).map_err(Error::io("create", to))?;
    let mut output = Output { file: BufWriter::new(created), bytes: 0, crc32c: 0 };
    let mut entries = Vec::with_capacity(samples.len());
    let mut memory = ReadMemory::default();
    for run in runs(dataset, samples) {
        shards.stop.check()?;
        let Some(some) = samples.get(run.samples) else { continue };
        let end = run.bytes.end.saturating_add(LABEL_BYTES).min(dataset.shard_bytes(shard));
        let (bytes, fault) = shards.read(shard, run.bytes.start..end, &mut memory)?;
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        for (sample, entry) in some {
            let part = whole_sample(dataset, *sample, entry, run.bytes.start, bytes)?;
            let offset = output.bytes + MEMBER_HEADER_BYTES as u64;
            entries.push((*sample, Entry { offset, ..*entry }));
            output.write(part).map_err(Error::io("write", to))?;
        }
    }
    output.write(&END_OF_ARCHIVE).map_err(Error::io("write", to))?;
    let file = output.file.into_inner().map_err(|error| Error::io("write", to)(error.into_error()))?;
    file.sync_all().map_err(Error::io("sync", to))?;
    files::close(file).map_err(Error::io("close", to))?;
    Ok(Written { bytes: output.bytes, crc32c: output.crc32c, entries })
}

/// Neighbouring samples that are read together.
struct Run {
    bytes: Range<u64>,
    /// Positions among the samples of the shard.
    samples: Range<usize>,
}

fn runs(dataset: &Dataset, samples: &[(SampleId, Entry)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, (sample, entry)) in samples.iter().enumerate() {
        let extent = dataset.extent(*sample, entry);
        match runs.last_mut() {
            Some(run)
                if extent.start.saturating_sub(run.bytes.end) <= GAP_BYTES
                    && extent.end.saturating_sub(run.bytes.start) <= SPAN_BYTES =>
            {
                run.bytes.end = run.bytes.end.max(extent.end);
                run.samples.end = at + 1;
            }
            _ => runs.push(Run { bytes: extent, samples: at..at + 1 }),
        }
    }
    runs
}

/// All members of a sample, once its record is found right. `bytes` begin at byte `from` of the
/// shard.
fn whole_sample<'b>(
    dataset: &Dataset,
    sample: SampleId,
    entry: &Entry,
    from: u64,
    bytes: &'b [u8],
) -> Result<&'b [u8], Error> {
    let damaged = |fault: String| {
        let fault = format!("sample {sample} ({}): {fault}", dataset.path_text(sample));
        Error::Damaged { path: dataset.shard_path(entry.shard), fault }
    };
    let place = |at: u64| usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX);
    let extent = dataset.extent(sample, entry);
    let record_end = entry.offset.saturating_add(entry.stored_len.into());
    let record = bytes.get(place(entry.offset)..place(record_end)).unwrap_or_default();
    let found = Mismatch::compare(crc32c(record), entry.crc32c);
    found.map_err(|fault| damaged(fault.to_string()))?;
    if let Some(span) = dataset.index.fields(sample) {
        let fields = bytes.get(place(extent.end - span.len)..place(extent.end)).unwrap_or_default();
        let found = Mismatch::compare(crc32c(fields), span.crc32c);
        found.map_err(|fault| damaged(format!("its fields: {fault}")))?;
    }
    let label = bytes.get(place(extent.end)..).unwrap_or_default();
    let end = extent.end + label_bytes(dataset.index.key(sample), label);
    bytes.get(place(extent.start)..place(end)).ok_or_else(|| damaged("it is cut short".to_owned()))
}

/// Length of the label that `bytes` begin with, if it is one of the sample with this key.
fn label_bytes(key: u32, bytes: &[u8]) -> u64 {
    match parse_member_header(bytes, 0) {
        Ok(member) if member.name == member_name(key, LABEL_MEMBER) => {
            MEMBER_HEADER_BYTES as u64 + padded_len(member.stored_len)
        }
        _ => 0,
    }
}

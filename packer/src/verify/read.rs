//! Goes through all shards, many spans at a time, and collects what is wrong.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use shade_dataset::{Dictionaries, ReadFault, ReadMemory};
use shade_formats::checksum::{crc32c, crc32c_concat};
use shade_formats::index::Entry;
use shade_formats::shard::END_OF_ARCHIVE;
use shade_formats::{SampleId, ShardId};
use shade_images::caught;

use super::check::{Checker, SampleFault, read_text};
use super::report::{DamagedSample, DamagedShard, Verified};
use crate::args::{JobsArgs, OutputArgs};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::PackOptions;
use crate::pack::Gate;
use crate::progress::CommandProgress;
use crate::report::Speed;
use crate::spans::{Span, SpanReader};
use crate::times::Times;
use crate::workers::Workers;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The dataset's directory, or its address: s3://bucket/prefix.
    dataset: PathBuf,
    /// Decode every record as well. One that is no image counts as damaged. One of a kind without
    /// decoder is named, and so is one that is read as Pillow reads it although its file is not
    /// quite right.
    #[arg(long)]
    decode: bool,
    /// Threads.
    #[command(flatten)]
    jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Default)]
struct Findings {
    /// CRC32C of the span; `None` if it cannot be read whole.
    crc32c: Option<u32>,
    damaged: Vec<DamagedSample>,
    not_decodable: Vec<DamagedSample>,
    noted: Vec<DamagedSample>,
    /// The span ends its shard, and not as a tar ends.
    is_open_end: bool,
    /// Why the system does not let it be read.
    refused: Option<ReadFault>,
}

/// Re-reads a dataset.
///
/// # Errors
/// There is no dataset, its index is damaged (which hides what the rest should be), or
/// [`Error::Interrupted`]. Shards that are damaged or cannot be read are no error but the report's
/// content.
pub(crate) fn verify(args: &VerifyArgs, stop: &Stop) -> Result<Verified, Error> {
    let start = Instant::now();
    let (jobs, shown) = (args.jobs.jobs, args.output.shown());
    let dataset = Dataset::open(&args.dataset)?;
    let shards = dataset.samples_by_shard();
    let bytes = dataset.shard_rows().map(|shard| shard.bytes).sum();
    let mut verified = Verified {
        dataset: args.dataset.clone(),
        samples: dataset.index.len(),
        shards: dataset.index.shard_count(),
        bytes,
        decoded: args.decode,
        has_foreign_shards: PackOptions::has_foreign_shards(dataset.index.options()),
        is_in_place: dataset.is_in_place(),
        is_merged_in_place: dataset.is_merged_in_place(),
        is_in_bucket: dataset.address().is_some(),
        without_checksum: dataset.without_checksum(),
        times_fault: Times::read(&args.dataset)?.fault,
        ..Verified::default()
    };
    let progress = CommandProgress::start(shown, "verifying", dataset.index.len().into(), bytes);
    let verifying = Verifying {
        reader: SpanReader::new(&dataset, &shards, stop),
        dictionaries: dataset.dictionaries(),
        decode: args.decode,
        cpus: Gate::new(jobs.get() as u64),
        progress: &progress,
    };
    // Twice as many threads as compute, so that storage is busy while spans are checked.
    let workers = Workers::start(jobs.saturating_mul(NonZeroUsize::MIN.saturating_add(1)))?;
    verifying.all(&workers, &mut verified)?;
    progress.finish();
    verified.speed = Speed::since(start, bytes);
    Ok(verified)
}

struct Verifying<'a> {
    reader: SpanReader<'a>,
    dictionaries: Dictionaries,
    decode: bool,
    cpus: Gate,
    progress: &'a CommandProgress,
}

impl Verifying<'_> {
    fn all(&self, workers: &Workers, verified: &mut Verified) -> Result<(), Error> {
        let ids: Vec<ShardId> = self.reader.dataset.shard_ids().collect();
        let lens = workers.each(&ids, self.reader.stop, |shard| self.reader.files.len(*shard))?;
        let spans_of = |(shard, len): (&ShardId, &Result<u64, ReadFault>)| match len {
            Ok(_) => self.reader.spans_of(*shard),
            Err(_) => Vec::new(),
        };
        let spans: Vec<Vec<Span>> = ids.iter().zip(&lens).map(spans_of).collect();
        let all: Vec<&Span> = spans.iter().flatten().collect();
        let mut found = workers.each(&all, self.reader.stop, |span| self.span(span))?.into_iter();
        for ((shard, len), spans) in ids.into_iter().zip(lens).zip(&spans) {
            let named = |fault| DamagedShard { shard: self.reader.dataset.shard_path(shard), fault };
            let samples = || self.reader.shards.get(shard.index()).into_iter().flatten();
            match len {
                Ok(len) => {
                    let expected = self.reader.dataset.shard_bytes(shard);
                    let fault = (len != expected).then(|| format!("{len} bytes, expected {expected}"));
                    let is_cut = fault.is_some();
                    verified.damaged_shards.extend(fault.map(named));
                    self.whole(shard, is_cut, spans.iter().zip(found.by_ref()), verified);
                }
                Err(fault) if fault.is_loss() => {
                    verified.damaged_shards.push(named(read_text(&fault)));
                    let damaged = |(id, entry): &(_, _)| {
                        SampleFault::NoShard.in_dataset(self.reader.dataset, *id, entry)
                    };
                    verified.damaged.extend(samples().map(damaged));
                }
                // Nothing is known of its content.
                Err(fault) => {
                    verified.unread += samples().count() as u64;
                    verified.unreadable_shards.push(named(read_text(&fault)));
                }
            }
        }
        Ok(())
    }

    /// Puts together what was found in the spans of one shard, and judges the shard. `has_fault`:
    /// something is already known to be wrong with its file.
    fn whole<'s>(
        &self,
        shard: ShardId,
        has_fault: bool,
        found: impl Iterator<Item = (&'s Span, Findings)>,
        verified: &mut Verified,
    ) {
        let (mut crc, mut is_open_end, mut refused) = (Some(0), false, None);
        for (span, findings) in found {
            let len = usize::try_from(span.len()).unwrap_or(usize::MAX);
            crc = crc.zip(findings.crc32c).map(|(crc, of_span)| crc32c_concat(crc, of_span, len));
            verified.damaged.extend(findings.damaged);
            verified.not_decodable.extend(findings.not_decodable);
            verified.noted.extend(findings.noted);
            is_open_end |= findings.is_open_end;
            if findings.refused.is_some() {
                verified.unread += span.samples.len() as u64;
                refused = refused.or(findings.refused);
            }
        }
        let named = |fault| DamagedShard { shard: self.reader.dataset.shard_path(shard), fault };
        if let Some(fault) = refused {
            verified.unreadable_shards.push(named(read_text(&fault)));
            return;
        }
        // Files of others have no checksum of their whole, and need not end as a tar.
        if self.reader.dataset.is_in_place() {
            let fault = (crc.is_none() && !has_fault).then(|| "parts of it cannot be read".to_owned());
            verified.damaged_shards.extend(fault.map(named));
            return;
        }
        let expected = self.reader.dataset.index.shard(shard).map_or(0, |shard| shard.crc32c);
        let end = if is_open_end { "the end of the archive is missing" } else { "" };
        let fault = match crc {
            Some(crc) if crc != expected => {
                let and = if is_open_end { "; " } else { "" };
                Some(format!("the file's crc32c is {crc:08x}, expected {expected:08x}{and}{end}"))
            }
            Some(_) => is_open_end.then(|| end.to_owned()),
            None => (!has_fault).then(|| "parts of it cannot be read".to_owned()),
        };
        verified.damaged_shards.extend(fault.map(named));
    }

    fn span(&self, span: &Span) -> Result<Findings, Error> {
        let mut findings = Findings::default();
        self.reader.read(span, |samples, bytes, fault| {
            let is_read = fault.is_none();
            match fault {
                Some(fault) if !fault.is_loss() => {
                    findings.refused = Some(fault);
                    return Ok(());
                }
                // Nothing of it can be read.
                Some(
                    fault @ (ReadFault::Open { .. } | ReadFault::NotAFile { .. } | ReadFault::Store { .. }),
                ) => {
                    let fault = SampleFault::Read(fault);
                    let damaged = |(id, entry): &(_, _)| fault.in_dataset(self.reader.dataset, *id, entry);
                    findings.damaged = samples.iter().map(damaged).collect();
                    return Ok(());
                }
                Some(_) | None => {}
            }
            let _cpu = self.cpus.pass(1, self.reader.stop)?;
            findings.crc32c = is_read.then(|| crc32c(bytes));
            self.samples(span, samples, bytes, &mut findings)?;
            let is_zeros = || bytes.iter().rev().take(END_OF_ARCHIVE.len()).all(|&byte| byte == 0);
            let is_end = span.bytes.end == self.reader.dataset.shard_bytes(span.shard);
            findings.is_open_end = is_read && is_end && !is_zeros();
            self.progress.add(samples.len() as u64, span.len());
            Ok(())
        })?;
        Ok(findings)
    }

    fn samples(
        &self,
        span: &Span,
        samples: &[(SampleId, Entry)],
        bytes: &[u8],
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let checker = || Checker::new(self.reader.dataset, &self.dictionaries, self.decode);
        let mut checking = checker();
        let mut again = ReadMemory::default();
        let mut covered = span.bytes.start;
        for (sample, entry) in samples {
            self.reader.stop.check()?;
            let extent = self.reader.dataset.extent(*sample, entry);
            let checked = if extent.start < covered {
                Err(SampleFault::Overlap { before_end: covered })
            } else {
                covered = extent.end;
                match self.reader.sample(span, bytes, extent, &mut again)? {
                    Ok(bytes) => caught(|| checking.check(*sample, entry, bytes)).unwrap_or_else(|text| {
                        checking = checker();
                        Err(SampleFault::Panicked(text))
                    }),
                    Err(fault) => Err(SampleFault::Read(fault)),
                }
            };
            let dataset = self.reader.dataset;
            match checked {
                Ok(None) => {}
                Ok(Some(note)) => {
                    findings.noted.push(DamagedSample::new(dataset, *sample, entry, note));
                }
                Err(fault @ SampleFault::NoDecoder(_)) => {
                    findings.not_decodable.push(fault.in_dataset(dataset, *sample, entry));
                }
                Err(fault) => findings.damaged.push(fault.in_dataset(dataset, *sample, entry)),
            }
        }
        Ok(())
    }
}

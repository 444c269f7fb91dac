//! Goes through all shards, many spans at a time, and collects what is wrong.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use shade_dataset::{Dictionaries, ReadFault, ReadMemory};
use shade_formats::checksum::{crc32c, crc32c_concat};
use shade_formats::index::Entry;
use shade_formats::shard::END_OF_ARCHIVE;
use shade_formats::{SampleId, ShardId};

use super::check::{Checker, Fault};
use super::repair::repair;
use super::report::{DamagedSample, DamagedShard, Verified};
use crate::dataset::{Dataset, Shards};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::pack::Gate;
use crate::progress::{Progress, Shown};
use crate::report::megabytes_per_second;
use crate::source::Kind;
use crate::spans::{SPANS_MEMORY_BYTES, Span, SpanMemory, cut};
use crate::times::Times;
use crate::workers::Workers;

/// How to verify.
#[derive(Clone, Debug)]
pub struct VerifyConfig {
    /// Whether every record must decode as an image, too.
    pub decode: bool,
    /// What damaged samples are made again from; `None` to repair nothing.
    pub repair: Option<RepairSource>,
    /// Threads that compute.
    pub jobs: NonZeroUsize,
}

/// What a dataset was packed from.
#[derive(Clone, Debug)]
pub struct RepairSource {
    /// The folder, or the CSV file; only read.
    pub path: PathBuf,
    /// The file of labels that packing was given.
    pub labels: Option<PathBuf>,
}

/// What is wrong in one span.
#[derive(Default)]
struct Findings {
    /// CRC32C of the span; `None` if it cannot be read whole.
    crc32c: Option<u32>,
    damaged: Vec<DamagedSample>,
    not_decodable: Vec<DamagedSample>,
    /// The span ends its shard, and not as a tar ends.
    is_open_end: bool,
    /// Why the system does not let it be read.
    refused: Option<String>,
}

/// What a look at a shard's file tells: what is wrong with it as a file, or why it cannot be opened.
type Look = Result<Option<String>, ReadFault>;

/// Re-reads the dataset in `dir`, and repairs it if that is asked for and needed.
///
/// # Errors
/// There is no dataset, its index is damaged (which hides what the rest should be), or
/// [`Error::Interrupted`]. Shards that are damaged or cannot be read are no error but the report's
/// content. For errors of repairing see [`Source::scan`](crate::source::Source::scan).
pub fn verify(dir: &Path, config: &VerifyConfig, shown: Shown, stop: &Stop) -> Result<Verified, Error> {
    let start = Instant::now();
    let dataset = Dataset::open(dir)?;
    if let Some(source) = &config.repair {
        // Better said now than after everything was read.
        Kind::of(&source.path)?;
    }
    let shards = dataset.samples_by_shard();
    let rows = (0..dataset.index.shard_count()).filter_map(|shard| dataset.index.shard(ShardId(shard)));
    let bytes = rows.map(|shard| shard.bytes).sum();
    let mut verified = Verified {
        dataset: dir.to_owned(),
        samples: dataset.index.len(),
        shards: dataset.index.shard_count(),
        bytes,
        decoded: config.decode,
        times_fault: Times::read(dir)?.fault,
        ..Verified::default()
    };
    let progress = Progress::start(shown, "verifying", dataset.index.len().into(), bytes);
    let reading = Reading {
        dataset: &dataset,
        files: dataset.shards(stop),
        dictionaries: dataset.dictionaries(),
        shards: &shards,
        decode: config.decode,
        memory: Gate::new(SPANS_MEMORY_BYTES),
        cpus: Gate::new(config.jobs.get() as u64),
        spare: SpanMemory::default(),
        progress: &progress,
        stop,
    };
    // Twice as many threads as compute, so that storage is busy while spans are checked.
    let workers = Workers::start(config.jobs.saturating_mul(NonZeroUsize::MIN.saturating_add(1)))?;
    reading.all(&workers, &mut verified)?;
    progress.finish();
    verified.seconds = start.elapsed().as_secs_f64();
    verified.mb_per_s = megabytes_per_second(bytes, verified.seconds);
    let is_damaged = verified.damaged.iter().any(|damaged| !damaged.is_whole);
    if let Some(source) = &config.repair
        && (is_damaged || !verified.damaged_shards.is_empty())
    {
        verified.repaired = Some(repair(&dataset, &shards, &verified, source, config.jobs, shown, stop)?);
    }
    Ok(verified)
}

/// What all spans share.
struct Reading<'a> {
    dataset: &'a Dataset,
    files: Shards<'a>,
    dictionaries: Dictionaries,
    shards: &'a [Vec<(SampleId, Entry)>],
    decode: bool,
    memory: Gate,
    cpus: Gate,
    spare: SpanMemory,
    progress: &'a Progress,
    stop: &'a Stop,
}

impl Reading<'_> {
    fn all(&self, workers: &Workers, verified: &mut Verified) -> Result<(), Error> {
        let ids: Vec<ShardId> = (0..self.dataset.index.shard_count()).map(ShardId).collect();
        let looked = workers.each(&ids, self.stop, |shard| self.look(*shard))?;
        let spans: Vec<Vec<Span>> = ids
            .iter()
            .zip(&looked)
            .map(|(shard, look)| if look.is_ok() { self.cut(*shard) } else { Vec::new() })
            .collect();
        let all: Vec<&Span> = spans.iter().flatten().collect();
        let mut found = workers.each(&all, self.stop, |span| self.span(span))?.into_iter();
        for ((shard, look), spans) in ids.into_iter().zip(looked).zip(&spans) {
            let path = self.dataset.shard_path(shard);
            let samples = || self.shards.get(shard.index()).into_iter().flatten();
            match look {
                Ok(fault) => {
                    let whole = Whole { shard, path: path.clone(), has_fault: fault.is_some() };
                    verified.damaged_shards.extend(fault.map(|fault| DamagedShard { shard: path, fault }));
                    self.whole(&whole, spans.iter().zip(found.by_ref()), verified);
                }
                Err(fault) if fault.is_loss() => {
                    verified.damaged_shards.push(DamagedShard { shard: path, fault: told(&fault) });
                    let fault = || Fault::Damaged("its shard cannot be opened".to_owned());
                    verified.damaged.extend(samples().map(|(id, entry)| self.damaged(*id, entry, fault())));
                }
                // What is in it is not known.
                Err(fault) => {
                    verified.unread += samples().count() as u64;
                    verified.unreadable_shards.push(DamagedShard { shard: path, fault: told(&fault) });
                }
            }
        }
        Ok(())
    }

    /// Whether the shard's file can be opened, and what is wrong with it as a file.
    fn look(&self, shard: ShardId) -> Result<Look, Error> {
        let expected = self.dataset.index.shard(shard).map_or(0, |shard| shard.bytes);
        let wrong = |found| (found != expected).then(|| format!("{found} bytes, expected {expected}"));
        Ok(self.files.len(shard)?.map(wrong))
    }

    fn cut(&self, shard: ShardId) -> Vec<Span> {
        let samples = self.shards.get(shard.index()).map(Vec::as_slice).unwrap_or_default();
        cut(self.dataset, shard, samples)
    }

    /// Puts together what was found in the spans of one shard, and judges all of it.
    fn whole<'s>(
        &self,
        whole: &Whole,
        found: impl Iterator<Item = (&'s Span, Findings)>,
        verified: &mut Verified,
    ) {
        let (mut crc, mut is_open_end, mut refused) = (Some(0), false, None);
        for (span, findings) in found {
            let len = usize::try_from(span.len()).unwrap_or(usize::MAX);
            crc = crc.zip(findings.crc32c).map(|(crc, of_span)| crc32c_concat(crc, of_span, len));
            verified.damaged.extend(findings.damaged);
            verified.not_decodable.extend(findings.not_decodable);
            is_open_end |= findings.is_open_end;
            if findings.refused.is_some() {
                verified.unread += span.samples.len() as u64;
                refused = refused.or(findings.refused);
            }
        }
        let shard = || whole.path.clone();
        if let Some(fault) = refused {
            verified.unreadable_shards.push(DamagedShard { shard: shard(), fault });
            return;
        }
        let expected = self.dataset.index.shard(whole.shard).map_or(0, |shard| shard.crc32c);
        let end = if is_open_end { "the end of the archive is missing" } else { "" };
        let fault = match crc {
            Some(crc) if crc != expected => {
                let and = if is_open_end { "; " } else { "" };
                Some(format!("the file's crc32c is {crc:08x}, expected {expected:08x}{and}{end}"))
            }
            Some(_) => is_open_end.then(|| end.to_owned()),
            None => (!whole.has_fault).then(|| "parts of it cannot be read".to_owned()),
        };
        verified.damaged_shards.extend(fault.map(|fault| DamagedShard { shard: shard(), fault }));
    }

    /// Reads and checks one span.
    fn span(&self, span: &Span) -> Result<Findings, Error> {
        let room = self.memory.pass(span.len(), self.stop)?;
        let mut memory = self.spare.take();
        let samples = self.shards.get(span.shard.index()).and_then(|shard| shard.get(span.samples.clone()));
        let samples = samples.unwrap_or_default();
        let mut findings = Findings::default();
        let (bytes, fault) = self.files.read(span.shard, span.bytes.clone(), &mut memory)?;
        match &fault {
            Some(fault) if !fault.is_loss() => {
                findings.refused = Some(told(fault));
                return Ok(findings);
            }
            Some(fault @ ReadFault::Open { .. }) => {
                for (sample, entry) in samples {
                    findings.push(self.damaged(*sample, entry, Fault::Damaged(told(fault))));
                }
                return Ok(findings);
            }
            _ => {}
        }
        let cpu = self.cpus.pass(1, self.stop)?;
        findings.crc32c = fault.is_none().then(|| crc32c(bytes));
        self.samples(span, samples, bytes, &mut findings)?;
        let shard_bytes = self.dataset.index.shard(span.shard).map_or(0, |shard| shard.bytes);
        let is_zeros = || bytes.iter().rev().take(END_OF_ARCHIVE.len()).all(|&byte| byte == 0);
        findings.is_open_end = fault.is_none() && span.bytes.end == shard_bytes && !is_zeros();
        drop(cpu);
        self.spare.give_back(memory);
        drop(room);
        self.progress.add(samples.len() as u64, span.len());
        Ok(findings)
    }

    fn samples(
        &self,
        span: &Span,
        samples: &[(SampleId, Entry)],
        bytes: &[u8],
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let mut checker = Checker::new(self.dataset, &self.dictionaries, self.decode);
        let mut again = ReadMemory::default();
        let mut covered = span.bytes.start;
        for (sample, entry) in samples {
            self.stop.check()?;
            let extent = self.dataset.extent(*sample, entry);
            if extent.start < covered {
                let fault = format!("overlaps the record before it, which ends at {covered}");
                findings.push(self.damaged(*sample, entry, Fault::Damaged(fault)));
                continue;
            }
            covered = extent.end;
            let place = |at: u64| usize::try_from(at.saturating_sub(span.bytes.start)).unwrap_or(usize::MAX);
            let checked = match bytes.get(place(extent.start)..place(extent.end)) {
                Some(bytes) => checker.check(*sample, entry, bytes),
                // A read ends at the first byte that cannot be had; what lies behind it may be in order.
                None => match self.files.read(span.shard, extent, &mut again)? {
                    (bytes, None) => checker.check(*sample, entry, bytes),
                    (_, Some(fault)) => Err(Fault::Damaged(told(&fault))),
                },
            };
            match checked {
                Ok(()) => {}
                Err(fault @ Fault::NotDecodable(_)) => {
                    findings.not_decodable.push(self.damaged(*sample, entry, fault));
                }
                Err(fault) => findings.push(self.damaged(*sample, entry, fault)),
            }
        }
        Ok(())
    }

    fn damaged(&self, sample: SampleId, entry: &Entry, fault: Fault) -> DamagedSample {
        let (is_whole, fault) = match fault {
            Fault::Damaged(fault) => (false, fault),
            Fault::NoImage(fault) | Fault::NotDecodable(fault) => (true, fault),
        };
        DamagedSample {
            sample: sample.0,
            shard: self.dataset.shard_path(entry.shard),
            offset: entry.offset,
            path: self.dataset.path_text(sample),
            fault,
            is_whole,
        }
    }
}

/// A fault in words that go behind the shard's path.
fn told(fault: &ReadFault) -> String {
    match fault {
        ReadFault::Open { errno, .. } => format!("cannot be opened: {errno}"),
        other => format!("cannot be read: {other}"),
    }
}

/// A shard of which all spans were read.
struct Whole {
    shard: ShardId,
    path: PathBuf,
    /// Whether something is known to be wrong with its file.
    has_fault: bool,
}

impl Findings {
    fn push(&mut self, damaged: DamagedSample) {
        self.damaged.push(damaged);
    }
}

//! `verify`: re-reads every byte of a dataset and names every sample that is no longer what was packed.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use shade_formats::checksum::crc32c_append;
use shade_formats::index::{Entry, Shard};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::shard::{padded_len, parse_member_header};
use shade_formats::{SampleId, ShardId};

use crate::dataset::{Dataset, check_record, is_record_name};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::progress::{Progress, Shown};
use crate::report::{human_bytes, megabytes_per_second, path_as_text};
use crate::workers::Workers;

/// What lies between records is read in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// What re-reading a dataset found.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// Its directory.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// Number of samples looked at.
    pub samples: u32,
    /// Number of shards looked at.
    pub shards: u32,
    /// Bytes of all shards as the index has them.
    pub bytes: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// What is wrong with whole shards: missing, cut short, changed somewhere.
    pub damaged_shards: Vec<DamagedShard>,
    /// Every sample that cannot be trusted, by shard and place in it.
    pub damaged: Vec<DamagedSample>,
}

/// A shard that is not what the index says.
#[derive(Clone, Debug, Serialize)]
pub struct DamagedShard {
    /// Its file.
    #[serde(serialize_with = "path_as_text")]
    pub shard: PathBuf,
    /// What is wrong.
    pub fault: String,
}

/// A sample that is not what was packed.
#[derive(Clone, Debug, Serialize)]
pub struct DamagedSample {
    /// Its id.
    pub sample: u32,
    /// The shard's file.
    #[serde(serialize_with = "path_as_text")]
    pub shard: PathBuf,
    /// Where its record begins in the shard, in bytes.
    pub offset: u64,
    /// Its path in the ImageFolder it was packed from.
    pub path: String,
    /// What is wrong.
    pub fault: String,
}

/// Re-reads the dataset in `dir`, one shard per worker.
///
/// # Errors
/// There is no dataset, its index is damaged (which hides what the rest should be), or [`Error::Interrupted`]. Damage
/// in shards is no error but the report's content.
pub fn verify(dir: &Path, jobs: NonZeroUsize, shown: Shown, stop: &Stop) -> Result<Verified, Error> {
    let start = Instant::now();
    let dataset = Dataset::open(dir)?;
    let workers = Workers::start(jobs)?;
    let shards = dataset.samples_by_shard();
    let rows = (0..dataset.index.shard_count()).filter_map(|shard| dataset.index.shard(ShardId(shard)));
    let bytes = rows.map(|shard| shard.bytes).sum();
    let progress = Progress::start(shown, "verifying", dataset.index.len().into(), bytes);
    let numbered: Vec<_> = (0u32..).map(ShardId).zip(&shards).collect();
    let found = workers.each(&numbered, stop, |&(shard, samples)| {
        let Some(row) = dataset.index.shard(shard) else { return Ok(Findings::default()) };
        let path = dataset.shard_path(shard);
        let findings = Findings::default();
        let mut reader = ShardReader { dataset: &dataset, row, path, stop, progress: &progress, findings };
        reader.read(samples)?;
        Ok(reader.findings)
    })?;
    progress.finish();
    let seconds = start.elapsed().as_secs_f64();
    let mut verified = Verified {
        dataset: dir.to_owned(),
        samples: dataset.index.len(),
        shards: dataset.index.shard_count(),
        bytes,
        seconds,
        mb_per_s: megabytes_per_second(bytes, seconds),
        damaged_shards: Vec::new(),
        damaged: Vec::new(),
    };
    for findings in found {
        verified.damaged_shards.extend(findings.shard);
        verified.damaged.extend(findings.samples);
    }
    Ok(verified)
}

#[derive(Default)]
struct Findings {
    shard: Vec<DamagedShard>,
    samples: Vec<DamagedSample>,
}

/// Reads one shard from its start to its end.
struct ShardReader<'a> {
    dataset: &'a Dataset,
    row: Shard<'a>,
    path: PathBuf,
    stop: &'a Stop,
    progress: &'a Progress,
    findings: Findings,
}

impl ShardReader<'_> {
    fn read(&mut self, samples: &[(SampleId, Entry)]) -> Result<(), Error> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(fault) => {
                self.shard_fault(format!("cannot be opened: {fault}"));
                for (sample, entry) in samples {
                    self.sample_fault(*sample, entry, "its shard cannot be opened".to_owned());
                }
                return Ok(());
            }
        };
        match file.metadata() {
            Ok(found) if found.len() == self.row.bytes => {}
            Ok(found) => self.shard_fault(format!("{} bytes, expected {}", found.len(), self.row.bytes)),
            Err(fault) => self.shard_fault(format!("cannot be looked at: {fault}")),
        }
        // `None` once a part could not be read: the whole file's checksum is then unknown.
        let mut crc = Some(0);
        let mut at = 0;
        let (mut member, mut raw) = (Vec::new(), Vec::new());
        for (sample, entry) in samples {
            self.stop.check()?;
            let start = entry.offset.saturating_sub(SHARD_ALIGN_BYTES);
            if start < at {
                self.sample_fault(
                    *sample,
                    entry,
                    format!("overlaps the record before it, which ends at {at}"),
                );
                continue;
            }
            crc = read_between(&file, at, start, crc);
            let padded = padded_len(entry.stored_len.into());
            member.resize(usize::try_from(SHARD_ALIGN_BYTES + padded).unwrap_or(usize::MAX), 0);
            let checked = match file.read_exact_at(&mut member, start) {
                Ok(()) => {
                    crc = crc.map(|crc| crc32c_append(crc, &member));
                    self.check_member(*sample, entry, &member, &mut raw)
                }
                Err(fault) => {
                    crc = None;
                    Err(format!("cannot be read: {fault}"))
                }
            };
            if let Err(fault) = checked {
                self.sample_fault(*sample, entry, fault);
            }
            self.progress.add(1, start - at + member.len() as u64);
            at = start + member.len() as u64;
        }
        crc = read_between(&file, at, self.row.bytes, crc);
        self.progress.add(0, self.row.bytes.saturating_sub(at));
        match crc {
            Some(crc) if crc != self.row.crc32c => {
                self.shard_fault(format!("the file's crc32c is {crc:08x}, expected {:08x}", self.row.crc32c));
            }
            None if self.findings.shard.is_empty() => {
                self.shard_fault("parts of it cannot be read".to_owned())
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares a member, its header first, with its entry.
    fn check_member(
        &self,
        sample: SampleId,
        entry: &Entry,
        member: &[u8],
        raw: &mut Vec<u8>,
    ) -> Result<(), String> {
        let header_at = entry.offset.saturating_sub(SHARD_ALIGN_BYTES);
        let header = parse_member_header(member, header_at).map_err(|fault| fault.to_string())?;
        let index = &self.dataset.index;
        let (key, path) = (index.key(sample), index.path(sample).unwrap_or_default());
        let named = is_record_name(&header.name, key, path, entry);
        if !named || header.stored_len != u64::from(entry.stored_len) {
            let (got, len, expected) = (header.name, header.stored_len, entry.stored_len);
            return Err(format!(
                "its tar header says {got:?} of {len} bytes, expected the key {key:012} and {expected} bytes"
            ));
        }
        let stored = member.get(512..).and_then(|data| data.get(..entry.stored_len as usize));
        check_record(index, entry, stored.unwrap_or_default(), raw)
    }

    fn shard_fault(&mut self, fault: String) {
        self.findings.shard.push(DamagedShard { shard: self.path.clone(), fault });
    }

    fn sample_fault(&mut self, sample: SampleId, entry: &Entry, fault: String) {
        self.findings.samples.push(DamagedSample {
            sample: sample.0,
            shard: self.path.clone(),
            offset: entry.offset,
            path: self.dataset.path_text(sample),
            fault,
        });
    }
}

/// Takes the bytes from `at` to `end` into the file's checksum; `None` if they cannot be read.
fn read_between(file: &File, mut at: u64, end: u64, mut crc: Option<u32>) -> Option<u32> {
    while at < end {
        let len = (end - at).min(PIECE_BYTES);
        let mut piece = vec![0; usize::try_from(len).ok()?];
        crc = match file.read_exact_at(&mut piece, at) {
            Ok(()) => Some(crc32c_append(crc?, &piece)),
            Err(_) => return None,
        };
        at += len;
    }
    crc
}

impl Verified {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.damaged_shards.is_empty()
    }
}

impl std::fmt::Display for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for DamagedShard { shard, fault } in &self.damaged_shards {
            writeln!(f, "damaged shard {}: {fault}", shard.display())?;
        }
        for DamagedSample { sample, shard, offset, path, fault } in &self.damaged {
            writeln!(f, "damaged sample {sample} ({path}) at byte {offset} of {}: {fault}", shard.display())?;
        }
        let bytes = human_bytes(self.bytes);
        let (seconds, rate) = (self.seconds, self.mb_per_s);
        writeln!(f, "{bytes} in {seconds:.1} s, {rate:.1} MB/s")?;
        let (samples, shards) = (self.samples, self.shards);
        if self.is_whole() {
            write!(f, "{}: all {samples} samples in {shards} shards are whole", self.dataset.display())
        } else {
            let (bad, bad_shards) = (self.damaged.len(), self.damaged_shards.len());
            let dataset = self.dataset.display();
            write!(
                f,
                "{dataset}: {bad} of {samples} samples are damaged, {bad_shards} findings about whole shards"
            )
        }
    }
}

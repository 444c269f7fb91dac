//! Writes damaged shards again: intact bytes from the old file, damaged samples from the source.
//!
//! The new file replaces the old one only once its checksum is the one that the index has. The
//! index is never touched, so a dataset that is being read stays the dataset it was.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use shade_dataset::ReadMemory;
use shade_formats::checksum::{crc32c, crc32c_concat};
use shade_formats::index::Entry;
use shade_formats::shard::{LABEL_MEMBER, member_header, member_name, padded_len};
use shade_formats::{SampleId, ShardId};

use super::pieces::{Piece, PieceKind, pieces, slot};
use super::remake::{Remaker, recipes};
use super::report::{DamagedSample, DamagedShard, Repaired, Verified};
use crate::claim::Claim;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::files::{self, PartialFile};
use crate::interrupt::Stop;
use crate::pack::Kits;
use crate::progress::{CommandProgress, Shown};
use crate::publish::sync_dir;
use crate::source::Source;
use crate::spans::SpanReader;
use crate::workers::Workers;

/// Pieces in progress at a time: a distant source answers slowly, but many questions at once.
const PIECES_IN_FLIGHT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

struct Repairing<'a, 'k> {
    reader: SpanReader<'a>,
    remaker: Remaker<'a, 'k>,
    progress: CommandProgress,
}

/// A shard being written again. Its file is open only while a piece is written: there may be many.
struct Rewritten {
    shard: ShardId,
    path: PathBuf,
    partial: PartialFile,
    pieces: Vec<Piece>,
}

struct WrittenPiece {
    crc32c: u32,
    remade: u32,
    failed: Vec<DamagedSample>,
}

pub(super) fn repair(
    dataset: &Dataset,
    shards: &[Vec<(SampleId, Entry)>],
    verified: &Verified,
    source: Source,
    jobs: NonZeroUsize,
    shown: Shown,
    stop: &Stop,
) -> Result<Repaired, Error> {
    let _claim = Claim::take(&dataset.dir)?;
    let workers = Workers::start(PIECES_IN_FLIGHT.max(jobs))?;
    let damaged = verified.damaged.iter().filter(|damaged| !damaged.is_whole);
    let wanted: Vec<SampleId> = damaged.clone().map(|damaged| SampleId(damaged.sample)).collect();
    let broken: HashSet<&PathBuf> = damaged
        .map(|damaged| &damaged.shard)
        .chain(verified.damaged_shards.iter().map(|damaged| &damaged.shard))
        .collect();
    let ids: HashSet<u32> = wanted.iter().map(|sample| sample.0).collect();
    let mut repaired = Repaired::default();
    let mut rewritten = Vec::new();
    for (shard, samples) in (0u32..).map(ShardId).zip(shards) {
        let path = dataset.shard_path(shard);
        if broken.contains(&path) {
            match pieces(dataset, shard, samples, &ids) {
                Ok(pieces) => rewritten.push(Rewritten::create(shard, path, pieces)?),
                Err(overlap) => {
                    repaired.failed_shards.push(DamagedShard { shard: path, fault: overlap.to_string() });
                }
            }
        }
    }
    let recipes = recipes(dataset);
    let kits: Vec<Kits<'_>> = recipes.iter().map(|recipe| Kits::new(recipe, jobs)).collect();
    let remaker = Remaker::new(dataset, &wanted, source, &workers, &kits, shown, stop)?;
    let all: Vec<(&Rewritten, &Piece)> =
        rewritten.iter().flat_map(|new| new.pieces.iter().map(move |piece| (new, piece))).collect();
    let samples = all.iter().map(|(_, piece)| piece.samples.len() as u64).sum();
    let progress =
        CommandProgress::start(shown, "repairing", samples, all.iter().map(|(_, piece)| piece.len()).sum());
    let reader = SpanReader::new(dataset, shards, stop);
    let repairing = Repairing { reader, remaker, progress };
    let mut done = workers.each(&all, stop, |(new, piece)| repairing.piece(new, piece))?.into_iter();
    repairing.progress.finish();
    for new in &rewritten {
        let done = new.pieces.iter().zip(done.by_ref());
        new.finish(dataset, done, &mut repaired)?;
    }
    sync_dir(&dataset.dir)?;
    Ok(repaired)
}

impl Rewritten {
    fn create(shard: ShardId, path: PathBuf, pieces: Vec<Piece>) -> Result<Self, Error> {
        let (partial, _) = PartialFile::create(path.clone())?;
        Ok(Self { shard, path, partial, pieces })
    }

    fn write(&self, bytes: &[u8], piece: &Piece) -> Result<WrittenPiece, Error> {
        let file = self.partial.open()?;
        let written = file.write_all_at(bytes, piece.bytes.start).and_then(|()| files::close(file));
        written.map_err(self.partial.fault("write"))?;
        Ok(WrittenPiece { crc32c: crc32c(bytes), remade: 0, failed: Vec::new() })
    }

    /// Gives the file its name if it is what the index says.
    fn finish<'p>(
        &self,
        dataset: &Dataset,
        done: impl Iterator<Item = (&'p Piece, WrittenPiece)>,
        repaired: &mut Repaired,
    ) -> Result<(), Error> {
        let (mut crc, mut remade, mut failed) = (0, 0, Vec::new());
        for (piece, done) in done {
            let len = usize::try_from(piece.len()).unwrap_or(usize::MAX);
            crc = crc32c_concat(crc, done.crc32c, len);
            remade += done.remade;
            failed.extend(done.failed);
        }
        if !failed.is_empty() {
            repaired.failed.extend(failed);
            return Ok(());
        }
        let expected = dataset.index.shard(self.shard).map_or(0, |shard| shard.crc32c);
        if crc != expected {
            let fault = format!("written again, its crc32c would be {crc:08x}, expected {expected:08x}");
            repaired.failed_shards.push(DamagedShard { shard: self.path.clone(), fault });
            return Ok(());
        }
        self.partial.publish(&self.partial.open()?, true)?;
        repaired.shards.push(self.path.display().to_string());
        repaired.samples += remade;
        Ok(())
    }
}

/// Writes the zeros again that fill up records: no checksum of their own covers them. Those of
/// fields have one.
fn pad_again(bytes: &mut [u8], piece: &Piece, samples: &[(SampleId, Entry)]) {
    let place = |at: u64| usize::try_from(at.saturating_sub(piece.bytes.start)).unwrap_or(usize::MAX);
    for (_, entry) in samples.get(piece.samples.clone()).unwrap_or_default() {
        let (start, len) = (entry.offset, u64::from(entry.stored_len));
        let padding = place(start.saturating_add(len))..place(start.saturating_add(padded_len(len)));
        bytes.get_mut(padding).unwrap_or_default().fill(0);
    }
}

impl Repairing<'_, '_> {
    fn piece(&self, new: &Rewritten, piece: &Piece) -> Result<WrittenPiece, Error> {
        let room = self.reader.room(piece.len())?;
        let samples = self.reader.shards.get(piece.shard.index()).map(Vec::as_slice).unwrap_or_default();
        let done = match piece.kind {
            PieceKind::Copied => self.copy(new, piece, samples)?,
            PieceKind::Remade => self.remake(new, piece, samples)?,
            PieceKind::End => {
                let zeros = vec![0; usize::try_from(piece.len()).unwrap_or(0)];
                new.write(&zeros, piece)?
            }
        };
        drop(room);
        self.progress.add(piece.samples.len() as u64, piece.len());
        Ok(done)
    }

    fn copy(
        &self,
        new: &Rewritten,
        piece: &Piece,
        samples: &[(SampleId, Entry)],
    ) -> Result<WrittenPiece, Error> {
        let mut memory = ReadMemory::default();
        let (bytes, fault) = self.reader.files.read(piece.shard, piece.bytes.clone(), &mut memory)?;
        // Something may be missing behind the last intact sample; the file's checksum decides about
        // that.
        let mut padded = Vec::new();
        let bytes = if fault.is_none() {
            bytes
        } else {
            padded.extend_from_slice(bytes);
            padded.resize(usize::try_from(piece.len()).unwrap_or(0), 0);
            &mut padded
        };
        pad_again(bytes, piece, samples);
        self.label_again(bytes, piece, samples);
        new.write(bytes, piece)
    }

    /// Writes labels again that stand behind samples without fields: no checksum of their own
    /// covers them. Nothing else stands between two samples.
    fn label_again(&self, bytes: &mut [u8], piece: &Piece, samples: &[(SampleId, Entry)]) {
        for number in piece.samples.clone() {
            let Some((sample, entry)) = samples.get(number) else { continue };
            let extent = self.reader.dataset.extent(*sample, entry);
            let label = entry.label.to_string();
            let name = member_name(self.reader.dataset.index.key(*sample), LABEL_MEMBER);
            let Ok(header) = member_header(&name, label.len() as u64) else { continue };
            let mut member = [header.as_slice(), label.as_bytes()].concat();
            member.resize(member.len().next_multiple_of(header.len()), 0);
            if slot(self.reader.dataset, samples, number).end - extent.end == member.len() as u64 {
                let at = usize::try_from(extent.end - piece.bytes.start).unwrap_or(usize::MAX);
                let there = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..member.len()));
                if let Some(there) = there {
                    there.copy_from_slice(&member);
                }
            }
        }
    }

    fn remake(
        &self,
        new: &Rewritten,
        piece: &Piece,
        samples: &[(SampleId, Entry)],
    ) -> Result<WrittenPiece, Error> {
        let mut thread = self.remaker.thread();
        let (mut bytes, mut failed) = (Vec::new(), Vec::new());
        for number in piece.samples.clone() {
            self.reader.stop.check()?;
            let Some((sample, entry)) = samples.get(number) else { continue };
            let slot = slot(self.reader.dataset, samples, number);
            let made = thread.remake(*sample, entry, slot.end - slot.start, &mut bytes, self.reader.stop)?;
            if let Err(fault) = made {
                let fault = format!("cannot be repaired: {fault}");
                failed.push(DamagedSample::new(self.reader.dataset, (*sample, entry), fault, false));
            }
        }
        if !failed.is_empty() {
            return Ok(WrittenPiece { crc32c: 0, remade: 0, failed });
        }
        let remade = u32::try_from(piece.samples.len()).unwrap_or(u32::MAX);
        Ok(WrittenPiece { remade, ..new.write(&bytes, piece)? })
    }
}

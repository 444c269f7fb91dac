//! A training that `shade-load trace` recorded: its accesses, losses and sizes
//! (`formats/layout/TRACE.md`).
//!
//! Accesses are in the order in which the daemon opened batches, for all ranks. Each batch has the
//! losses that came for it. The number of batches opened between a batch and its losses says how
//! many were in flight. The time of a batch's reads is counted in opened batches, too.
#![warn(clippy::indexing_slicing)]

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use shade_formats::SampleId;
use shade_formats::limits::RING_DESCRIPTORS;
use shade_formats::trace::{
    Done, FIRST_KEY, Header, Line, Open, RankSnapshot, Report, Served, Sizes as SizesLine,
};
use shade_job::{Fields, JobSpec};

use crate::compute::ComputeTimes;
use crate::error::SimulateError;
use crate::lines::Source;
use crate::recorded_lines::RecordedLines;
use crate::script::{Epoch, Repeats, Script};
use crate::sizes::Sizes;

/// Descriptors of a ring for batches: one is for the epoch's end.
const AHEAD_MAX: u64 = RING_DESCRIPTORS as u64 - 1;

/// A recorded training.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    /// The daemon that was recorded.
    pub(super) header: Header,
    /// The job recorded; the last, if there were several.
    pub(super) job: Option<JobSpec>,
    /// Compute time of a sample, if it can be told.
    pub(super) compute: Option<Duration>,
    /// Samples in a batch.
    pub(super) batch_size: u32,
    /// Largest number of batches in flight.
    pub(super) ring: u64,
    /// Median number of batches in flight: less than `ring` if the trainer kept some.
    pub(super) ahead: u64,
    pub(super) script: Script,
    /// By epoch: accesses that the daemon served without a read of their own.
    hits: Vec<u64>,
}

/// Whether a file is a recording, by its first bytes.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_recording(source: Source) -> Result<(bool, Source), SimulateError> {
    source.begins_with(FIRST_KEY)
}

impl Recording {
    /// Reads a recording and the sizes of its samples.
    ///
    /// # Errors
    /// The file cannot be read, a line makes no sense, or there is nothing in it to simulate.
    pub(super) fn read(source: Source) -> Result<(Self, Sizes), SimulateError> {
        let mut lines = RecordedLines::of(source)?;
        let header = lines.header().clone();
        let mut reading = Reading::default();
        while let Some(line) = lines.next_line()? {
            reading.take(line, header.samples).map_err(|what| lines.refused(what))?;
        }
        let path = lines.path().to_owned();
        let known = reading.stored.len();
        if known != header.samples as usize {
            let what = format!("it has the sizes of {known} of {} samples", header.samples);
            return Err(SimulateError::File { path, what });
        }
        if reading.script.accesses.is_empty() {
            let what = "there is no batch in it: no training went on while it was recorded".to_owned();
            return Err(SimulateError::File { path, what });
        }
        if reading.lost > 0 {
            let lost = reading.lost;
            tracing::warn!("{}: {lost} lines are missing, as the recorder was too slow", path.display());
        }
        if reading.under_way {
            tracing::warn!(
                "{}: the training was under way when the recording began: here it begins with an empty cache and equal \
                 scores",
                path.display()
            );
        }
        reading.end_epoch();
        let sizes =
            Sizes::Each { lens: std::mem::take(&mut reading.stored), block_bytes: header.block_bytes };
        Ok((reading.into_recording(header), sizes))
    }

    /// Hits and accesses of the daemon itself, from an epoch on.
    pub(super) fn hits(&self, from_epoch: u32) -> (u64, u64) {
        let counted = self.script.epochs.iter().zip(&self.hits).skip(from_epoch as usize);
        counted.fold((0, 0), |(sum, all), (epoch, hits)| (sum + hits, all + epoch.accesses.len() as u64))
    }
}

/// Names a batch: epoch, batch, rank.
type BatchName = (u32, u32, u32);

/// A batch whose losses may come.
#[derive(Debug)]
struct RecordedBatch {
    accesses: Range<usize>,
    /// Its number among all.
    number: u64,
    /// The samples delivered, if they are not those of `accesses`.
    delivered: Option<Vec<SampleId>>,
}

/// A recording being read.
#[derive(Default)]
struct Reading {
    stored: Vec<u32>,
    script: Script,
    hits: Vec<u64>,
    job: Option<JobSpec>,
    /// The job began before the recording.
    under_way: bool,
    begins_job: bool,
    /// The epoch under way.
    epoch: Option<u32>,
    /// By sample: 0, for [`Repeats::of`].
    counts: Vec<u32>,
    /// The batches of this epoch and of the one before, as the daemon keeps them.
    batches: HashMap<BatchName, RecordedBatch>,
    opened: u64,
    /// By batch: when it was opened and when its last read ended, in microseconds.
    times_us: Vec<(u64, u64)>,
    /// The time of the line before: time does not go back.
    now_us: u64,
    /// By report: number of batches opened since its own, with it.
    behind: Vec<u64>,
    /// The length of the first batch.
    batch_len: usize,
    compute: ComputeTimes,
    lost: u64,
}

impl Reading {
    fn take(&mut self, line: Line, samples: u32) -> Result<(), String> {
        match line {
            Line::Sizes(sizes) => self.sizes(sizes, samples),
            Line::Job(job) => {
                self.end_epoch();
                self.batches.clear();
                self.begins_job = true;
                self.compute.begin();
                self.under_way = job.under_way;
                let job = JobSpec::from_value(job.document).map_err(|error| error.to_string())?;
                // What a record takes with its fields is in the sizes.
                self.job = Some(JobSpec { fields: Fields::default(), ..job });
                Ok(())
            }
            Line::Open(open) => self.open(open, samples),
            Line::Done(done) => self.done(done, samples),
            Line::Release(release) => {
                self.compute.released(release.rank, release.before_seq, release.at_us);
                Ok(())
            }
            Line::Report(report) => {
                self.report(&report);
                Ok(())
            }
            // What the daemon counted: a replay counts itself, but not how long trainers waited.
            Line::Snapshot(snapshot) => {
                for rank in snapshot.by_rank {
                    let RankSnapshot { attached_ns, storage_ns, workers_ns, plan_ns, ranks_ns, .. } = rank;
                    let waited_ns = [storage_ns, workers_ns, plan_ns, ranks_ns].into_iter().sum::<u64>();
                    self.compute.looked(rank.rank, snapshot.at_us, attached_ns / 1000, waited_ns / 1000);
                }
                Ok(())
            }
            Line::Lost(lost) => {
                self.lost = self.lost.saturating_add(lost.lines);
                Ok(())
            }
        }
    }

    fn sizes(&mut self, line: SizesLine, samples: u32) -> Result<(), String> {
        if line.from as usize != self.stored.len() {
            return Err(format!("sizes from sample {}, but sample {} is next", line.from, self.stored.len()));
        }
        self.stored.extend(line.stored);
        if self.stored.len() > samples as usize {
            return Err(format!("sizes of more than {samples} samples"));
        }
        self.counts.resize(self.stored.len(), 0);
        Ok(())
    }

    fn open(&mut self, open: Open, samples: u32) -> Result<(), String> {
        if open.ids.len() != open.served.len() {
            return Err(format!("{} samples, of which {} were served", open.ids.len(), open.served.len()));
        }
        if self.epoch != Some(open.epoch) {
            self.end_epoch();
            self.batches.retain(|name, _| name.0.checked_add(1) == Some(open.epoch));
            self.epoch = Some(open.epoch);
            let accesses = self.script.accesses.len()..self.script.accesses.len();
            let begins_job = std::mem::take(&mut self.begins_job);
            let first_batch = self.times_us.len();
            let is_known_early = !begins_job && self.job.as_ref().is_some_and(|job| job.plan.draw_ahead);
            self.script.epochs.push(Epoch {
                accesses,
                first_batch,
                repeats: Repeats::default(),
                begins_job,
                is_known_early,
            });
            self.hits.push(0);
        }
        for letter in open.served.bytes() {
            match Served::from_letter(letter) {
                Some(Served::Hit | Served::Joined) => {
                    self.hits.iter_mut().last().into_iter().for_each(|hits| *hits += 1)
                }
                Some(Served::Miss | Served::Prefetched | Served::Exchanged) => {}
                None => return Err(format!("{:?} says not how samples were served", char::from(letter))),
            }
        }
        let ids = known(open.ids, samples)?;
        self.compute.opened(open.rank, open.seq, ids.len());
        if self.batch_len == 0 {
            self.batch_len = ids.len();
        }
        let Script { accesses, losses, .. } = &mut self.script;
        let from = accesses.len();
        accesses.extend_from_slice(&ids);
        losses.resize(accesses.len(), f32::NAN);
        let batch = RecordedBatch { accesses: from..accesses.len(), number: self.opened, delivered: None };
        self.batches.insert((open.epoch, open.batch, open.rank), batch);
        self.opened += 1;
        self.now_us = self.now_us.max(open.at_us);
        self.times_us.push((self.now_us, self.now_us));
        Ok(())
    }

    fn done(&mut self, done: Done, samples: u32) -> Result<(), String> {
        self.compute.published(done.rank, done.seq, done.at_us);
        let name = (done.epoch, done.batch, done.rank);
        let number = self.batches.get(&name).and_then(|batch| usize::try_from(batch.number).ok());
        if let Some((_, back_us)) = number.and_then(|number| self.times_us.get_mut(number)) {
            // A batch without a read gets its end: another cache may have to read for it.
            *back_us = if done.read_us > done.opened_us { done.read_us } else { done.at_us };
        }
        if let Some(ids) = done.delivered {
            let ids = known(ids, samples)?;
            if let Some(batch) = self.batches.get_mut(&name) {
                batch.delivered = Some(ids);
            }
        }
        Ok(())
    }

    /// Losses of a batch that was opened before the recording began are left out.
    fn report(&mut self, report: &Report) {
        let Some(batch) = self.batches.get(&(report.epoch, report.batch, report.rank)) else { return };
        self.behind.push(self.opened - batch.number);
        let opened = self.script.accesses.get(batch.accesses.clone()).unwrap_or_default();
        let losses = self.script.losses.get_mut(batch.accesses.clone()).unwrap_or_default();
        let reported = report.losses.iter().map(|loss| loss.unwrap_or(f32::INFINITY));
        let Some(delivered) = &batch.delivered else {
            return losses.iter_mut().zip(reported).for_each(|(slot, loss)| *slot = loss);
        };
        // A skipped sample has no loss. A substitute's loss counts for the sample that it replaced.
        let all_came = delivered.len() == opened.len();
        let mut rows = opened.iter().zip(losses);
        for (id, loss) in delivered.iter().zip(reported) {
            if let Some((_, slot)) = rows.find(|(planned, _)| all_came || *planned == id) {
                *slot = loss;
            }
        }
    }

    /// Ends the epoch under way, if there is one.
    fn end_epoch(&mut self) {
        let Script { accesses, epochs, .. } = &mut self.script;
        let (Some(_), Some(epoch)) = (self.epoch.take(), epochs.last_mut()) else { return };
        epoch.accesses.end = accesses.len();
        let accesses = accesses.get(epoch.accesses.clone()).unwrap_or_default();
        epoch.repeats = Repeats::of(accesses, &mut self.counts);
    }

    fn into_recording(mut self, header: Header) -> Recording {
        let job = self.job.as_ref();
        // The file has those of one daemon.
        let ranks = job.as_ref().map_or(1, |job| job.local_ranks());
        let first = u32::try_from(self.batch_len).unwrap_or(u32::MAX);
        let middle = self.behind.len() / 2;
        let ring = self.behind.iter().copied().max().unwrap_or(1).clamp(1, AHEAD_MAX);
        let ahead = if self.behind.is_empty() { 1 } else { *self.behind.select_nth_unstable(middle).1 };
        // The daemon takes in what was read before it opens batches.
        let opened = |back_us| self.times_us.partition_point(|&(opened_us, _)| opened_us < back_us);
        let back = self.times_us.iter().map(|&(_, back_us)| opened(back_us));
        self.script.back = back.map(|opened| u32::try_from(opened).unwrap_or(u32::MAX)).collect();
        Recording {
            header,
            compute: self.compute.median(ranks),
            batch_size: job.map_or(first, |job| job.batch_size).max(1),
            ring,
            ahead: ahead.clamp(1, ring),
            job: self.job,
            script: self.script,
            hits: self.hits,
        }
    }
}

fn known(ids: Vec<u32>, samples: u32) -> Result<Vec<SampleId>, String> {
    match ids.iter().find(|id| **id >= samples) {
        Some(id) => Err(format!("sample {id}, but there are {samples} samples")),
        None => Ok(ids.into_iter().map(SampleId).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use super::*;
    const HEADER: &str = r#"{"shade_trace":3,"shade_load":"0","dataset":"/d","content_id":"0","samples":4,"job":"j","policy":"lru","lookahead":1.0,"cache_bytes":8,"block_bytes":8,"engine":"e","workers":1,"began_unix_s":0}"#;
    const SIZES: &str = r#"{"sizes":{"from":0,"stored":[5,6,7,9]}}"#;
    const OPEN: &str =
        r#"{"open":{"at_us":0,"epoch":0,"batch":0,"rank":0,"seq":0,"ids":[3,1,3],"served":"mmj"}}"#;
    const REPORT: &str = r#"{"report":{"at_us":9,"epoch":0,"batch":0,"rank":0,"losses":[0.5,null]}}"#;

    fn read(lines: &[&str]) -> Result<Recording, String> {
        let text = lines.join("\n") + "\n";
        read_text(&text)
    }

    fn read_text(text: &str) -> Result<Recording, String> {
        let source = Source::new(Cursor::new(text.as_bytes().to_vec()), Path::new("t"));
        let (is_recording, source) = is_recording(source).unwrap();
        assert!(is_recording);
        let (recording, sizes) = Recording::read(source).map_err(|error| error.to_string())?;
        assert_eq!(sizes, Sizes::Each { lens: vec![5, 6, 7, 9], block_bytes: 8 });
        Ok(recording)
    }

    fn known_losses(recording: &Recording) -> Vec<(usize, f32)> {
        let losses = recording.script.losses.iter().copied().enumerate();
        losses.filter(|(_, loss)| !loss.is_nan()).collect()
    }

    fn ids(ids: &[u32]) -> Vec<SampleId> {
        ids.iter().copied().map(SampleId).collect()
    }

    #[test]
    fn each_batch_has_the_losses_that_came_for_it() {
        let second = OPEN.replace("\"epoch\":0", "\"epoch\":1").replace("mmj", "hmh");
        let recording = read(&[HEADER, SIZES, OPEN, &second, REPORT]).unwrap();
        assert_eq!(recording.script.accesses, ids(&[3, 1, 3, 3, 1, 3]));
        assert_eq!(known_losses(&recording), [(0, 0.5), (1, f32::INFINITY)]);
        let repeats = Repeats { distinct: 2, most: 2 };
        let epoch = |accesses, first_batch| Epoch { accesses, first_batch, repeats, ..Epoch::default() };
        assert_eq!(recording.script.epochs, [epoch(0..3, 0), epoch(3..6, 1)]);
        assert_eq!(
            (recording.hits(0), recording.hits(1), recording.script.epoch_count()),
            ((3, 6), (2, 3), 2)
        );
        assert_eq!((recording.ring, recording.ahead, recording.batch_size), (2, 2, 3));
    }

    #[test]
    fn losses_belong_to_what_was_delivered() {
        let done = r#"{"done":{"at_us":5,"epoch":0,"batch":0,"rank":0,"seq":0,"opened_us":0,"read_us":1,"slot_wait_us":0,"delivered":[DELIVERED]}}"#;
        for (delivered, expected) in [
            ("1,3", vec![(1, 0.5), (2, f32::INFINITY)]),
            ("2,1,3", vec![(0, 0.5), (1, f32::INFINITY)]),
            ("", vec![]),
        ] {
            let done = done.replace("DELIVERED", delivered);
            let recording = read(&[HEADER, SIZES, OPEN, &done, REPORT]).unwrap();
            assert_eq!(known_losses(&recording), expected, "{delivered}");
        }
        // A batch that was not recorded.
        let other = REPORT.replace("\"batch\":0", "\"batch\":7");
        assert_eq!(known_losses(&read(&[HEADER, SIZES, OPEN, &other]).unwrap()), []);
    }

    #[test]
    fn a_cut_line_is_left_out_wherever_it_is_cut() {
        let whole = [HEADER, SIZES, OPEN, REPORT].join("\n");
        let from = whole.len() - REPORT.len();
        for end in from..=whole.len() {
            let recording = read_text(&whole[..end]).unwrap();
            let losses = known_losses(&recording).len();
            assert_eq!(losses, if end == whole.len() { 2 } else { 0 }, "cut at {end}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        let job = r#"{"job":5}"#;
        for (lines, expected) in [
            (vec![HEADER, SIZES], "t: there is no batch in it"),
            (vec![HEADER, OPEN], "t: it has the sizes of 0 of 4 samples"),
            (vec![HEADER, SIZES, SIZES], "t line 3: sizes from sample 0"),
            (vec![HEADER, &SIZES.replace("[5", "[5,5"), OPEN], "t line 2: sizes of more than 4"),
            (vec![HEADER, SIZES, &OPEN.replace("mmj", "mj")], "t line 3: 3 samples, of which 2"),
            (vec![HEADER, SIZES, &OPEN.replace("mmj", "mjz")], "t line 3: 'z' says not how"),
            (vec![HEADER, SIZES, &OPEN.replace("[3,", "[4,")], "t line 3: sample 4, but there are 4"),
            (vec![HEADER, SIZES, job, OPEN], "t line 3: invalid type"),
            (vec![HEADER, SIZES, "", OPEN], "t line 3: EOF"),
            (vec![&HEADER.replace(":3,\"shade_load", ":9,\"shade_load")], "t line 1: a trace of version 9"),
            (vec![&HEADER.replace("\"block_bytes\":8", "\"block_bytes\":0")], "t line 1: no number"),
        ] {
            let error = read(&lines).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

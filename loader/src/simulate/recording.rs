//! A training that `shade-load trace` recorded: its accesses, losses and sizes, read from the file (`formats/TRACE.md`).
//!
//! The order of lines is the order in which the daemon saw what they tell, so that a loss counts from where it came.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use shade_formats::SampleId;
use shade_formats::limits::{SAMPLES_MAX, TRACE_LINE_BYTES_MAX};
use shade_formats::trace::{Done, FIRST_KEY, Header, Job, Line, Open, Report, Served, Sizes as SizesLine};

use super::error::SimulateError;
use super::lines::Source;
use super::pace::Pace;
use super::sizes::Sizes;
use super::trace::Repeats;

/// A recorded training.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    /// Who was recorded.
    pub(super) header: Header,
    /// The job recorded; the last, if there were several.
    pub(super) job: Option<Job>,
    /// What its samples take, as in the daemon.
    pub(super) sizes: Sizes,
    /// What the trainers computed for each sample, if that can be told.
    pub(super) compute: Option<Duration>,
    accesses: Vec<SampleId>,
    /// The samples reported, with their losses.
    reported: Vec<SampleId>,
    losses: Vec<f32>,
    /// When (microseconds) and what.
    steps: Vec<(u64, Mark)>,
    epochs: Vec<Epoch>,
}

/// An epoch of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Epoch {
    accesses: Range<usize>,
    /// Those that the daemon served without a read of their own.
    hits: u64,
    repeats: Repeats,
}

/// What comes next in the recording; lengths go on from where the one before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Job,
    Epoch,
    Batch(usize),
    Read(usize),
    Report(usize),
}

/// A step of the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step<'a> {
    /// Another training begins: nothing is known of the samples.
    Job,
    /// An epoch begins, with these repeats and all these accesses.
    Epoch(Repeats, &'a [SampleId]),
    /// A batch is opened; they are numbered in this order, from 0.
    Batch(&'a [SampleId]),
    /// The last of this batch's reads is back.
    Read(usize),
    /// Losses come home.
    Report(&'a [SampleId], &'a [f32]),
}

/// Whether a file is one, from its beginning.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_recording(source: Source) -> Result<(bool, Source), SimulateError> {
    source.begins_with(FIRST_KEY)
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// The file cannot be read, a line makes no sense, or there is nothing in it to simulate.
    pub(super) fn read(mut source: Source) -> Result<Self, SimulateError> {
        let Some(first) = source.next_line(TRACE_LINE_BYTES_MAX)? else {
            return Err(source.refused("no header".to_owned()));
        };
        let header = Header::decode(first).map_err(|what| source.refused(what))?;
        if header.block_bytes == 0 || u64::from(header.samples) > SAMPLES_MAX {
            return Err(source.refused("no number of samples, or of bytes in a block".to_owned()));
        }
        let mut reading = Reading::default();
        while let Some(bytes) = source.next_line(TRACE_LINE_BYTES_MAX)? {
            let is_whole = bytes.last() == Some(&b'\n');
            match Line::decode(bytes) {
                Ok(line) => reading.take(line, header.samples).map_err(|what| source.refused(what))?,
                Err(what) if is_whole => return Err(source.refused(what)),
                Err(_) => {
                    let cut = source.refused("cut off: whoever recorded was stopped there".to_owned());
                    tracing::warn!("{cut}; it is left out");
                    break;
                }
            }
        }
        let path = source.path().to_owned();
        let known = reading.stored.len();
        if known != header.samples as usize {
            let what = format!("it has the sizes of {known} of {} samples", header.samples);
            return Err(SimulateError::File { path, what });
        }
        if reading.accesses.is_empty() {
            let what = "there is no batch in it: no training went on while it was recorded".to_owned();
            return Err(SimulateError::File { path, what });
        }
        if reading.lost > 0 {
            let lost = reading.lost;
            tracing::warn!("{}: {lost} lines are missing, as the recorder was too slow", path.display());
        }
        if reading.job.as_ref().is_some_and(|job| job.under_way) {
            tracing::warn!(
                "{}: the training was under way when the recording began: here it begins with an empty cache and equal \
                 scores",
                path.display()
            );
        }
        reading.end_epoch();
        // The daemon takes in what was read before it opens batches. All other steps are in the order of the lines.
        reading.steps.sort_by_key(|(at_us, mark)| (*at_us, !matches!(mark, Mark::Read(_))));
        let world_size = reading.job.as_ref().map_or(1, |job| job.world_size);
        Ok(Self {
            sizes: Sizes::Each { lens: reading.stored, block_bytes: header.block_bytes },
            header,
            job: reading.job,
            compute: reading.pace.compute(world_size),
            accesses: reading.accesses,
            reported: reading.reported,
            losses: reading.losses,
            steps: reading.steps,
            epochs: reading.epochs,
        })
    }

    /// All of it, in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let (mut accesses, mut reported, mut losses) =
            (&self.accesses[..], &self.reported[..], &self.losses[..]);
        let mut epochs = self.epochs.iter();
        self.steps.iter().filter_map(move |(_, mark)| {
            Some(match *mark {
                Mark::Job => Step::Job,
                Mark::Epoch => {
                    let epoch = epochs.next()?;
                    Step::Epoch(epoch.repeats, self.accesses.get(epoch.accesses.clone())?)
                }
                Mark::Batch(len) => Step::Batch(accesses.split_off(..len)?),
                Mark::Read(batch) => Step::Read(batch),
                Mark::Report(len) => Step::Report(reported.split_off(..len)?, losses.split_off(..len)?),
            })
        })
    }

    /// All accesses.
    pub(super) fn accesses(&self) -> &[SampleId] {
        &self.accesses
    }

    /// How many epochs there are, the last one of which may have been recorded in part.
    pub(super) fn epoch_count(&self) -> u32 {
        u32::try_from(self.epochs.len()).unwrap_or(u32::MAX)
    }

    /// What the daemon itself came to from an epoch on: hits and accesses.
    pub(super) fn hits(&self, from_epoch: u32) -> (u64, u64) {
        let counted = self.epochs.get(from_epoch as usize..).unwrap_or_default();
        counted.iter().fold((0, 0), |(hits, all), e| (hits + e.hits, all + e.accesses.len() as u64))
    }
}

/// A batch of which losses may come: epoch, batch, rank.
type Of = (u32, u32, u32);

/// A recording being read.
#[derive(Default)]
struct Reading {
    stored: Vec<u32>,
    accesses: Vec<SampleId>,
    reported: Vec<SampleId>,
    losses: Vec<f32>,
    steps: Vec<(u64, Mark)>,
    /// The time of the line before: the daemon's clock does not go back.
    now_us: u64,
    /// Batches that are not published yet, by rank and number, with their place among all.
    open: HashMap<(u32, u64), usize>,
    batches: usize,
    epochs: Vec<Epoch>,
    job: Option<Job>,
    /// The epoch under way.
    epoch: Option<u32>,
    hits: u64,
    /// By sample: how often it came in this epoch.
    counts: Vec<u32>,
    /// The samples of batches, those of this epoch and the one before, as the daemon keeps them.
    delivered: HashMap<Of, Vec<SampleId>>,
    pace: Pace,
    lost: u64,
}

impl Reading {
    fn take(&mut self, line: Line, samples: u32) -> Result<(), String> {
        match line {
            Line::Sizes(sizes) => self.sizes(sizes, samples),
            Line::Job(job) => {
                self.end_epoch();
                self.delivered.clear();
                self.open.clear();
                if !self.accesses.is_empty() {
                    self.step(job.at_us, Mark::Job);
                }
                self.pace.begin();
                self.job = Some(job);
                Ok(())
            }
            Line::Open(open) => self.open(open, samples),
            Line::Done(done) => self.done(done, samples),
            Line::Release(release) => {
                self.pace.released(release.rank, release.before_seq, release.at_us);
                Ok(())
            }
            Line::Report(report) => {
                self.report(&report);
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
            self.delivered.retain(|of, _| of.0.checked_add(1) == Some(open.epoch));
            self.epoch = Some(open.epoch);
            self.step(open.at_us, Mark::Epoch);
            self.epochs
                .push(Epoch { accesses: self.accesses.len()..self.accesses.len(), ..Epoch::default() });
        }
        for letter in open.served.bytes() {
            match Served::from_letter(letter) {
                Some(Served::Hit | Served::Joined) => self.hits += 1,
                Some(Served::Miss | Served::Prefetched | Served::Exchanged) => {}
                None => return Err(format!("{:?} says not how samples were served", char::from(letter))),
            }
        }
        let ids = known(open.ids, samples)?;
        for id in &ids {
            if let Some(count) = self.counts.get_mut(id.index()) {
                *count = count.saturating_add(1);
            }
        }
        self.pace.opened(open.rank, open.seq, ids.len());
        self.accesses.extend_from_slice(&ids);
        self.step(open.at_us, Mark::Batch(ids.len()));
        self.open.insert((open.rank, open.seq), self.batches);
        self.batches += 1;
        self.delivered.insert((open.epoch, open.batch, open.rank), ids);
        Ok(())
    }

    fn done(&mut self, done: Done, samples: u32) -> Result<(), String> {
        self.pace.published(done.rank, done.seq, done.at_us);
        if let Some(batch) = self.open.remove(&(done.rank, done.seq)) {
            // A batch without a read has its place at its end: another cache may have to read for it.
            let at_us = if done.read_us > done.opened_us { done.read_us } else { done.at_us };
            self.steps.push((at_us, Mark::Read(batch)));
        }
        if let Some(ids) = done.delivered {
            self.delivered.insert((done.epoch, done.batch, done.rank), known(ids, samples)?);
        }
        Ok(())
    }

    /// Losses of a batch that was opened before the recording began are left out.
    fn report(&mut self, report: &Report) {
        let Some(ids) = self.delivered.get(&(report.epoch, report.batch, report.rank)) else { return };
        let len = ids.len().min(report.losses.len());
        self.reported.extend(ids.iter().take(len));
        self.losses.extend(report.losses.iter().take(len).map(|loss| loss.unwrap_or(f32::INFINITY)));
        self.step(report.at_us, Mark::Report(len));
    }

    fn step(&mut self, at_us: u64, mark: Mark) {
        self.now_us = self.now_us.max(at_us);
        self.steps.push((self.now_us, mark));
    }

    /// Counts the repeats of the epoch under way, if there is one.
    fn end_epoch(&mut self) {
        let (Some(_), Some(epoch)) = (self.epoch.take(), self.epochs.last_mut()) else { return };
        epoch.accesses.end = self.accesses.len();
        epoch.hits = std::mem::take(&mut self.hits);
        for id in self.accesses.get(epoch.accesses.clone()).unwrap_or_default() {
            if let Some(count) = self.counts.get_mut(id.index()) {
                // The first time it is met its count is not yet back at none.
                epoch.repeats.distinct += u32::from(*count > 0);
                epoch.repeats.most = epoch.repeats.most.max(*count);
                *count = 0;
            }
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

    const HEADER: &str = r#"{"shade_trace":1,"shade_load":"0","dataset":"/d","content_id":"0","samples":4,"job":"j","policy":"lru","lookahead":1.0,"cache_bytes":8,"block_bytes":8,"engine":"e","began_unix_s":0}"#;
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
        Recording::read(source).map_err(|error| error.to_string())
    }

    fn ids(ids: &[u32]) -> Vec<SampleId> {
        ids.iter().copied().map(SampleId).collect()
    }

    #[test]
    fn steps_come_in_the_order_of_the_lines() {
        let second = OPEN.replace("\"epoch\":0", "\"epoch\":1").replace("mmj", "hmh");
        let recording = read(&[HEADER, SIZES, OPEN, &second, REPORT]).unwrap();
        let (all, half) = (ids(&[3, 1, 3]), ids(&[3, 1]));
        let repeats = Repeats { distinct: 2, most: 2 };
        let expected = [
            Step::Epoch(repeats, &all),
            Step::Batch(&all),
            Step::Epoch(repeats, &all),
            Step::Batch(&all),
            Step::Report(&half, &[0.5, f32::INFINITY]),
        ];
        assert!(recording.steps().eq(expected), "{recording:?}");
        assert_eq!((recording.hits(0), recording.hits(1), recording.epoch_count()), ((3, 6), (2, 3), 2));
        assert_eq!(recording.sizes, Sizes::Each { lens: vec![5, 6, 7, 9], block_bytes: 8 });
    }

    #[test]
    fn losses_belong_to_what_was_delivered() {
        let done = r#"{"done":{"at_us":5,"epoch":0,"batch":0,"rank":0,"seq":0,"opened_us":0,"read_us":1,"slot_wait_us":0,"delivered":[2]}}"#;
        let recording = read(&[HEADER, SIZES, OPEN, done, REPORT]).unwrap();
        let last = recording.steps().last().unwrap();
        assert_eq!(last, Step::Report(&ids(&[2]), &[0.5]));
        // Of an epoch long ago, of a batch that was not recorded: nothing.
        let other = REPORT.replace("\"batch\":0", "\"batch\":7");
        let recording = read(&[HEADER, SIZES, OPEN, &other]).unwrap();
        assert!(!recording.steps().any(|step| matches!(step, Step::Report(..))));
    }

    #[test]
    fn a_cut_line_is_left_out_wherever_it_is_cut() {
        let whole = [HEADER, SIZES, OPEN, REPORT].join("\n");
        let from = whole.len() - REPORT.len();
        for end in from..=whole.len() {
            let recording = read_text(&whole[..end]).unwrap();
            assert_eq!(recording.steps().count(), if end == whole.len() { 3 } else { 2 }, "cut at {end}");
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
            (vec![&HEADER.replace(":1,\"shade_load", ":9,\"shade_load")], "t line 1: a trace of version 9"),
            (vec![&HEADER.replace("\"block_bytes\":8", "\"block_bytes\":0")], "t line 1: no number"),
        ] {
            let error = read(&lines).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

//! The deaths of a session's daemons: how many there may be, and which records they died at.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use shade_dataset::{Content, Dataset};
use shade_formats::SampleId;
use shade_formats::limits::AVOIDED_MAX;
use shade_formats::printable::OneLine;
use shade_formats::ring::Working;

/// The daemons that may die before the same batch of a rank that waits for it.
const AT_A_BATCH_MAX: u32 = 3;
/// The daemons that may end while they make a row of the same sample. Then none is made of it.
const AT_A_SAMPLE_MAX: u32 = 2;
/// The time in which not more than [`Options::deaths_max`](crate::Options::deaths_max) may die.
const HOUR: Duration = Duration::from_secs(3600);
/// Samples that a message names.
const NAMED_MAX: usize = 8;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// Epoch and batch before which a daemon died last, and how many did that the rank waited for.
    place: (u32, u32),
    at_place: u32,
    /// The samples of which workers made rows when these died, and how often.
    in_work: BTreeMap<SampleId, u32>,
    /// Daemons that ended by a signal on the very thread that made a row of this sample.
    at_samples: BTreeMap<SampleId, u32>,
    /// Times of the last hour's deaths.
    times: VecDeque<Instant>,
    /// The last one's signal, and its sample.
    last: Option<Working>,
}

/// What is known of a daemon that has died.
#[derive(Debug)]
pub(crate) struct Death {
    /// Epoch and batch of the rank.
    pub(crate) epoch: u32,
    pub(crate) batch: u32,
    /// The rank waited for this batch, so it may be the reason.
    pub(crate) is_awaited: bool,
    /// What its workers did for the rank.
    pub(crate) working: Vec<Working>,
}

impl Deaths {
    /// A daemon has died. If a record has ended it, which is bad from the second time on, that is
    /// not counted for the batch.
    pub(crate) fn note(&mut self, death: &Death, now: Instant) {
        let place = (death.epoch, death.batch);
        if self.place != place {
            (self.place, self.at_place) = (place, 0);
            self.in_work.clear();
        }
        for row in &death.working {
            *self.in_work.entry(row.sample).or_default() += 1;
        }
        self.last = death.working.iter().find(|row| row.signal.is_some()).copied();
        let is_explained = self.last.is_some_and(|row| self.note_sample(row.sample));
        if death.is_awaited && !is_explained {
            self.at_place += 1;
        }
        self.note_time(now);
    }

    /// A successor has died before it was one.
    pub(crate) fn note_early(&mut self, now: Instant) {
        self.last = None;
        self.at_place += 1;
        self.note_time(now);
    }

    /// Whether the sample will not end another daemon, or has not ended enough of them yet.
    fn note_sample(&mut self, sample: SampleId) -> bool {
        let has_room = self.avoided().len() < AVOIDED_MAX;
        let ended = self.at_samples.entry(sample).or_default();
        *ended += 1;
        has_room && *ended <= AT_A_SAMPLE_MAX
    }

    fn note_time(&mut self, now: Instant) {
        self.times.push_back(now);
        while self.times.front().is_some_and(|&first| now.duration_since(first) > HOUR) {
            self.times.pop_front();
        }
    }

    /// The samples of which no row may be made any more.
    pub(crate) fn avoided(&self) -> Vec<u32> {
        let at_samples = self.at_samples.iter().filter(|(_, ended)| **ended >= AT_A_SAMPLE_MAX);
        at_samples.map(|(sample, _)| sample.0).take(AVOIDED_MAX).collect()
    }

    /// Which record has ended the last daemon, for the words about its end.
    pub(crate) fn last(&self) -> Option<String> {
        let Working { sample, signal: Some(signal) } = self.last? else { return None };
        let what = if self.avoided().contains(&sample.0) {
            "the second time: from now on it is a bad record, and on_error decides"
        } else {
            "once; the second time it will be a bad record"
        };
        Some(format!("signal {signal} came while it made a row of sample {sample}, {what}"))
    }

    /// Why the last one was one too many, if so, with the samples as the dataset in `folder` names
    /// them. At most `hourly_max` may die within an hour.
    pub(crate) fn too_many(&self, hourly_max: u32, folder: &Path, content: Content) -> Option<String> {
        if self.at_place >= AT_A_BATCH_MAX {
            let (deaths, (epoch, batch)) = (self.at_place, self.place);
            return Some(format!(
                "{deaths} daemons in a row have died before this rank had batch {batch} of epoch {epoch}; {}",
                self.work(folder, content)
            ));
        }
        (self.times.len() > hourly_max as usize).then(|| {
            format!(
                "{} daemons of this rank have died within an hour, more than {hourly_max} (Daemon(deaths_max=...))",
                self.times.len()
            )
        })
    }

    /// What the last daemons died at.
    fn work(&self, folder: &Path, content: Content) -> String {
        if self.in_work.is_empty() {
            return "none of them made a row for it when it died".to_owned();
        }
        let index = Dataset::open_same(folder.to_owned(), content).map(|dataset| dataset.index);
        let named = |(sample, deaths): &(SampleId, u32)| {
            let path = index.as_ref().ok().and_then(|index| index.path(*sample));
            let path = path.map(|path| format!(" ({})", OneLine(String::from_utf8_lossy(path))));
            format!("sample {sample}{} at {deaths}", path.unwrap_or_default())
        };
        let mut rows: Vec<(SampleId, u32)> =
            self.in_work.iter().map(|(sample, deaths)| (*sample, *deaths)).collect();
        rows.sort_by_key(|(sample, deaths)| (std::cmp::Reverse(*deaths), *sample));
        let more = if rows.len() > NAMED_MAX { ", ..." } else { "" };
        let rows: Vec<String> = rows.iter().take(NAMED_MAX).map(named).collect();
        format!("rows in work at their deaths: {}{more}", rows.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Death = Death { epoch: 1, batch: 7, is_awaited: true, working: Vec::new() };

    fn at(sample: u32, signal: Option<u8>) -> Death {
        Death { working: vec![Working { sample: SampleId(sample), signal }], ..HERE }
    }

    fn reason(deaths: &Deaths, hourly_max: u32) -> Option<String> {
        let content = Content { samples: 10, classes: 1, id: shade_formats::ContentId(0) };
        deaths.too_many(hourly_max, Path::new("/nowhere"), content)
    }

    #[test]
    fn the_third_before_the_same_batch_is_too_much_and_says_what_was_in_work() {
        let (mut deaths, now) = (Deaths::default(), Instant::now());
        deaths.note(&Death { batch: 6, ..HERE }, now);
        deaths.note(&at(3, None), now);
        deaths.note(&at(5, None), now);
        assert_eq!(reason(&deaths, 99), None);
        // Nobody waited for this one.
        deaths.note(&Death { is_awaited: false, ..HERE }, now);
        assert_eq!(reason(&deaths, 99), None);
        deaths.note(&at(5, None), now);
        let text = reason(&deaths, 99).unwrap();
        assert!(
            text.contains("3 daemons in a row have died before this rank had batch 7 of epoch 1"),
            "{text}"
        );
        assert!(text.ends_with("sample 5 at 2, sample 3 at 1"), "{text}");
        deaths.note(&Death { batch: 8, ..HERE }, now);
        assert_eq!(reason(&deaths, 99), None, "it went on");
    }

    #[test]
    fn more_than_the_limit_within_an_hour_are_too_many() {
        let (mut deaths, start) = (Deaths::default(), Instant::now());
        for batch in 0..20 {
            deaths.note(&Death { batch, is_awaited: false, ..HERE }, start + HOUR / 40 * batch);
        }
        assert_eq!(reason(&deaths, 20), None);
        let mut slow = Deaths { times: deaths.times.clone(), ..Deaths::default() };
        deaths.note(&Death { is_awaited: false, ..HERE }, start + HOUR);
        assert!(reason(&deaths, 20).unwrap().starts_with("21 daemons of this rank have died within an hour"));
        slow.note(&Death { is_awaited: false, ..HERE }, start + HOUR + HOUR / 100);
        assert_eq!(reason(&slow, 20), None, "the first was more than an hour ago");
    }

    #[test]
    fn a_sample_that_has_ended_two_is_avoided_and_no_batch_is_blamed_for_it() {
        let (mut deaths, now) = (Deaths::default(), Instant::now());
        // Two of them by turns, in one batch.
        for (round, sample) in [3, 5, 3, 5].into_iter().enumerate() {
            deaths.note(&at(sample, Some(11)), now);
            let expected: &[u32] = [&[][..], &[], &[3], &[3, 5]][round];
            assert_eq!(deaths.avoided(), expected);
            assert_eq!(reason(&deaths, 99), None);
            assert!(
                deaths
                    .last()
                    .unwrap()
                    .contains(&format!("signal 11 came while it made a row of sample {sample}"))
            );
        }
        // A daemon that makes a row of it all the same is none that listens.
        (0..3).for_each(|_| deaths.note(&at(5, Some(11)), now));
        assert!(reason(&deaths, 99).is_some());
    }

    #[test]
    fn there_is_a_limit_of_samples_that_are_avoided() {
        let (mut deaths, now) = (Deaths::default(), Instant::now());
        for sample in (0..).take(AVOIDED_MAX) {
            (0..2).for_each(|_| deaths.note(&at(sample, Some(6)), now));
        }
        assert_eq!(reason(&deaths, 999), None);
        (0..3).for_each(|_| deaths.note(&at(1000, Some(6)), now));
        assert_eq!(deaths.avoided().len(), AVOIDED_MAX);
        assert!(reason(&deaths, 999).is_some());
    }
}

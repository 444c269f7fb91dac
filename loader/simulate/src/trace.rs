//! A list of accesses that somebody wrote down, replayed as they are.

use std::borrow::Cow;
use std::collections::HashMap;

use shade_formats::SampleId;

use crate::error::SimulateError;
use crate::lines::Source;
use crate::outcome::Repeats;
use crate::script::{Epoch, Script};

/// The accesses. Ids are numbered anew in the order in which they first come, so that tables are as
/// long as there are samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    accesses: Vec<SampleId>,
    /// Each is as many accesses as there are samples; the last one may be shorter.
    epochs: Vec<Epoch>,
    samples: u32,
}

/// What the trace's ids were in its file.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: HashMap<u32, u32>,
}

impl Names {
    /// The sample's number in the trace, if it comes in it.
    pub(super) fn place(&self, id: u32) -> Option<u32> {
        self.places.get(&id).copied()
    }

    /// The id of a sample of the trace, by a search.
    pub(super) fn id(&self, place: u32) -> u32 {
        self.places.iter().find(|(_, at)| **at == place).map_or(place, |(id, _)| *id)
    }
}

impl Trace {
    /// Reads a list of accesses, one id a line.
    ///
    /// # Errors
    /// The file cannot be read, holds something else, or nothing.
    pub(super) fn read(source: Source) -> Result<(Self, Names), SimulateError> {
        let path = source.path().to_owned();
        let mut names = Names::default();
        let mut accesses = Vec::new();
        source.each(|line| {
            let id: u32 = line.parse().map_err(|_| format!("{line:?} is no sample id"))?;
            // As many places as ids were seen before, which are u32.
            let next = u32::try_from(names.places.len()).unwrap_or(u32::MAX);
            accesses.push(SampleId(*names.places.entry(id).or_insert(next)));
            Ok(())
        })?;
        if accesses.is_empty() {
            let what = "there is no access in it".to_owned();
            return Err(SimulateError::File { path, what });
        }
        let samples = u32::try_from(names.places.len()).unwrap_or(u32::MAX);
        Ok((Self::new(accesses, samples), names))
    }

    fn new(accesses: Vec<SampleId>, samples: u32) -> Self {
        let mut counts = vec![0u32; samples as usize];
        let mut epochs = Vec::new();
        let mut start = 0;
        for epoch in accesses.chunks(samples.max(1) as usize) {
            let mut repeats = Repeats::default();
            for id in epoch {
                if let Some(count) = counts.get_mut(id.index()) {
                    *count += 1;
                    repeats.distinct += u32::from(*count == 1);
                    repeats.most = repeats.most.max(*count);
                }
            }
            epochs.push(Epoch { accesses: start..start + epoch.len(), repeats, ..Epoch::default() });
            start += epoch.len();
            counts.fill(0);
        }
        Self { accesses, epochs, samples }
    }

    /// Different samples in it.
    pub(super) fn samples(&self) -> u32 {
        self.samples
    }

    /// All of it, to be simulated.
    pub(super) fn script(&self) -> Script<'_> {
        let accesses = Cow::Borrowed(self.accesses.as_slice());
        Script { accesses, losses: &[], back: &[], epochs: Cow::Borrowed(&self.epochs) }
    }

    /// Accesses in it.
    pub(super) fn len(&self) -> u64 {
        self.accesses.len() as u64
    }

    /// How many epochs it has, the last one of which may be shorter.
    pub(super) fn epoch_count(&self) -> u32 {
        // No more than accesses over samples; both come from a file that was read.
        u32::try_from(self.epochs.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<(Trace, Names), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let trace = Source::open(file.path()).and_then(Trace::read);
        trace.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "t.txt"))
    }

    #[test]
    fn ids_are_numbered_as_they_come() {
        let (trace, names) = read("4294967295\n7\n# pause\n\n7\n0\n7\n").unwrap();
        assert_eq!(trace.samples(), 3);
        let ids: Vec<u32> = trace.accesses.iter().map(|id| id.0).collect();
        assert_eq!(ids, [0, 1, 1, 2, 1]);
        let epoch = |accesses, distinct, most| Epoch {
            accesses,
            repeats: Repeats { distinct, most },
            ..Epoch::default()
        };
        assert_eq!(trace.epochs, [epoch(0..3, 2, 2), epoch(3..5, 2, 1)]);
        assert_eq!((names.place(u32::MAX), names.place(3), names.id(2)), (Some(0), None, 0));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for (text, expected) in [
            ("1\n2\nx\n", "t.txt line 3: \"x\" is no sample id"),
            ("1\n4294967296\n", "t.txt line 2: \"4294967296\" is no sample id"),
            ("# nothing\n", "t.txt: there is no access in it"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected);
        }
    }
}

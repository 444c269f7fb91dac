//! A list of accesses from a file, simulated as it is.
#![warn(clippy::indexing_slicing)]

use std::collections::HashMap;

use shade_formats::SampleId;

use crate::error::SimulateError;
use crate::lines::Source;
use crate::script::{Epoch, Repeats, Script};

/// The ids of a list's samples in its file. In the list they are numbered anew in the order in
/// which they first come, so that tables are as long as there are samples.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: HashMap<u32, u32>,
}

impl Names {
    /// Number of samples.
    pub(super) fn samples(&self) -> u32 {
        // Ids are u32.
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// The sample's number in the list, if it comes in it.
    pub(super) fn place(&self, id: u32) -> Option<u32> {
        self.places.get(&id).copied()
    }

    /// The id of a sample of the list, by a search.
    pub(super) fn id(&self, place: u32) -> u32 {
        self.places.iter().find(|(_, at)| **at == place).map_or(place, |(id, _)| *id)
    }
}

/// Reads a list of accesses, one id a line. An epoch is as many accesses as there are samples.
///
/// # Errors
/// The file cannot be read, holds something else, or nothing.
pub(super) fn read(source: Source) -> Result<(Script, Names), SimulateError> {
    let path = source.path().to_owned();
    let mut names = Names::default();
    let mut accesses = Vec::new();
    source.each(|line| {
        let id: u32 = line.parse().map_err(|_| format!("{line:?} is no sample id"))?;
        let next = names.samples();
        accesses.push(SampleId(*names.places.entry(id).or_insert(next)));
        Ok(())
    })?;
    if accesses.is_empty() {
        return Err(SimulateError::File { path, what: "there is no access in it".to_owned() });
    }
    let samples = names.samples() as usize;
    let mut counts = vec![0; samples];
    let mut epochs = Vec::new();
    let mut start = 0;
    for epoch in accesses.chunks(samples) {
        let end = start + epoch.len();
        let repeats = Repeats::of(epoch, &mut counts);
        epochs.push(Epoch { accesses: start..end, repeats, ..Epoch::default() });
        start = end;
    }
    Ok((Script { accesses, epochs, ..Script::default() }, names))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read_text(text: &str) -> Result<(Script, Names), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let list = Source::open(file.path()).and_then(read);
        list.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "t.txt"))
    }

    #[test]
    fn ids_are_numbered_as_they_come() {
        let (list, names) = read_text("4294967295\n7\n# pause\n\n7\n0\n7\n").unwrap();
        assert_eq!(names.samples(), 3);
        let ids: Vec<u32> = list.accesses.iter().map(|id| id.0).collect();
        assert_eq!(ids, [0, 1, 1, 2, 1]);
        let epoch = |accesses, distinct, most| Epoch {
            accesses,
            repeats: Repeats { distinct, most },
            ..Epoch::default()
        };
        assert_eq!(list.epochs, [epoch(0..3, 2, 2), epoch(3..5, 2, 1)]);
        assert_eq!((names.place(u32::MAX), names.place(3), names.id(2)), (Some(0), None, 0));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, expected) in [
            ("1\n2\nx\n", "t.txt line 3: \"x\" is no sample id"),
            ("1\n4294967296\n", "t.txt line 2: \"4294967296\" is no sample id"),
            ("# nothing\n", "t.txt: there is no access in it"),
        ] {
            assert_eq!(read_text(text).unwrap_err(), expected);
        }
    }
}

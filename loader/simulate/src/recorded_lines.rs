//! The lines of a file that `shade-load trace` recorded (`formats/layout/TRACE.md`), one by one.
#![warn(clippy::indexing_slicing)]

use std::path::Path;

use shade_formats::limits::{SAMPLES_MAX, TRACE_LINE_BYTES_MAX};
use shade_formats::trace::{FIRST_KEY, Header, Line};

use crate::error::SimulateError;
use crate::lines::Source;

/// A recorded training being read.
pub struct RecordedLines {
    source: Source,
    header: Header,
}

impl RecordedLines {
    /// Whether the file at `path` is a recording, by its first bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_recording(path: &Path) -> Result<bool, SimulateError> {
        Ok(Source::open(path)?.begins_with(FIRST_KEY)?.0)
    }

    /// Opens the recording at `path`, or on standard input if that is `-`.
    ///
    /// # Errors
    /// It cannot be read, or is no recording that this program reads.
    pub fn open(path: &Path) -> Result<Self, SimulateError> {
        Self::of(Source::open(path)?)
    }

    /// The lines of a file that is open.
    pub(super) fn of(mut source: Source) -> Result<Self, SimulateError> {
        let Some(first) = source.next_line(TRACE_LINE_BYTES_MAX)? else {
            return Err(source.refused("no header".to_owned()));
        };
        let header = Header::decode(first).map_err(|what| source.refused(what))?;
        if header.block_bytes == 0 || u64::from(header.samples) > SAMPLES_MAX {
            return Err(source.refused("no number of samples, or of bytes in a block".to_owned()));
        }
        Ok(Self { source, header })
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The next line; `None` at the end. A last line that was cut off is left out, with a warning.
    ///
    /// # Errors
    /// It cannot be read, or is no line of a recording.
    pub fn next_line(&mut self) -> Result<Option<Line>, SimulateError> {
        let Some(bytes) = self.source.next_line(TRACE_LINE_BYTES_MAX)? else { return Ok(None) };
        let is_whole = bytes.last() == Some(&b'\n');
        match Line::decode(bytes) {
            Ok(line) => Ok(Some(line)),
            Err(what) if is_whole => Err(self.refused(what)),
            Err(_) => {
                let cut = self.refused("cut off: the recorder was stopped there".to_owned());
                tracing::warn!("{cut}; it is left out");
                Ok(None)
            }
        }
    }

    /// The error of the line last read.
    #[must_use]
    pub fn refused(&self, what: String) -> SimulateError {
        self.source.refused(what)
    }
}

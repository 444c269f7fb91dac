//! Text files, read line by line. Errors name file and line. In files of numbers, blank lines and
//! comments are skipped.
#![warn(clippy::indexing_slicing)]

use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use shade_dataset::regular;

use crate::error::SimulateError;

/// Limit of a line of numbers with its comment.
const LINE_BYTES_MAX: usize = 4096;
/// The path that means standard input.
const STDIN: &str = "-";

/// A file being read.
pub(super) struct Source {
    reader: Box<dyn BufRead>,
    path: PathBuf,
    /// The number of the line last read, from 1.
    line: u64,
    bytes: Vec<u8>,
}

impl Source {
    /// Opens the file at `path`, or standard input if that is `-`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, SimulateError> {
        if path.as_os_str() == STDIN {
            return Ok(Self::new(BufReader::new(std::io::stdin()), Path::new("standard input")));
        }
        let file = regular::open_to_read_once(path).map_err(|error| SimulateError::read(path, error))?;
        Ok(Self::new(BufReader::with_capacity(1 << 16, file), path))
    }

    pub(super) fn new(reader: impl BufRead + 'static, path: &Path) -> Self {
        Self { reader: Box::new(reader), path: path.to_owned(), line: 0, bytes: Vec::new() }
    }

    /// The file, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it begins with these bytes. Call it before the first line; it consumes nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn begins_with(mut self, start: &[u8]) -> Result<(bool, Self), SimulateError> {
        let mut head = Vec::new();
        let read = self.reader.by_ref().take(start.len() as u64).read_to_end(&mut head);
        read.map_err(|error| SimulateError::read(&self.path, error))?;
        let begins = head == start;
        let Self { reader, path, .. } = self;
        Ok((begins, Self::new(Cursor::new(head).chain(reader), &path)))
    }

    /// The next line with its line end, which the last one may lack; `None` at the end.
    ///
    /// # Errors
    /// It cannot be read, or the line is longer than `bytes_max`.
    pub(super) fn next_line(&mut self, bytes_max: usize) -> Result<Option<&[u8]>, SimulateError> {
        self.bytes.clear();
        self.line += 1;
        let read = self.reader.by_ref().take(bytes_max as u64).read_until(b'\n', &mut self.bytes);
        read.map_err(|error| SimulateError::read(&self.path, error))?;
        if self.bytes.len() == bytes_max && self.bytes.last() != Some(&b'\n') {
            return Err(self.refused(format!("longer than {bytes_max} bytes")));
        }
        Ok((!self.bytes.is_empty()).then_some(&self.bytes))
    }

    /// The error of the line last read.
    pub(super) fn refused(&self, what: String) -> SimulateError {
        SimulateError::line(&self.path, self.line, what)
    }

    /// Gives `take` every line that is not blank, without its comment and trimmed. An error of
    /// `take` gets the line's number.
    ///
    /// # Errors
    /// The file cannot be read, or a line is too long, no UTF-8, or refused.
    pub(super) fn each(
        mut self,
        mut take: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<(), SimulateError> {
        while let Some(bytes) = self.next_line(LINE_BYTES_MAX)? {
            let taken = match std::str::from_utf8(bytes) {
                Ok(text) => match text.split('#').next().unwrap_or_default().trim() {
                    "" => Ok(()),
                    text => take(text),
                },
                Err(_) => Err("no text (UTF-8)".to_owned()),
            };
            taken.map_err(|what| self.refused(what))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &[u8]) -> Source {
        Source::new(Cursor::new(text.to_vec()), Path::new("f.txt"))
    }

    fn lines(text: &[u8]) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let take = |line: &str| {
            if line == "bad" {
                return Err("it is bad".to_owned());
            }
            found.push(line.to_owned());
            Ok(())
        };
        source(text).each(take).map_err(|error| error.to_string())?;
        Ok(found)
    }

    #[test]
    fn blank_lines_and_comments_are_left_out() {
        assert_eq!(lines(b"1\n\n # 2\r\n  3 # three\r\n4").unwrap(), ["1", "3", "4"]);
        assert_eq!(lines(b"").unwrap(), [""; 0]);
    }

    #[test]
    fn errors_name_the_line_that_the_file_has() {
        assert_eq!(lines(b"1\n# c\n\nbad\n").unwrap_err(), "f.txt line 4: it is bad");
        assert_eq!(lines(b"1\n\xff\n").unwrap_err(), "f.txt line 2: no text (UTF-8)");
        let long = lines(&[b"1\n".as_slice(), &[b'7'; 5000]].concat()).unwrap_err();
        assert!(long.starts_with("f.txt line 2: longer"), "{long}");
    }

    #[test]
    fn looking_at_the_beginning_takes_nothing_away() {
        for (start, begins) in [("1\n2", true), ("1\n3", false), ("1\n2\n3\n4\n5\n", false), ("", true)] {
            let (found, mut source) = source(b"1\n2\n3\n").begins_with(start.as_bytes()).unwrap();
            assert_eq!(found, begins, "{start:?}");
            assert_eq!(source.next_line(10).unwrap(), Some(b"1\n".as_slice()));
        }
    }
}

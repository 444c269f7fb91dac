//! A file for the tar crate: a seek costs nothing, and small members that follow one another cost
//! one read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes of one read: a header, and often the label and the header behind it. The page cache reads
/// no less.
const WINDOW_BYTES: usize = 4096;

/// A position in a file and what was read there.
pub(super) struct TarWindow<'a> {
    file: &'a File,
    file_bytes: u64,
    at: u64,
    start: u64,
    bytes: Vec<u8>,
    read_bytes_max: u64,
    left: u64,
    has_ended: bool,
}

impl<'a> TarWindow<'a> {
    /// A window onto a file of `file_bytes` bytes. Between two seeks it reads at most
    /// `read_bytes_max`: a damaged header must not make gigabytes of pictures the name of a member.
    pub(super) fn new(file: &'a File, file_bytes: u64, read_bytes_max: u64) -> Self {
        let (at, start, bytes, has_ended) = (0, 0, Vec::new(), false);
        Self { file, file_bytes, at, start, bytes, read_bytes_max, left: read_bytes_max, has_ended }
    }

    /// The position of the next read, perhaps beyond the end.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether a read found the end of the file.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Read for TarWindow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = u64::try_from(into.len()).unwrap_or(u64::MAX);
        let count = if into.len() >= WINDOW_BYTES {
            read_at(self.file, into, self.at)?
        } else {
            let behind = self.at.checked_sub(self.start).and_then(|behind| usize::try_from(behind).ok());
            let seen = behind.and_then(|behind| self.bytes.get(behind..)).filter(|seen| !seen.is_empty());
            let seen = match seen {
                Some(seen) => seen,
                None => {
                    self.bytes.resize(WINDOW_BYTES, 0);
                    let count = read_at(self.file, &mut self.bytes, self.at)?;
                    self.bytes.truncate(count);
                    self.start = self.at;
                    &self.bytes
                }
            };
            let count = seen.len().min(into.len());
            for (to, from) in into.iter_mut().zip(seen) {
                *to = *from;
            }
            count
        };
        self.has_ended |= count == 0 && wanted > 0;
        self.at = self.at.saturating_add(count as u64);
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(format!("a name or header of more than {} bytes", self.read_bytes_max))
        })?;
        Ok(count)
    }
}

impl Seek for TarWindow<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file_bytes.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::other("a size that no file has"))?;
        self.left = self.read_bytes_max;
        Ok(self.at)
    }
}

/// As `pread`. There is nothing beyond the largest offset.
fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    if i64::try_from(at).is_err() {
        return Ok(0);
    }
    loop {
        match file.read_at(into, at) {
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn it_reads_what_the_file_holds_wherever_one_seeks() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..20_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        file.write_all(&content).unwrap();
        let mut window = TarWindow::new(&file, 20_000, 10_000);
        for (at, bytes) in [(0, 10), (4090, 10), (19_990, 10), (5, 1), (100, 8000), (8100, 4095), (0, 4096)] {
            window.seek(SeekFrom::Start(at as u64)).unwrap();
            let mut read = vec![0; bytes];
            window.read_exact(&mut read).unwrap();
            assert_eq!(read, content[at..at + bytes], "{bytes} at {at}");
        }
        assert!(!window.has_ended());
        window.seek(SeekFrom::Current(1 << 40)).unwrap();
        assert_eq!(window.read(&mut [0; 9]).unwrap(), 0);
        assert!(window.has_ended());
        assert!(window.seek(SeekFrom::Current(i64::MIN)).is_err());
        window.seek(SeekFrom::End(-20_000)).unwrap();
        assert!(window.read_to_end(&mut Vec::new()).unwrap_err().to_string().contains("10000"));
    }
}

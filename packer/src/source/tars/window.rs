//! A tar's bytes for the tar crate: a seek costs nothing, and small members that follow one another
//! cost one read.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use crate::interrupt::Stop;
use crate::source_bucket::{BucketTar, ObjectFault};

/// Bytes of one read of a file: a header, and often the label and the header behind it. The page
/// cache reads no less.
const FILE_WINDOW_BYTES: usize = 4096;

/// Bytes of one read of an object. A request for each member's header would take 10,000 times the
/// latency of a store for 10,000 members. These bytes come in the time of two or three requests,
/// and 64 tars that are read at a time take 256 MiB.
const OBJECT_WINDOW_BYTES: usize = 4 << 20;

/// Where the bytes of a tar come from.
pub(super) enum TarBytes<'a> {
    File(File),
    Object(TarObject<'a>),
}

/// A tar in a bucket.
pub(super) struct TarObject<'a> {
    tar: &'a BucketTar,
    stop: &'a Stop,
    /// Why it could not be read: the tar's reader makes a text of that.
    fault: RefCell<Option<ObjectFault>>,
}

impl<'a> TarObject<'a> {
    pub(super) fn new(tar: &'a BucketTar, stop: &'a Stop) -> Self {
        Self { tar, stop, fault: RefCell::new(None) }
    }

    fn read(&self, into: &mut Vec<u8>, at: u64, most: usize) -> io::Result<()> {
        let end = at.saturating_add(most as u64).min(self.tar.bytes);
        let read = self.tar.read(at..end.max(at), into, &|| self.stop.check().is_err());
        read.map_err(|fault| {
            let text = fault.to_string();
            self.fault.borrow_mut().get_or_insert(fault);
            io::Error::other(text)
        })
    }
}

impl TarBytes<'_> {
    /// Why an object could not be read.
    pub(super) fn take_fault(&self) -> Option<ObjectFault> {
        match self {
            Self::File(_) => None,
            Self::Object(object) => object.fault.borrow_mut().take(),
        }
    }

    fn window_bytes(&self) -> usize {
        match self {
            Self::File(_) => FILE_WINDOW_BYTES,
            Self::Object(_) => OBJECT_WINDOW_BYTES,
        }
    }

    /// As `pread`. There is nothing beyond the largest offset.
    pub(super) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        if i64::try_from(at).is_err() {
            return Ok(0);
        }
        match self {
            Self::File(file) => loop {
                match file.read_at(into, at) {
                    Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
                    done => return done,
                }
            },
            Self::Object(object) => {
                let mut bytes = Vec::new();
                object.read(&mut bytes, at, into.len())?;
                for (to, from) in into.iter_mut().zip(&bytes) {
                    *to = *from;
                }
                Ok(bytes.len())
            }
        }
    }

    /// Puts what a window holds into `into`.
    fn fill(&self, into: &mut Vec<u8>, at: u64) -> io::Result<()> {
        into.clear();
        match self {
            Self::File(_) => {
                into.resize(FILE_WINDOW_BYTES, 0);
                let count = self.read_at(into, at)?;
                into.truncate(count);
                Ok(())
            }
            Self::Object(object) => object.read(into, at, OBJECT_WINDOW_BYTES),
        }
    }
}

/// A position in a tar and what was read there.
pub(super) struct TarWindow<'a> {
    tar: &'a TarBytes<'a>,
    tar_bytes: u64,
    at: u64,
    start: u64,
    bytes: Vec<u8>,
    read_bytes_max: u64,
    left: u64,
    has_ended: bool,
}

impl<'a> TarWindow<'a> {
    /// A window onto a tar of `tar_bytes` bytes. Between two seeks it reads at most
    /// `read_bytes_max`: a damaged header must not make gigabytes of pictures the name of a member.
    pub(super) fn new(tar: &'a TarBytes<'a>, tar_bytes: u64, read_bytes_max: u64) -> Self {
        let (at, start, bytes, has_ended) = (0, 0, Vec::new(), false);
        Self { tar, tar_bytes, at, start, bytes, read_bytes_max, left: read_bytes_max, has_ended }
    }

    /// The position of the next read, perhaps beyond the end.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether a read found the end of the tar.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Read for TarWindow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = u64::try_from(into.len()).unwrap_or(u64::MAX);
        let count = if into.len() >= self.tar.window_bytes() {
            self.tar.read_at(into, self.at)?
        } else {
            let behind = self.at.checked_sub(self.start).and_then(|behind| usize::try_from(behind).ok());
            let seen = behind.and_then(|behind| self.bytes.get(behind..)).filter(|seen| !seen.is_empty());
            let seen = match seen {
                Some(seen) => seen,
                None => {
                    self.tar.fill(&mut self.bytes, self.at)?;
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
            SeekFrom::End(by) => self.tar_bytes.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::other("a size that no file has"))?;
        self.left = self.read_bytes_max;
        Ok(self.at)
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
        let file = TarBytes::File(file);
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

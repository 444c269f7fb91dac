//! The region as loom sees it: index words are loom atomics, and a race on a descriptor line is a
//! failed test.

use std::sync::{Arc, Mutex, PoisonError};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use shade_formats::FormatError;
use shade_formats::ring::LINE_BYTES;

/// The real region's interface, over private memory.
#[derive(Clone)]
pub struct Region {
    memory: Arc<Memory>,
}

struct Memory {
    /// The bytes. loom runs one thread at a time, so this lock is never contended and hides no
    /// race.
    bytes: Mutex<Vec<u8>>,
    /// One cell per line: touched, never dereferenced, so that loom checks accesses to the line.
    lines: Vec<UnsafeCell<()>>,
    /// One atomic per index word.
    words: Vec<AtomicU64>,
}

/// Index words lie in the first page.
const INDEX_BYTES: u64 = 1024;

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes, loom)", self.len())
    }
}

impl Region {
    /// `len` zeroed bytes.
    #[must_use]
    pub fn heap(len: u64) -> Self {
        let len = usize::try_from(len).unwrap_or(0);
        Self {
            memory: Arc::new(Memory {
                bytes: Mutex::new(vec![0; len]),
                lines: (0..len.div_ceil(LINE_BYTES)).map(|_| UnsafeCell::new(())).collect(),
                words: (0..INDEX_BYTES / 8).map(|_| AtomicU64::new(0)).collect(),
            }),
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.bytes.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Whether there is no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As the real one, for lines only.
    ///
    /// # Errors
    /// When the range leaves the region.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FormatError> {
        self.line(offset)?.with_mut(|_| ());
        let mut memory = self.memory.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
        let to = memory.get_mut(start..start + bytes.len()).ok_or_else(|| out_of_range(offset))?;
        to.copy_from_slice(bytes);
        Ok(())
    }

    /// As the real one, for lines only.
    ///
    /// # Errors
    /// When the range leaves the region.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        self.line(offset)?.with(|_| ());
        let memory = self.memory.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
        into.copy_from_slice(memory.get(start..start + into.len()).ok_or_else(|| out_of_range(offset))?);
        Ok(())
    }

    /// As the real one.
    ///
    /// # Errors
    /// When there is no index word.
    pub fn load_u64(&self, offset: u64) -> Result<u64, FormatError> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// As the real one.
    ///
    /// # Errors
    /// When there is no index word.
    pub fn store_u64(&self, offset: u64, value: u64) -> Result<(), FormatError> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    fn line(&self, offset: u64) -> Result<&UnsafeCell<()>, FormatError> {
        let line = usize::try_from(offset).map_err(|_| out_of_range(offset))? / LINE_BYTES;
        self.memory.lines.get(line).ok_or_else(|| out_of_range(offset))
    }

    fn word(&self, offset: u64) -> Result<&AtomicU64, FormatError> {
        let word = usize::try_from(offset / 8).map_err(|_| out_of_range(offset))?;
        self.memory.words.get(word).ok_or_else(|| out_of_range(offset))
    }
}

fn out_of_range(offset: u64) -> FormatError {
    FormatError::new("loom memory", offset, "an access", "a place within the region")
}

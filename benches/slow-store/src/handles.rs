//! The kernel's open files and directories, by number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Numbered things that many threads use.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    open: Mutex<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::new(HashMap::new()), next: AtomicU64::new(0) }
    }

    pub(crate) fn open(&self, thing: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::new(thing));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.lock().get(&number).cloned()
    }

    pub(crate) fn close(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// A panic cannot leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! A counting gate: it lets through a limited amount of something; a thread that asks for more
//! waits.

use std::sync::{Condvar, Mutex};

use crate::error::Error;
use crate::interrupt::{Stop, lock, wait};

#[derive(Debug)]
pub(crate) struct Gate {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// A share of a gate; given back when dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    amount: u64,
}

impl Gate {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until `amount` fits, or until nothing else is in use: what is larger than the gate
    /// passes alone.
    pub(crate) fn pass(&self, amount: u64, stop: &Stop) -> Result<Pass<'_>, Error> {
        let mut used = lock(&self.used);
        while *used > 0 && used.saturating_add(amount) > self.limit {
            used = wait(&self.freed, used, stop)?;
        }
        *used = used.saturating_add(amount);
        Ok(Pass { gate: self, amount })
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut used = lock(&self.gate.used);
        *used = used.saturating_sub(self.amount);
        drop(used);
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn no_more_than_the_limit_is_inside() {
        let (gate, stop) = (Gate::new(3), Stop::default());
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let pass = gate.pass(1, &stop).unwrap();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(pass);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
    }

    #[test]
    fn what_is_too_large_passes_alone_and_a_stop_ends_the_wait() {
        let (gate, stop) = (Gate::new(3), Stop::default());
        let large = gate.pass(10, &stop).unwrap();
        stop.request();
        assert!(matches!(gate.pass(1, &stop), Err(Error::Interrupted)));
        drop(large);
        gate.pass(1, &stop).unwrap();
    }
}

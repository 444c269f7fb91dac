//! The thread that draws plans, and writes and reads saved states, so that the core's thread does
//! not stand still meanwhile.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, unbounded};
use shade_core::{AsideOrder, AsideResult};
use shade_shm::memfd;

/// Orders to the thread. It ends once this is dropped.
pub(super) struct Aside {
    /// Unbounded, since the core must never wait: a job has few orders at a time.
    orders: Sender<AsideOrder>,
    written: Written,
}

/// Bases of epochs that do not begin yet, as files for the ranks. What a result shares with no file
/// here is written when it is given.
type Written = Arc<Mutex<Vec<WrittenBase>>>;

struct WrittenBase {
    bytes: Arc<Vec<u8>>,
    file: OwnedFd,
}

/// A file in memory for ranks, who keep it for a successor of this daemon.
pub(super) fn base_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    memfd::holding("shade-base", bytes)
}

impl Aside {
    /// Starts the thread. Its results come out of the receiver, in the order of the orders.
    ///
    /// # Errors
    /// The system cannot start it.
    pub(super) fn start() -> io::Result<(Self, Receiver<AsideResult>)> {
        let (orders, queue) = unbounded::<AsideOrder>();
        let (results_in, results) = unbounded();
        let written = Written::default();
        let files = Arc::clone(&written);
        Builder::new().name("shade-aside".into()).spawn(move || {
            for order in queue {
                let result = order.carry_out();
                if let AsideResult::Drawn(drawn) = &result
                    && let Some(bytes) = drawn.base()
                    // Where there is no memory for it, main tries again and tells.
                    && let Ok(file) = base_file(bytes)
                {
                    let base = WrittenBase { bytes: Arc::clone(bytes), file };
                    files.lock().unwrap_or_else(PoisonError::into_inner).push(base);
                }
                // Sending fails only when the daemon is stopping.
                let _ = results_in.send(result);
            }
        })?;
        Ok((Self { orders, written }, results))
    }

    /// The file of these bytes.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn base_file(&self, bytes: &Arc<Vec<u8>>) -> io::Result<OwnedFd> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let at = written.iter().position(|base| Arc::ptr_eq(&base.bytes, bytes));
        let file = at.map(|at| written.swap_remove(at).file);
        // Those of plans that nobody wants any more.
        written.retain(|base| Arc::strong_count(&base.bytes) > 1);
        drop(written);
        file.map_or_else(|| base_file(bytes), Ok)
    }

    /// Queues an order. Never waits.
    pub(super) fn order(&self, order: AsideOrder) {
        // Fails only when the thread has panicked, which ends the daemon.
        let _ = self.orders.send(order);
    }
}

//! The thread that draws plans, and writes and reads saved states, so that the core's thread does
//! not stand still meanwhile.

use std::io;
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, unbounded};
use shade_core::{AsideOrder, AsideResult};

/// Orders to the thread. It ends once this is dropped.
pub(super) struct Aside {
    /// Unbounded, since the core must never wait: a job has few orders at a time.
    orders: Sender<AsideOrder>,
}

impl Aside {
    /// Starts the thread. Its results come out of the receiver, in the order of the orders.
    ///
    /// # Errors
    /// The system cannot start it.
    pub(super) fn start() -> io::Result<(Self, Receiver<AsideResult>)> {
        let (orders, queue) = unbounded::<AsideOrder>();
        let (results_in, results) = unbounded();
        Builder::new().name("shade-aside".into()).spawn(move || {
            // Sending fails only when the daemon is stopping.
            for order in queue {
                let _ = results_in.send(order.carry_out());
            }
        })?;
        Ok((Self { orders }, results))
    }

    /// Queues an order. Never waits.
    pub(super) fn order(&self, order: AsideOrder) {
        // Fails only when the thread has panicked, which ends the daemon.
        let _ = self.orders.send(order);
    }
}

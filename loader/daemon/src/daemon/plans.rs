//! The thread that draws plans, so that the core's thread does not stand still meanwhile.

use std::io;
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, unbounded};
use shade_core::{DrawOrder, Drawn};

/// Orders to the thread. It ends once this is dropped.
pub(super) struct Plans {
    /// Unbounded, since the core must never wait: a job has one order at a time.
    orders: Sender<Box<DrawOrder>>,
}

impl Plans {
    /// Starts the thread. Its plans come out of the receiver, in the order of the orders.
    ///
    /// # Errors
    /// The system cannot start it.
    pub(super) fn start() -> io::Result<(Self, Receiver<Drawn>)> {
        let (orders, queue) = unbounded::<Box<DrawOrder>>();
        let (drawn_in, drawn) = unbounded();
        Builder::new().name("shade-plan".into()).spawn(move || {
            // Sending fails only when the daemon is stopping.
            for order in queue {
                let _ = drawn_in.send(order.carry_out());
            }
        })?;
        Ok((Self { orders }, drawn))
    }

    /// Queues an order. Never waits.
    pub(super) fn order(&self, order: Box<DrawOrder>) {
        // Fails only when the thread has panicked, which ends the daemon.
        let _ = self.orders.send(order);
    }
}

//! The front: takes the core's orders and gives each to the server that has its key.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::{Sender, bounded};
use shade_core::TierOrder;
use shade_formats::SampleId;
use shade_reads::blocks::{Arena, FreeList};

use crate::connection::Login;
use crate::discovery::{Discovery, TierConfig};
use crate::key::{Keys, slot};
use crate::routes::Routes;
use crate::server::{Event, Fetch, Put, Server, Shared, Write};

/// An order of the core, with blocks of the arena.
pub type Order = TierOrder<FreeList>;

/// Records in the memory of other machines. When it is dropped its threads end within a deadline.
pub struct Tier {
    shared: Arc<Shared>,
    routes: Arc<Routes>,
    /// Dropping it ends the discovery.
    _stop: Sender<()>,
}

impl Tier {
    /// Starts to look for the servers, without waiting for them. Answers come through `events`;
    /// [`TierEvent::Room`](shade_core::TierEvent::Room) says that the first servers are there.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(config: TierConfig, arena: Arc<Arena>, events: Sender<Event>) -> io::Result<Self> {
        let (moved_in, moved) = bounded(1);
        let (stop_in, stop) = bounded(0);
        let shared = Arc::new(Shared {
            arena,
            keys: Keys::new(config.content_id, config.fields.as_deref()),
            login: Arc::new(Login::from_environment(&config.servers, config.deadline)),
            events,
            moved: moved_in,
            told_of_full: AtomicBool::new(false),
        });
        let routes = Arc::new(Routes::default());
        let discovery = Discovery::new(config, Arc::clone(&shared), Arc::clone(&routes));
        std::thread::Builder::new().name("shade-tier".into()).spawn(move || discovery.run(&moved, &stop))?;
        Ok(Self { shared, routes, _stop: stop_in })
    }

    /// Carries an order out. Never waits.
    pub fn order(&self, order: Order) {
        match order {
            TierOrder::Get(ops) => {
                for op in ops {
                    let (server, fetch) = (self.server_of(op.sample), Fetch::new(op, &self.shared));
                    // Without a server it is dropped, which answers it.
                    if let Some(server) = server {
                        server.fetch(fetch);
                    }
                }
            }
            TierOrder::Put { sample, len, record } => {
                self.write(sample, Write::Put(Put::new(sample, len, record, &self.shared)));
            }
            TierOrder::Drop(samples) => {
                samples.into_iter().for_each(|sample| self.write(sample, Write::Remove(sample)));
            }
        }
    }

    fn write(&self, sample: SampleId, write: Write) {
        if let Some(server) = self.server_of(sample) {
            server.write(write);
        }
    }

    fn server_of(&self, sample: SampleId) -> Option<Arc<Server>> {
        self.routes.of(slot(&self.shared.keys.of(sample)))
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.routes.clear();
    }
}

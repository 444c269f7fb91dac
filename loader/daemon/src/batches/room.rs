//! Where the rows of an order are made.

use std::sync::Arc;

use shade_shm::{Region, WorkBoard};

/// Where an order's rows go, and what its rank's job has learned of records.
#[derive(Clone, Debug)]
pub struct Room {
    /// The payload segment.
    pub payload: Region,
    /// Where the workers say what they do.
    pub board: Option<WorkBoard>,
    /// Samples whose decoders end the daemon: no row is made of them.
    pub avoided: Arc<[u32]>,
}

impl From<Region> for Room {
    fn from(payload: Region) -> Self {
        Self { payload, board: None, avoided: Arc::default() }
    }
}

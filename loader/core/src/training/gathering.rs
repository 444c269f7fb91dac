//! What ranks hand over to a job of a daemon that died, until all of them have.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use shade_formats::control::Step;

use super::base::BaseVersion;
use crate::ids::SessionId;

/// What is handed over to a job, before it begins.
#[derive(Default)]
pub(super) struct Gathering {
    pub(super) newest: Option<Handed>,
    pub(super) versions: HashMap<SessionId, BaseVersion>,
    pub(super) redos: HashMap<SessionId, Vec<Step>>,
    /// Sessions that have asked for an epoch, or load a state: they wait.
    pub(super) asked: HashSet<SessionId>,
    /// The epoch of the base that was restored.
    pub(super) restored: Option<u32>,
}

/// The newest base that was handed over, or loaded state.
pub(super) struct Handed {
    pub(super) version: BaseVersion,
    pub(super) digest: u64,
    pub(super) rank: u32,
    pub(super) bytes: Arc<Vec<u8>>,
}

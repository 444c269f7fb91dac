//! The seam between what is read and how: two engines, chosen once at start.

use super::config::EngineChoice;
use super::fault::ReadsError;
use super::flight::{Flight, Shared};
use super::threads::Threads;
use super::uring::Uring;
use std::sync::Arc;

/// Something that carries out reads. Dropping it completes what has not begun as stopped, waits for what has,
/// and joins its threads; after that no memory of the arena is in the kernel's hands.
pub(super) trait Engine: Send + Sync {
    /// Takes a flight; sooner or later it is delivered.
    fn submit(&self, flight: Flight);

    /// The engine's name and the settings worth knowing.
    fn description(&self) -> String;
}

/// Starts the engine that was asked for, for at most `depth` reads in flight, and describes it.
pub(super) fn start(
    choice: EngineChoice,
    depth: u32,
    shared: &Arc<Shared>,
) -> Result<(Box<dyn Engine>, String), ReadsError> {
    let threads = || Threads::start(depth, shared).map_err(|source| ReadsError::Thread { source });
    let (engine, why): (Box<dyn Engine>, _) = match choice {
        EngineChoice::Threads => (Box::new(threads()?), String::new()),
        EngineChoice::Auto | EngineChoice::Uring => match Uring::start(depth, shared) {
            Ok(uring) => (Box::new(uring), String::new()),
            Err(source) if choice == EngineChoice::Uring => return Err(ReadsError::Uring { source }),
            Err(error) => (Box::new(threads()?), format!(" because {error}")),
        },
    };
    let description = engine.description() + &why;
    Ok((engine, description))
}

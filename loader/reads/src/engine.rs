//! The seam between what is read and how: three engines, one of which is chosen at start.

use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::config::{EngineChoice, ReadsConfig};
use crate::fault::ReadsError;
use crate::flight::{Flight, Shared};
use crate::op::Completion;
use crate::sim::SimThread;
use crate::threads::Threads;
use crate::uring::Uring;

/// Something that carries out reads, as many at a time as the gate allows. Dropping it ends what has not begun as
/// stopped, waits for what has, and joins its threads; after that no memory of the arena is in the kernel's hands.
pub(super) trait Engine: Send + Sync {
    /// Takes a flight; sooner or later its records are delivered.
    fn submit(&self, flight: Flight);

    /// The engine's name and the settings worth knowing.
    fn description(&self) -> String;
}

/// Starts the engine that was asked for, and describes it.
pub(super) fn start(
    config: &ReadsConfig,
    shared: &Arc<Shared>,
    completions: &Sender<Completion>,
) -> Result<(Box<dyn Engine>, String), ReadsError> {
    let no_thread = |source| ReadsError::Thread { source };
    let threads = || Threads::start(shared, completions).map_err(no_thread);
    let (engine, why): (Box<dyn Engine>, _) = match (config.engine, config.store) {
        (EngineChoice::Uring | EngineChoice::Threads, Some(_)) => return Err(ReadsError::RealStore),
        (EngineChoice::Sim, None) => (
            Box::new(SimThread::start(Default::default(), shared, completions).map_err(no_thread)?),
            String::new(),
        ),
        (EngineChoice::Sim | EngineChoice::Auto, Some(model)) => {
            (Box::new(SimThread::start(model, shared, completions).map_err(no_thread)?), String::new())
        }
        (EngineChoice::Threads, None) => (Box::new(threads()?), String::new()),
        (choice @ (EngineChoice::Auto | EngineChoice::Uring), None) => {
            match Uring::start(shared, completions) {
                Ok(uring) => (Box::new(uring), String::new()),
                Err(source) if choice == EngineChoice::Uring => return Err(ReadsError::Uring { source }),
                Err(error) => (Box::new(threads()?), format!(" because {error}")),
            }
        }
    };
    let description = engine.description() + &why;
    Ok((engine, description))
}

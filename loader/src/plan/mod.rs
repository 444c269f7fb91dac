//! The epoch's plan: which samples, how often, in which order, in whose batch. Known before the epoch starts.
//!
//! One file per stage, in this order: `draw`, `replicate`, `cover`, `order`, `slice`. `epoch` runs them; `random` holds
//! the numbers they draw. The plan is a pure function of (seed, epoch, score table, residency, parameters); it depends
//! on neither the number of ranks nor the machine.

mod cover;
mod draw;
mod epoch;
mod order;
mod outlook;
mod random;
mod replicate;
mod slice;

pub use epoch::{Plan, PlanSummary, draw_plan};
pub use outlook::{Outlook, Use, in_sight};
pub use replicate::rep_now;
pub use slice::{Slices, SlicesError, Slot};

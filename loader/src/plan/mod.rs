//! The epoch's plan: which samples, how often, in which order, in whose batch. Known before the epoch starts.
//!
//! One file per stage, in this order: `draw` (PADS) or `selection` (iCACHE's samplers), `replicate`, `cover`; `order` with
//! `spaced` and `opportunistic`; `pace`; `slice`. `epoch` runs them; `random` holds the numbers they draw. The plan is a pure
//! function of (seed, epoch, score table, residency, parameters); it depends on neither the number of ranks nor the machine.
//! While it is delivered, `outlook` says when its samples are used next, and `exchange` lets samples change places;
//! `entropy` measures how random an order is.

mod cover;
mod draw;
mod entropy;
mod epoch;
mod exchange;
mod opportunistic;
mod order;
mod outlook;
mod pace;
mod random;
mod replicate;
mod selection;
mod slice;
mod spaced;

pub use entropy::position_entropy;
pub use epoch::{Plan, PlanSummary, draw_next_plan, draw_plan, spec_now};
pub use outlook::{Known, Outlook, Use, in_sight};
pub use replicate::rep_now;
pub use selection::high_importance;
pub use slice::{Slices, SlicesError, Slot};

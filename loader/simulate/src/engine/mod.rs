//! The engine of all simulations: nodes with jobs, one store, and a virtual clock. One node with
//! one job is its smallest case.
//!
//! | part | what it is |
//! |---|---|
//! | `setup` | what each node is given: its core's configuration and its jobs |
//! | `node` | one node: a core over its samples, and the ranks of each job there |
//! | `trainer` | a job's trainer: a step ends when its slowest rank has computed its batch |
//! | `cluster` | nodes, store and trainers together: the only loop |
//! | `storage` | the store that all share, with each node's depth and link |
//! | `tier_servers` | each node's tier |
//! | `recalled` | in place of a store: the reads of a recording |
//! | `seats` | which node holds which strata, and who takes those of a lost node |
//! | `training` | one training: drawn, or along a script |
//! | `outcome` | what came of it |

mod cluster;
mod node;
mod outcome;
mod recalled;
mod seats;
mod setup;
mod storage;
#[cfg(test)]
mod tests;
mod tier_servers;
mod trainer;
mod training;

pub(super) use outcome::{EpochOutcome, Played, Trained};
pub(super) use seats::strata_for;
pub(super) use training::{Jobs, Nodes, Surroundings, Training};

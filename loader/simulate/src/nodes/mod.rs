//! Several nodes that train together: a core each, with the node's own ranks, cache and strata.
//!
//! | part | what it is |
//! |---|---|
//! | `args` | the options |
//! | `seats` | which node holds which strata, and who takes those of a lost node |
//! | `node` | one node: a core over its own samples, and its ranks |
//! | `storage` | the store that all share, the depth of each node's reads, the nodes' links |
//! | `tier_servers` | each node's tier |
//! | `steps` | when a step ends: the slowest rank has its batch and has computed it |
//! | `cluster` | nodes, store and steps together |
//! | `training` | one training on all nodes, and on one node alone |
//! | `sliced` | the same with one plan for all nodes, to compare with |
//! | `rows`, `row`, `table` | all trainings, and the result |

mod args;
mod cluster;
mod node;
mod row;
mod rows;
mod seats;
mod sliced;
mod steps;
mod storage;
mod table;
mod tier_servers;
mod training;

pub use args::NodesArgs;
pub(super) use rows::report;

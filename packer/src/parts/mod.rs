//! One dataset by many machines: `list`, `plan`, `create --part` and `finish`.
//!
//! `plan` does what `create` does before it writes, and leaves the result in a file. Each part
//! packs shards of that plan, and leaves a record of completion for each. `finish` does what
//! `create` does after its last shard. `list` does a part of what `plan` begins with. Nothing is
//! locked for a part, and no machine waits for another.

mod finish;
mod list;
mod pack;
mod plan;

pub(crate) use finish::{FinishArgs, finish};
pub(crate) use list::{ListArgs, list};
pub(crate) use pack::create_part;
pub(crate) use plan::{PlanArgs, plan};
#[cfg(test)]
pub(crate) use {finish::Finished, list::Listing, pack::PackedPart, plan::PlanMade};

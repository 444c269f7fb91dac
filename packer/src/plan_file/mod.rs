//! What one run lists or plans for others, on other machines: `dataset.plan` and lists of parts.
//!
//! Both are files of `runs`: the samples of one shard, or of one class, behind each other, with
//! checksums, so that a part reads only its own. `rows` is a sample there, `plan` and `lists` are
//! the two files. Their bytes: `packer/PLAN.md`. They are not for keeping: another version of the
//! program may refuse them.

mod lists;
mod plan;
mod rows;
mod runs;

pub(crate) use lists::{ListedPart, ListedSplit, read_lists, remove_lists, write_list};
pub(crate) use plan::{PlanFile, write_plan};

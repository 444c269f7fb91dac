//! The epoch's plan: which samples, how often, in which order, in which batch. Known before the
//! epoch starts.
//!
//! The stages, in this order:
//!
//! | stage | what it decides | where |
//! |---|---|---|
//! | strata | which samples are drawn with which others | `strata`, and at which seats: `mix` |
//! | sampler | how often each sample comes, and its loss weight | `samplers/`, one file each |
//! | order | in which order, with repeats apart | `orders/`, one file each |
//! | pace | the same number of expected misses in each batch | `pace` |
//! | slice | which position is in which batch of which rank | `slice`, `slot` |
//!
//! `epoch` runs all but the last, and `list` those in the middle for what is drawn on its own. The
//! plan is a pure function of its `inputs`: seed, epoch, score table, residency and parameters,
//! among them the `gap` of repeats. It depends on neither the number of ranks nor the machine;
//! `random` has its random numbers. A daemon has the `part` of it that its ranks deliver. While the
//! plan is delivered, `lookahead` says when its samples are used next, and `exchange` lets samples
//! change places, with `stand_ins` where packages are read. `entropy` measures how random an order
//! is.
//!
//! A `mixture` has its parts in place of strata: `quotas` says how many rows of each part a batch
//! has. With `buckets` a list is dealt over batches that have images of one aspect ratio each. So
//! these plans also depend on the size of a batch of all ranks.
//!
//! # How to add a sampler
//!
//! 1. Write `samplers/NAME.rs`: a function from `Inputs` to `Draw`. It says how often each sample
//!    comes and with which weight. The weight of a sample that is expected λ times is 1/λ, so that
//!    the weighted loss has the mean of a plain pass over the dataset. `chances` draws with
//!    replacement from a table of scores or weights; `cover` brings back samples that were left out
//!    for long.
//! 2. Take random numbers from `inputs.random(Stage::Draw)`, and from a new `Stage` for each
//!    further purpose. Decide by whole numbers and never by a sum of floats: every machine must
//!    draw the same plan.
//! 3. Give `inputs` a new field for what the sampler needs beyond scores and parameters, such as
//!    labels. A new parameter goes into `PlanSpec` (`formats/job/src/spec.rs`).
//! 4. Add a row to the table in `samplers/table`: the function, whether epochs can be shorter than
//!    the dataset, and whether nothing may change the order.
//! 5. Add a row to `Sampler` in `formats/job/src/choices.rs`: name, code and description,
//!    and below it whether the sampler goes by reported losses. If epochs can be shorter than the
//!    dataset, or strata would not draw a sample as often as the dataset would, `JobSpec::validate`
//!    refuses strata (`nodes.rs` there). It stands there because the name travels from Python to
//!    the daemon. The code belongs into `formats/layout/CONTROL.md`, too. The compiler asks for
//!    step 4 after step 5.
//! 6. Add the name to the type `Sampler` in `shade_load/plan.py` (a test compares the two), and to
//!    `BY_LOSS` there if it goes by losses.
//!
//! The tests that go through `Sampler::ALL` then include it: degenerate inputs, resuming in the
//! middle, any number of ranks, the promises of all stages (`every_stage_keeps_its_promises`).
//! `tests/plan_draws.rs` is the place for what it promises itself: how often a sample comes, and
//! that the weights are right.
//!
//! # How to add an order
//!
//! The same way: `orders/NAME.rs` lists each sample as often as the counts say, `orders/table` has
//! a row for it, and `Order` in the same file as `Sampler` its name, and whether it asks for
//! residents. Repeats are moved apart
//! afterwards; an order need not see to that.

mod advice;
mod bijection;
mod buckets;
mod entropy;
mod epoch;
mod exchange;
mod gap;
mod inputs;
mod list;
mod lookahead;
mod mix;
mod mixture;
mod orders;
mod pace;
mod part;
mod quotas;
mod random;
mod samplers;
mod slice;
mod slot;
mod stand_ins;
mod strata;

pub use advice::{FewerReads, fewer_reads};
pub use entropy::position_entropy;
pub use epoch::{Plan, draw_next_plan, draw_plan, spec_now};
pub use exchange::may_exchange;
pub use gap::GAP_BATCHES;
pub(crate) use gap::{gap_batches, gap_follows_from_cache};
pub use inputs::SampleFacts;
pub use list::PlanSummary;
pub use lookahead::{Known, Lookahead, Use, in_sight, next_accesses};
pub use mix::mixed;
pub use part::Part;
pub use samplers::{Repeats, high_importance, may_leave_out, rep_now};
pub use slice::{Origin, Slices, SlicesError};
pub use slot::Slot;
pub use stand_ins::StandIns;
pub use strata::{Strata, StrataError};

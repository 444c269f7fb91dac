//! The cache: which samples are resident, and which are evicted for others. No I/O, no clock, no
//! threads.
//!
//! [`Cache`] (`store`) holds the values (`residents`) and keeps the byte limit. Its policy keeps an
//! order of eviction:
//!
//! | file | policies |
//! |---|---|
//! | `ranking` | `app`, `topc`: residents ranked by a key, in a `heap` |
//! | `lookahead` | `lookahead`, the default: a ranking by `next_uses`, then by `app`'s key |
//! | `queue` | `lru`, `fifo`: residents in a queue, of `queues` |
//! | `published/` | `lfu`, `arc`, `static`, `icache`, `quiver`: one file each |
//!
//! [`Importance`](crate::importance::Importance) remembers scores and uses of samples that are not
//! resident: it is the ghost table of the rankings. `arc` has ghosts of its own.
//!
//! # How to add a policy
//!
//! 1. Write the policy in a file of its own. A policy that ranks residents by a key implements
//!    `RankedBy` (`ranking`): only the key is needed. Any other implements `Eviction` (`eviction`):
//!    the order of eviction, and what changes it. A heap (`heap`) and queues (`queues`) are there
//!    to build on. Places are dense numbers, so an order is an array and needs no map.
//! 2. Add a row to the table in `policies`: its type and how it begins.
//! 3. Add a row to the table in `formats/job/src/preset.rs`: its name and its line in
//!    `--help`. It stands there because Python checks names, too. The compiler asks for step 2
//!    after step 3.
//! 4. Add its name to the type of `Daemon(policy=)` in `shade_load/daemon.py`; a test compares the
//!    two.
//!
//! Then all of this includes it: `--policy`, `simulate`, and the tests that go through
//! `Policy::ALL`. `tests/cache_against_a_model.rs` compares a policy with a slow, obvious one in
//! `tests/cache_model`: write that, too. `shade-benches cache` says what an access costs.
//!
//! # Speed
//!
//! The small steps of an admission are marked `inline(always)`. Left to itself the compiler makes
//! calls of some, and an access under `lru` where nothing hits takes a quarter longer.

mod eviction;
mod heap;
mod lookahead;
mod next_uses;
mod policies;
mod published;
mod queue;
mod queues;
mod ranking;
mod residents;
mod store;

pub use eviction::Properties;
pub use next_uses::Clock;
pub use store::{Admission, Cache};

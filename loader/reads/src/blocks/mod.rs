//! The memory of records: one arena of fixed blocks, handed out as tokens that own them.
//!
//! [`Arena::create`] makes the memory and its one [`FreeList`]. The list is pure bookkeeping and
//! belongs to one thread; all threads share the arena, which turns a token ([`Blocks`]) into
//! slices. A token cannot be cloned and the list never hands a block out twice, so `&Blocks` may
//! give `&[u8]` and `&mut Blocks` may give `&mut [u8]` without a lock.
//!
//! `frontier` knows how far the arena is in use, and `prefault` finds memory ahead of it.

mod arena;
mod free_list;
mod frontier;
mod lent;
mod memory;
mod prefault;
mod record;
mod token;

pub use arena::Arena;
pub use free_list::FreeList;
pub use lent::Lent;
pub use prefault::Prefault;
pub use record::Record;
pub use token::{Blocks, BlocksError};

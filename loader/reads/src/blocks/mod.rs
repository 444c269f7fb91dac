//! The memory that records live in: one arena of fixed blocks, handed out as tokens that own them.
//!
//! [`Arena::create`] makes the memory and the one [`FreeList`] of it. The list is pure bookkeeping and
//! belongs to one thread; the arena is shared by all and turns a token ([`Blocks`]) into slices. A token
//! cannot be cloned and the list never hands a block out twice, so `&Blocks` may give `&[u8]` and `&mut
//! Blocks` may give `&mut [u8]` with no lock at all.

mod arena;
mod free_list;
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

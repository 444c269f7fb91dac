//! The memory of records: one arena of fixed blocks, handed out as tokens that own them.
//!
//! [`Arena::create`] makes the memory and its one [`FreeList`]. The list is pure bookkeeping and
//! belongs to one thread; all threads share the arena, which turns a token ([`Blocks`]) into
//! slices. A token cannot be cloned and the list never hands a block out twice, so `&Blocks` may
//! give `&[u8]` and `&mut Blocks` may give `&mut [u8]` without a lock.
//!
//! `mapping` is its range of addresses, in which it grows and shrinks. `frontier` knows how far it
//! is in use, and `prefault` finds memory ahead of that. Before it shrinks, `moving` takes records
//! out of the blocks that go.

mod arena;
mod free_list;
mod frontier;
mod mapping;
mod memory;
mod moving;
mod prefault;
mod record;
mod token;

pub use arena::Arena;
pub use free_list::FreeList;
pub use prefault::Prefault;
pub use record::{Lent, Record};
pub use token::{Blocks, BlocksError};

/// Bytes of this process at these addresses that are resident, by the system's own account.
#[cfg(test)]
fn resident_bytes(addresses: std::ops::Range<usize>) -> usize {
    let hex = |text: &str| usize::from_str_radix(text, 16).ok();
    let (mut bytes, mut inside) = (0, false);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some((start, end)) = first.split_once('-').and_then(|(a, b)| Some((hex(a)?, hex(b)?))) {
            inside = addresses.start <= start && end <= addresses.end;
        } else if inside && first == "Rss:" {
            bytes += words.next().unwrap().parse::<usize>().unwrap() * 1024;
        }
    }
    bytes
}

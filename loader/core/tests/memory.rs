//! The memory of these tests keeps the contract that the daemon's keeps.

use crate::memory_contract;
use crate::replay::counted;

#[test]
fn the_counting_memory_keeps_the_contract() {
    memory_contract::keep(counted::Counted::new(8 * 512 + 100, 512));
}

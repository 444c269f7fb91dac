//! The memory of these tests keeps the contract that the daemon's keeps.

#[path = "replay/counted.rs"]
#[allow(dead_code, reason = "the replay uses the rest")]
mod counted;
mod memory_contract;

#[test]
fn the_counting_memory_keeps_the_contract() {
    memory_contract::keep(counted::Counted::new(8 * 512 + 100, 512));
}

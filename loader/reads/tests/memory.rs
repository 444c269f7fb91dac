//! The arena is the memory that the core expects.

#[path = "../../core/tests/memory_contract/mod.rs"]
mod memory_contract;

#[test]
fn the_arena_keeps_the_contract_of_the_cores_memory() {
    let (_arena, free) = shade_reads::blocks::Arena::create(8 * 512 + 100, 512).unwrap();
    memory_contract::keep(free);
}

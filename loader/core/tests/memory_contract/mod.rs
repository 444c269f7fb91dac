//! The contract of any memory with the core. The arena of `shade-reads` and the counting memory of
//! these tests are held to it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use shade_core::Memory;

/// Holds a fresh memory of 8 blocks of 512 bytes to the contract.
pub(crate) fn keep<M: Memory>(mut memory: M) {
    assert_eq!((memory.free_bytes(), memory.total_bytes()), (4096, 4096));

    // Whole blocks, at least one; nothing is taken where there is too little.
    let (none, one, two) = (memory.take(0).unwrap(), memory.take(512).unwrap(), memory.take(513).unwrap());
    assert_eq!(memory.free_bytes(), 4096 - 4 * 512);
    assert!(memory.take(4 * 512 + 1).is_none());
    assert_eq!(memory.free_bytes(), 4 * 512);
    let rest = memory.take(4 * 512).unwrap();
    assert_eq!(memory.free_bytes(), 0);
    memory.give(rest);
    memory.give(none);

    // A record keeps its room until its last holder lets go.
    let record = M::record(two, false);
    let other = M::record(one, true);
    assert_eq!((M::holders(&record), M::is_checked(&record), M::is_checked(&other)), (1, false, true));
    assert!(M::is_same(&record, &record.clone()) && !M::is_same(&record, &other));
    let lent = M::lend(record.clone());
    assert!(M::holders(&record) > 1, "a lent record is pinned");
    assert!(M::is_same(M::lent(&lent), &record));
    memory.release(record);
    assert_eq!(memory.free_bytes(), 4096 - 3 * 512, "a worker still has it");
    memory.release(M::take_back(lent));
    memory.release(other);
    assert_eq!((memory.free_bytes(), memory.total_bytes()), (4096, 4096));
}

//! Counts as the core keeps them.

/// A count in 32 bits. Datasets, batches and rings have fewer: a larger one is a defect, and ends
/// the daemon.
pub(crate) fn to_u32<T: TryInto<u32>>(count: T) -> u32 {
    count.try_into().unwrap_or_else(|_| panic!("a count beyond 32 bits"))
}

/// A place in memory. There are no more places than addresses.
pub(crate) fn to_usize<T: TryInto<usize>>(place: T) -> usize {
    place.try_into().unwrap_or_else(|_| panic!("a place beyond all memory"))
}

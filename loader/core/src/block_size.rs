//! The size of a block for a dataset, and the blocks that a record takes of the cache.

use shade_formats::limits::SHARD_ALIGN_BYTES;

/// Blocks are multiples of what shards align to, so a read padded to it still fits.
pub const BLOCK_UNIT_BYTES: u32 = 512;
/// Up to this 99th percentile every record gets one block of its own. Several blocks below a page
/// would scatter an NFS read over pieces that cost one RPC each (220 for 112 KiB, measured).
const SLOT_BYTES_MAX: u32 = 3584;
/// The page: a read scattered over whole pages is still one RPC.
const PAGE_BYTES: u32 = 4096;
/// Larger blocks leave more of the arena unused (98 % live at 4 KiB, 94 % at 16 KiB, measured).
const BLOCK_BYTES_MAX: u32 = 16 * 1024;
/// With at least this many blocks per mean record, the half-empty last one wastes 3 % or less.
const BLOCKS_PER_RECORD_MIN: u64 = 16;

const _: () = assert!(BLOCK_UNIT_BYTES as u64 == SHARD_ALIGN_BYTES);
const _: () =
    assert!(PAGE_BYTES.is_multiple_of(BLOCK_UNIT_BYTES) && SLOT_BYTES_MAX.is_multiple_of(BLOCK_UNIT_BYTES));

/// The block size in bytes for records of these stored lengths.
///
/// If the 99th percentile is at most 3,584 bytes: that percentile rounded up to 512, so that nearly
/// every record takes one block. Else the largest of 4, 8 and 16 KiB of which a mean record takes
/// 16 or more; 4 KiB where none qualifies and for an empty dataset.
#[must_use]
pub fn block_bytes_for(stored_lens: impl Iterator<Item = u32>) -> u32 {
    let mut lens: Vec<u32> = stored_lens.collect();
    let count = lens.len();
    if count == 0 {
        return PAGE_BYTES;
    }
    let sum: u64 = lens.iter().map(|&len| u64::from(len)).sum();
    let (_, &mut p99, _) = lens.select_nth_unstable((count * 99).div_ceil(100) - 1);
    if p99 <= SLOT_BYTES_MAX {
        return p99.max(1).next_multiple_of(BLOCK_UNIT_BYTES);
    }
    let mean = sum / count as u64;
    let mut block_bytes = PAGE_BYTES;
    while block_bytes < BLOCK_BYTES_MAX && mean >= BLOCKS_PER_RECORD_MIN * u64::from(block_bytes) * 2 {
        block_bytes *= 2;
    }
    block_bytes
}

/// Bytes of the cache that a record of `stored_len` bytes takes: whole blocks, at least one.
#[must_use]
pub fn charged_bytes(stored_len: u32, block_bytes: u32) -> u64 {
    u64::from(stored_len.max(1)).next_multiple_of(u64::from(block_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: u32, count: usize) -> impl Iterator<Item = u32> {
        std::iter::repeat_n(len, count)
    }

    #[test]
    fn small_records_get_one_slot_each() {
        assert_eq!(block_bytes_for(of(2300, 100)), 2560);
        assert_eq!(block_bytes_for(of(3072, 100)), 3072);
        assert_eq!(block_bytes_for(of(3584, 100)), 3584);
        assert_eq!(block_bytes_for(of(0, 3)), 512);
    }

    #[test]
    fn one_outlier_in_a_hundred_does_not_change_the_slot() {
        assert_eq!(block_bytes_for(of(2000, 99).chain(of(1_000_000, 1))), 2048);
        assert_eq!(block_bytes_for(of(2000, 98).chain(of(1_000_000, 2))), PAGE_BYTES);
    }

    #[test]
    fn large_records_get_pages_by_their_mean() {
        assert_eq!(block_bytes_for(of(3585, 100)), 4096);
        assert_eq!(block_bytes_for(of(115_000, 100)), 4096);
        assert_eq!(block_bytes_for(of(16 * 8192, 100)), 8192);
        assert_eq!(block_bytes_for(of(16 * 8192 - 1, 100)), 4096);
        assert_eq!(block_bytes_for(of(16 * 16384, 100)), 16384);
        assert_eq!(block_bytes_for(of(1 << 30, 100)), 16384);
        assert_eq!(block_bytes_for(std::iter::empty()), 4096);
    }
}

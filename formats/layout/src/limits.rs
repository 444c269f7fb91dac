//! Every maximum of every format. The relations between them are checked at compile time.

/// tar's unit: headers and padding are multiples of it, and entries store offsets in it.
pub const SHARD_ALIGN_BYTES: u64 = 512;
/// Largest record as stored in a shard.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Largest shard that a 32-bit offset in 512-byte units reaches.
pub const SHARD_BYTES_MAX: u64 = (u32::MAX as u64) * SHARD_ALIGN_BYTES;
/// Most samples in a dataset; ids are 32-bit and the last value means "none".
pub const SAMPLES_MAX: u64 = (u32::MAX - 1) as u64;
/// Most shards in a dataset.
pub const SHARDS_MAX: u32 = 1 << 24;
/// Most classes in a dataset.
pub const CLASSES_MAX: u32 = 1 << 24;
/// Longest original path or class name (Linux' `PATH_MAX`).
pub const NAME_BYTES_MAX: usize = 4096;
/// Largest zstd dictionary in an index. Trained ones are some 100 KiB; beyond this they cost more
/// to load than they save.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Most zstd dictionaries in an index: merging keeps those of every dataset that went in.
pub const DICTIONARIES_MAX: u32 = 256;
/// Most fields that a batch has.
pub const FIELDS_MAX: usize = 16;
/// Most columns of fields that a batch has: one that follows the image has one for each view.
pub const FIELD_COLUMNS_MAX: usize = FIELDS_MAX * VIEWS_MAX;
/// Most bytes of one sample's extra fields, their tar headers and padding included.
pub const FIELDS_BYTES_MAX: u64 = 64 << 20;
/// Longest name of an extra field. With twelve digits and a dot it fits a tar header's 100 bytes.
pub const FIELD_NAME_BYTES_MAX: usize = 64;
/// Largest index file read into memory when it cannot be mapped.
pub const INDEX_BYTES_MAX: u64 = 1 << 40;

/// Descriptors in a ring: batches a rank can have in flight. A power of two, so that a wrapping
/// counter keeps its place.
pub const RING_DESCRIPTORS: usize = 64;
/// Most samples in one rank's batch: their losses must fit in one control message.
pub const BATCH_SAMPLES_MAX: u32 = 32_768;
/// Largest payload segment of a ring.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 40;
/// Each batch in the payload starts at a page boundary.
pub const PAYLOAD_ALIGN_BYTES: u64 = 4096;
/// Most pixels of an image as its header states them: a few KB of PNG can claim gigabytes. PIL
/// refuses beyond 2 x `Image.MAX_IMAGE_PIXELS`, which is this number, so whatever an `ImageFolder`
/// opens is opened here too. At most 512 MiB of RGB in one thread, for as long as that image takes.
pub const IMAGE_PIXELS_MAX: u64 = 178_956_970;
/// Largest image side a decoded batch may have.
pub const IMAGE_SIDE_MAX: u32 = 16_384;
/// Most views of one image in a decoded batch. DINO's recipe has ten.
pub const VIEWS_MAX: usize = 16;

/// Most transforms of a view, those within others included. A long recipe, such as BYOL's, has
/// eight, and 3-Augment nine.
pub const TRANSFORMS_MAX: usize = 48;
/// Longest document of a job. One of torchvision's recipes takes less than 2 KiB.
pub const JOB_BYTES_MAX: usize = 64 * 1024;

/// Most reads in flight. File servers grant far fewer at once. An object store takes this number:
/// 40,000 requests a second of 100 ms each.
pub const READS_DEPTH_MAX: u32 = 4096;
/// Limit of the bytes of a shard that one read of neighbours spans: half of what Linux' NFS client
/// and server agree on by default (512 KiB to 1 MiB), so that it stays one RPC.
pub const SPAN_BYTES_MAX: u32 = 256 * 1024;
/// Most samples that a rank's job does without, as their decoders have ended daemons: a training
/// with more of them has another problem.
pub const AVOIDED_MAX: usize = 64;
/// Largest control message. A SEQPACKET message must fit into the default socket buffer of 208 KiB.
pub const MESSAGE_BYTES_MAX: usize = 192 * 1024;
/// Longest document of a daemon's settings. The longest one is the list of a tier's servers.
pub const SETTINGS_BYTES_MAX: usize = 8 * 1024;
/// Longest list of a tier's servers, with all ports.
pub const TIER_BYTES_MAX: usize = 2048;
/// Longest capacity of a cache, as a text.
pub const CAPACITY_BYTES_MAX: usize = 64;
/// Most servers of a tier: a daemon has a thread for each.
pub const TIER_SERVERS_MAX: usize = 256;
/// Most jobs at a time on one daemon.
pub const JOBS_MAX: u32 = 16;
/// Most ranks, of all jobs together, whose own figures a daemon's status has.
pub const RANKS_TOLD_MAX: usize = 256;
/// Most ranks of one job, on all nodes together.
pub const RANKS_MAX: u32 = 65_536;
/// Most sizes of images that batches of one job have.
pub const BUCKETS_MAX: usize = 64;
/// Most datasets of a mixture.
pub const PARTS_MAX: usize = 16;
/// Most strata of a plan: 256 for each rank.
pub const STRATA_MAX: u32 = 1 << 24;
/// Longest name of a job, so that a daemon's status with all of them fits into a message.
pub const JOB_NAME_BYTES_MAX: usize = 256;
/// Longest line of a trace: a full batch's ids, each with its comma, or its losses.
pub const TRACE_LINE_BYTES_MAX: usize = 1 << 20;

/// Largest list of seats, or of strata that are held, over `samples` samples: 4 bytes for each
/// stratum.
#[must_use]
pub const fn seats_bytes_max(samples: u32) -> u64 {
    samples as u64 * 4
}

/// Largest saved state of a job over `samples` samples, with epochs of `positions` positions, which
/// may be more in a mixture: a few numbers for each, and the rest. A longer one is not read.
#[must_use]
pub const fn state_bytes_max(samples: u32, positions: u32) -> u64 {
    // When each sample was scored and its row of importance are 16 bytes, and the ids and weights
    // of two plans are 16 a position; widened.
    (1 << 20) + samples as u64 * 48 + positions as u64 * 32
}

/// Largest base of such a job: a saved state, and what other nodes are told.
#[must_use]
pub const fn base_bytes_max(samples: u32, positions: u32) -> u64 {
    state_bytes_max(samples, positions) + (1 << 20) + samples as u64 * 8
}

/// Largest redo record of a rank of such a job: rows of two epochs with their losses, and what
/// other nodes have told in between.
#[must_use]
pub const fn redo_bytes_max(samples: u32, positions: u32) -> u64 {
    let more = if samples < positions { positions } else { samples };
    (64 << 20) + more as u64 * 128
}

const _: () = assert!(RECORD_BYTES_MAX <= SHARD_BYTES_MAX);
const _: () = assert!(STRATA_MAX as u64 <= SAMPLES_MAX && STRATA_MAX.is_multiple_of(RANKS_MAX));
const _: () =
    assert!(FIELDS_BYTES_MAX <= SHARD_BYTES_MAX && FIELDS_BYTES_MAX.is_multiple_of(SHARD_ALIGN_BYTES));
const _: () = assert!(12 + 1 + FIELD_NAME_BYTES_MAX <= 100);
const _: () = assert!(RING_DESCRIPTORS.is_power_of_two() && RING_DESCRIPTORS <= 64);
// A character of a list of servers takes one byte in JSON.
const _: () = assert!(TIER_BYTES_MAX + 2048 <= SETTINGS_BYTES_MAX);
const _: () = assert!(BATCH_SAMPLES_MAX as usize * 4 + 1024 <= MESSAGE_BYTES_MAX);
// The two names of a hello, its settings, its document, and the rest.
const _: () = assert!(2 * NAME_BYTES_MAX + SETTINGS_BYTES_MAX + JOB_BYTES_MAX + 1024 <= MESSAGE_BYTES_MAX);
// A status: escapes of JSON take six characters a byte, a job's figures have less than 2 KiB, and a
// rank's less than 320 bytes.
const _: () = assert!(
    JOBS_MAX as usize * (6 * JOB_NAME_BYTES_MAX + 2048)
        + RANKS_TOLD_MAX * 320
        + 6 * NAME_BYTES_MAX
        + 16 * 1024
        <= MESSAGE_BYTES_MAX
);
// A number of 32 bits takes 20 characters at most; an id 10, its comma and a letter for how it was
// served.
const _: () = assert!(BATCH_SAMPLES_MAX as usize * 21 + 1024 <= TRACE_LINE_BYTES_MAX);
const _: () = assert!(PAYLOAD_ALIGN_BYTES.is_multiple_of(SHARD_ALIGN_BYTES));

//! Compares the memory that the daemon is asked for with what there is, before it is touched.
//!
//! The system never refuses more: the kernel ends a process once the memory is used, and perhaps
//! not the one that asked for it.

use std::sync::Arc;

use indicatif::BinaryBytes;
use shade_core::Refusal;
use shade_formats::control::REFUSE_RESOURCES;
use shade_job::Capacity;
use shade_reads::blocks::Arena;

use crate::ask::promised_to_others;
use crate::proc::{SystemMemory, addresses_left_bytes, mountinfo, text};

/// Unit of sizes in texts: `--cache 2048MiB`.
const MIB: u64 = 1 << 20;

/// The cache is larger than the memory that this machine or its control group has in all.
#[derive(Debug, thiserror::Error)]
#[error(
    "a cache of {}, with {} for reads beside it, does not fit: {whose} {} of memory; {}, and trainers need room, too",
    BinaryBytes(*.cache_bytes), BinaryBytes(*.beside_bytes), BinaryBytes(*.most_bytes), at_most(*.fits_mib)
)]
pub struct CacheTooLarge {
    cache_bytes: u64,
    /// Bytes for the reads beside it.
    beside_bytes: u64,
    /// Bytes of memory in all.
    most_bytes: u64,
    whose: &'static str,
    fits_mib: u64,
}

/// Says which cache fits.
fn at_most(fits_mib: u64) -> String {
    match fits_mib {
        0 => "not even --cache 0 (in Python cache=0) is sure to fit now".to_owned(),
        mib => format!("at most --cache {mib}MiB (in Python cache=\"{mib}MiB\") fits now"),
    }
}

/// Refuses a cache that can never fit, and warns of one that does not fit now. `arena_bytes` is the
/// cache and the reads beside it.
pub(super) fn check_cache(cache_bytes: u64, arena_bytes: u64) -> Result<(), CacheTooLarge> {
    let memory = look();
    if let Some(warning) = judge_cache(&memory, cache_bytes, arena_bytes)? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn judge_cache(
    memory: &SystemMemory,
    cache_bytes: u64,
    arena_bytes: u64,
) -> Result<Option<String>, CacheTooLarge> {
    let (most_bytes, free_bytes) = (memory.most_bytes(), memory.free_bytes());
    // The system does not say.
    if most_bytes == 0 {
        return Ok(None);
    }
    let beside_bytes = arena_bytes.saturating_sub(cache_bytes);
    let fits_mib = free_bytes.saturating_sub(beside_bytes) / MIB;
    if arena_bytes > most_bytes {
        return Err(CacheTooLarge { cache_bytes, beside_bytes, most_bytes, whose: owner(memory), fits_mib });
    }
    Ok((arena_bytes > free_bytes).then(|| {
        format!(
            "a cache of {}, with {} for reads beside it, is more than the {} of memory that are free now: once it fills, \
             the kernel ends this daemon or a trainer; {}",
            BinaryBytes(cache_bytes),
            BinaryBytes(beside_bytes),
            BinaryBytes(free_bytes),
            at_most(fits_mib),
        )
    }))
}

/// The share of what is free that a cache has which nobody has given a size. Trainers have as much
/// for models, batches and the rings.
const AUTO_SHARE: u64 = 2;
/// The cache where the system does not say what is free.
const UNKNOWN_MEMORY_CACHE: Capacity = Capacity::Share(0.2);

/// A cache that nobody has given a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutoCache {
    /// Its capacity.
    pub(crate) bytes: u64,
    /// What was free beside what is promised, if that is what limits it.
    pub(crate) of_free_bytes: Option<u64>,
}

impl AutoCache {
    /// The cache for a dataset of `dataset_bytes` in arena blocks: all of it, if that fits into
    /// half of what is free. Others will take `promised_bytes`.
    pub(crate) fn of(memory: &SystemMemory, dataset_bytes: u64, promised_bytes: u64) -> Self {
        // The system does not say.
        if memory.most_bytes() == 0 {
            return Self { bytes: UNKNOWN_MEMORY_CACHE.of(dataset_bytes), of_free_bytes: None };
        }
        let free_bytes = memory.free_bytes().saturating_sub(promised_bytes);
        let most_bytes = free_bytes / AUTO_SHARE;
        if dataset_bytes <= most_bytes {
            Self { bytes: dataset_bytes, of_free_bytes: None }
        } else {
            Self { bytes: most_bytes, of_free_bytes: Some(free_bytes) }
        }
    }

    /// The same now, beside what other daemons are promised and the reads of this one.
    pub(super) fn now(own_address: &str, dataset_bytes: u64, beside_bytes: u64) -> Self {
        let promised_bytes = promised_to_others(own_address).saturating_add(beside_bytes);
        let mut memory = look();
        let addresses_bytes = addresses_left_bytes().unwrap_or(u64::MAX);
        memory.available_bytes = memory.available_bytes.min(addresses_bytes);
        Self::of(&memory, dataset_bytes, promised_bytes)
    }
}

/// A running daemon's cache cannot grow so much.
#[derive(Debug, thiserror::Error)]
#[error(
    "a cache of {} does not fit now: {whose} {} of memory, {} of it free, and {} more are needed; at most {fits_mib}MiB \
     fits", BinaryBytes(*.cache_bytes), BinaryBytes(*.most_bytes), BinaryBytes(*.free_bytes), BinaryBytes(*.needed_bytes)
)]
pub(super) struct NoRoomToGrow {
    cache_bytes: u64,
    /// Bytes of memory in all.
    most_bytes: u64,
    free_bytes: u64,
    needed_bytes: u64,
    whose: &'static str,
    fits_mib: u64,
}

/// Refuses a cache for which `needed_bytes`, which have no memory yet, do not fit now. At its start
/// a daemon only warns of that. Here trainers are there already, and have what they need.
pub(super) fn check_growth(cache_bytes: u64, needed_bytes: u64) -> Result<(), NoRoomToGrow> {
    judge_growth(&look(), cache_bytes, needed_bytes)
}

fn judge_growth(memory: &SystemMemory, cache_bytes: u64, needed_bytes: u64) -> Result<(), NoRoomToGrow> {
    let (most_bytes, free_bytes) = (memory.most_bytes(), memory.free_bytes());
    // The system does not say.
    if most_bytes == 0 || needed_bytes <= free_bytes {
        return Ok(());
    }
    let fits_mib = cache_bytes.saturating_sub(needed_bytes - free_bytes) / MIB;
    Err(NoRoomToGrow { cache_bytes, most_bytes, free_bytes, needed_bytes, whose: owner(memory), fits_mib })
}

/// Judges whether a ring has room beside the cache and the other rings.
#[derive(Debug)]
pub(super) struct RingRoom {
    arena: Arc<Arena>,
    promises: Promises,
}

impl RingRoom {
    pub(super) fn new(arena: Arc<Arena>) -> Self {
        Self { arena, promises: Promises::default() }
    }

    /// Promises a ring its memory, beside `promised_bytes` of rings that do not exist yet. Refuses
    /// one that does not fit now, as all of it is touched at once. Warns if the rest of the cache
    /// will not fit beside it.
    pub(super) fn promise(&mut self, ring_bytes: u64, promised_bytes: u64) -> Result<(), Refusal> {
        let memory = look();
        if memory.most_bytes() == 0 {
            return Ok(());
        }
        let fits_bytes = self.promises.fits_bytes(memory.free_bytes(), promised_bytes);
        judge_ring(&memory, ring_bytes, fits_bytes)?;
        self.promises.since_bytes += ring_bytes;
        if let Some(warning) = judge_both(ring_bytes, self.arena.unfound_bytes(), fits_bytes) {
            tracing::warn!("{warning}");
        }
        Ok(())
    }
}

/// Memory that rings were promised while others do not exist yet.
///
/// A ring that is being made is in the promised bytes and, more and more, no longer in the free
/// ones. So what fits is also computed from what was free before the first promise. The greater of
/// both figures counts no byte twice.
#[derive(Debug, Default)]
struct Promises {
    /// Bytes that were free when nothing was promised.
    before_bytes: u64,
    /// Bytes promised since.
    since_bytes: u64,
}

impl Promises {
    /// Bytes that one more ring may have.
    fn fits_bytes(&mut self, free_bytes: u64, promised_bytes: u64) -> u64 {
        if promised_bytes == 0 {
            *self = Self { before_bytes: free_bytes, since_bytes: 0 };
        }
        let by_promises = self.before_bytes.saturating_sub(self.since_bytes);
        free_bytes.saturating_sub(promised_bytes).max(by_promises)
    }
}

fn judge_ring(memory: &SystemMemory, ring_bytes: u64, fits_bytes: u64) -> Result<(), Refusal> {
    if ring_bytes <= fits_bytes {
        return Ok(());
    }
    let advice = match fits_bytes / MIB {
        0 => "no ring fits: lower the daemon's --cache, or end other processes".to_owned(),
        mib => format!(
            "give at most Daemon(ring=\"{mib}MiB\"), or a smaller batch_size, as a ring holds three of the largest \
             batches at least"
        ),
    };
    let text = format!(
        "a ring of {} does not fit: {} {} of memory, {} of it free now; {advice}",
        BinaryBytes(ring_bytes),
        owner(memory),
        BinaryBytes(memory.most_bytes()),
        BinaryBytes(fits_bytes),
    );
    Err(Refusal { code: REFUSE_RESOURCES, text })
}

/// The warning where a ring and the part of the cache that has no memory yet do not fit together.
fn judge_both(ring_bytes: u64, cache_bytes: u64, fits_bytes: u64) -> Option<String> {
    (ring_bytes.saturating_add(cache_bytes) > fits_bytes).then(|| {
        format!(
            "a ring of {} and the {} of the cache that have no memory yet are more than the {} of memory that are \
             free now: once the cache fills, the kernel ends this daemon or a trainer; lower cache= or Daemon(ring=...)",
            BinaryBytes(ring_bytes),
            BinaryBytes(cache_bytes),
            BinaryBytes(fits_bytes),
        )
    })
}

fn owner(memory: &SystemMemory) -> &'static str {
    if memory.most_bytes() < memory.total_bytes { "the control group has" } else { "this machine has" }
}

fn look() -> SystemMemory {
    SystemMemory::look(&mountinfo::parse(&text("/proc/self/mountinfo")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::cgroup::MemoryLimit;

    const GIB: u64 = 1 << 30;

    fn machine() -> SystemMemory {
        SystemMemory { total_bytes: 64 * GIB, available_bytes: 48 * GIB, cgroup: None }
    }

    fn container() -> SystemMemory {
        let limit = MemoryLimit {
            folder: "/sys/fs/cgroup".into(),
            limit_bytes: 8 * GIB,
            used_bytes: Some(3 * GIB),
            free_bytes: 6 * GIB,
        };
        SystemMemory { cgroup: Some(limit), ..machine() }
    }

    #[test]
    fn a_cache_that_fits_is_not_spoken_of() {
        assert_eq!(judge_cache(&machine(), 40 * GIB, 41 * GIB).unwrap(), None);
        assert_eq!(judge_cache(&container(), 5 * GIB, 6 * GIB).unwrap(), None);
        assert_eq!(
            judge_cache(&SystemMemory::default(), 5 * GIB, 6 * GIB).unwrap(),
            None,
            "nothing is known"
        );
    }

    #[test]
    fn one_that_can_never_fit_is_an_error_with_the_figure_that_does() {
        let text = judge_cache(&machine(), 400 * GIB, 401 * GIB).unwrap_err().to_string();
        assert!(text.contains("a cache of 400.00 GiB, with 1.00 GiB for reads"), "{text}");
        assert!(text.contains("this machine has 64.00 GiB"), "{text}");
        assert!(text.contains("--cache 48128MiB") && text.contains("cache=\"48128MiB\""), "{text}");
        let text = judge_cache(&container(), 8 * GIB, 9 * GIB).unwrap_err().to_string();
        assert!(text.contains("control group has 8.00 GiB") && text.contains("--cache 5120MiB"), "{text}");
    }

    #[test]
    fn one_that_does_not_fit_now_is_a_warning() {
        let text = judge_cache(&machine(), 49 * GIB, 50 * GIB).unwrap().expect("a warning");
        assert!(text.contains("48.00 GiB") && text.contains("--cache 48128MiB"), "{text}");
        let full = SystemMemory { available_bytes: GIB, ..machine() };
        let text = judge_cache(&full, 4 * GIB, 6 * GIB).unwrap().expect("a warning");
        assert!(text.contains("not even --cache 0 ") && !text.contains("0MiB"), "{text}");
    }

    #[test]
    fn a_cache_without_a_size_has_half_of_what_is_free() {
        let auto = |memory, dataset, promised| {
            let AutoCache { bytes, of_free_bytes } = AutoCache::of(&memory, dataset * GIB, promised * GIB);
            (bytes, of_free_bytes.map(|free| free / GIB))
        };
        assert_eq!(auto(machine(), 24, 0), (24 * GIB, None), "all of a dataset that fits");
        assert_eq!(auto(machine(), 25, 0), (24 * GIB, Some(48)));
        assert_eq!(auto(machine(), 25, 8), (20 * GIB, Some(40)), "beside other daemons");
        assert_eq!(auto(machine(), 25, 50), (0, Some(0)), "nothing is free");
        assert_eq!(auto(container(), 25, 0), (3 * GIB, Some(6)));
        assert_eq!(auto(SystemMemory::default(), 25, 0), (5 * GIB, None), "nothing is known");
    }

    #[test]
    fn a_cache_grows_by_what_is_free_now() {
        judge_growth(&machine(), 60 * GIB, 48 * GIB).unwrap();
        judge_growth(&SystemMemory::default(), 60 * GIB, 48 * GIB).unwrap();
        let text = judge_growth(&machine(), 60 * GIB, 50 * GIB).unwrap_err().to_string();
        for part in
            ["a cache of 60.00 GiB", "has 64.00 GiB of memory, 48.00 GiB", "50.00 GiB more", "59392MiB"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = judge_growth(&container(), 9 * GIB, 8 * GIB).unwrap_err().to_string();
        assert!(text.contains("control group has 8.00 GiB") && text.contains("at most 7168MiB"), "{text}");
    }

    #[test]
    fn a_ring_must_fit_beside_those_that_are_promised() {
        judge_ring(&container(), 6 * GIB, 6 * GIB).unwrap();
        let refusal = judge_ring(&container(), 4 * GIB, 3 * GIB).unwrap_err();
        assert_eq!(refusal.code, REFUSE_RESOURCES);
        assert!(refusal.text.contains("ring=\"3072MiB\""), "{}", refusal.text);
        let refusal = judge_ring(&container(), 4 * GIB, 1000).unwrap_err();
        assert!(
            refusal.text.contains("no ring fits") && !refusal.text.contains("ring=\""),
            "{}",
            refusal.text
        );
    }

    #[test]
    fn a_ring_that_is_being_made_counts_once() {
        let mut promises = Promises::default();
        let mut promise = |free: u64, promised: u64, ring: u64| {
            let fits = promises.fits_bytes(free * GIB, promised * GIB);
            promises.since_bytes += ring * GIB;
            fits / GIB
        };
        // Four rings of 2 GiB in 8 GiB: each fits, whether those before it have none, half or all
        // of their memory.
        assert_eq!(promise(8, 0, 2), 8);
        assert_eq!(promise(8, 2, 2), 6);
        assert_eq!(promise(6, 4, 2), 4, "two have half of theirs");
        assert_eq!(promise(2, 6, 2), 2, "three have all of theirs, and did not say so yet");
        assert_eq!(promise(0, 8, 2), 0);
        // All are made: what is free says it.
        assert_eq!(promise(1, 0, 1), 1);
        // Something else took memory, or a promise came to nothing.
        assert_eq!(promise(9, 1, 0), 8);
    }

    #[test]
    fn a_ring_and_a_cache_that_do_not_fit_together_are_a_warning() {
        assert_eq!(judge_both(2 * GIB, 4 * GIB, 6 * GIB), None);
        let text = judge_both(2 * GIB, 5 * GIB, 6 * GIB).expect("a warning");
        for part in
            ["ring of 2.00 GiB", "5.00 GiB of the cache", "6.00 GiB of memory", "cache= or Daemon(ring"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

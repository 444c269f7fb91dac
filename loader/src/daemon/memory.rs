//! Holds what the daemon is asked for against the memory that there is, before any of it is touched.
//!
//! Memory beyond that is never refused by the system: the kernel ends a process once it is used, and perhaps not the one that
//! asked for it.

use indicatif::BinaryBytes;
use shade_formats::control::REFUSE_RESOURCES;

use crate::core::Refusal;
use crate::proc::{Memory, mountinfo, text};

/// What a text gives sizes in: `--cache 2048MiB`.
const MIB: u64 = 1 << 20;

/// The cache is larger than the memory that this machine or its control group has in all.
#[derive(Debug, thiserror::Error)]
#[error(
    "a cache of {} does not fit: {whose} {} of memory; at most --cache {fits_mib}MiB (in Python cache=\"{fits_mib}MiB\") fits now, \
     and trainers need room, too", BinaryBytes(*.wanted_bytes), BinaryBytes(*.most_bytes)
)]
pub struct CacheTooLarge {
    /// Bytes of the cache and the reads beside it.
    wanted_bytes: u64,
    /// Bytes that there are in all.
    most_bytes: u64,
    whose: &'static str,
    fits_mib: u64,
}

/// Refuses a cache that can never fit, and warns of one that does not fit now. `arena_bytes` is the cache and the reads beside it.
pub(super) fn check_cache(cache_bytes: u64, arena_bytes: u64) -> Result<(), CacheTooLarge> {
    let memory = look();
    if let Some(warning) = judge_cache(&memory, cache_bytes, arena_bytes)? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn judge_cache(memory: &Memory, cache_bytes: u64, arena_bytes: u64) -> Result<Option<String>, CacheTooLarge> {
    let (most_bytes, free_bytes) = (memory.most_bytes(), memory.free_bytes());
    // A system that does not say.
    if most_bytes == 0 {
        return Ok(None);
    }
    let beside = arena_bytes.saturating_sub(cache_bytes);
    let fits_mib = free_bytes.saturating_sub(beside) / MIB;
    if arena_bytes > most_bytes {
        return Err(CacheTooLarge { wanted_bytes: arena_bytes, most_bytes, whose: owner(memory), fits_mib });
    }
    Ok((arena_bytes > free_bytes).then(|| {
        format!(
            "a cache of {} is more than the {} of memory that are free now: once it fills, the kernel ends this daemon or a trainer; \
             at most --cache {fits_mib}MiB (in Python cache=\"{fits_mib}MiB\") fits",
            BinaryBytes(arena_bytes),
            BinaryBytes(free_bytes),
        )
    }))
}

/// Refuses a ring that does not fit now, beside others that are promised but not made yet: all of it is touched at once.
pub(super) fn room_for_ring(ring_bytes: u64, promised_bytes: u64) -> Result<(), Refusal> {
    judge_ring(&look(), ring_bytes, promised_bytes)
}

fn judge_ring(memory: &Memory, ring_bytes: u64, promised_bytes: u64) -> Result<(), Refusal> {
    let fits = memory.free_bytes().saturating_sub(promised_bytes);
    if memory.most_bytes() == 0 || ring_bytes <= fits {
        return Ok(());
    }
    let text = format!(
        "a ring of {} does not fit: {} {} of memory, {} of it free now; give at most ring=\"{}MiB\", or a smaller batch_size, \
         as a ring holds three of the largest batches at least",
        BinaryBytes(ring_bytes),
        owner(memory),
        BinaryBytes(memory.most_bytes()),
        BinaryBytes(fits),
        fits / MIB,
    );
    Err(Refusal { code: REFUSE_RESOURCES, text })
}

fn owner(memory: &Memory) -> &'static str {
    if memory.most_bytes() < memory.total_bytes { "the control group has" } else { "this machine has" }
}

fn look() -> Memory {
    Memory::look(&mountinfo::parse(&text("/proc/self/mountinfo")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::cgroup::MemoryLimit;

    const GIB: u64 = 1 << 30;

    fn machine() -> Memory {
        Memory { total_bytes: 64 * GIB, available_bytes: 48 * GIB, cgroup: None }
    }

    fn container() -> Memory {
        let limit = MemoryLimit {
            folder: "/sys/fs/cgroup".into(),
            limit_bytes: 8 * GIB,
            used_bytes: Some(3 * GIB),
            reclaimable_bytes: GIB,
        };
        Memory { cgroup: Some(limit), ..machine() }
    }

    #[test]
    fn a_cache_that_fits_is_not_spoken_of() {
        assert_eq!(judge_cache(&machine(), 40 * GIB, 41 * GIB).unwrap(), None);
        assert_eq!(judge_cache(&container(), 5 * GIB, 6 * GIB).unwrap(), None);
        assert_eq!(judge_cache(&Memory::default(), 5 * GIB, 6 * GIB).unwrap(), None, "nothing is known");
    }

    #[test]
    fn one_that_can_never_fit_is_an_error_with_the_figure_that_does() {
        let text = judge_cache(&machine(), 400 * GIB, 401 * GIB).unwrap_err().to_string();
        assert!(text.contains("401.00 GiB") && text.contains("this machine has 64.00 GiB"), "{text}");
        assert!(text.contains("--cache 48128MiB") && text.contains("cache=\"48128MiB\""), "{text}");
        let text = judge_cache(&container(), 8 * GIB, 9 * GIB).unwrap_err().to_string();
        assert!(text.contains("control group has 8.00 GiB") && text.contains("--cache 5120MiB"), "{text}");
    }

    #[test]
    fn one_that_does_not_fit_now_is_a_warning() {
        let text = judge_cache(&machine(), 49 * GIB, 50 * GIB).unwrap().expect("a warning");
        assert!(text.contains("48.00 GiB") && text.contains("--cache 48128MiB"), "{text}");
    }

    #[test]
    fn a_ring_must_fit_beside_those_that_are_promised() {
        judge_ring(&container(), 6 * GIB, 0).unwrap();
        judge_ring(&container(), 3 * GIB, 3 * GIB).unwrap();
        let refusal = judge_ring(&container(), 4 * GIB, 3 * GIB).unwrap_err();
        assert_eq!(refusal.code, REFUSE_RESOURCES);
        assert!(refusal.text.contains("ring=\"3072MiB\""), "{}", refusal.text);
        judge_ring(&Memory::default(), 4 * GIB, 0).unwrap();
    }
}

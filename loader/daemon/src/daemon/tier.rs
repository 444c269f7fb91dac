//! The daemon's tier, where it has one: memory of other machines.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, never, unbounded};
use shade_core::{Samples, WholeSamples};
use shade_formats::SampleId;
use shade_job::DaemonSpec;
use shade_reads::blocks::Arena;
use shade_tier::{DEADLINE, Event, Tier, TierConfig};

/// The tier and its answers. Without one nothing ever comes.
pub(super) fn start(
    settings: &DaemonSpec,
    samples: &WholeSamples,
    arena: &Arc<Arena>,
) -> io::Result<(Option<Tier>, Receiver<Event>)> {
    let Some(servers) = settings.tier.clone() else { return Ok((None, never())) };
    let (events_in, events) = unbounded();
    let (content_id, record_bytes) = (samples.content_id(), mean_record_bytes(samples));
    let bytes = settings.tier_cache;
    let config = TierConfig {
        servers,
        bytes,
        content_id,
        fields: samples.has_fields().then(|| samples.fields().to_string()),
        record_bytes,
        deadline: DEADLINE,
    };
    Ok((Some(Tier::start(config, Arc::clone(arena), events_in)?), events))
}

/// Bytes of a stored record on average.
pub(crate) fn mean_record_bytes<S: Samples + ?Sized>(index: &S) -> u32 {
    let entries = (0..index.len()).filter_map(|id| index.entry(SampleId(id)));
    let bytes: u64 = entries.map(|entry| u64::from(entry.stored_len)).sum();
    u32::try_from(bytes / u64::from(index.len().max(1))).unwrap_or(u32::MAX)
}

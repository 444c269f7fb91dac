//! A training whose cache servers are all killed in mid-epoch, beside one that never had any.
//!
//! Both plans are the same. Timed is what follows that moment: the rest of the epoch, and some more
//! epochs, out of a store that is the limit.

use std::path::Path;
use std::time::Instant;

use shade_client::{JobSpec, Session};
use shade_tests::{CacheServers, Daemon, Packed, Source, attach, next, png, spec, stats};

use crate::figure::{Figure, Unit};
use crate::result::Result;

/// PNGs of noise of this side are 110 KB.
const SIDE: u32 = 191;
const BATCH: u32 = 8;
/// A few batches, so that few are ready at the moment of the kill.
const RING_BYTES: u64 = 4 << 20;
const SERVERS: usize = 3;
const STORE: &str = "latency=2ms,depth=2";
/// Epochs before the one of the kill: one fills the tier, the next is served by it.
const WARM: u32 = 2;
/// The aim: no longer than this times as long.
const AIM: f64 = 1.02;

/// How much is measured.
pub(crate) struct Scale {
    pub(crate) samples: u32,
    /// Epochs after the one of the kill.
    pub(crate) epochs: u32,
    pub(crate) rounds: usize,
}

pub(crate) const FULL: Scale = Scale { samples: 1_500, epochs: 3, rounds: 5 };

/// The two rows of a server.
pub(crate) fn run(name: &str, program: &Path, scale: &Scale) -> Result<[Figure; 2]> {
    let source = |number| Source {
        path: format!("class/{number:06}.png"),
        label: 0,
        bytes: png(SIDE, SIDE, u64::from(number)),
    };
    let packed = Packed::in_shards_of("64MiB", (0..scale.samples).map(source).collect());
    let (mut killed, mut without) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        without.push(train(&packed, None, scale)?);
        let servers = CacheServers::cluster(program, SERVERS, &["--maxmemory", "1gb"]);
        killed.push(train(&packed, Some(servers), scale)?);
    }
    let without = Figure::new(format!("training without a tier, beside {name}"), Unit::Ms, without);
    let killed = Figure::new(format!("training, all of {SERVERS} {name} killed"), Unit::Ms, killed);
    Ok([killed.within(AIM, &without), without])
}

/// Milliseconds from the middle of an epoch on, when the servers, if there are any, are killed.
fn train(packed: &Packed, servers: Option<CacheServers>, scale: &Scale) -> Result<f64> {
    let tier = servers.as_ref().map(CacheServers::text);
    let mut arguments = vec!["--cache", "20%", "--store", STORE];
    arguments.extend(tier.iter().flat_map(|servers| ["--tier", servers]));
    let arguments: Vec<&dyn AsRef<std::ffi::OsStr>> =
        arguments.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>).collect();
    let _daemon = Daemon::start(&packed.dataset, &arguments);
    let session = attach(&packed.dataset, 0, JobSpec { ring_bytes: RING_BYTES, ..spec(BATCH, 1) });
    if servers.is_some() {
        shade_tests::eventually("the tier is there", || {
            stats(&session).get("tier").is_some_and(|tier| !tier.is_null())
        });
    }
    for epoch in 0..WARM {
        session.start_epoch(epoch, 0)?;
        take(&session, u32::MAX)?;
    }
    if servers.is_some() && total(&session, "tier_hits")? == 0 {
        return Err("void: nothing came from the tier".into());
    }
    session.start_epoch(WARM, 0)?;
    take(&session, scale.samples / BATCH / 2)?;
    let started = Instant::now();
    if let Some(mut servers) = servers {
        (0..SERVERS).for_each(|at| servers.kill(at));
    }
    take(&session, u32::MAX)?;
    for epoch in WARM + 1..=WARM + scale.epochs {
        session.start_epoch(epoch, 0)?;
        take(&session, u32::MAX)?;
    }
    let ms = started.elapsed().as_secs_f64() * 1e3;
    match total(&session, "faults")? {
        0 => Ok(ms),
        faults => Err(format!("void: {faults} faults").into()),
    }
}

/// Takes this number of batches, or all that the epoch has left.
fn take(session: &Session, batches: u32) -> Result<()> {
    for _ in 0..batches {
        if next(session)?.is_none() {
            break;
        }
    }
    Ok(())
}

/// A count of the job so far.
fn total(session: &Session, name: &str) -> Result<u64> {
    stats(session)
        .pointer(&format!("/total/{name}"))
        .and_then(serde_json::Value::as_u64)
        .ok_or("no such count".into())
}

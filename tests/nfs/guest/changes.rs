//! Shards that change on the server while they are read. In every scenario `reader` checks that no
//! wrong byte is delivered as good.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use shade_formats::ShardId;
use shade_job::IoMode;
use shade_reads::{ReadFault, ReadsConfig};

use crate::reader::{Reader, every_way, name_of};
use crate::world::{Link, Place, World};

/// Bytes left of the record in which a shard is cut.
const LEFT: u32 = 100;

/// A shard is cut while it is read: records behind the cut are truncated, others are right.
pub(crate) fn truncate(world: &World) -> String {
    let mut said = Vec::new();
    for way in every_way(4) {
        let place = world.place(&format!("truncate-{}", name_of(&way)));
        let shard = world.fullest_shard();
        let samples = world.samples_of(shard);
        let (before, behind) = samples.split_at(samples.len() / 2);
        let mut reader = Reader::start(world, &place, way);
        let others = some_but(world, &samples);
        // Reads are under way when the shard is cut, of this shard and of others.
        let link = Link::delayed(Duration::from_millis(20));
        reader.submit(&before[..2]);
        reader.submit(&others);
        (0..8).for_each(|_| assert_eq!(reader.next().1, Ok(())));
        let file = File::options().write(true).open(place.server.join(world.shard_name(shard))).unwrap();
        file.set_len(world.entry(behind[0]).offset + u64::from(LEFT)).unwrap();
        (8..2 + others.len()).for_each(|_| assert_eq!(reader.next().1, Ok(())));
        drop(link);
        reader.read_good(before);
        let mut faults = BTreeMap::new();
        for (sample, outcome) in reader.read(behind) {
            let fault = outcome.unwrap_err();
            let got = if sample == behind[0] { LEFT } else { 0 };
            let expected = world.entry(sample).stored_len;
            let exact = fault == ReadFault::Truncated { got: got.into(), expected: expected.into() };
            assert!(exact || way.io == IoMode::Buffered, "sample {sample}: {fault:?}");
            *faults.entry(kind(&fault)).or_insert(0) += 1;
        }
        said.push(format!("{} {faults:?}", name_of(&way)));
    }
    format!("behind the cut: {}", said.join(", "))
}

/// A shard is replaced by another file of its name. With NFSv4 the one that is open stays readable.
pub(crate) fn replace(world: &World) -> String {
    let mut said = Vec::new();
    for what in ["same bytes", "other bytes", "another size"] {
        let outcomes = after(world, &what.replace(' ', "-"), |path| {
            let mut bytes = fs::read(path).unwrap();
            match what {
                "same bytes" => {}
                "other bytes" => bytes.iter_mut().for_each(|byte| *byte = !*byte),
                _ => bytes.extend([0; 512]),
            }
            let new = path.with_extension("new");
            fs::write(&new, bytes).unwrap();
            fs::rename(new, path).unwrap();
        });
        for (way, fault) in &outcomes {
            assert!(what != "same bytes" || fault.is_none(), "{what}, {way}: {fault:?}");
        }
        said.push(format!("{what}: {}", summary(&outcomes)));
    }
    said.join("; ")
}

/// A shard is removed. With NFSv4 it stays readable while it is open, otherwise the fault says that
/// it is missing.
pub(crate) fn unlink(world: &World) -> String {
    let outcomes = after(world, "unlink", |path| fs::remove_file(path).unwrap());
    for (way, fault) in &outcomes {
        match fault {
            None => assert!(world.nfs == 4, "{way}: nothing is left of it on the server"),
            Some(fault) => {
                let gone =
                    matches!(fault, ReadFault::Open { errno, .. } if *errno == rustix::io::Errno::NOENT);
                assert!(world.nfs == 3 && gone, "{way}: {fault:?}");
            }
        }
    }
    summary(&outcomes)
}

/// Opens a shard, changes it on the server and reads all of it, in every way. Returns the outcomes
/// of its records. Checks that other shards are intact and that each fault names its file.
fn after(world: &World, what: &str, change: impl Fn(&Path)) -> Vec<(String, Option<ReadFault>)> {
    let mut outcomes = Vec::new();
    for way in every_way(4) {
        let place = world.place(&format!("{what}-{}", name_of(&way)));
        outcomes.extend(after_in(world, &place, way, &change));
    }
    outcomes
}

fn after_in(
    world: &World,
    place: &Place,
    way: ReadsConfig,
    change: impl Fn(&Path),
) -> Vec<(String, Option<ReadFault>)> {
    let shard = world.fullest_shard();
    let samples = world.samples_of(shard);
    let mut reader = Reader::start(world, place, way);
    reader.read_good(&samples[..1]);
    change(&place.server.join(world.shard_name(shard)));
    world.close_idle_files();
    reader.read_good(&some_but(world, &samples));
    let outcomes = reader.read(&samples[1..]);
    let judged = outcomes.into_iter().map(|(sample, outcome)| {
        let fault = outcome.err();
        assert!(fault.as_ref().is_none_or(|fault| names(world, shard, fault)), "sample {sample}: {fault:?}");
        (name_of(&way), fault)
    });
    judged.collect()
}

/// Some samples other than these.
fn some_but(world: &World, samples: &[u32]) -> Vec<u32> {
    world.all().into_iter().filter(|sample| !samples.contains(sample)).take(20).collect()
}

/// Whether a fault names its file. For a checksum the daemon adds sample, shard and place.
fn names(world: &World, shard: ShardId, fault: &ReadFault) -> bool {
    matches!(fault, ReadFault::Checksum(_)) || fault.to_string().contains(world.shard_name(shard))
}

fn kind(fault: &ReadFault) -> &'static str {
    match fault {
        ReadFault::Open { .. } => "cannot open",
        ReadFault::Replaced { .. } => "replaced",
        ReadFault::Truncated { .. } => "truncated",
        ReadFault::Checksum(_) => "checksum",
        _ => "failed",
    }
}

/// The count of each outcome, for each way of reading where they differ.
fn summary(outcomes: &[(String, Option<ReadFault>)]) -> String {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for (way, fault) in outcomes {
        *counts.entry((way, fault.as_ref().map_or("right", kind))).or_default() += 1;
    }
    let kinds: std::collections::BTreeSet<&str> = counts.keys().map(|(_, kind)| *kind).collect();
    if kinds.len() == 1 {
        return format!("all {} {}", outcomes.len(), kinds.into_iter().collect::<String>());
    }
    let each = counts.iter().map(|((way, kind), count)| format!("{way} {count} {kind}"));
    each.collect::<Vec<_>>().join(", ")
}

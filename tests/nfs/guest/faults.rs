//! A network that loses packets, and a server that stops and comes back: both cost only time.

use std::time::{Duration, Instant};

use shade_tests::{Daemon, attach, copy, next, spec, take_rest};

use crate::reader::{Reader, every_way, name_of};
use crate::world::{Link, World};

/// How long the server is away. The client tries again after 3 s, then at doubled intervals.
const OUTAGE: Duration = Duration::from_secs(2);

/// One packet in a hundred is lost, until some were. Every byte still comes.
pub(crate) fn loss(world: &World) -> String {
    let link = Link::with("delay 2ms loss 1%");
    let records: Vec<u32> = world.all().split_off(world.all().len() / 2);
    let mut rounds = 0;
    for way in every_way(16) {
        let before = link.dropped();
        while link.dropped() == before {
            rounds += 1;
            let place = world.place(&format!("loss-{}-{rounds}", name_of(&way)));
            Reader::start(world, &place, way).read_good(&records);
        }
    }
    let records = rounds * records.len();
    format!("1 % loss: {records} records right in 4 ways, {} packets lost", link.dropped())
}

/// The server stops in the middle of an epoch and comes back: the epoch is complete and right.
pub(crate) fn restart(world: &World) -> String {
    let place = world.place("restart");
    let daemon = Daemon::start(&place.client, &[&"--cache", &"0", &"--depth", &"4"]);
    let session = attach(&place.client, 0, spec(8, 1));
    // Slow enough that the ring does not hold the whole epoch when the server stops.
    let link = Link::delayed(Duration::from_millis(50));
    session.start_epoch(0, 0).unwrap();
    let mut batches: Vec<_> = (0..2).map(|_| copy(&next(&session).unwrap().unwrap())).collect();
    world.stop_server();
    let stopped = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(OUTAGE);
            world.start_server();
        });
        batches.extend(take_rest(&session).unwrap());
    });
    let waited = stopped.elapsed();
    drop(link);
    assert!(waited >= OUTAGE, "the epoch was over before the server was back: {waited:?}");
    let mut ids = Vec::new();
    for batch in &batches {
        for (id, record) in batch.ids.iter().zip(&batch.records) {
            assert!(*record == world.packed.sources[*id as usize].bytes, "sample {id}");
            ids.push(*id);
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, world.all(), "every sample once");
    drop(daemon);
    format!(
        "the server was away {OUTAGE:?}; the epoch ended {waited:.1?} after it had stopped, {} records right",
        ids.len()
    )
}

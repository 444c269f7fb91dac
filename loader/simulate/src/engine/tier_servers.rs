//! The tiers of the nodes: memory of other machines, as a model of when it answers. What it holds
//! and what leaves it is the core's to know.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use shade_core::{Event, ReadOp, TierEvent, TierOrder, TierPut};
use shade_job::StoreModel;
use shade_reads::{Queues, latency_of};

use crate::store::NoMemory;

/// Records that are fetched at once, as by a daemon's thread for a server.
const FETCHED_AT_ONCE: usize = 32;
/// Records that are stored at once, likewise.
const STORED_AT_ONCE: usize = 4;

/// A tier of one server for each node, all alike.
pub(crate) struct TierServers {
    model: StoreModel,
    servers: Vec<Server>,
    sent: u64,
    /// By the time of the answer and its number: the node and the answer.
    waiting: BTreeMap<(u64, u64), (usize, Answer)>,
}

/// A record's length, and the event when it has come or is stored.
pub(crate) type Answer = (u32, Event<NoMemory>);

#[derive(Default)]
struct Server {
    queues: Queues<Duration>,
    fetches: VecDeque<Answer>,
    writes: VecDeque<Answer>,
    /// Answers of this round that have not come. The next round begins after them.
    missing: usize,
}

impl TierServers {
    pub(crate) fn new(model: StoreModel, nodes: usize) -> Self {
        let servers = (0..nodes).map(|_| Server::default()).collect();
        Self { model, servers, sent: 0, waiting: BTreeMap::new() }
    }

    /// A node gives its tier an order.
    pub(crate) fn order(&mut self, now_ns: u64, node: usize, order: TierOrder<NoMemory>) {
        let server = &mut self.servers[node];
        let queue = if matches!(order, TierOrder::Get(_)) { &mut server.fetches } else { &mut server.writes };
        queue.extend(answers(order));
        if server.missing == 0 {
            self.begin_round(now_ns, node);
        }
    }

    /// Asks for records and stores some. Latencies count from here, as in the daemon.
    fn begin_round(&mut self, now_ns: u64, node: usize) {
        let server = &mut self.servers[node];
        let fetched = server.fetches.len().min(FETCHED_AT_ONCE);
        let stored = server.writes.len().min(STORED_AT_ONCE);
        let round: Vec<Answer> =
            server.fetches.drain(..fetched).chain(server.writes.drain(..stored)).collect();
        server.missing = round.len();
        let now = Duration::from_nanos(now_ns);
        for (len, answer) in round {
            let latency = latency_of(&self.model, self.sent);
            let at = server.queues.answer_at(&self.model, now, latency, u64::from(len));
            let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
            let answer = (len, later(answer, at.saturating_sub(now)));
            self.waiting.insert((at_ns, self.sent), (node, answer));
            self.sent += 1;
        }
    }

    /// Time of the next answer.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// The next answer, if it comes by now, and the node that it is for.
    pub(crate) fn answer(&mut self, now_ns: u64) -> Option<(usize, Answer)> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now_ns)?;
        let ((at_ns, _), (node, answer)) = first.remove_entry();
        let server = &mut self.servers[node];
        server.missing -= 1;
        if server.missing == 0 {
            self.begin_round(at_ns, node);
        }
        Some((node, answer))
    }
}

/// The answers of servers that have whatever they are asked for and room for all they are given.
/// They take no time.
pub(crate) fn answers(order: TierOrder<NoMemory>) -> Vec<Answer> {
    let of = |op: ReadOp<()>| {
        (op.len, Event::Tier(TierEvent::Got { op, outcome: Ok(()), latency: Duration::ZERO }))
    };
    match order {
        TierOrder::Get(ops) => ops.into_iter().map(of).collect(),
        TierOrder::Put { sample, len, record } => {
            vec![(len, Event::Tier(TierEvent::Put { sample, record, outcome: TierPut::Stored }))]
        }
        TierOrder::Drop(_) => Vec::new(),
    }
}

/// An answer that takes longer by this time.
pub(crate) fn later(mut event: Event<NoMemory>, by: Duration) -> Event<NoMemory> {
    match &mut event {
        Event::Read(record) => record.latency += by,
        Event::Tier(TierEvent::Got { latency, .. }) => *latency += by,
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use shade_formats::{SampleId, ShardId};

    use super::*;

    fn get(flight: u64) -> ReadOp<()> {
        let (sample, shard) = (SampleId(0), ShardId(0));
        ReadOp { flight, sample, shard, offset: 0, len: 10, crc32c: Some(0), recheck: false, blocks: () }
    }

    #[test]
    fn each_node_has_a_server_that_answers_round_after_round() {
        let mut servers = TierServers::new("latency=1ms".parse().unwrap(), 2);
        servers.order(0, 0, TierOrder::Get((0..40).map(get).collect()));
        servers.order(0, 0, TierOrder::Put { sample: SampleId(7), len: 10, record: () });
        servers.order(0, 1, TierOrder::Put { sample: SampleId(8), len: 10, record: () });
        servers.order(0, 1, TierOrder::Drop(vec![SampleId(8)]));
        let mut fetched = Vec::new();
        let mut stored = Vec::new();
        while let Some(now_ns) = servers.next_ns() {
            while let Some((node, (_, event))) = servers.answer(now_ns) {
                match event {
                    Event::Tier(TierEvent::Put { sample, .. }) => stored.push((now_ns, node, sample.0)),
                    Event::Tier(TierEvent::Got { latency, .. }) => {
                        fetched.push(now_ns);
                        assert_eq!(latency, Duration::from_millis(1), "from its round's begin");
                    }
                    _ => panic!("nothing else was ordered"),
                }
            }
        }
        assert_eq!(fetched, [vec![1_000_000; 32], vec![2_000_000; 8]].concat());
        assert_eq!(stored, [(1_000_000, 1, 8), (2_000_000, 0, 7)]);
    }
}

//! Which server has which slot, shared by the tier's threads.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError, RwLock};

use crate::key::SLOTS;
use crate::reply::Reply;
use crate::server::Server;
use shade_job::Address;

/// The slots of one server.
pub(crate) type Slots = Vec<(RangeInclusive<u16>, Address)>;

/// The servers by slot.
#[derive(Default)]
pub(crate) struct Routes(RwLock<Known>);

#[derive(Default)]
struct Known {
    slots: Slots,
    servers: HashMap<Address, Arc<Server>>,
}

impl Routes {
    /// The server of a slot; `None` if it is not known.
    pub(crate) fn of(&self, slot: u16) -> Option<Arc<Server>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (_, address) = known.slots.iter().find(|(range, _)| range.contains(&slot))?;
        known.servers.get(address).cloned()
    }

    /// The server at an address, if it was met before.
    pub(crate) fn server(&self, address: &Address) -> Option<Arc<Server>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).servers.get(address).cloned()
    }

    /// Number of servers that were met.
    pub(crate) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).servers.len()
    }

    /// Slots belong to these servers from now on.
    pub(crate) fn set(&self, slots: Slots) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).slots = slots;
    }

    /// A server was met for the first time.
    pub(crate) fn add(&self, address: Address, server: Arc<Server>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).servers.insert(address, server);
    }

    /// All servers leave.
    pub(crate) fn clear(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }
}

/// The slots in the answer of CLUSTER SLOTS: ranges, each with its primary and its replicas. An
/// empty host is that of the server asked (`asked`). Untrusted: what is no range is left out.
pub(crate) fn slots_of(answer: &Reply, asked: &Address) -> Slots {
    let Reply::List(ranges) = answer else { return Slots::new() };
    let mut slots: Slots = ranges.iter().filter_map(|range| slot_range(range, asked)).collect();
    slots.sort_by_key(|(range, _)| *range.start());
    slots.truncate(usize::from(SLOTS));
    slots
}

fn slot_range(range: &Reply, asked: &Address) -> Option<(RangeInclusive<u16>, Address)> {
    let Reply::List(parts) = range else { return None };
    let [Reply::Number(first), Reply::Number(last), Reply::List(primary), ..] = parts.as_slice() else {
        return None;
    };
    let [Reply::Bytes(host), Reply::Number(port), ..] = primary.as_slice() else { return None };
    let slot = |slot: i64| u16::try_from(slot).ok().filter(|&slot| slot < SLOTS);
    let range = slot(*first)?..=slot(*last)?;
    let host = String::from_utf8(host.clone()).ok()?;
    let host = if host.is_empty() || host == "?" { asked.host.clone() } else { host };
    Some((range, Address { host, port: u16::try_from(*port).ok()? }))
}

/// Single servers share the slots evenly.
pub(crate) fn even_slots(addresses: &[Address]) -> Slots {
    let count = addresses.len().max(1);
    let start = |at: usize| usize::from(SLOTS) * at / count;
    let range = |at| {
        let (first, last) = (start(at), start(at + 1).saturating_sub(1));
        u16::try_from(first).unwrap_or(SLOTS)..=u16::try_from(last).unwrap_or(SLOTS)
    };
    addresses.iter().enumerate().map(|(at, address)| (range(at), address.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    fn range(first: i64, last: i64, host: &str, port: i64) -> Reply {
        let server = |port| Reply::List(vec![Reply::Bytes(host.into()), Reply::Number(port)]);
        Reply::List(vec![Reply::Number(first), Reply::Number(last), server(port), server(port + 1)])
    }

    #[test]
    fn slots_are_those_of_the_primaries() {
        let answer = Reply::List(vec![range(8000, 16_383, "b", 2), range(0, 7999, "", 1)]);
        let slots = slots_of(&answer, &address("asked", 9));
        assert_eq!(slots, [(0..=7999, address("asked", 1)), (8000..=16_383, address("b", 2))]);
    }

    #[test]
    fn what_is_no_range_is_left_out() {
        let bad = [range(0, 16_384, "a", 1), range(-1, 3, "a", 1), range(0, 3, "a", 70_000), Reply::Nil];
        assert!(slots_of(&Reply::List(bad.to_vec()), &address("asked", 9)).is_empty());
        assert!(slots_of(&Reply::Status("OK".into()), &address("asked", 9)).is_empty());
    }

    #[test]
    fn single_servers_share_all_slots() {
        for count in [1, 2, 3, 7, 64] {
            let addresses: Vec<Address> = (0..count).map(|port| address("a", port)).collect();
            let slots = even_slots(&addresses);
            let mut next = 0;
            for (range, _) in &slots {
                assert_eq!(*range.start(), next);
                next = range.end() + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }
}

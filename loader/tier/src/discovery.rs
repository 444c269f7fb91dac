//! What a tier is made of, and the thread that finds its servers: their slots, their room, and what
//! they hold already.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError, select};
use shade_core::TierEvent;
use shade_formats::limits::TIER_SERVERS_MAX;
use shade_formats::{ContentId, SampleId};

use crate::connection::{Connection, ServerFault};
use crate::examine::{find_slots, measure};
use crate::reply::Reply;
use crate::routes::{Routes, Slots};
use crate::server::{Event, Server, Shared};
use shade_job::{Address, Servers};

/// How long to wait until servers that were not reached are looked for again.
const RETRY: Duration = Duration::from_secs(5);
/// Shortest interval of looking for slots that have moved.
const LOOK_MIN: Duration = Duration::from_secs(1);
/// Keys that a server looks at for one answer, while it serves nobody else.
const SCANNED_AT_ONCE: &str = "1000";

/// What a tier is made of.
#[derive(Clone, Debug)]
pub struct TierConfig {
    /// Its servers.
    pub servers: Servers,
    /// Bytes that this daemon may fill, over all servers; `None` for nine tenths of what they say
    /// they have.
    pub bytes: Option<u64>,
    /// The dataset, whose keys no other has.
    pub content_id: ContentId,
    /// Which extra fields records have with them, if they have some.
    pub fields: Option<String>,
    /// Bytes of a record that the tier's speed is measured with.
    pub record_bytes: u32,
    /// Longest wait for a server: [`DEADLINE`](crate::DEADLINE) for a daemon.
    pub deadline: Duration,
}

/// What the thread knows.
pub(crate) struct Discovery {
    config: TierConfig,
    shared: Arc<Shared>,
    routes: Arc<Routes>,
    /// Room of each server that was asked for it.
    rooms: BTreeMap<Address, u64>,
    /// The servers that have told all that they hold.
    scanned: BTreeSet<Address>,
    /// Time that a record takes, once it is measured.
    get: Option<Duration>,
    /// The user was told that no server was found.
    told: bool,
    /// Servers that are there and do not tell all, of which the user was told why.
    unknown: BTreeSet<Address>,
}

impl Discovery {
    pub(crate) fn new(config: TierConfig, shared: Arc<Shared>, routes: Arc<Routes>) -> Self {
        Self {
            config,
            shared,
            routes,
            rooms: BTreeMap::new(),
            scanned: BTreeSet::new(),
            get: None,
            told: false,
            unknown: BTreeSet::new(),
        }
    }

    /// Runs until `stop` is closed.
    pub(crate) fn run(mut self, moved: &Receiver<()>, stop: &Receiver<()>) {
        loop {
            let looked = Instant::now();
            let is_complete = self.look(stop);
            let retry = if is_complete { Duration::MAX } else { RETRY };
            select! {
                recv(moved) -> _ => {}
                recv(stop) -> _ => return self.routes.clear(),
                default(retry) => {}
            }
            let pause = LOOK_MIN.saturating_sub(looked.elapsed());
            if stop.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                return self.routes.clear();
            }
        }
    }

    /// Looks for all servers. Returns whether each was reached.
    fn look(&mut self, stop: &Receiver<()>) -> bool {
        let Some(slots) = self.find_slots() else { return false };
        let primaries: BTreeSet<Address> = slots.iter().map(|(_, address)| address.clone()).collect();
        let primaries: Vec<Address> = primaries.into_iter().take(TIER_SERVERS_MAX).collect();
        for address in &primaries {
            self.meet(address);
        }
        self.routes.set(slots.clone());
        let mut is_complete = true;
        for address in primaries {
            if self.scanned.contains(&address) || is_stopped(stop) {
                continue;
            }
            let examined = self.examine(&address, &slots).map_err(|fault| ("its room is not known", fault));
            let scanned = || self.scan(&address, stop).map_err(|fault| ("what it holds is not known", fault));
            is_complete &= match examined.and_then(|()| scanned()) {
                Ok(()) => {
                    self.unknown.remove(&address);
                    self.scanned.insert(address)
                }
                Err((what, fault)) => {
                    if self.unknown.insert(address.clone()) {
                        let again = RETRY.as_secs();
                        tracing::warn!(
                            "tier: server {address}: {fault}: {what}; it is asked every {again} s"
                        );
                    }
                    false
                }
            };
        }
        is_complete
    }

    fn open(&self, address: &Address) -> Result<Connection, ServerFault> {
        Connection::open(address, &self.shared.login)
    }

    /// Asks the given servers for the slots of all, one after the other until one answers.
    fn find_slots(&mut self) -> Option<Slots> {
        let mut why = String::new();
        let met: Vec<Address> = self.rooms.keys().cloned().collect();
        for address in self.config.servers.addresses.iter().chain(&met) {
            let asked = self
                .open(address)
                .and_then(|mut connection| find_slots(&mut connection, address, &self.config.servers));
            match asked {
                Ok(slots) => return Some(slots),
                Err(fault) => why = format!("server {address}: {fault}"),
            }
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                "tier: {why}: no server is there, and all records are read from the store; \
                            they are looked for every {} s",
                RETRY.as_secs()
            );
        }
        None
    }

    /// Starts the thread of a server that is not known yet.
    fn meet(&self, address: &Address) {
        if self.routes.server(address).is_some() {
            return;
        }
        match Server::start(address.clone(), self.routes.len(), Arc::clone(&self.shared)) {
            Ok(server) => self.routes.add(address.clone(), Arc::new(server)),
            Err(error) => tracing::warn!("tier: no thread for server {address}: {error}"),
        }
    }

    /// Asks a server for its room, and measures the first one.
    fn examine(&mut self, address: &Address, slots: &Slots) -> Result<(), ServerFault> {
        if self.rooms.contains_key(address) {
            return Ok(());
        }
        let mut connection = self.open(address)?;
        let given = self.config.bytes;
        // Its user may not ask everything, and what was given needs no answer.
        let memory = if given.is_none() { connection.info("memory")? } else { HashMap::new() };
        let most: u64 = memory.get("maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        self.rooms.insert(address.clone(), most);
        if self.get.is_none() {
            self.get = measure(&mut connection, slots, address, self.config.record_bytes);
        }
        let of_servers: u64 = self.rooms.values().fold(0, |sum, room| sum.saturating_add(*room));
        let bytes = given.unwrap_or(of_servers / 10 * 9);
        if given.is_none() && most == 0 {
            tracing::warn!(
                "tier: server {address} has no maxmemory: set it, or say with --tier-cache how much this daemon may fill"
            );
        }
        tracing::info!("tier: server {address}; {bytes} bytes on {} servers so far", self.rooms.len());
        self.tell(TierEvent::Room { bytes, get: self.get });
        Ok(())
    }

    /// Finds the records that the server has, from this node and others. Over a connection of its
    /// own: the one that measured may have a late answer in it.
    fn scan(&self, address: &Address, stop: &Receiver<()>) -> Result<(), ServerFault> {
        let mut connection = self.open(address)?;
        let mut cursor = "0".to_owned();
        loop {
            let pattern = self.shared.keys.pattern();
            let words = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", SCANNED_AT_ONCE].map(str::as_bytes);
            let Reply::List(answer) = connection.call(&words)? else { return Err(no_scan()) };
            let [next, Reply::List(keys)] = answer.as_slice() else { return Err(no_scan()) };
            let sample = |key: &Reply| match key {
                Reply::Bytes(key) => self.shared.keys.sample(key),
                _ => None,
            };
            let samples: Vec<SampleId> = keys.iter().filter_map(sample).collect();
            let next = next.text().ok_or_else(no_scan)?;
            if !samples.is_empty() {
                self.tell(TierEvent::Held(samples));
            }
            if next == "0" || is_stopped(stop) {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn tell(&self, event: Event) {
        // Fails only when the daemon is stopping.
        let _ = self.shared.events.send(event);
    }
}

fn no_scan() -> ServerFault {
    ServerFault::new("an answer to SCAN that is none")
}

fn is_stopped(stop: &Receiver<()>) -> bool {
    stop.try_recv() == Err(TryRecvError::Disconnected)
}

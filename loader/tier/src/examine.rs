//! A server's settings and speed.

use std::time::{Duration, Instant};

use crate::connection::{Connection, DEADLINE, Login, ServerFault};
use crate::key::slot;
use crate::reply::Reply;
use crate::routes::{Slots, even_slots, slots_of};
use shade_job::{Address, Servers};

/// Records fetched to measure a server.
const MEASURED: usize = 16;
/// Keys tried until one belongs to a server: with a thousand servers one in a thousand does.
const PROBE_KEYS: u32 = 100_000;
/// Seconds after which a server forgets what was stored to measure it, whatever happens.
const PROBE_SECONDS: u32 = 60;

/// What a server says of itself. Settings that it does not tell are `None`, as some services hide
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Where it listens.
    pub address: Address,
    /// Name and version: `valkey 9.1.2`.
    pub version: String,
    /// Whether it is one of a cluster.
    pub is_cluster: bool,
    /// Bytes that it may use; 0 for no limit.
    pub maxmemory_bytes: u64,
    /// Bytes that it uses.
    pub used_bytes: u64,
    /// What it does when it is full; should be `noeviction`.
    pub eviction: Option<String>,
    /// When it writes snapshots; should be empty.
    pub save: Option<String>,
    /// Whether it logs all writes; should be `no`.
    pub appendonly: Option<String>,
    /// Whether the cluster stops when one server is gone; should be `no`.
    pub full_coverage: Option<String>,
    /// Its threads for connections.
    pub io_threads: Option<u32>,
    /// Median time to fetch one record; `None` if it stores none.
    pub get: Option<Duration>,
}

/// A server's address, and what it says of itself.
pub type Examined = (Address, Result<ServerFacts, ServerFault>);

/// What the servers of a tier say of themselves, each with a fault in its place. They are measured
/// with records of `record_bytes`.
///
/// # Errors
/// None of the given servers answers.
pub fn examine(servers: &Servers, record_bytes: u32) -> Result<Vec<Examined>, ServerFault> {
    let login = Login::from_environment(servers, DEADLINE);
    let mut last = ServerFault::new("no server is given");
    for address in &servers.addresses {
        let asked = Connection::open(address, &login)
            .and_then(|mut connection| find_slots(&mut connection, address, servers));
        match asked {
            Ok(slots) => {
                let mut primaries: Vec<&Address> = slots.iter().map(|(_, address)| address).collect();
                primaries.sort_unstable();
                primaries.dedup();
                let facts = |address: &Address| {
                    let found = Connection::open(address, &login)
                        .and_then(|connection| look(connection, address, &slots, record_bytes));
                    (address.clone(), found)
                };
                return Ok(primaries.into_iter().map(facts).collect());
            }
            Err(fault) => last = ServerFault::new(format!("server {address}: {fault}")),
        }
    }
    Err(last)
}

/// The slots of all servers, as `asked` tells them.
pub(crate) fn find_slots(
    connection: &mut Connection,
    asked: &Address,
    servers: &Servers,
) -> Result<Slots, ServerFault> {
    let slots = match connection.call(&[b"CLUSTER", b"SLOTS"]) {
        // Single servers.
        Err(fault) if fault.to_string().contains("cluster support disabled") => {
            even_slots(&servers.addresses)
        }
        slots => slots_of(&slots?, asked),
    };
    if slots.is_empty() { Err(ServerFault::new("its cluster has no slots")) } else { Ok(slots) }
}

fn look(
    mut connection: Connection,
    address: &Address,
    slots: &Slots,
    record_bytes: u32,
) -> Result<ServerFacts, ServerFault> {
    let server = connection.info("server")?;
    let memory = connection.info("memory")?;
    let cluster = connection.info("cluster")?;
    let names = ["maxmemory-policy", "save", "appendonly", "cluster-require-full-coverage", "io-threads"];
    let settings = connection.settings(&names);
    let bytes = |name| memory.get(name).and_then(|bytes: &String| bytes.parse().ok()).unwrap_or(0);
    let version = match (server.get("valkey_version"), server.get("redis_version")) {
        (Some(version), _) => format!("valkey {version}"),
        (None, version) => format!("redis {}", version.map_or("?", String::as_str)),
    };
    let setting = |name| settings.get(name).cloned();
    Ok(ServerFacts {
        address: address.clone(),
        version,
        is_cluster: cluster.get("cluster_enabled").is_some_and(|enabled| enabled == "1"),
        maxmemory_bytes: bytes("maxmemory"),
        used_bytes: bytes("used_memory"),
        eviction: setting("maxmemory-policy"),
        save: setting("save"),
        appendonly: setting("appendonly"),
        full_coverage: setting("cluster-require-full-coverage"),
        io_threads: setting("io-threads").and_then(|threads| threads.parse().ok()),
        get: measure(&mut connection, slots, address, record_bytes),
    })
}

/// Median time to fetch a record of this size from the server; `None` if it stores none.
pub(crate) fn measure(
    connection: &mut Connection,
    slots: &Slots,
    address: &Address,
    record_bytes: u32,
) -> Option<Duration> {
    let is_of_server = |key: &String| {
        let slot = slot(key.as_bytes());
        slots.iter().any(|(range, of)| range.contains(&slot) && of == address)
    };
    let process = std::process::id();
    let key = (0..PROBE_KEYS).map(|at| format!("shade:probe:{process}:{at}")).find(is_of_server)?;
    let (key, seconds) = (key.as_bytes(), PROBE_SECONDS.to_string());
    let bytes = vec![0_u8; record_bytes as usize];
    connection.call(&[b"SET", key, &bytes, b"EX", seconds.as_bytes()]).ok()?;
    let fetch = |connection: &mut Connection| {
        let asked = Instant::now();
        let Ok(Reply::Bytes(_)) = connection.call(&[b"GET", key]) else { return None };
        Some(asked.elapsed())
    };
    let mut times: Vec<Duration> = (0..MEASURED).map_while(|_| fetch(connection)).collect();
    connection.call(&[b"UNLINK", key]).ok()?;
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

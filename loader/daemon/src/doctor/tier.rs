//! The servers of a tier: what they say of themselves, and what to change there.

use std::fmt;

use indicatif::BinaryBytes;
use serde::Serialize;
use shade_job::Servers;
use shade_tier::{Examined, examine};

use super::advice::{Advice, change, note};
use super::probe::Probe;

/// Bytes of the record that is measured where there is no dataset: a usual photograph.
const RECORD_BYTES: u32 = 110_000;

/// What is known of a tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TierFacts {
    /// The servers as given.
    pub(super) servers: String,
    /// Bytes of the records that they were measured with.
    pub(super) record_bytes: u32,
    /// Why no server answers.
    pub(super) error: Option<String>,
    /// All primaries.
    pub(super) found: Vec<TierServer>,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TierServer {
    /// HOST:PORT.
    pub(super) address: String,
    /// Why nothing is known of it.
    pub(super) error: Option<String>,
    /// Program and version, such as `valkey 9.1.2`.
    pub(super) version: Option<String>,
    /// Whether it is of a cluster.
    pub(super) is_cluster: bool,
    /// 0 is no limit.
    pub(super) maxmemory_bytes: u64,
    /// Memory that it uses.
    pub(super) used_bytes: u64,
    /// The setting `maxmemory-policy`; `None` where the server does not tell it, as the others.
    pub(super) maxmemory_policy: Option<String>,
    /// The setting `save`.
    pub(super) save: Option<String>,
    /// The setting `appendonly`.
    pub(super) appendonly: Option<String>,
    /// The setting `cluster-require-full-coverage`.
    pub(super) cluster_require_full_coverage: Option<String>,
    /// The setting `io-threads`.
    pub(super) io_threads: Option<u32>,
    /// Median time to fetch one record; `None` if the server stores none.
    pub(super) get_us: Option<u64>,
}

/// Asks the servers, and measures them with records of `record_bytes`.
pub(super) fn look(servers: &Servers, record_bytes: Option<u64>) -> TierFacts {
    let record_bytes = record_bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(RECORD_BYTES);
    let facts = TierFacts { servers: servers.to_string(), record_bytes, ..TierFacts::default() };
    match examine(servers, record_bytes) {
        Ok(found) => TierFacts { found: found.into_iter().map(TierServer::new).collect(), ..facts },
        Err(fault) => TierFacts { error: Some(fault.to_string()), ..facts },
    }
}

impl TierServer {
    fn new((address, facts): Examined) -> Self {
        let address = address.to_string();
        match facts {
            Err(fault) => Self { address, error: Some(fault.to_string()), ..Self::default() },
            Ok(facts) => Self {
                address,
                error: None,
                version: Some(facts.version),
                is_cluster: facts.is_cluster,
                maxmemory_bytes: facts.maxmemory_bytes,
                used_bytes: facts.used_bytes,
                maxmemory_policy: facts.eviction,
                save: facts.save,
                appendonly: facts.appendonly,
                cluster_require_full_coverage: facts.full_coverage,
                io_threads: facts.io_threads,
                get_us: facts.get.and_then(|get| u64::try_from(get.as_micros()).ok()),
            },
        }
    }
}

impl TierFacts {
    /// The slowest server's median time to fetch a record.
    fn get_us(&self) -> Option<u64> {
        self.found.iter().filter_map(|server| server.get_us).max()
    }
}

/// What follows from the facts.
pub(super) fn advice(tier: &TierFacts, probe: Option<&Probe>) -> Vec<Advice> {
    let mut all: Vec<Advice> = tier.found.iter().flat_map(of_server).collect();
    // What is true of all servers is said once.
    all.sort_by(|a, b| (a.topic, &a.change).cmp(&(b.topic, &b.change)));
    all.dedup_by(|next, first| {
        next.change.is_some() && next.topic == first.topic && next.change == first.change
    });
    all.extend(speed(tier, probe));
    all
}

fn of_server(server: &TierServer) -> Vec<Advice> {
    let address = &server.address;
    if let Some(error) = &server.error {
        let fact = format!("server {address} cannot be used: {error}");
        return vec![change(
            "tier",
            fact,
            "its records are read from the store",
            "start it, or look at its log",
        )];
    }
    let mut all = Vec::new();
    let mut set = |name: &'static str, got: &Option<String>, wanted: &str, why: &str| {
        if let Some(got) = got.as_ref().filter(|got| *got != wanted) {
            let shown = if wanted.is_empty() { "\"\"" } else { wanted };
            let fact = format!("server {address} has {name} {got:?}");
            all.push(change(
                "tier",
                fact,
                why,
                format!("CONFIG SET {name} {shown}, on every server of the tier"),
            ));
        }
    };
    if server.is_cluster {
        let why = "once one server is gone, no server answers any more";
        set("cluster-require-full-coverage", &server.cluster_require_full_coverage, "no", why);
    }
    set(
        "maxmemory-policy",
        &server.maxmemory_policy,
        "noeviction",
        "it evicts by a rule of its own what a plan uses next; shade removes what is used last",
    );
    let why = "it writes to disk what can be read from the store at any time";
    set("save", &server.save, "", why);
    set("appendonly", &server.appendonly, "no", why);
    if server.maxmemory_bytes == 0 {
        all.push(change(
            "tier",
            format!("server {address} has no maxmemory"),
            "it takes memory until the kernel ends it, and the daemon does not know how much to store",
            "CONFIG SET maxmemory BYTES on every server of the tier, or shade-load serve --tier-cache SIZE",
        ));
    }
    if server.io_threads == Some(1) {
        all.push(note(
            "tier",
            format!("server {address} has io-threads 1"),
            "one core copies all that it sends: some 2 GB/s; with io-threads 2 or more a Valkey 9 sends large records \
             from several",
        ));
    }
    if server.get_us.is_none() {
        all.push(note(
            "tier",
            format!("server {address} stores nothing"),
            "it is full, or the user may not write: what it holds is used, and nothing is added",
        ));
    }
    all
}

/// Whether the tier is worth having.
fn speed(tier: &TierFacts, probe: Option<&Probe>) -> Option<Advice> {
    let get_us = tier.get_us()?;
    let alone = probe?.steps.first()?;
    let (tier_ms, store_ms) = (get_us as f64 / 1e3, f64::from(alone.latency_p50_us) / 1e3);
    let fact = format!("a record takes {tier_ms:.2} ms from the tier and {store_ms:.2} ms from the store");
    Some(if tier_ms < store_ms {
        note("tier", fact, "the tier is worth having")
    } else {
        change(
            "tier",
            fact,
            "the tier gains nothing: a daemon leaves it alone while that is so",
            "shade-load serve without --tier",
        )
    })
}

/// Writes the facts as text.
pub(super) fn write(f: &mut fmt::Formatter<'_>, tier: &TierFacts) -> fmt::Result {
    if let Some(error) = &tier.error {
        writeln!(f, "  {error}")?;
    }
    for server in &tier.found {
        let TierServer { address, version, used_bytes, maxmemory_bytes, get_us, .. } = server;
        if let Some(error) = &server.error {
            writeln!(f, "  {address:<21} {error}")?;
            continue;
        }
        let (version, used) = (version.as_deref().unwrap_or("?"), BinaryBytes(*used_bytes));
        let most = match maxmemory_bytes {
            0 => "no limit".to_owned(),
            bytes => BinaryBytes(*bytes).to_string(),
        };
        let get =
            get_us.map_or("stores nothing".to_owned(), |us| format!("{:.2} ms a record", us as f64 / 1e3));
        writeln!(f, "  {address:<21} {version}: {used} of {most}, {get}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sweep::Step;
    use super::*;

    /// A server as it should be.
    fn good() -> TierServer {
        let text = |text: &str| Some(text.to_owned());
        TierServer {
            address: "cache-0:6379".into(),
            error: None,
            version: text("valkey 9.1.2"),
            is_cluster: true,
            maxmemory_bytes: 1 << 30,
            used_bytes: 1 << 20,
            maxmemory_policy: text("noeviction"),
            save: text(""),
            appendonly: text("no"),
            cluster_require_full_coverage: text("no"),
            io_threads: Some(2),
            get_us: Some(200),
        }
    }

    fn tier(found: Vec<TierServer>) -> TierFacts {
        TierFacts { servers: "valkey://cache-0".into(), record_bytes: 110_000, error: None, found }
    }

    #[test]
    fn a_server_as_it_should_be_needs_no_advice() {
        assert_eq!(advice(&tier(vec![good()]), None), []);
        let hidden = TierServer { maxmemory_policy: None, save: None, appendonly: None, ..good() };
        assert_eq!(advice(&tier(vec![hidden]), None), [], "a service that hides its settings");
    }

    #[test]
    fn each_setting_that_is_wrong_is_told_once_with_its_remedy() {
        let text = |text: &str| Some(text.to_owned());
        let bad = TierServer {
            maxmemory_policy: text("allkeys-lru"),
            save: text("3600 1"),
            appendonly: text("yes"),
            cluster_require_full_coverage: text("yes"),
            maxmemory_bytes: 0,
            ..good()
        };
        let other = TierServer { address: "cache-1:6379".into(), ..bad.clone() };
        let all = advice(&tier(vec![bad.clone(), other]), None);
        let changes: Vec<&str> = all.iter().filter_map(|advice| advice.change.as_deref()).collect();
        assert_eq!(changes.len(), 5, "{changes:?}");
        for part in [
            "CONFIG SET maxmemory-policy noeviction",
            "CONFIG SET save \"\"",
            "CONFIG SET appendonly no",
            "CONFIG SET cluster-require-full-coverage no",
            "CONFIG SET maxmemory BYTES",
        ] {
            assert!(changes.iter().any(|change| change.contains(part)), "{part}: {changes:?}");
        }
        let single = TierServer { is_cluster: false, ..bad };
        assert_eq!(advice(&tier(vec![single]), None).len(), 4, "coverage is a cluster's");
    }

    #[test]
    fn the_tier_is_compared_with_the_store() {
        let probe = |p50_us| Probe {
            steps: vec![Step { latency_p50_us: p50_us, ..Step::default() }],
            ..Probe::default()
        };
        let of = |p50_us| advice(&tier(vec![good()]), Some(&probe(p50_us))).remove(0);
        assert!(of(2_000).change.is_none() && of(2_000).advice.contains("worth having"));
        assert!(of(90).change.is_some() && of(90).advice.contains("gains nothing"));
    }

    #[test]
    fn a_server_that_is_gone_or_full_is_told() {
        let gone =
            TierServer { address: "c:1".into(), error: Some("refused".into()), ..TierServer::default() };
        let full = TierServer { get_us: None, io_threads: Some(1), ..good() };
        let all = advice(&tier(vec![gone, full]), None);
        let facts: Vec<&str> = all.iter().map(|advice| advice.fact.as_str()).collect();
        for part in ["c:1 cannot be used: refused", "stores nothing", "io-threads 1"] {
            assert!(facts.iter().any(|fact| fact.contains(part)), "{part}: {facts:?}");
        }
    }
}

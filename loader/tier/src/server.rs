//! The thread of one server: fetches, stores and removes records over one connection.
//!
//! Fetches go before writes, as batches wait for them. A server that fails is left alone for
//! [`REST`]: what it is asked for meanwhile is answered at once. It is reached again before it is
//! asked again, so no batch waits for a server that is gone, except for the one that finds out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select, unbounded};
use shade_core::{TierEvent, TierMiss, TierPut};
use shade_formats::SampleId;
use shade_reads::ReadOp;
use shade_reads::blocks::{Arena, FreeList, Lent};

use crate::connection::{Connection, Fetched, Login, ServerFault};
use crate::key::Keys;
use crate::reply::{Reply, command};
use shade_job::Address;

/// How long a server that fails is left alone.
const REST: Duration = Duration::from_secs(5);
/// Records fetched at once.
const FETCHED_AT_ONCE: usize = 32;
/// Records stored at once: they delay the next fetch.
const PUT_AT_ONCE: usize = 4;
/// Records stored or removed at once.
const WRITTEN_AT_ONCE: usize = 32;

/// What the tier answers.
pub type Event = TierEvent<FreeList>;

/// A record that the core wants. The answer is sent once: one that is dropped without an answer was
/// missed.
pub(crate) struct Fetch {
    op: Option<ReadOp>,
    events: Sender<Event>,
}

impl Fetch {
    pub(crate) fn new(op: ReadOp, shared: &Shared) -> Self {
        Self { op: Some(op), events: shared.events.clone() }
    }

    fn answer(mut self, outcome: Result<(), TierMiss>, latency: Duration) {
        self.tell(outcome, latency);
    }

    fn tell(&mut self, outcome: Result<(), TierMiss>, latency: Duration) {
        if let Some(op) = self.op.take() {
            // Fails only when the daemon is stopping.
            let _ = self.events.send(TierEvent::Got { op, outcome, latency });
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.tell(Err(TierMiss::Down), Duration::ZERO);
    }
}

/// A record to store. The answer is sent once, with the record's blocks: one that is dropped
/// without an answer has failed.
pub(crate) struct Put {
    sample: SampleId,
    /// Stored length in bytes.
    len: u32,
    record: Option<Lent>,
    events: Sender<Event>,
}

impl Put {
    pub(crate) fn new(sample: SampleId, len: u32, record: Lent, shared: &Shared) -> Self {
        Self { sample, len, record: Some(record), events: shared.events.clone() }
    }

    fn answer(mut self, outcome: TierPut) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: TierPut) {
        if let Some(record) = self.record.take() {
            let _ = self.events.send(TierEvent::Put { sample: self.sample, record, outcome });
        }
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        self.tell(TierPut::Failed);
    }
}

/// A change of what the server holds.
pub(crate) enum Write {
    Put(Put),
    /// Not answered. One that cannot be carried out leaves a record behind, which is overwritten if
    /// the sample comes to the tier again.
    Remove(SampleId),
}

/// What a server's thread shares with others.
pub(crate) struct Shared {
    pub(crate) arena: Arc<Arena>,
    pub(crate) keys: Keys,
    pub(crate) login: Arc<Login>,
    pub(crate) events: Sender<Event>,
    /// Tells that slots may have moved.
    pub(crate) moved: Sender<()>,
    /// The user was told that a server is full.
    pub(crate) told_of_full: AtomicBool,
}

/// One server, seen from outside its thread. Its thread ends when the last clone of it is dropped.
pub(crate) struct Server {
    is_up: Arc<AtomicBool>,
    fetches: Sender<Fetch>,
    writes: Sender<Write>,
}

/// Why a thread stops serving over its connection.
enum End {
    /// Nobody gives orders any more.
    Closed,
    Fault(ServerFault),
}

impl From<ServerFault> for End {
    fn from(fault: ServerFault) -> Self {
        Self::Fault(fault)
    }
}

/// What the thread has.
struct Work {
    address: Address,
    shared: Arc<Shared>,
    is_up: Arc<AtomicBool>,
    fetches: Receiver<Fetch>,
    writes: Receiver<Write>,
}

impl Server {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start(address: Address, number: usize, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (fetches_in, fetches) = unbounded();
        let (writes_in, writes) = unbounded();
        // It is asked from the start, and reached by the first order.
        let is_up = Arc::new(AtomicBool::new(true));
        let work = Work { address, shared, is_up: Arc::clone(&is_up), fetches, writes };
        std::thread::Builder::new().name(format!("shade-tier-{number}")).spawn(move || work.run())?;
        Ok(Self { is_up, fetches: fetches_in, writes: writes_in })
    }

    /// Fetches a record. Answered at once while the server is left alone.
    pub(crate) fn fetch(&self, fetch: Fetch) {
        if self.is_up.load(Ordering::Relaxed) {
            // What the thread does not take any more is dropped with the error, which answers it.
            let _ = self.fetches.send(fetch);
        }
    }

    /// Changes what the server holds. Answered at once while the server is left alone.
    pub(crate) fn write(&self, write: Write) {
        if self.is_up.load(Ordering::Relaxed) {
            let _ = self.writes.send(write);
        }
    }
}

impl Shared {
    /// What an error means that the server answered.
    fn refused(&self, address: &Address, error: &str) -> TierPut {
        match error.split(' ').next().unwrap_or_default() {
            "OOM" => {
                if !self.told_of_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "tier: server {address} is full: what finds no room there is not stored; this is told once"
                    );
                }
                TierPut::Full
            }
            "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => {
                // A note that is there already is as good.
                let _ = self.moved.try_send(());
                TierPut::Failed
            }
            _ => {
                tracing::debug!("tier: server {address} answers {error}");
                TierPut::Failed
            }
        }
    }
}

impl Work {
    fn run(self) {
        let mut was_down = false;
        loop {
            let end = Connection::open(&self.address, &self.shared.login).map_err(End::from).and_then(
                |connection| {
                    self.is_up.store(true, Ordering::Relaxed);
                    if std::mem::take(&mut was_down) {
                        tracing::info!("tier: server {} answers again", self.address);
                    }
                    self.serve(connection)
                },
            );
            let Err(End::Fault(fault)) = end else { return };
            self.is_up.store(false, Ordering::Relaxed);
            if !std::mem::replace(&mut was_down, true) {
                tracing::warn!(
                    "tier: server {}: {fault}: its records are read from the store; it is tried again every {} s",
                    self.address,
                    REST.as_secs()
                );
            }
            let _ = self.shared.moved.try_send(());
            if self.rest() {
                return;
            }
        }
    }

    /// Refuses orders for a while. Returns whether there will be no more.
    fn rest(&self) -> bool {
        let until = Instant::now() + REST;
        loop {
            // Orders of before the fault are dropped; `Server` takes no others meanwhile.
            self.writes.try_iter().for_each(drop);
            match self.fetches.recv_deadline(until) {
                Ok(fetch) => drop(fetch),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    fn serve(&self, mut connection: Connection) -> Result<(), End> {
        loop {
            let (mut fetches, mut writes) = (Vec::new(), Vec::new());
            select! {
                recv(self.fetches) -> fetch => fetches.push(fetch.map_err(|_| End::Closed)?),
                recv(self.writes) -> write => writes.push(write.map_err(|_| End::Closed)?),
            }
            fetches.extend(self.fetches.try_iter().take(FETCHED_AT_ONCE - fetches.len()));
            if !fetches.is_empty() {
                self.fetch(&mut connection, fetches)?;
            }
            if writes.is_empty() {
                writes.extend(self.writes.try_recv());
            }
            let puts =
                |writes: &[Write]| writes.iter().filter(|write| matches!(write, Write::Put(_))).count();
            while puts(&writes) < PUT_AT_ONCE && writes.len() < WRITTEN_AT_ONCE {
                let Ok(write) = self.writes.try_recv() else { break };
                writes.push(write);
            }
            if !writes.is_empty() {
                self.write(&mut connection, writes)?;
            }
        }
    }

    /// Fetches records, all asked for at once. After a fault those that have not come are missed.
    fn fetch(&self, connection: &mut Connection, fetches: Vec<Fetch>) -> Result<(), ServerFault> {
        let Shared { arena, keys, .. } = &*self.shared;
        let asked = Instant::now();
        let ops = fetches.iter().filter_map(|fetch| fetch.op.as_ref());
        let requests = ops.flat_map(|op| command(&[b"GET", &keys.of(op.sample)], None));
        connection.send(&requests.collect::<Vec<u8>>())?;
        for mut fetch in fetches {
            let Some(op) = &mut fetch.op else { continue };
            let outcome = match connection.fetch(op, arena)? {
                Fetched::Record => Ok(()),
                Fetched::Missed(miss) => Err(miss),
                Fetched::Refused(error) => {
                    self.shared.refused(&self.address, &error);
                    Err(TierMiss::Down)
                }
            };
            fetch.answer(outcome, asked.elapsed());
        }
        Ok(())
    }

    /// Carries out writes in their order. After a fault those that are not answered have failed.
    fn write(&self, connection: &mut Connection, writes: Vec<Write>) -> Result<(), ServerFault> {
        writes.iter().try_for_each(|write| self.send(connection, write))?;
        for write in writes {
            let answer = connection.answer()?;
            let Write::Put(put) = write else { continue };
            put.answer(match answer {
                Reply::Status(_) => TierPut::Stored,
                Reply::Error(error) => self.shared.refused(&self.address, &error),
                _ => TierPut::Failed,
            });
        }
        Ok(())
    }

    fn send(&self, connection: &mut Connection, write: &Write) -> Result<(), ServerFault> {
        let Shared { arena, keys, .. } = &*self.shared;
        match write {
            Write::Remove(sample) => connection.send(&command(&[b"UNLINK", &keys.of(*sample)], None)),
            Write::Put(Put { sample, len, record, .. }) => {
                let record = record.as_ref().ok_or_else(|| ServerFault::new("a record that is answered"))?;
                let slices = arena.slices_of(record, *len).map_err(ServerFault::new)?;
                connection.send(&command(&[b"SET", &keys.of(*sample)], Some(*len)))?;
                slices.into_iter().try_for_each(|slice| connection.send(slice))?;
                connection.send(b"\r\n")
            }
        }
    }
}

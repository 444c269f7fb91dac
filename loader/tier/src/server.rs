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
use shade_reads::blocks::{Arena, Lent};

use crate::connection::{Connection, Fetched, Login, ServerFault};
use crate::key::Keys;
use crate::orders::Event;
use crate::reply::{Reply, command};
use crate::servers::Address;

/// How long a server that fails is left alone.
const REST: Duration = Duration::from_secs(5);
/// Records fetched at once.
const FETCHED_AT_ONCE: usize = 32;
/// Records stored at once: they delay the next fetch.
const PUT_AT_ONCE: usize = 4;
/// The same with what is removed.
const WRITTEN_AT_ONCE: usize = 32;

/// A change of what the server holds.
pub(crate) enum Write {
    /// Store a record of this stored length.
    Put(SampleId, u32, Lent),
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
    shared: Arc<Shared>,
    is_up: Arc<AtomicBool>,
    fetches: Sender<ReadOp>,
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
    fetches: Receiver<ReadOp>,
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
        let work = Work { address, shared: Arc::clone(&shared), is_up: Arc::clone(&is_up), fetches, writes };
        std::thread::Builder::new().name(format!("shade-tier-{number}")).spawn(move || work.run())?;
        Ok(Self { shared, is_up, fetches: fetches_in, writes: writes_in })
    }

    /// Fetches a record. Answered at once while the server is left alone.
    pub(crate) fn fetch(&self, op: ReadOp) {
        if !self.is_up.load(Ordering::Relaxed) {
            return self.shared.missed(op, TierMiss::Down, Duration::ZERO);
        }
        if let Err(refused) = self.fetches.send(op) {
            self.shared.missed(refused.into_inner(), TierMiss::Down, Duration::ZERO);
        }
    }

    /// Changes what the server holds.
    pub(crate) fn write(&self, write: Write) {
        if !self.is_up.load(Ordering::Relaxed) {
            return self.shared.not_written(write);
        }
        if let Err(refused) = self.writes.send(write) {
            self.shared.not_written(refused.into_inner());
        }
    }
}

impl Shared {
    fn tell(&self, event: Event) {
        // Fails only when the daemon is stopping.
        let _ = self.events.send(event);
    }

    pub(crate) fn missed(&self, op: ReadOp, miss: TierMiss, latency: Duration) {
        self.tell(TierEvent::Got { op, outcome: Err(miss), latency });
    }

    /// A removal that cannot be carried out leaves a record behind, which is overwritten if the
    /// sample comes to the tier again.
    pub(crate) fn not_written(&self, write: Write) {
        if let Write::Put(sample, _, record) = write {
            self.tell(TierEvent::Put { sample, record, outcome: TierPut::Failed });
        }
    }

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
            // Those of before the fault; `Server` takes no others meanwhile.
            self.writes.try_iter().for_each(|write| self.shared.not_written(write));
            match self.fetches.recv_deadline(until) {
                Ok(op) => self.shared.missed(op, TierMiss::Down, Duration::ZERO),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    fn serve(&self, mut connection: Connection) -> Result<(), End> {
        loop {
            let (mut fetches, mut writes) = (Vec::new(), Vec::new());
            select! {
                recv(self.fetches) -> op => fetches.push(op.map_err(|_| End::Closed)?),
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
                |writes: &[Write]| writes.iter().filter(|write| matches!(write, Write::Put(..))).count();
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
    fn fetch(&self, connection: &mut Connection, ops: Vec<ReadOp>) -> Result<(), ServerFault> {
        let Shared { arena, keys, .. } = &*self.shared;
        let asked = Instant::now();
        let requests = ops.iter().flat_map(|op| command(&[b"GET", &keys.of(op.sample)], None));
        let mut fault = connection.send(&requests.collect::<Vec<u8>>()).err();
        for mut op in ops {
            let fetched = match &fault {
                Some(_) => Fetched::Missed(TierMiss::Down),
                None => connection.fetch(&mut op, arena).unwrap_or_else(|found| {
                    fault = Some(found);
                    Fetched::Missed(TierMiss::Down)
                }),
            };
            let outcome = match fetched {
                Fetched::Record => Ok(()),
                Fetched::Missed(miss) => Err(miss),
                Fetched::Refused(error) => {
                    self.shared.refused(&self.address, &error);
                    Err(TierMiss::Down)
                }
            };
            self.shared.tell(TierEvent::Got { op, outcome, latency: asked.elapsed() });
        }
        fault.map_or(Ok(()), Err)
    }

    /// Carries out writes in their order. After a fault those that are not answered have failed.
    fn write(&self, connection: &mut Connection, writes: Vec<Write>) -> Result<(), ServerFault> {
        let mut fault = None;
        for write in &writes {
            if fault.is_none() {
                fault = self.send(connection, write).err();
            }
        }
        for write in writes {
            let answer = match &fault {
                Some(_) => None,
                None => connection.answer().map_err(|found| fault = Some(found)).ok(),
            };
            let Write::Put(sample, _, record) = write else { continue };
            let outcome = match answer {
                Some(Reply::Status(_)) => TierPut::Stored,
                Some(Reply::Error(error)) => self.shared.refused(&self.address, &error),
                _ => TierPut::Failed,
            };
            self.shared.tell(TierEvent::Put { sample, record, outcome });
        }
        fault.map_or(Ok(()), Err)
    }

    fn send(&self, connection: &mut Connection, write: &Write) -> Result<(), ServerFault> {
        let Shared { arena, keys, .. } = &*self.shared;
        match write {
            Write::Remove(sample) => connection.send(&command(&[b"UNLINK", &keys.of(*sample)], None)),
            Write::Put(sample, len, record) => {
                let slices = arena.slices_of(record, *len).map_err(ServerFault::new)?;
                connection.send(&command(&[b"SET", &keys.of(*sample)], Some(*len)))?;
                slices.into_iter().try_for_each(|slice| connection.send(slice))?;
                connection.send(b"\r\n")
            }
        }
    }
}

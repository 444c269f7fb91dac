//! A session: one rank attached to the daemon.
//!
//! Batches come through the ring, everything else through the socket. Several threads may use both
//! at once. The socket also tells when the daemon is gone. It is checked only when the ring is
//! empty, so all published batches are delivered first.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};
use shade_dataset::Content;
use shade_formats::FormatError;
use shade_formats::control::{PROTOCOL, Reply, Request};
use shade_formats::ids::ContentId;
use shade_formats::ring::{Descriptor, Kind};
use shade_shm::{Consumer, Heard};

use crate::attach::{Attached, Welcome};
use crate::batch::{Column, Slots};
use crate::dialogue::Dialogue;
use crate::error::argument;
use crate::fork::{Owner, lock};
use crate::held::InRing;
use crate::wire::{Received, WireError, wait};
use crate::{Batch, BatchId, ClientError, FieldsReader};

/// How long `next` polls the ring before it sleeps: about the cost of waking.
const SPIN: Duration = Duration::from_micros(20);

/// Result of [`Session::next`].
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Batch),
    /// The epoch has no further batch.
    EpochEnd,
    /// No batch yet: the wait timed out, or a signal came. Call again.
    Pending,
}

/// One rank attached to the daemon. Dropping it ends the session; kept batches stay readable.
#[derive(Debug)]
pub struct Session {
    owner: Owner,
    /// The dataset's folder.
    dataset: PathBuf,
    welcome: Welcome,
    slots: Arc<Slots>,
    ring: Mutex<Ring>,
    dialogue: Dialogue,
}

#[derive(Debug)]
struct Ring {
    consumer: Consumer,
    generation: u32,
    /// The first generation since a state was loaded, after which batches have other samples.
    first_generation: u32,
    /// A batch of this generation was taken.
    has_taken: bool,
    /// The daemon has not closed its end of the doorbells.
    has_doorbell: bool,
    delivery: Delivery,
}

#[derive(Clone, Debug)]
enum Delivery {
    NotStarted,
    Running,
    Ended,
    Failed(String),
}

/// Why `sleep` returned.
#[derive(Debug, Default)]
struct Woken {
    found: Option<Next>,
    /// The daemon sent a message or hung up.
    spoken_to: bool,
    /// A signal came. The caller handles it: Python raises KeyboardInterrupt.
    interrupted: bool,
}

impl Session {
    /// The session of a rank that is attached to the daemon of the dataset in this folder.
    pub(crate) fn new(owner: Owner, dataset: PathBuf, attached: Attached) -> Self {
        let Attached { welcome, slots, consumer, dialogue } = attached;
        let ring = Ring {
            consumer,
            generation: 0,
            first_generation: 0,
            has_taken: false,
            has_doorbell: true,
            delivery: Delivery::NotStarted,
        };
        let (slots, ring) = (Arc::new(slots), Mutex::new(ring));
        Self { owner, dataset, welcome, slots, ring, dialogue }
    }

    /// The memory of the batches, to register it with a device. It lasts until the session and its
    /// last batch are gone.
    #[must_use]
    pub fn payload(&self) -> Column<u8> {
        self.slots.payload()
    }

    /// Samples in the dataset.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.welcome.content.samples
    }

    /// Identity of the dataset's content.
    #[must_use]
    pub fn content_id(&self) -> ContentId {
        self.welcome.content.id
    }

    /// The content that the daemon serves.
    #[must_use]
    pub fn content(&self) -> Content {
        self.welcome.content
    }

    /// The content that the dataset had when the session was opened: [`Session::content`], with
    /// more at its end if it was added to since the daemon opened it.
    #[must_use]
    pub fn present_content(&self) -> Content {
        self.welcome.present
    }

    /// Name of the job: the one that was asked for, or the free one that the daemon found.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.welcome.job
    }

    /// Batches per epoch, equal for all ranks.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u32 {
        self.welcome.batches_per_epoch
    }

    /// A reader of samples' extra fields, which is independent of the session. `buffered`: see
    /// [`FieldsReader::new`].
    #[must_use]
    pub fn fields(&self, buffered: bool) -> FieldsReader {
        FieldsReader::new(&self.dataset, self.content(), buffered)
    }

    /// The daemon's settings. Those that mean the same as the options' are spelled alike.
    #[must_use]
    pub fn settings(&self) -> &Map<String, Value> {
        &self.welcome.settings
    }

    /// The daemon's process id.
    #[must_use]
    pub fn daemon_pid(&self) -> u32 {
        self.welcome.pid
    }

    /// Starts an epoch at `first_batch`. An earlier epoch's batches in the ring are released
    /// unseen.
    ///
    /// # Errors
    /// The daemon is gone or does not listen, or this is a forked child.
    pub fn start_epoch(&self, epoch: u32, first_batch: u32) -> Result<(), ClientError> {
        self.owner.check()?;
        let mut ring = lock(&self.ring);
        let generation = ring.generation.checked_add(1).ok_or_else(|| {
            argument("generation", ring.generation, "a new session after 2^32 starts of an epoch")
        })?;
        let has_taken = ring.has_taken;
        let request = Request::StartEpoch { generation, epoch, first_batch, has_taken };
        self.dialogue.tell("start_epoch", &request)?;
        (ring.generation, ring.has_taken) = (generation, false);
        ring.delivery = Delivery::Running;
        Ok(())
    }

    /// Takes the next batch, waiting up to `wait_most`. It may be a copy if many are kept
    /// ([`Batch::is_copy`]).
    ///
    /// # Errors
    /// [`ClientError::Record`]: a record could not be read. [`ClientError::DaemonGone`]: it is
    /// gone, and all published batches were taken. [`ClientError::Failed`]: the daemon reports a
    /// failure. Also if no epoch was started, the daemon breaks the protocol, or this is a forked
    /// child.
    pub fn next(&self, wait_most: Duration) -> Result<Next, ClientError> {
        self.owner.check()?;
        let mut ring = lock(&self.ring);
        match &ring.delivery {
            Delivery::NotStarted => return Err(ClientError::NotStarted),
            Delivery::Ended => return Ok(Next::EpochEnd),
            Delivery::Failed(text) => return Err(ClientError::Record { text: text.clone() }),
            Delivery::Running => {}
        }
        let started = Instant::now();
        loop {
            if let Some(next) = self.take_spinning(&mut ring, started, wait_most.min(SPIN))? {
                return Ok(next);
            }
            // Received earlier, or by another thread that waited for an answer.
            self.dialogue.fault()?;
            let left = wait_most.saturating_sub(started.elapsed());
            let woken = self.sleep(&mut ring, left)?;
            if let Some(next) = woken.found {
                return Ok(next);
            }
            if woken.spoken_to {
                let heard = self.dialogue.listen();
                // The daemon published batches before its message or end: they come first.
                if let Some(next) = self.take(&mut ring)? {
                    return Ok(next);
                }
                // The reason comes before the hang-up.
                self.dialogue.fault()?;
                heard?;
            }
            if woken.interrupted || left.is_zero() {
                return Ok(Next::Pending);
            }
        }
    }

    /// The batches that are kept in the ring, without copies.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn held(&self) -> Result<InRing, ClientError> {
        self.owner.check()?;
        Ok(lock(&self.slots.held).in_ring())
    }

    /// Time since the daemon's last sign of life; `None` before its first.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn heartbeat_age(&self) -> Result<Option<Duration>, ClientError> {
        self.owner.check()?;
        let beat_ns = lock(&self.ring).consumer.heartbeat_ns()?;
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        Ok((beat_ns != 0).then(|| now.saturating_sub(Duration::from_nanos(beat_ns))))
    }

    /// Reports the losses of a batch's first rows, in their order.
    ///
    /// # Errors
    /// With more losses than the batch has rows, for a batch of another session or of before a
    /// state was loaded, when the daemon is gone or does not listen, or in a forked child.
    pub fn report(&self, id: BatchId, losses: &[f32]) -> Result<(), ClientError> {
        self.owner.check()?;
        let BatchId { session, generation, epoch, batch, rows } = id;
        let named = format_args!("batch {batch} of epoch {epoch}");
        if session != self.slots.session {
            let got = format_args!("{named} of another session, such as a validation or another dataset");
            return Err(argument("batch", got, "one that this session has delivered"));
        }
        if generation < lock(&self.ring).first_generation {
            let got = format_args!("{named} of before a state was loaded");
            return Err(argument("batch", got, "one that was delivered since"));
        }
        if losses.len() > rows as usize {
            let got = format_args!("{} values for a batch of {rows}", losses.len());
            return Err(argument("losses", got, format_args!("at most {rows}")));
        }
        self.dialogue.tell("report", &Request::Report { epoch, batch, losses: losses.to_vec() })
    }

    /// A state is loaded: batches of before are of another plan.
    pub(crate) fn begin_anew(&self) {
        let mut ring = lock(&self.ring);
        ring.first_generation = ring.generation.saturating_add(1);
    }

    /// Reports a validation score, higher is better.
    ///
    /// # Errors
    /// The daemon is gone or does not listen, or this is a forked child.
    pub fn report_validation(&self, score: f64) -> Result<(), ClientError> {
        self.owner.check()?;
        self.dialogue.tell("report_validation", &Request::ReportValidation { score })
    }

    /// The daemon's counters, one JSON object.
    ///
    /// # Errors
    /// The daemon does not answer, is gone or breaks the protocol, or this is a forked child.
    pub fn stats(&self) -> Result<String, ClientError> {
        self.ask("stats", &Request::Stats, None, |(reply, _)| match reply {
            Reply::Stats { json } => Ok(json),
            other => Err(other),
        })
    }

    /// Gives the daemon's cache another size, as the setting `cache` has it. Returns its capacity
    /// in bytes.
    ///
    /// # Errors
    /// As for [`Session::stats`], and [`ClientError::Failed`] when there is not as much memory or
    /// this job may not decide it.
    pub fn resize_cache(&self, cache: &str) -> Result<u64, ClientError> {
        let request = Request::Resize { protocol: PROTOCOL, cache: cache.to_owned() };
        self.ask("resize_cache", &request, None, |(reply, _)| match reply {
            Reply::Resized { cache_bytes, .. } => Ok(cache_bytes),
            other => Err(other),
        })
    }

    /// Asks the daemon, as [`Dialogue::ask`] does.
    pub(crate) fn ask<T>(
        &self,
        what: &'static str,
        request: &Request,
        fd: Option<&OwnedFd>,
        accept: impl Fn(Received) -> Result<T, Reply>,
    ) -> Result<T, ClientError> {
        self.owner.check()?;
        self.dialogue.ask(what, request, fd, accept)
    }

    /// Polls the ring for up to `most` from `started` on.
    fn take_spinning(
        &self,
        ring: &mut Ring,
        started: Instant,
        most: Duration,
    ) -> Result<Option<Next>, ClientError> {
        loop {
            let next = self.take(ring)?;
            if next.is_some() || started.elapsed() >= most {
                return Ok(next);
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps until the ring or the socket has news, for at most `most`; if that is zero, only
    /// checks the socket: the daemon is not told of a wait that is none, as it hears of one wait
    /// for each descriptor, and the next one may be real.
    fn sleep(&self, ring: &mut Ring, most: Duration) -> Result<Woken, ClientError> {
        if most.is_zero() {
            let mut fds = [PollFd::new(self.dialogue.socket(), PollFlags::IN)];
            let interrupted = matches!(wait(&mut fds, most), Err(WireError::Interrupted));
            let [socket] = fds;
            return Ok(Woken { found: None, spoken_to: !socket.revents().is_empty(), interrupted });
        }
        let is_news = ring.consumer.wait_begin()?;
        // The recheck that `Consumer::wait_begin` requires.
        let found = self.take(ring);
        let mut woken = Woken::default();
        if let Ok(None) = found {
            // It counts what the trainer waits for.
            if is_news {
                self.slots.ring_daemon();
            }
            let mut fds = [
                PollFd::new(self.dialogue.socket(), PollFlags::IN),
                PollFd::new(&self.slots.doorbell, PollFlags::IN),
            ];
            // A daemon that has closed its end of the doorbells can only hang up.
            let sources = if ring.has_doorbell { &mut fds[..] } else { &mut fds[..1] };
            woken.interrupted = matches!(wait(sources, most), Err(WireError::Interrupted));
            let [socket, _] = fds;
            woken.spoken_to = !socket.revents().is_empty();
        }
        ring.consumer.wait_end()?;
        // Silenced before the ring is checked again: a publication in between rings anew.
        ring.has_doorbell = matches!(self.slots.doorbell.answer(), Ok(Heard::Peer));
        woken.found = found?;
        Ok(woken)
    }

    /// Takes the next descriptor of this generation, if it is there.
    fn take(&self, ring: &mut Ring) -> Result<Option<Next>, ClientError> {
        while let Some(descriptor) = ring.consumer.poll()? {
            if descriptor.generation < ring.generation {
                self.slots.release(&descriptor);
                continue;
            }
            if descriptor.generation > ring.generation {
                let expected = format_args!("at most {}", ring.generation);
                return Err(FormatError::new("ring generation", 0, descriptor.generation, expected).into());
            }
            return self.open_descriptor(ring, descriptor).map(Some);
        }
        Ok(None)
    }

    fn open_descriptor(&self, ring: &mut Ring, descriptor: Descriptor) -> Result<Next, ClientError> {
        match descriptor.kind {
            Kind::Batch => {
                ring.has_taken = true;
                Ok(Next::Batch(Batch::new(&self.slots, descriptor)?))
            }
            Kind::EpochEnd => {
                ring.delivery = Delivery::Ended;
                self.slots.release(&descriptor);
                Ok(Next::EpochEnd)
            }
            Kind::Error => {
                // `Descriptor::check` has limited the length.
                let mut text = vec![0; usize::try_from(descriptor.len).unwrap_or(0)];
                let read = self.slots.payload.read(descriptor.offset, &mut text);
                self.slots.release(&descriptor);
                read?;
                let text = String::from_utf8_lossy(&text).into_owned();
                ring.delivery = Delivery::Failed(text.clone());
                Err(ClientError::Record { text })
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A forked child only closes its copies of the descriptors; the owner says goodbye.
        if self.owner.is_here() {
            self.dialogue.bye();
        }
    }
}

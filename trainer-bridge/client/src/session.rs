//! A session: one rank of a job, attached to the daemon of its dataset, and to its successor if
//! that dies.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use shade_dataset::Content;
use shade_formats::control::{PROTOCOL, Reply, Request, Step};
use shade_formats::ids::ContentId;
use shade_job::FieldsRead;

use crate::attach::Attached;
use crate::batch::Column;
use crate::connect::Options;
use crate::fork::{Owner, lock};
use crate::held::InRing;
use crate::hello::Hello;
use crate::link::{Link, Next};
use crate::redo::Redo;
use crate::succession::{Succession, watch};
use crate::wire::Received;
use crate::{BatchId, ClientError, FieldsReader};

/// How long to wait for a successor before looking again.
const SLICE: Duration = Duration::from_millis(100);
/// How long a successor's ranks have to find it, where one of them is asked for a state.
const BEGINNING: Duration = Duration::from_secs(60);

/// One rank attached to the daemon. Dropping it ends the session; kept batches stay readable.
#[derive(Debug)]
pub struct Session {
    owner: Owner,
    /// The dataset's folder.
    dataset: PathBuf,
    content: Content,
    present: Content,
    batches_per_epoch: u32,
    /// Places of an epoch's plan.
    pub(crate) positions: u32,
    link: Arc<Mutex<Arc<Link>>>,
    succession: Arc<Succession>,
    /// What is kept for a successor.
    redo: Arc<Mutex<Redo>>,
}

impl Session {
    /// The session of a rank that has said `hello` and is attached.
    pub(crate) fn new(mut hello: Hello, options: &Options, attached: Attached) -> Self {
        let welcome = &attached.welcome;
        let (content, present, batches_per_epoch) =
            (welcome.content, welcome.present, welcome.batches_per_epoch);
        hello.name(&welcome.job);
        let positions = hello.spec().positions(content.samples);
        let (owner, dataset) = (hello.owner, hello.dataset.clone());
        let succession = Arc::new(Succession::new(hello, options, welcome));
        let redo = Arc::new(Mutex::new(Redo::new(content.samples.max(positions), succession.has_bases())));
        let survives = options.survive;
        let link = Link::new(owner, attached, Arc::clone(&redo), survives);
        if !survives {
            link.tell_bound();
        }
        let link = Arc::new(Mutex::new(Arc::new(link)));
        if survives {
            watch(Arc::downgrade(&link), Arc::downgrade(&succession));
        }
        Self { owner, dataset, content, present, batches_per_epoch, positions, link, succession, redo }
    }

    /// The link to the daemon that serves now.
    fn link(&self) -> Arc<Link> {
        Arc::clone(&lock(&self.link))
    }

    /// The memory of the batches, to register it with a device. It lasts until the session and its
    /// last batch are gone. A successor of the daemon has another one
    /// ([`Session::successors`]): register that, too.
    #[must_use]
    pub fn payload(&self) -> Column<u8> {
        self.succession.note_payload();
        self.link().slots.payload()
    }

    /// Unmaps the memory of the batches of former daemons, as far as no batch is kept. Until then
    /// it stays, if somebody has asked for it, as it may be registered with a device.
    pub fn let_go_of_former_payloads(&self) {
        self.succession.let_go_of_former();
    }

    /// Samples in the dataset.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.content.samples
    }

    /// Identity of the dataset's content.
    #[must_use]
    pub fn content_id(&self) -> ContentId {
        self.content.id
    }

    /// The content that the daemon serves.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content
    }

    /// The content that the dataset had when the session was opened: [`Session::content`], with
    /// more at its end if it was added to since the daemon opened it.
    #[must_use]
    pub fn present_content(&self) -> Content {
        self.present
    }

    /// Name of the job: the one that was asked for, or the free one that the daemon found.
    #[must_use]
    pub fn job(&self) -> String {
        self.link().welcome.job.clone()
    }

    /// Batches per epoch, equal for all ranks.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u32 {
        self.batches_per_epoch
    }

    /// A reader of samples' extra fields, which is independent of the session. `buffered`: see
    /// [`FieldsReader::new`].
    #[must_use]
    pub fn fields(&self, buffered: bool) -> FieldsReader {
        FieldsReader::new(&self.dataset, self.content(), buffered)
    }

    /// The daemon's settings. Those that mean the same as the options' are spelled alike. So are
    /// `fields` if it reads them all, whatever more it reads.
    #[must_use]
    pub fn settings(&self) -> Map<String, Value> {
        let mut settings = self.link().welcome.settings.clone();
        let asked = self.succession.asked().spec().fields;
        let own = settings.get("fields").cloned().map(serde_json::from_value::<FieldsRead>);
        if let Some(Ok(own)) = own
            && own.serves(&asked)
        {
            settings.insert("fields".to_owned(), asked.to_string().into());
        }
        settings
    }

    /// The process id of the daemon that serves now.
    #[must_use]
    pub fn daemon_pid(&self) -> u32 {
        self.link().welcome.pid
    }

    /// How often the daemon has died and was replaced: see [`Options::survive`].
    #[must_use]
    pub fn successors(&self) -> u32 {
        self.succession.successors()
    }

    /// What the user is to know of a daemon that was replaced: how it ended, and where the job goes
    /// on. Each is told once, in their order.
    #[must_use]
    pub fn take_warning(&self) -> Option<String> {
        self.succession.take_warning()
    }

    /// Starts an epoch at `first_batch`. An earlier epoch's batches in the ring are released
    /// unseen.
    ///
    /// # Errors
    /// The daemon is gone and not replaced, or does not listen, or this is a forked child.
    pub fn start_epoch(&self, epoch: u32, first_batch: u32) -> Result<(), ClientError> {
        self.owner.check()?;
        loop {
            let link = self.link();
            match link.start_epoch(epoch, first_batch).map_err(|error| link.as_end(error)) {
                Err(gone @ ClientError::DaemonGone { .. }) => {
                    let is_replaced = self.succession.advance(&self.link, &link, gone, Duration::ZERO)?;
                    // The successor is told of it, for which `next` waits.
                    if !is_replaced && link.note_start(epoch, first_batch)? {
                        return Ok(());
                    }
                }
                other => return other,
            }
        }
    }

    /// Takes the next batch, waiting up to `wait_most`. It may be a copy if many are kept
    /// ([`Batch::is_copy`]).
    ///
    /// # Errors
    /// [`ClientError::Record`]: a record could not be read. [`ClientError::DaemonGone`]: it is
    /// gone and not replaced, and all published batches were taken. [`ClientError::Failed`]: the
    /// daemon reports a failure. Also if no epoch was started, the daemon breaks the protocol, or
    /// this is a forked child.
    pub fn next(&self, wait_most: Duration) -> Result<Next, ClientError> {
        self.next_of(None, wait_most)
    }

    /// Epochs that were started: with the count of now, [`next_since`](Self::next_since) takes no
    /// batch of a later one.
    #[must_use]
    pub fn starts(&self) -> u32 {
        self.link().place().starts
    }

    /// As [`next`](Self::next), for a thread that waits again and again: another thread may start
    /// an epoch meanwhile, and that epoch's batches are the other's.
    ///
    /// # Errors
    /// Those of [`next`](Self::next). [`ClientError::AnotherStart`]: `start` is not the count of
    /// [`starts`](Self::starts) any more.
    pub fn next_since(&self, start: u32, wait_most: Duration) -> Result<Next, ClientError> {
        self.next_of(Some(start), wait_most)
    }

    fn next_of(&self, since: Option<u32>, wait_most: Duration) -> Result<Next, ClientError> {
        self.owner.check()?;
        let started = Instant::now();
        let link = self.link();
        match link.next(since, wait_most) {
            Err(gone @ ClientError::DaemonGone { .. }) => {
                let left = wait_most.saturating_sub(started.elapsed());
                // Without a batch, so that a caller can warn before it takes one.
                self.succession.advance(&self.link, &link, gone, left).map(|_| Next::Pending)
            }
            other => other,
        }
    }

    /// The batches that are kept in the ring, without copies.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn held(&self) -> Result<InRing, ClientError> {
        self.owner.check()?;
        Ok(lock(&self.link().slots.held).in_ring())
    }

    /// Time since the daemon's last sign of life; `None` before its first.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn heartbeat_age(&self) -> Result<Option<Duration>, ClientError> {
        self.owner.check()?;
        self.link().heartbeat_age()
    }

    /// Reports the losses of a batch's first rows, in their order.
    ///
    /// # Errors
    /// With more losses than the batch has rows, for a batch of another session or of before a
    /// state was loaded, when the daemon is gone and not replaced or does not listen, or in a
    /// forked child. A successor is told of it.
    pub fn report(&self, id: BatchId, losses: &[f32]) -> Result<(), ClientError> {
        self.owner.check()?;
        self.link().check_report(id, losses)?;
        self.tell(|redo| redo.report(id.epoch, id.batch, losses), |link, redo| link.report(id, losses, redo))
    }

    /// Reports a validation score, higher is better.
    ///
    /// # Errors
    /// The daemon is gone or does not listen, or this is a forked child.
    pub fn report_validation(&self, score: f64) -> Result<(), ClientError> {
        self.owner.check()?;
        self.tell(
            |redo| redo.say(Step::Validated { score }),
            |link, _| link.dialogue.tell("report_validation", &Request::ReportValidation { score }),
        )
    }

    /// The daemon's counters, one JSON object, and `successors`: how often it was replaced. It
    /// counts from its own start.
    ///
    /// # Errors
    /// The daemon does not answer, is gone or breaks the protocol, or this is a forked child.
    pub fn stats(&self) -> Result<String, ClientError> {
        let json = self.ask("stats", &Request::Stats, None, |(reply, _)| match reply {
            Reply::Stats { json } => Ok(json),
            other => Err(other),
        })?;
        let Ok(mut figures) = serde_json::from_str::<Map<String, Value>>(&json) else { return Ok(json) };
        figures.insert("successors".to_owned(), self.successors().into());
        Ok(Value::Object(figures).to_string())
    }

    /// Gives the daemon's cache another size, as the setting `cache` has it. Returns its capacity
    /// in bytes. A successor of the daemon gets this size, too, where it fits.
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

    /// Loads a state, of which `file` has the bytes. Another file is made for each try.
    pub(crate) fn load<T>(
        &self,
        request: &Request,
        file: impl Fn() -> Result<OwnedFd, ClientError>,
        accept: impl Fn(Received) -> Result<T, Reply>,
    ) -> Result<T, ClientError> {
        self.owner.check()?;
        self.with(|link| link.load(request, file()?, &accept))
    }

    /// The rank has told these seats.
    pub(crate) fn note_seats(&self, seats: &[u8]) {
        self.succession.note_seats(seats);
        lock(&self.redo).depart();
    }

    /// Something that a successor has to know, too.
    pub(crate) fn note(&self, step: Step) {
        lock(&self.redo).say(step);
    }

    /// Asks the daemon, as [`Dialogue::ask`](crate::dialogue::Dialogue::ask) does, or its
    /// successor.
    pub(crate) fn ask<T>(
        &self,
        what: &'static str,
        request: &Request,
        fd: Option<&OwnedFd>,
        accept: impl Fn(Received) -> Result<T, Reply>,
    ) -> Result<T, ClientError> {
        self.owner.check()?;
        self.with(|link| {
            if let Request::SaveState { epoch, batch: 1.. } = *request {
                // The same daemon is asked: the one before may die in between.
                link.await_beginning(epoch, BEGINNING)?;
            }
            link.dialogue.ask(what, request, fd, &accept)
        })
    }

    /// Works with the daemon, and again with its successor if it is gone.
    fn with<T>(&self, work: impl Fn(&Link) -> Result<T, ClientError>) -> Result<T, ClientError> {
        loop {
            let link = self.link();
            match work(&link).map_err(|error| link.as_end(error)) {
                Err(gone @ ClientError::DaemonGone { .. }) => {
                    self.succession.advance(&self.link, &link, gone, SLICE)?;
                }
                other => return other,
            }
        }
    }

    /// Records what a successor needs to know, and tells it to the daemon: at once, so that it is
    /// in what a successor is handed, or told to that. Not in a forked child: its locks may be held
    /// for ever.
    fn tell(
        &self,
        note: impl FnOnce(&mut Redo),
        work: impl FnOnce(&Link, &Redo) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut redo = lock(&self.redo);
        note(&mut redo);
        let link = self.link();
        let told = work(&link, &redo);
        drop(redo);
        match told.map_err(|error| link.as_end(error)) {
            Err(gone @ ClientError::DaemonGone { .. }) => {
                self.succession.advance(&self.link, &link, gone, Duration::ZERO).map(drop)
            }
            other => other,
        }
    }
}

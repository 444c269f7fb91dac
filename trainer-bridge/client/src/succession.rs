//! A dead daemon is replaced under a running loop.
//!
//! The plan of many jobs follows from their document and the place in it. For others each rank
//! keeps what a plan depends on ([`Redo`](crate::redo::Redo)). So a daemon that dies can have any
//! other of the same dataset in its place: it has the same plan, and the rank goes on at its next
//! batch. Here a thread finds the successor, or starts it, while callers wait for it in slices.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use shade_dataset::Content;
use shade_formats::control::{Reply, Request};
use shade_formats::printable::Lines;
use shade_job::{JobSpec, LINGERS_FOR_EVER, Settings};
use shade_shm::memfd;

use crate::ClientError;
use crate::attach::{Attached, Welcome, attach};
use crate::batch::Slots;
use crate::connect::{Options, open};
use crate::deaths::Deaths;
use crate::dialogue::hangs_up_within;
use crate::fork::lock;
use crate::hello::Hello;
use crate::link::{Link, Place};

/// How long to wait for a daemon that somebody else restarts, such as a service manager.
const RESTART_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks for the successor.
const LOOK: Duration = Duration::from_millis(5);
/// How long a dataset that cannot be opened is waited for, as daemons wait for shards, and the
/// pause between two looks.
const STORE_PATIENCE: Duration = Duration::from_secs(60);
const STORE_LOOK: Duration = Duration::from_millis(100);
/// How long the watch of a daemon waits between looks whether the session is still there.
const WATCH: Duration = Duration::from_secs(1);
/// How long it goes on with replacing one between such looks.
const SLICE: Duration = Duration::from_millis(50);
/// Warnings that wait for somebody to take them.
const NEWS_MAX: usize = 16;
/// Policies that put other samples in the place of planned ones, by what they have cached.
const EXCHANGING: [&str; 2] = ["icache", "quiver"];

/// The successors of a session's daemon.
#[derive(Debug)]
pub(crate) struct Succession {
    hello: Arc<Hello>,
    options: Options,
    /// What every daemon of the session serves.
    content: Content,
    /// The job's plans depend on more than its document.
    has_bases: bool,
    /// What goes by what is cached, and so may be otherwise with a successor, whose cache is empty.
    by_cache: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// The daemon was started by hand or by a service manager, who start its successor.
    is_service: bool,
    deaths: Deaths,
    successors: u32,
    /// Warnings that were not taken yet.
    news: Vec<String>,
    /// The seats that the rank has told.
    seats: Option<Vec<u8>>,
    /// Bytes of the cache, if somebody has changed them while a daemon ran.
    cache_bytes: Option<u64>,
    /// Somebody knows where the ring is, and may have registered it with a device.
    has_told_payload: bool,
    /// The rings before, if so: they stay mapped until they are let go of.
    former: Vec<Arc<Slots>>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Calm,
    /// A thread finds the successor.
    UnderWay(Receiver<Result<Heir, ClientError>>),
    /// There is none.
    Over(String),
}

impl Succession {
    /// For the session of this rank, whose first daemon has said `welcome`.
    pub(crate) fn new(hello: Hello, options: &Options, welcome: &Welcome) -> Self {
        let setting = |name| welcome.settings.get(name).and_then(serde_json::Value::as_str);
        let policy = setting("policy").unwrap_or_default();
        let by_cache = what_goes_by_the_cache(hello.spec(), policy);
        let has_bases = hello.spec().plan.depends_on_its_node() || by_cache.is_some();
        let (hello, options, content) = (Arc::new(hello), options.clone(), welcome.content);
        let state = State { is_service: is_service(&options, welcome), ..State::default() };
        Self { hello, options, content, has_bases, by_cache, state: Mutex::new(state) }
    }

    /// Whether the job's daemon gives bases from its first epoch on.
    pub(crate) fn has_bases(&self) -> bool {
        self.has_bases
    }

    /// The settings that the rank has asked for.
    pub(crate) fn asked(&self) -> &Settings {
        &self.options.settings
    }

    /// How often a daemon was replaced.
    pub(crate) fn successors(&self) -> u32 {
        lock(&self.state).successors
    }

    /// The oldest warning that was not taken yet.
    pub(crate) fn take_warning(&self) -> Option<String> {
        let news = &mut lock(&self.state).news;
        (!news.is_empty()).then(|| news.remove(0))
    }

    /// Notes the seats that the rank has told.
    pub(crate) fn note_seats(&self, seats: &[u8]) {
        lock(&self.state).seats = Some(seats.to_vec());
    }

    /// Notes that somebody knows where the ring is.
    pub(crate) fn note_payload(&self) {
        lock(&self.state).has_told_payload = true;
    }

    /// Nobody uses the rings of former daemons, except for batches.
    pub(crate) fn let_go_of_former(&self) {
        lock(&self.state).former.clear();
    }

    /// Goes on with replacing the daemon of `dead`, which is `gone`, for at most `most`. Whether
    /// `current` is another link now.
    ///
    /// # Errors
    /// It is not replaced; why is told with how it ended.
    pub(crate) fn advance(
        &self,
        current: &Mutex<Arc<Link>>,
        dead: &Arc<Link>,
        gone: ClientError,
        most: Duration,
    ) -> Result<bool, ClientError> {
        let ClientError::DaemonGone { pid, end } = gone else { return Err(gone) };
        let started = Instant::now();
        loop {
            let mut state = lock(&self.state);
            if !Arc::ptr_eq(&lock(current), dead) {
                return Ok(true);
            }
            let found = self.look(&mut state, current, dead, &end);
            if found.map_err(|end| ClientError::DaemonGone { pid, end })? {
                return Ok(true);
            }
            if started.elapsed() >= most {
                return Ok(false);
            }
            drop(state);
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the successor is there, and has the dead one's place; else begins to find it, or
    /// goes on. The error is how the daemon ended and why it has no successor.
    fn look(
        &self,
        state: &mut State,
        current: &Mutex<Arc<Link>>,
        dead: &Link,
        end: &str,
    ) -> Result<bool, String> {
        let found = match &state.stage {
            Stage::Over(text) => return Err(text.clone()),
            Stage::Calm => {
                if !self.options.survive {
                    return Err(end.to_owned());
                }
                if dead.dialogue.was_stopped() {
                    return Err(format!("{end}; it was not replaced: it was stopped"));
                }
                if dead.dialogue.was_replaced() {
                    // Who replaces it starts the successor, with a cache as they want it. No death,
                    // so no record and no batch.
                    (state.is_service, state.cache_bytes) = (true, None);
                } else {
                    state.deaths.note(&dead.death(), Instant::now());
                    state.cache_bytes = dead.cache_was_given().or(state.cache_bytes);
                }
                return self.another(state, dead, end).map(|()| false);
            }
            Stage::UnderWay(heir) => heir.try_recv(),
        };
        let error = match found {
            Err(TryRecvError::Empty) => return Ok(false),
            Ok(Ok(Heir { attached, complaint })) => match dead.succeeded_by(attached, current) {
                Ok(link) => {
                    self.welcome(state, dead, &link, end);
                    state.news.extend(complaint.map(|text| Lines(text).to_string()));
                    return Ok(true);
                }
                Err(error) => error,
            },
            Ok(Err(
                error @ (ClientError::DaemonGone { .. }
                | ClientError::HungUp { .. }
                | ClientError::Launch { is_silent: true, .. }),
            )) => {
                // It died before it was one, perhaps without a word.
                state.deaths.note_early(Instant::now());
                return self.another(state, dead, &error.with_causes()).map(|()| false);
            }
            Ok(Err(error)) => error,
            Err(TryRecvError::Disconnected) => {
                ClientError::Failed { text: "the thread that looked for it has panicked".to_owned() }
            }
        };
        Err(over(state, format!("{end}; it has no successor: {}", error.with_causes())))
    }

    /// One more daemon has died, so another is found or started in the place of `dead`.
    fn another(&self, state: &mut State, dead: &Link, end: &str) -> Result<(), String> {
        let too_many = state.deaths.too_many(self.options.deaths_max, &self.hello.dataset, self.content);
        if let Some(why) = too_many {
            return Err(over(state, format!("{end}; it was not replaced: {why}")));
        }
        let (hello, content) = (Arc::clone(&self.hello), self.content);
        let told = Told {
            seats: state.seats.clone(),
            avoided: state.deaths.avoided(),
            cache_bytes: state.cache_bytes,
        };
        let options = self.options_of_heir(state.is_service, &dead.welcome);
        let (tell, heir) = channel();
        let find = move || drop(tell.send(find(&hello, &options, content, &told)));
        match std::thread::Builder::new().name("shade-heir".to_owned()).spawn(find) {
            Ok(_) => state.stage = Stage::UnderWay(heir),
            Err(error) => return Err(over(state, format!("{end}; it has no successor: {error}"))),
        }
        Ok(())
    }

    /// There is a successor.
    fn welcome(&self, state: &mut State, dead: &Link, link: &Link, end: &str) {
        state.stage = Stage::Calm;
        state.successors = state.successors.saturating_add(1);
        if state.has_told_payload {
            state.former.push(Arc::clone(&dead.slots));
        }
        let Place { epoch, batch, .. } = link.place();
        let (old, new) = (dead.welcome.pid, link.welcome.pid);
        let at_what = state.deaths.last().map_or_else(String::new, |words| format!("{words}; "));
        let started = if state.is_service { "which was started again" } else { "a new one" };
        state.is_service = is_service(&self.options, &link.welcome);
        if state.news.len() < NEWS_MAX {
            let differs = match &self.by_cache {
                Some(what) => format!(
                    "; {what}, which is empty now, so that samples may come otherwise than without this"
                ),
                None => String::new(),
            };
            let goes_on = format!(
                "job {:?} goes on at batch {batch} of epoch {epoch} as if nothing had happened, except that the cache \
                 begins empty and figures count since then{differs}",
                link.welcome.job
            );
            let text = if dead.dialogue.was_replaced() {
                format!(
                    "the daemon (process {old}) was replaced by process {new} (shade-load serve --replace): {goes_on}"
                )
            } else {
                format!(
                    "the daemon (process {old}) is gone, and process {new}, {started}, has taken its place: {goes_on}. How \
                     it ended: {at_what}{end}"
                )
            };
            // Names in the log are a stranger's, and this goes to a terminal.
            state.news.push(Lines(text).to_string());
        }
    }

    /// How to find or start the successor of the daemon that has said `welcome`.
    fn options_of_heir(&self, is_service: bool, welcome: &Welcome) -> Options {
        let mut options = self.options.clone();
        if is_service {
            // Who has started the daemon starts its successor.
            options.launch = None;
            options.timeout = options.timeout.min(RESTART_PATIENCE);
        } else if let Ok(settings) = Settings::new(welcome.settings.clone()) {
            // Not this rank's own: other jobs need what the daemon had.
            options.launch.iter_mut().for_each(|launch| launch.settings = settings.clone());
            options.settings = settings;
        }
        options
    }
}

/// Replaces daemons that die also while the rank calls nothing, as it computes, validates or has
/// all of its batches: the others wait for it. The thread ends with the session, or with a daemon
/// that is not replaced, which the next call tells.
pub(crate) fn watch(link: Weak<Mutex<Arc<Link>>>, succession: Weak<Succession>) {
    let goes_on = move || -> Option<()> {
        // Held for this line only: it is the session's.
        let daemon = link.upgrade().map(|link| Arc::downgrade(&*lock(&link)))?;
        // Where only the daemon is gone, the rank has replaced it: that one is watched next.
        let Some(watched) = daemon.upgrade() else { return Some(()) };
        // Nobody is kept from leaving by this copy: the daemon is told so by a message.
        let socket = watched.dialogue.socket().try_clone().ok()?;
        drop(watched);
        while !hangs_up_within(&socket, WATCH) {
            let (link, Some(daemon)) = (link.upgrade()?, daemon.upgrade()) else { return Some(()) };
            if !Arc::ptr_eq(&lock(&link), &daemon) {
                return Some(());
            }
        }
        drop(socket);
        let (link, succession) = (link.upgrade()?, succession.upgrade()?);
        let Some(daemon) = daemon.upgrade() else { return Some(()) };
        // It may have said that it was stopped.
        let _ = daemon.dialogue.listen();
        // In slices, so that a session that is closed meanwhile is not waited for here.
        succession.advance(&link, &daemon, daemon.dialogue.gone(), SLICE).ok().map(drop)
    };
    // Without the thread a rank notices a death when it asks for something.
    let _ = std::thread::Builder::new()
        .name("shade-watch".to_owned())
        .spawn(move || while goes_on().is_some() {});
}

/// Whether somebody else starts the successor of the daemon that has said `welcome`.
fn is_service(options: &Options, welcome: &Welcome) -> bool {
    let lingers = welcome.settings.get("linger").and_then(serde_json::Value::as_str);
    lingers == Some(LINGERS_FOR_EVER) || options.launch.is_none()
}

/// There is no successor.
fn over(state: &mut State, text: String) -> String {
    state.stage = Stage::Over(text.clone());
    text
}

/// What of a job goes by what is cached, if anything does.
fn what_goes_by_the_cache(spec: &JobSpec, policy: &str) -> Option<String> {
    if spec.plan.depends_on_residents() {
        return Some("rep, pace, or the order goes by the cache".to_owned());
    }
    let exchanges = spec.admit && EXCHANGING.contains(&policy);
    exchanges.then(|| format!("the policy {policy} exchanges samples by what is cached"))
}

/// What a rank tells each daemon after the hello.
struct Told {
    seats: Option<Vec<u8>>,
    /// Samples whose decoders have ended daemons.
    avoided: Vec<u32>,
    /// Bytes of the cache, if it was given others than it began with.
    cache_bytes: Option<u64>,
}

/// A successor.
struct Heir {
    attached: Attached,
    /// Why the cache has another size.
    complaint: Option<String>,
}

/// Finds the daemon that serves the dataset now, or starts one, and attaches to it. A store that is
/// away, as one that has died with the daemon, is waited for.
fn find(hello: &Hello, options: &Options, content: Content, told: &Told) -> Result<Heir, ClientError> {
    let started = Instant::now();
    loop {
        let error = match find_now(hello, options, content, told) {
            Err(error @ (ClientError::Index(_) | ClientError::Launch { .. })) => error,
            found => return found,
        };
        // A daemon that could not start may have missed the store, too.
        let is_away = matches!(error, ClientError::Index(_)) || Content::now(&hello.dataset).is_err();
        if !is_away || started.elapsed() >= STORE_PATIENCE {
            return Err(error);
        }
        std::thread::sleep(STORE_LOOK);
    }
}

fn find_now(hello: &Hello, options: &Options, content: Content, told: &Told) -> Result<Heir, ClientError> {
    let check = |now: Content| {
        let text = "the dataset was added to or replaced since, so the plan would be another".to_owned();
        if now.id == content.id { Ok(()) } else { Err(ClientError::Failed { text }) }
    };
    // Before one is started in vain.
    check(Content::now(&hello.dataset)?)?;
    let attached = attach(hello.owner, hello.spec().fields.clone(), open(hello, options)?)?;
    check(attached.welcome.content)?;
    attached.dialogue.offer_stderr();
    if !told.avoided.is_empty() {
        attached.dialogue.tell("avoid", &Request::Avoid { samples: told.avoided.clone() })?;
    }
    if let Some(seats) = &told.seats {
        let file = memfd::holding("shade-state", seats);
        let fd = file.map_err(|error| ClientError::NoState { error })?;
        attached.dialogue.ask("seat", &Request::Seat, Some(&fd), |(reply, _)| match reply {
            Reply::Taken => Ok(()),
            other => Err(other),
        })?;
    }
    let complaint = told.cache_bytes.and_then(|bytes| resize(&attached, bytes).err());
    Ok(Heir { attached, complaint })
}

/// Gives the cache of a successor the size that it had before. The error is for people: the
/// training goes on without.
fn resize(attached: &Attached, cache_bytes: u64) -> Result<(), String> {
    let request = Request::ResizeAgain { cache_bytes };
    let resized = attached.dialogue.ask("resize_cache", &request, None, |(reply, _)| match reply {
        Reply::Resized { .. } => Ok(()),
        other => Err(other),
    });
    resized.map_err(|error| {
        let pid = attached.welcome.pid;
        format!("the cache of the daemon (process {pid}) does not have the size of {cache_bytes} bytes again: {error}")
    })
}

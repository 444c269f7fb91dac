//! Finds the daemon of a dataset, or starts one, and checks its identity.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shade_dataset::Content;
use shade_formats::control::{
    PROTOCOL, REFUSE_BUSY, REFUSE_ENDING, REFUSE_REPLACED, REFUSE_STOPPED, Reply, Request, socket_name,
};
use shade_job::Settings;

use crate::error::argument;
use crate::hello::Hello;
use crate::launch::{Launched, Outcome};
use crate::life::life_of;
use crate::wire::{Received, WireError, receive, send};
use crate::{ClientError, Launch};

/// How to find the daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// A socket in the file system; `None` is the abstract name that follows from user and dataset.
    pub socket: Option<PathBuf>,
    /// How to start a private daemon when none answers; `None`: report an error instead.
    pub launch: Option<Launch>,
    /// How long to try. A private daemon opens the index first, which takes seconds for large
    /// datasets on slow stores.
    pub timeout: Duration,
    /// The requested settings, which `launch` also has. An unused private daemon with other
    /// settings makes room for a new one. See [`Session::settings`](crate::Session::settings). A
    /// successor has those of the daemon before it.
    pub settings: Settings,
    /// For a job of one rank: take the next free name if another training has the job's. See
    /// [`Session::job`](crate::Session::job).
    pub or_free_name: bool,
    /// A daemon that dies is replaced under the running job, where that gives the same batches:
    /// by a private daemon that is started, or by the one that somebody starts again. Else its end
    /// is [`ClientError::DaemonGone`].
    pub survive: bool,
    /// How many daemons of a rank may die within an hour: one more, and it is not replaced.
    pub deaths_max: u32,
}

/// The default of [`Options::deaths_max`]: one every three minutes. Each makes the training wait
/// for a cache that fills again.
const DEATHS_MAX: u32 = 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            socket: None,
            launch: None,
            timeout: Duration::from_secs(60),
            settings: Settings::default(),
            or_free_name: false,
            survive: true,
            deaths_max: DEATHS_MAX,
        }
    }
}

/// Longest wait for room in the socket when sending: the daemon reads at once unless it is in
/// trouble.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause between two tries to connect. The first is short because a daemon is up
/// in milliseconds.
const RETRY: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));

/// How long to ask again for a taken rank: the daemon may not have noticed yet that its trainer was
/// killed.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Greetings that end in a hang-up before we give up. A daemon that is just ending hangs up once,
/// and so may one or two that were started in vain. More often means that it refuses or crashes.
const HANG_UPS_MAX: u32 = 5;

/// A daemon's address.
pub(crate) struct Place {
    address: SocketAddrUnix,
    /// For messages.
    name: String,
}

/// An open session's socket and the daemon's first message.
pub(crate) struct Connected {
    pub(crate) socket: OwnedFd,
    pub(crate) welcome: Received,
    pub(crate) name: String,
    /// The dataset's content when the session was opened.
    pub(crate) content: Content,
}

/// Connects, starting a daemon if needed, and returns its `Welcome` to `hello`.
pub(crate) fn open(hello: &Hello, options: &Options) -> Result<Connected, ClientError> {
    let place = place(&hello.dataset, options.socket.as_deref())?;
    let started = Instant::now();
    let deadline = started.checked_add(options.timeout).unwrap_or(started);
    let mut launch = options.launch.as_ref();
    let mut launched: Option<Launched> = None;
    let mut pause = RETRY.0;
    let mut busy_since = None;
    let mut hang_ups = 0;
    // The last refusal of a daemon that was ending: a better reason than that none has answered
    // since.
    let mut refused: Option<String> = None;
    loop {
        // Read each time: the dataset may be replaced meanwhile, and a daemon that starts now opens
        // the new one.
        let content = Content::now(&hello.dataset)?;
        let text = match greet(&place, &hello.request(content, &options.settings)?, hello.file(), deadline) {
            Ok(Greeting::Welcome(socket, welcome)) => {
                return Ok(Connected { socket, welcome, name: place.name, content });
            }
            Ok(Greeting::Nobody(text)) => text,
            Ok(Greeting::HungUp(pid)) => {
                hang_ups += 1;
                if hang_ups >= HANG_UPS_MAX {
                    let end = life_of(pid).map_or_else(String::new, |life| format!("; {}", life.end()));
                    let daemon = format!("{}{end}", described(pid));
                    return Err(ClientError::HungUp { socket: place.name, times: hang_ups, daemon });
                }
                "it hung up on our greeting".to_owned()
            }
            Err(ClientError::Refused { code: REFUSE_ENDING | REFUSE_STOPPED, text, .. }) => {
                refused.insert(text).clone()
            }
            Err(ClientError::Refused { code: REFUSE_REPLACED, text, .. }) => {
                // Who takes its place is about to answer.
                launch = None;
                refused.insert(text).clone()
            }
            Err(ClientError::Refused { code: REFUSE_BUSY, .. })
                if busy_since.get_or_insert_with(Instant::now).elapsed() < BUSY_PATIENCE =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(RETRY.1);
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(launch) = launch
            && (launched.is_some() || Instant::now() < deadline)
        {
            launched = keep_launched(launch, launched, &place)?;
        }
        let now = Instant::now();
        if now >= deadline {
            let text = refused.unwrap_or(text);
            let text = match (launch, &launched) {
                (Some(launch), Some(_)) => {
                    format!("{text}; {} was started and is not ready", launch.binary.display())
                }
                _ => text,
            };
            return Err(ClientError::NoDaemon { socket: place.name, waited: now - started, text });
        }
        match &mut launched {
            // It reports when it is ready; another daemon may be ready before.
            Some(daemon) => daemon.wait(pause.min(deadline - now)),
            None => std::thread::sleep(pause.min(deadline - now)),
        }
        pause = (pause * 2).min(RETRY.1);
    }
}

/// Starts a daemon unless one of ours is coming up, and returns its failure.
fn keep_launched(
    launch: &Launch,
    launched: Option<Launched>,
    place: &Place,
) -> Result<Option<Launched>, ClientError> {
    let failed = |text: String, is_silent: bool| {
        let (binary, socket) = (launch.binary.clone(), place.name.clone());
        ClientError::Launch { binary, socket, text, is_silent }
    };
    match launched {
        None => launch.start().map(Some).map_err(|error| failed(error.to_string(), false)),
        Some(mut daemon) => match daemon.outcome() {
            None => Ok(Some(daemon)),
            // Lost: the winner is about to answer. Ready: ours is. If it ends first, because its
            // last session has just left, the next round starts another.
            Some(Outcome::Lost | Outcome::Ready) => Ok(None),
            Some(Outcome::Failed(text)) => Err(failed(text, false)),
            Some(Outcome::Silent(text)) => Err(failed(text, true)),
            Some(Outcome::Killed { pid, end }) => {
                Err(ClientError::DaemonGone { pid, end: format!("while it came up, {end}") })
            }
        },
    }
}

pub(crate) enum Greeting {
    Welcome(OwnedFd, Received),
    /// No daemon listens or answers.
    Nobody(String),
    /// This process hung up without a message, as a daemon does that is just ending.
    HungUp(u32),
}

/// One attempt to open a session, or to ask a question.
pub(crate) fn greet(
    place: &Place,
    hello: &Request,
    file: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> Result<Greeting, ClientError> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(ClientError::system("making a socket"))?;
    // Also applies to connecting, which waits while the daemon's queue is full.
    set_socket_timeout(&socket, Timeout::Send, Some(SEND_TIMEOUT))
        .map_err(ClientError::system("setting a socket's timeout"))?;
    match connect(&socket, &place.address) {
        Ok(()) => {}
        Err(error @ (Errno::CONNREFUSED | Errno::NOENT | Errno::AGAIN | Errno::INTR)) => {
            return Ok(Greeting::Nobody(error.to_string()));
        }
        Err(source) => return Err(ClientError::System { what: "connecting to the daemon", source }),
    }
    let pid = check_peer(&socket, place)?;
    let answer = match send(&socket, hello, file, SendFlags::empty()) {
        // A daemon that hung up before reading may have sent a reason.
        Ok(()) | Err(WireError::HangUp) => receive(&socket, deadline),
        Err(error) => Err(error),
    };
    match answer {
        Ok((Reply::Refuse { code, text }, _)) => {
            Err(ClientError::Refused { socket: place.name.clone(), code, text })
        }
        Ok(welcome) => Ok(Greeting::Welcome(socket, welcome)),
        Err(WireError::HangUp) => Ok(Greeting::HungUp(pid)),
        Err(WireError::Protocol(got)) => Err(ClientError::Version {
            socket: place.name.clone(),
            got,
            expected: PROTOCOL,
            daemon: described(pid),
        }),
        Err(WireError::TimedOut | WireError::Interrupted) => {
            Ok(Greeting::Nobody("it accepts but does not answer".to_owned()))
        }
        Err(WireError::Format(error)) => Err(error.into()),
        Err(WireError::System(source)) => Err(ClientError::System { what: "greeting the daemon", source }),
    }
}

/// A daemon's process and program. In another PID namespace it has no process id here.
fn described(pid: u32) -> String {
    if pid == 0 {
        return "the daemon runs in another PID namespace".to_owned();
    }
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let program = program.map_or_else(|_| String::new(), |path| format!(", started from {}", path.display()));
    format!("the daemon is process {pid}{program}")
}

/// Checks that the daemon belongs to our user, as anyone may bind an abstract name. Returns its
/// process id, or 0 in another PID namespace, which rustix cannot represent.
fn check_peer(socket: &OwnedFd, place: &Place) -> Result<u32, ClientError> {
    let peer = getsockopt(socket, sockopt::PeerCredentials).map_err(|error| {
        ClientError::system("asking who serves the socket")(Errno::from_raw_os_error(error as i32))
    })?;
    let (got, expected) = (peer.uid(), rustix::process::geteuid().as_raw());
    if got != expected {
        return Err(ClientError::Foreign { socket: place.name.clone(), got, expected });
    }
    Ok(peer.pid().cast_unsigned())
}

pub(crate) fn place(dataset: &Path, socket: Option<&Path>) -> Result<Place, ClientError> {
    let unfit = |name: &str| argument("Daemon(socket=...)", name, "a path of at most 107 bytes");
    match socket {
        Some(path) => {
            let name = path.display().to_string();
            let address = SocketAddrUnix::new(path).map_err(|_| unfit(&name))?;
            Ok(Place { address, name: format!("socket {name}") })
        }
        None => {
            let name = socket_name(rustix::process::geteuid().as_raw(), dataset);
            let text = String::from_utf8_lossy(&name).into_owned();
            let address = SocketAddrUnix::new_abstract_name(&name).map_err(|_| unfit(&text))?;
            Ok(Place { address, name: format!("socket @{text} (dataset {})", dataset.display()) })
        }
    }
}

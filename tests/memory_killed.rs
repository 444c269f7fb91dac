//! Where memory ends, the kernel kills the daemon and not the trainer, which goes on in the next
//! one and says so; and a next one that does not fit says that.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shade_client::{ClientError, JobSpec, Launch, Next, Options, Session, Settings};
use shade_tests::{Packed, eventually, is_gone, left_out, program, spec};

/// Ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;

/// A control group of this test, with a limit of memory. It is removed when it is dropped.
struct Group {
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
    no_limit: &'static str,
}

impl Group {
    /// `None` where this process may make none, as without root.
    fn make(name: &str) -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let mut tried = Vec::new();
        for line in groups.lines() {
            let (_, line) = line.split_once(':').unwrap();
            let (controllers, group) = line.split_once(':').unwrap();
            let group = Path::new(group.trim_start_matches('/'));
            let (mount, limit, used, no_limit) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max", "memory.current", "max"),
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"),
                _ => continue,
            };
            // Version 2 has no group with a limit beside processes.
            for above in group.ancestors() {
                let folder =
                    Path::new(mount).join(above).join(format!("shade-{name}-{}", std::process::id()));
                if let Err(error) = std::fs::create_dir(&folder) {
                    tried.push(format!("{}: {error}", folder.display()));
                } else if folder.join(limit).exists() {
                    return Some(Self { folder, limit, used, no_limit });
                } else {
                    tried.push(format!("{} has no {limit}", folder.display()));
                    std::fs::remove_dir(&folder).unwrap();
                }
            }
        }
        left_out(&format!("no control group with a limit of memory can be made here: {}", tried.join("; ")));
        None
    }

    fn used_bytes(&self) -> usize {
        std::fs::read_to_string(self.folder.join(self.used)).unwrap().trim().parse().unwrap()
    }

    fn limit_to(&self, limit: &str) {
        std::fs::write(self.folder.join(self.limit), limit).unwrap();
    }

    /// Shell words that take a process into the group.
    fn enter(&self) -> String {
        format!("echo $$ > {}", self.folder.join("cgroup.procs").display())
    }

    /// A process of the group that has this memory, and asks for more with every byte.
    fn process(&self, bytes: usize) -> Process {
        let mut command = Command::new("sh");
        // It keeps the last lines, so all that comes without a line's end.
        command.arg("-c").arg(format!("{} && exec tail", self.enter()));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut process = Process(child);
        process.take(bytes);
        process
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        eventually("the group is empty", || std::fs::remove_dir(&self.folder).is_ok());
    }
}

struct Process(Child);

impl Process {
    fn take(&mut self, bytes: usize) {
        let zeros = vec![b'0'; MIB];
        for _ in 0..bytes / MIB {
            // Less, if it is killed.
            if self.0.stdin.as_mut().unwrap().write_all(&zeros).is_err() {
                break;
            }
        }
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Daemons by a program that runs these shell words first.
fn options_after(packed: &Packed, words: &str) -> Options {
    let script = packed.beside("daemon.sh");
    let text = format!("#!/bin/sh\n{words}\nexec {} \"$@\"\n", program("shade-load").display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = Settings::from_text(r#"{"linger": 0.2, "cache": "100%"}"#).unwrap();
    let launch = Some(Launch::new(script, &packed.dataset, None, &settings));
    Options { launch, settings, timeout: Duration::from_secs(60), ..Options::default() }
}

fn connect(packed: &Packed, options: &Options) -> Session {
    let job = JobSpec { ring_bytes: 1 << 20, ..spec(6, 1) };
    let session = Session::connect(&packed.dataset, "job", 0, job, options).unwrap();
    session.start_epoch(0, 0).unwrap();
    session
}

/// The rest of the epoch: how many batches.
fn take_rest(session: &Session) -> Result<u32, ClientError> {
    let (started, mut batches) = (Instant::now(), 0);
    loop {
        match session.next(Duration::from_millis(100))? {
            Next::Batch(_) => batches += 1,
            Next::EpochEnd => return Ok(batches),
            Next::Pending => assert!(started.elapsed() < PATIENCE, "no batch within {PATIENCE:?}"),
        }
    }
}

#[test]
fn the_daemon_is_killed_and_not_the_trainer_which_goes_on_and_says_why() {
    let Some(group) = Group::make("killed") else { return };
    let packed = Packed::mixed(33);
    let go = packed.beside("go");
    std::fs::write(&go, "").unwrap();
    // A successor waits until there is memory again.
    let words = format!("while [ ! -e {} ]; do sleep 0.01; done\n{}", go.display(), group.enter());
    let session = connect(&packed, &options_after(&packed, &words));
    assert!(matches!(session.next(PATIENCE).unwrap(), Next::Batch(_)));
    // What a trainer has beside it: much more.
    let mut trainer = group.process(200 * MIB);
    eventually("it has its memory", || group.used_bytes() >= 200 * MIB);
    let daemon = session.daemon_pid();
    std::fs::remove_file(&go).unwrap();
    group.limit_to(&(group.used_bytes() + 2 * MIB).to_string());
    trainer.take(4 * MIB);
    eventually("the daemon is killed", || is_gone(daemon));
    assert!(trainer.is_alive());
    group.limit_to(group.no_limit);
    std::fs::write(&go, "").unwrap();
    session.stats().unwrap();
    assert_eq!(take_rest(&session).unwrap() + 1, session.batches_per_epoch());
    let told = session.take_warning().unwrap();
    let file = group.folder.join("memory.");
    assert!(told.contains(&format!("killed for memory, as {}", file.display())), "{told}");
    assert_eq!((session.take_warning(), session.successors()), (None, 1));
    // By hand it has the score that its parent has given it.
    let score = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score(session.daemon_pid()).trim(), "1000");
    let by_hand = shade_tests::Daemon::start(&Packed::mixed(3).dataset, &[]);
    assert_eq!(score(by_hand.pid()), score(std::process::id()));
}

#[test]
fn a_successor_that_does_not_fit_says_so() {
    let Some(group) = Group::make("unfit") else { return };
    // 80 MB.
    let packed = Packed::pngs(33, 512);
    let small = packed.beside("small");
    let words = format!("if [ -e {} ]; then {}; fi", small.display(), group.enter());
    let session = connect(&packed, &options_after(&packed, &words));
    group.limit_to(&(40 * MIB).to_string());
    std::fs::write(&small, "").unwrap();
    let daemon = session.daemon_pid();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(daemon.cast_signed()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let error = take_rest(&session).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::DaemonGone { .. }), "{text}");
    let parts = ["it has no successor", "of memory", "--cache"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

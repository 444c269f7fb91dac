//! A daemon's log is best effort: training goes on if the reader of standard error is gone or
//! asleep, or has no room.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use shade_client::{ClientError, JobSpec, OnError};
use shade_tests::{Daemon, Packed, attach, eventually, next, program, sorted_ids, spec, take_epoch};

/// One of 102 samples.
const BAD: u32 = 40;

/// A daemon with this standard error. It is killed when dropped.
struct Serving(Child);

impl Serving {
    fn with_stderr(packed: &Packed, stderr: impl Into<Stdio>) -> Self {
        let mut command = Command::new(program("shade-load"));
        command.arg("serve").arg(&packed.dataset).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.stderr(stderr).spawn().unwrap())
    }

    fn ends_by_sigterm(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let mut status = None;
        eventually("SIGTERM ends it", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn skipping() -> JobSpec {
    JobSpec { on_error: OnError::Skip, ..spec(8, 1) }
}

/// Two epochs, whole except for the bad sample, which the daemon logs.
fn train(packed: &Packed) {
    let session = attach(&packed.dataset, 0, skipping());
    for epoch in 0..2 {
        let ids = sorted_ids(&take_epoch(&session, epoch).unwrap());
        assert!(ids.into_iter().eq((0..102).filter(|&id| id != BAD)));
    }
}

fn bad() -> Packed {
    let packed = Packed::mixed(33);
    packed.damage(BAD);
    packed
}

#[test]
fn who_read_it_is_gone() {
    let packed = bad();
    let (reader, writer) = io::pipe().unwrap();
    let daemon = Serving::with_stderr(&packed, OwnedFd::from(writer));
    // A reader that was there at first, as `| head` is.
    drop(reader);
    train(&packed);
    daemon.ends_by_sigterm();
}

#[test]
fn who_reads_it_is_asleep() {
    let packed = bad();
    let (reader, writer) = io::pipe().unwrap();
    fill(&writer);
    let daemon = Serving::with_stderr(&packed, OwnedFd::from(writer));
    train(&packed);
    daemon.ends_by_sigterm();
    drop(reader);
}

#[test]
fn its_disk_is_full() {
    let packed = bad();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let daemon = Serving::with_stderr(&packed, full);
    train(&packed);
    daemon.ends_by_sigterm();
}

/// Fills a pipe and leaves it blocking.
fn fill(writer: &impl AsFd) {
    let flags = fcntl_getfl(writer).unwrap();
    fcntl_setfl(writer, flags | OFlags::NONBLOCK).unwrap();
    let mut pipe = File::from(writer.as_fd().try_clone_to_owned().unwrap());
    while pipe.write(&[b'x'; 1024]).is_ok() {}
    fcntl_setfl(writer, flags).unwrap();
}

#[test]
fn bad_records_are_logged_at_a_bounded_rate_and_none_is_uncounted() {
    const TIMES_MAX: u32 = 10_000;
    let packed = bad();
    let daemon = Daemon::start(&packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, spec(102, 1));
    let name = packed.name_of(BAD);
    // A bad record and the end of its epoch are lines of two kinds.
    let lines_of = |level: &str| {
        let log = daemon.log();
        log.lines().filter(|line| line.contains(level)).map(str::to_owned).collect::<Vec<_>>()
    };
    let told = |level: &str| lines_of(level).iter().filter(|line| line.contains(&name)).count();
    let left_out = |level: &str| -> usize {
        let of_line = |line: &String| {
            let words = [" lines like this one were left out", " more lines about epochs that failed"];
            let before = words.iter().find_map(|words| line.split_once(words))?.0;
            before.rsplit([' ', '(']).next()?.parse::<usize>().ok()
        };
        lines_of(level).iter().filter_map(of_line).sum()
    };
    let mut times = 0;
    // Faster than lines may come: a hundred, and then one a second.
    while left_out("ERROR") == 0 {
        assert!(times < TIMES_MAX, "each of {times} has its line");
        for epoch in times..times + 50 {
            session.start_epoch(epoch, 0).unwrap();
            assert!(matches!(next(&session), Err(ClientError::Record { .. })));
        }
        times += 50;
    }
    eventually("what is missing is counted", || told("ERROR") + left_out("ERROR") == times as usize);
    assert!(told("WARN") < times as usize, "{} of {times} lines", told("WARN"));
    assert!((100..times as usize).contains(&told("ERROR")), "{} of {times} lines", told("ERROR"));
}

#[test]
fn bad_records_do_not_hide_the_end_of_their_epoch() {
    let packed = Packed::mixed(65);
    let all = u32::try_from(packed.len()).unwrap();
    // More than the log takes at once.
    (0..150).for_each(|sample| packed.damage(sample));
    let daemon = Daemon::start(&packed.dataset, &[]);
    let job = JobSpec { on_error: OnError::Skip, bad_max: 140.0 / f64::from(all), ..spec(1, 1) };
    let session = attach(&packed.dataset, 0, job);
    let error = take_epoch(&session, 0).unwrap_err();
    let ClientError::Record { text } = error else { panic!("{error}") };
    assert!(text.contains("bad_max"), "{text}");
    eventually("the log has it, too", || daemon.log().contains(&text));
}

#[test]
fn nobody_waits_for_the_line_that_says_ready() {
    let packed = Packed::mixed(3);
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(program("shade-load"));
    command.arg("serve").arg(&packed.dataset).args(["--private", "--linger", "100ms"]);
    let mut child = Serving(
        command.stdin(Stdio::null()).stdout(OwnedFd::from(writer)).stderr(Stdio::piped()).spawn().unwrap(),
    );
    let mut log = child.0.stderr.take().unwrap();
    // It serves nevertheless: another trainer may have found it. That has the rest of the log.
    drop(attach(&packed.dataset, 0, spec(4, 1)));
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

/// The rank that started a private daemon reads its standard output, or does not.
#[test]
fn who_started_it_can_make_its_output_block_and_stops_nobody() {
    let packed = bad();
    let (reader, writer) = io::pipe().unwrap();
    let (log, stderr) = io::pipe().unwrap();
    let mut command = Command::new(program("shade-load"));
    command.args(["serve", "--private"]).arg(&packed.dataset).stdin(Stdio::null());
    command.stdout(OwnedFd::from(writer.try_clone().unwrap())).stderr(OwnedFd::from(stderr));
    let daemon = Serving(command.spawn().unwrap());
    let mut lines = io::BufReader::new(&reader).lines();
    assert!(lines.by_ref().map(Result::unwrap).any(|line| line.contains("\"ready\":true")));
    eventually("the log is copied", || fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK));
    // It is full, and from now on a write into it waits without end.
    fill(&writer);
    fcntl_setfl(&writer, fcntl_getfl(&writer).unwrap() - OFlags::NONBLOCK).unwrap();
    train(&packed);
    daemon.ends_by_sigterm();
    drop((reader, log));
}

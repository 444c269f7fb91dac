//! Clients that break the rules lose their connection, and nobody else loses anything.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, ftruncate, memfd_create};
use rustix::io::ioctl_fionbio;
use rustix::process::Signal;
use shade_client::{ClientError, JobSpec, PlanSpec, Sampler, Session};
use shade_formats::control::{
    PROTOCOL, REFUSE_BUSY, REFUSE_DATASET, REFUSE_PROTOCOL, REFUSE_RESOURCES, REFUSE_SPEC, Reply, Request,
};
use shade_formats::limits::{AVOIDED_MAX, JOB_NAME_BYTES_MAX, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use shade_formats::ring::{CLIENT_SEGMENT_BYTES, WAITING};
use shade_tests::{
    Daemon, Packed, Peer, attach, attach_when_free, copy, eventually, next, noise, program, spec, stats,
    take_epoch, take_rest, try_attach,
};

fn refused(peer: &Peer, hello: &Request) -> (u16, String) {
    assert!(peer.ask(hello));
    match peer.receive() {
        Some((Reply::Refuse { code, text }, fds)) => {
            assert!(fds.is_empty());
            assert!(peer.receive().is_none(), "and hangs up");
            (code, text)
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Waits until the daemon hangs up, whatever it says before.
fn is_hung_up_on(peer: &Peer) {
    while peer.receive().is_some() {}
}

/// A session of a good client in the middle of an epoch; after the abuse it must get the rest.
struct Witness {
    session: Session,
    ids: Vec<u32>,
}

impl Witness {
    fn of(packed: &Packed, job: JobSpec) -> Self {
        let session = attach(&packed.dataset, 0, job.clone());
        session.start_epoch(0, 0).expect("the daemon listens");
        Self { session, ids: Vec::new() }
    }

    fn take_one(&mut self) {
        let batch = next(&self.session).expect("undisturbed").expect("not at the end yet");
        self.ids.extend(copy(&batch).ids);
    }

    fn take_rest(mut self) -> (Session, Vec<u32>) {
        for batch in take_rest(&self.session).expect("undisturbed") {
            self.ids.extend(batch.ids);
        }
        self.ids.sort_unstable();
        (self.session, self.ids)
    }

    /// Attaches as rank 1. Both ranks must get the whole epoch.
    fn ends_beside_a_good_rank(self, packed: &Packed, job: JobSpec) {
        let good = attach(&packed.dataset, 1, job.clone());
        let its = take_epoch(&good, 0).expect("undisturbed");
        let (_session, mut ids) = self.take_rest();
        ids.extend(its.into_iter().flat_map(|batch| batch.ids));
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..102), "both ranks get their halves");
    }
}

#[test]
fn hellos_that_are_none_and_hellos_that_are_wrong() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let mut witness = Witness::of(&packed, spec(4, 1));
    let connect = || Peer::connect(&packed.dataset);

    for seed in 0..50 {
        let peer = connect();
        let len = usize::try_from(seed * 97 % 2000).unwrap() + 1;
        assert!(peer.send(&noise(seed, len), None));
        is_hung_up_on(&peer);
    }
    // A hello with one wrong byte is refused or dropped. Where the byte is a free choice, such as
    // the seed, it is still a second rank of the job.
    let peer = connect();
    let hello = peer.hello(0, spec(4, 1)).encode();
    for at in 0..hello.len() {
        let peer = connect();
        let mut bytes = hello.clone();
        bytes[at] ^= 0x81;
        assert!(peer.send(&bytes, None));
        match peer.receive() {
            None | Some((Reply::Refuse { .. }, _)) => is_hung_up_on(&peer),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    witness.take_one();
    for request in [
        Request::Stats,
        Request::SaveState { epoch: 0, batch: 0 },
        Request::StartEpoch { generation: 1, epoch: 0, first_batch: 0, has_taken: false },
    ] {
        assert_eq!(refused(&connect(), &request).0, REFUSE_PROTOCOL, "{request:?}");
    }
    let hello = |change: &dyn Fn(&mut String, &mut String)| {
        let mut hello = connect().hello(0, spec(4, 1));
        if let Request::Hello { dataset, job, .. } = &mut hello {
            change(dataset, job);
        }
        hello
    };
    let (code, text) = refused(&connect(), &hello(&|dataset, _| dataset.push_str("-elsewhere")));
    assert_eq!(code, REFUSE_DATASET);
    let served = packed.dataset.display().to_string();
    assert!(text.contains(&served) && text.contains(&format!("{served}-elsewhere")), "{text}");
    let (code, text) = refused(&connect(), &hello(&|_, job| *job = "j".repeat(JOB_NAME_BYTES_MAX + 1)));
    assert!(code == REFUSE_PROTOCOL && text.contains("length 257"), "{text}");

    let too_large = vec![0; MESSAGE_BYTES_MAX + 1];
    let peer = connect();
    if peer.send(&too_large, None) {
        is_hung_up_on(&peer);
    }
    assert!(daemon.is_alive());
    assert!(witness.take_rest().1.into_iter().eq(0..102));
}

#[test]
fn another_version_is_told_whatever_it_says_behind_its_protocol() {
    let packed = Packed::mixed(3);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let opening = |tag: u16, version: u16, protocol: u32, rest: &[u8]| {
        [&tag.to_le_bytes()[..], &version.to_le_bytes(), &protocol.to_le_bytes(), rest].concat()
    };
    let said = |bytes: &[u8]| {
        let peer = Peer::connect(&packed.dataset);
        assert!(peer.send(bytes, None));
        match peer.receive() {
            Some((Reply::Refuse { code, text }, _)) => {
                is_hung_up_on(&peer);
                (code, text)
            }
            other => panic!("not refused: {other:?}"),
        }
    };
    let program = program("shade-load").canonicalize().unwrap();
    let process = format!("process {}, started from {}", daemon.pid(), program.display());
    // Hello, Observe, Status, Stop, Resize and Held of later and earlier protocols: shorter,
    // longer, with another version of the message.
    for tag in [1, 9, 10, 11, 12, 14] {
        for rest in [&[][..], &noise(3, 20), &noise(4, 5000)] {
            for (version, protocol) in [(1, PROTOCOL + 1), (2, PROTOCOL + 1), (1, PROTOCOL - 1)] {
                let (code, text) = said(&opening(tag, version, protocol, rest));
                assert_eq!(code, REFUSE_PROTOCOL, "{text}");
                for part in [&format!("protocol {PROTOCOL}"), &format!("client {protocol}"), &process] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
        // Our protocol, but the message cannot be read.
        let (code, text) = said(&opening(tag, 1, PROTOCOL, &noise(5, 40)));
        assert!(code == REFUSE_PROTOCOL && text.contains(" at byte "), "{text}");
    }
    drop(daemon);
}

#[test]
fn memory_that_is_not_to_be_had_is_a_refusal_with_its_reason() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")).unwrap();
    let size: u64 = size.trim().parse().unwrap();
    // Enough for a session's thread, too little for its ring.
    let limit = Some(size * 1024 + (256 << 20));
    let process = rustix::process::Pid::from_raw(daemon.pid().cast_signed());
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::prlimit(process, rustix::process::Resource::As, limit).unwrap();
    let job = JobSpec { ring_bytes: 4 << 30, ..spec(4, 1) };
    match try_attach(&packed.dataset, 0, job.clone()) {
        Err(ClientError::Refused { code: REFUSE_RESOURCES, text, .. }) => {
            assert!(
                text.contains("4294967296 bytes") && text.contains("lower Daemon(ring=...) or batch_size"),
                "{text}"
            );
            assert!(
                text.contains("RLIMIT_AS") && text.matches("bytes").count() == 2,
                "each of both once: {text}"
            );
        }
        other => panic!("not refused: {other:?}"),
    }
    // The rank's place is free again.
    assert_eq!(take_epoch(&attach(&packed.dataset, 0, spec(4, 1)), 0).unwrap().len(), 3);
    assert!(daemon.is_alive());
}

#[test]
fn ranks_that_are_taken_or_ask_for_something_else() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let mut witness = Witness::of(&packed, spec(4, 1));
    let code_of = |refused: Result<Session, ClientError>| match refused {
        Err(ClientError::Refused { code, text, .. }) => (code, text),
        other => panic!("not refused: {other:?}"),
    };
    let (code, text) = code_of(try_attach(&packed.dataset, 0, spec(4, 1)));
    assert_eq!(code, REFUSE_BUSY);
    assert!(text.contains("rank 0") && text.contains("job"), "{text}");
    let (code, text) = code_of(try_attach(&packed.dataset, 0, spec(5, 1)));
    assert_eq!(code, REFUSE_BUSY);
    assert!(text.contains("job"), "{text}");
    let peer = Peer::connect(&packed.dataset);
    assert_eq!(refused(&peer, &peer.hello(7, spec(4, 1))).0, REFUSE_SPEC, "no such rank");
    let peer = Peer::connect(&packed.dataset);
    assert_eq!(refused(&peer, &peer.hello(0, spec(0, 1))).0, REFUSE_SPEC, "batches of nothing");
    witness.take_one();
    assert!(witness.take_rest().1.into_iter().eq(0..102));
    drop(daemon);
}

#[test]
fn a_client_that_says_nothing_blocks_nobody() {
    let packed = Packed::mixed(10);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let idle = daemon.session_resources();
    let silent: Vec<Peer> = (0..20).map(|_| Peer::connect(&packed.dataset)).collect();
    let session = attach(&packed.dataset, 0, spec(4, 1));
    let ids: usize = take_epoch(&session, 0).unwrap().iter().map(|batch| batch.ids.len()).sum();
    assert_eq!(ids, 33);
    drop((silent, session));
    eventually("nothing of them is left", || daemon.session_resources() <= idle);
}

#[test]
fn a_crowd_that_says_nothing_is_bounded_and_told_so() {
    /// More connections than may wait for their session.
    const CROWD: usize = 400;
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let mut witness = Witness::of(&packed, spec(4, 1));
    let crowd: Vec<Peer> = (0..CROWD).map(|_| Peer::connect(&packed.dataset)).collect();
    let last = crowd.last().unwrap();
    match last.receive() {
        Some((Reply::Refuse { code, text }, _)) => {
            assert_eq!(code, REFUSE_RESOURCES);
            assert!(text.contains("connections"), "{text}");
        }
        other => panic!("not turned away: {other:?}"),
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().count();
    assert!(threads < CROWD, "{threads} threads");
    witness.take_one();
    assert!(witness.take_rest().1.into_iter().eq(0..102));
    drop(crowd);
    let mut session = None;
    eventually("the crowd's places are free again", || {
        session = try_attach(&packed.dataset, 0, spec(4, 1)).ok();
        session.is_some()
    });
    assert!(take_epoch(&session.unwrap(), 0).is_ok());
}

#[test]
fn a_ring_larger_than_memory_is_refused_before_any_of_it_is_touched() {
    let packed = Packed::mixed(10);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let job = JobSpec { ring_bytes: PAYLOAD_BYTES_MAX, ..spec(4, 1) };
    let (code, text) = match try_attach(&packed.dataset, 0, job.clone()) {
        Err(ClientError::Refused { code, text, .. }) => (code, text),
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(code, REFUSE_RESOURCES);
    assert!(text.contains("1.00 TiB") && text.contains("at most Daemon(ring=\""), "{text}");
    // Its place is free again, and a ring of an ordinary size fits.
    let session = attach(&packed.dataset, 0, spec(4, 1));
    assert!(take_epoch(&session, 0).is_ok());
    assert!(daemon.is_alive());
}

/// Attaches by hand as rank 1 and starts the epoch. Returns the connection, the ring's client
/// segment and payload, and its end of the doorbells.
fn abuser(packed: &Packed, job: JobSpec) -> (Peer, OwnedFd, OwnedFd, OwnedFd) {
    let peer = Peer::connect(&packed.dataset);
    let fds: [OwnedFd; 4] = peer.attach(1, job.clone()).try_into().expect("four descriptors");
    let [_daemon, client, payload, doorbell] = fds;
    assert!(peer.ask(&Request::StartEpoch { generation: 1, epoch: 0, first_batch: 0, has_taken: false }));
    (peer, client, payload, doorbell)
}

#[test]
fn a_doorbell_that_is_full_and_blocks_stops_nobody() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let job = spec(4, 2);
    let mut witness = Witness::of(&packed, job.clone());
    let (peer, client, _payload, doorbell) = abuser(&packed, job.clone());
    // It always waits, so that each batch rings, and it never hears.
    rustix::io::pwrite(&client, &[1], WAITING).unwrap();
    // Whatever it can put in there, as a counter or as bytes, and then any call on it may block.
    ioctl_fionbio(&doorbell, true).unwrap();
    let _ = rustix::io::write(&doorbell, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let _ = (0..100_000).find(|_| rustix::io::write(&doorbell, &[1, 0, 0, 0, 0, 0, 0, 0]).is_err());
    ioctl_fionbio(&doorbell, false).unwrap();
    witness.take_one();
    // Other jobs train, questions are answered, and the daemon ends.
    let other = attach_when_free(&packed.dataset, "other", 0, spec(4, 1));
    assert!(take_epoch(&other, 0).is_ok());
    assert!(stats(&other)["resident"].as_u64().is_some());
    drop(other);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    drop((peer, client, doorbell, witness));
}

#[test]
fn garbage_in_the_client_segment_costs_the_session_only() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let idle = daemon.session_resources();
    let job = spec(4, 2);
    let mut witness = Witness::of(&packed, job.clone());

    // All bits are ones: more is released than was ever published.
    let (peer, client, payload, doorbell) = abuser(&packed, job.clone());
    witness.take_one();
    rustix::io::pwrite(&client, &vec![0xff; usize::try_from(CLIENT_SEGMENT_BYTES).unwrap()], 0).unwrap();
    rustix::io::pwrite(&payload, &[0xff; 4096], 0).unwrap();
    // The daemon notices after the next publish, so ring until then.
    eventually("the daemon hangs up", || {
        let _ = rustix::io::write(&doorbell, &[1]);
        !peer.ask(&Request::ReportValidation { score: 0.0 })
    });
    // A reset comes first if the daemon has not read all messages.
    let said = peer.receive().or_else(|| peer.receive());
    let Some((Reply::Failed { text }, _)) = said else { panic!("not told why: {said:?}") };
    assert!(text.contains("ends this session") && text.contains("ring release mark"), "{text}");
    drop((peer, client, payload, doorbell));
    eventually("the daemon says why", || daemon.log().contains("ring release mark"));

    // Noise somewhere. If it is a valid release mark, or hits bytes without a meaning, the session
    // goes on.
    for seed in 0..40_u64 {
        let mut peer = None;
        eventually("rank 1 is free", || {
            let candidate = Peer::connect(&packed.dataset);
            assert!(candidate.ask(&candidate.hello(1, job.clone())));
            let Some((Reply::Welcome { .. }, fds)) = candidate.receive() else { return false };
            peer = Some((candidate, fds));
            true
        });
        let (peer, fds) = peer.unwrap();
        assert!(peer.ask(&Request::StartEpoch { generation: 1, epoch: 0, first_batch: 0, has_taken: false }));
        let at = seed * 211 % (CLIENT_SEGMENT_BYTES - 512);
        rustix::io::pwrite(&fds[1], &noise(seed, 512), at).unwrap();
        let _ = rustix::io::write(&fds[3], &[1]);
        // The daemon answers, says why not, or hangs up.
        if peer.ask(&Request::Stats)
            && let Some((reply, _)) = peer.receive()
        {
            assert!(matches!(reply, Reply::Stats { .. } | Reply::Failed { .. }), "{reply:?}");
        }
    }

    witness.ends_beside_a_good_rank(&packed, job.clone());
    assert!(daemon.is_alive());
    eventually("nothing of them is left", || daemon.session_resources() <= idle);
}

#[test]
fn requests_that_make_no_sense() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let job = spec(4, 2);
    let witness = Witness::of(&packed, job.clone());
    let failed = |peer: &Peer| match peer.receive() {
        Some((Reply::Failed { text }, _)) => text,
        other => panic!("no failure: {other:?}"),
    };

    let (peer, ..) = abuser(&packed, job.clone());
    assert!(peer.ask(&Request::StartEpoch {
        generation: 2,
        epoch: 1,
        first_batch: 1_000_000,
        has_taken: true
    }));
    let Some((Reply::Interrupted { text }, _)) = peer.receive() else { panic!("not told") };
    assert!(text.contains("does not exist"), "{text}");
    // Losses for what was never delivered are counted and dropped.
    let losses = vec![f32::NAN; 100];
    assert!(peer.ask(&Request::Report { epoch: 9, batch: 9, losses }));
    assert!(peer.ask(&Request::LoadState { strata: 0 }), "without a state");
    failed(&peer);
    let memfd = memfd_create("state", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&memfd, &noise(1, 5000)).unwrap();
    assert!(peer.send(&Request::LoadState { strata: 0 }.encode(), Some(&memfd)));
    failed(&peer);
    assert_eq!(stats(&witness.session)["total"]["unmatched_reports"].as_u64(), Some(1));
    // A state of 4 GiB in a sparse file. The daemon must not read it into memory.
    ftruncate(&memfd, 4 << 30).unwrap();
    assert!(peer.send(&Request::LoadState { strata: 0 }.encode(), Some(&memfd)));
    is_hung_up_on(&peer);
    eventually("the daemon says why", || daemon.log().contains("too large"));

    let second_hello = Peer::connect(&packed.dataset).hello(1, job.clone());
    let unknown = Request::Avoid { samples: vec![3, 102] };
    let too_many = Request::Avoid { samples: vec![0; AVOIDED_MAX + 1] };
    let requests = [second_hello, unknown, too_many].map(|request| request.encode());
    for last in requests.into_iter().chain([vec![1], noise(2, 70)]) {
        let mut abuser = None;
        eventually("rank 1 is free", || {
            let candidate = Peer::connect(&packed.dataset);
            assert!(candidate.ask(&candidate.hello(1, job.clone())));
            let welcome = matches!(candidate.receive(), Some((Reply::Welcome { .. }, _)));
            abuser = welcome.then_some(candidate);
            welcome
        });
        let peer = abuser.unwrap();
        assert!(peer.send(&last, None));
        is_hung_up_on(&peer);
    }
    assert!(daemon.is_alive());

    witness.ends_beside_a_good_rank(&packed, job.clone());
}

#[test]
fn a_client_that_reads_no_replies_is_dropped() {
    let packed = Packed::mixed(10);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let witness = Witness::of(&packed, spec(4, 2));
    let (peer, ..) = abuser(&packed, spec(4, 2));
    // Its replies fill the socket; then the daemon, which must not wait, hangs up.
    eventually("the daemon hangs up", || !peer.ask(&Request::Stats));
    assert!(daemon.is_alive());
    drop(peer);
    let half = witness.take_rest().1.len();
    assert!((16..=17).contains(&half), "{half} of 33 samples over two ranks");
}

/// Says hello as the only rank of a job that draws by losses, and survives its daemon.
fn survivor(packed: &Packed, name: &str) -> Peer {
    let peer = Peer::connect(&packed.dataset);
    let mut hello = peer.hello(0, by_losses());
    if let Request::Hello { job, survives, .. } = &mut hello {
        (*job, *survives) = (name.to_owned(), true);
    }
    assert!(peer.ask(&hello));
    assert!(matches!(peer.receive(), Some((Reply::Welcome { .. }, _))), "{name} is welcome");
    peer
}

fn by_losses() -> JobSpec {
    let job = spec(4, 1);
    JobSpec { plan: PlanSpec { sampler: Sampler::Pads, ..job.plan }, ..job }
}

/// The daemon succeeds no other one, or the bytes are none that it gave. That ends the session that
/// says so.
#[test]
fn what_is_handed_over_without_right_costs_its_sender_only() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let mut witness = Witness::of(&packed, spec(4, 1));
    let start = Request::StartEpoch { generation: 1, epoch: 0, first_batch: 0, has_taken: true };
    let file = |bytes: &[u8], len: u64| {
        let memfd = memfd_create("base", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&memfd, bytes).unwrap();
        ftruncate(&memfd, len).unwrap();
        memfd
    };
    // One that was given.
    let giver = survivor(&packed, "giver");
    assert!(giver.ask(&start));
    let Some((Reply::Base { epoch: 0, bytes }, fds)) = giver.receive() else { panic!("no base") };
    let mut base = vec![0; usize::try_from(bytes).unwrap()];
    let [given] = <[OwnedFd; 1]>::try_from(fds).unwrap();
    rustix::io::pread(&given, &mut base, 0).unwrap();
    let sealed = rustix::fs::fcntl_get_seals(&given).unwrap();
    assert!(sealed.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW), "nobody changes it");

    let take = |begun| Request::TakeBase { loads: 0, begun };
    let mut damaged = base.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 4;
    let huge = file(&base, 4 << 30);
    let cases = [
        (take(1), None),
        (take(1), Some(file(&noise(3, 5_000), 5_000))),
        (take(1), Some(file(&base, bytes - 1))),
        (take(1), Some(file(&damaged, bytes))),
        (take(2), Some(file(&base, bytes))),
        (take(u32::MAX), Some(file(&base, bytes))),
        (take(0), Some(file(&base, bytes))),
        (take(1), Some(huge.try_clone().unwrap())),
        (Request::TakeRedo, None),
        (Request::TakeRedo, Some(file(&noise(4, 900), 900))),
        (Request::TakeRedo, Some(huge)),
    ];
    for (at, (request, fd)) in cases.into_iter().enumerate() {
        let peer = survivor(&packed, &format!("forger {at}"));
        assert!(peer.send(&request.encode(), fd.as_ref()));
        // What is wrong inside of a state is found as the epoch begins.
        peer.ask(&start);
        is_hung_up_on(&peer);
    }
    // A job that has begun keeps its own; what belongs to a later epoch would be another plan.
    assert!(giver.send(&take(1).encode(), Some(&given)));
    assert!(giver.ask(&Request::Stats));
    while !matches!(giver.receive(), Some((Reply::Stats { .. }, _))) {}
    let mut later = base.clone();
    later[8..12].copy_from_slice(&7_u32.to_le_bytes());
    assert!(giver.send(&take(8).encode(), Some(&file(&later, bytes))));
    is_hung_up_on(&giver);
    // A flood is kept once.
    let peer = survivor(&packed, "flood");
    for loads in 0..3_000 {
        assert!(peer.send(&Request::TakeBase { loads, begun: 1 }.encode(), Some(&given)));
    }
    assert!(peer.ask(&start) && peer.ask(&Request::Stats));
    assert!(matches!(peer.receive(), Some((Reply::Stats { .. }, _))), "it goes on");
    drop(peer);
    witness.take_one();
    assert!(daemon.is_alive());
    assert!(witness.take_rest().1.into_iter().eq(0..102));
}

//! Records that a batch shows where they lie in the daemon's memory: read in place, written to by this process alone, and its
//! own for good once the session is over.
#![expect(unsafe_code, reason = "the test writes to records as a training loop would")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::os::fd::AsFd;

use rustix::fs::SealFlags;
use shade_client::{Batch, ClientError, Session};
use shade_formats::control::Request;
use shade_formats::ring::Region;
use support::{
    Daemon, Listener, Memory, PAYLOAD_BYTES, RECORDS_BYTES, Row, SIZE_SEALS, connect, dataset, job, next,
    next_batch, options, segment, spec, welcome, welcome_with_records,
};

/// A record of a page and a half.
const RECORD_BYTES: u64 = 6000;
/// One that begins with the second page.
const RECORD: Row<'_> = Row::Lent { at: 4096, len: RECORD_BYTES };

fn bytes(byte: u8) -> Vec<u8> {
    vec![byte; usize::try_from(RECORD_BYTES).unwrap()]
}

/// A client and a daemon that lends it records, with the first epoch begun.
fn lending(test: &str) -> (Session, Daemon, Region, u32) {
    let job = job(test);
    let listener = Listener::bind(&job);
    let daemon = std::thread::spawn(move || {
        let (daemon, records) = listener.serve_with_records();
        let generation = daemon.epoch_started();
        (daemon, records, generation)
    });
    let session = connect(&job);
    session.start_epoch(0, 0).unwrap();
    let (daemon, records, generation) = daemon.join().unwrap();
    (session, daemon, records, generation)
}

/// Writes `byte` all over a row's record, as through a tensor.
fn scribble(batch: &Batch, row: usize, byte: u8) {
    batch.expect_writes();
    let record = batch.record_in_place(row).unwrap().unwrap();
    // SAFETY: the batch is held, its records are this process's to write to, and no reference to the bytes exists.
    unsafe { record.ptr.write_bytes(byte, record.count) };
}

#[test]
fn a_record_is_read_where_it_lies_beside_others_that_are_copied() {
    let (session, mut daemon, records, generation) = lending("lent");
    records.write(4096, &bytes(7)).unwrap();
    let empty = Row::Lent { at: RECORDS_BYTES, len: 0 };
    daemon.publish_rows(generation, 0, &[Row::Copied(b"copied"), RECORD, empty]);
    let batch = next_batch(&session);
    assert_eq!(batch.record(0).unwrap().unwrap(), b"copied");
    assert_eq!(batch.record(1).unwrap().unwrap(), bytes(7));
    assert_eq!(batch.record(2).unwrap().unwrap(), b"");
    assert_eq!(batch.record_in_place(1).unwrap().unwrap().ptr.addr() % 4096, 0);
    records.write(4096 + 5999, b"!").unwrap();
    assert_eq!(batch.record(1).unwrap().unwrap()[5998..], [7, b'!'], "no copy: the very bytes");
}

#[test]
fn what_is_written_stays_here_and_is_gone_with_the_batch() {
    let (session, mut daemon, records, generation) = lending("written");
    records.write(0, &[1; 4 * 4096]).unwrap();
    let beside = Row::Lent { at: 3 * 4096, len: 4096 };
    for batch in 0..2 {
        daemon.publish_rows(generation, batch, &[RECORD, beside]);
    }
    let batch = next_batch(&session);
    scribble(&batch, 0, 9);
    assert_eq!(batch.record(0).unwrap().unwrap(), bytes(9));
    let mut all = vec![0; 4 * 4096];
    records.read(0, &mut all).unwrap();
    assert!(all.iter().all(|&byte| byte == 1), "the daemon and other trainers see nothing of it");
    drop(batch);
    // What the daemon writes after the release is what the next batch has.
    records.write(4096, &bytes(2)).unwrap();
    let batch = next_batch(&session);
    assert_eq!(batch.record(0).unwrap().unwrap(), bytes(2));
    assert_eq!(batch.record(1).unwrap().unwrap(), [1; 4096]);
}

#[test]
fn what_is_in_hand_when_the_session_ends_stays_as_it_is() {
    let (session, mut daemon, records, generation) = lending("ends");
    records.write(4096, &bytes(3)).unwrap();
    records.write(16384, &bytes(4)).unwrap();
    let other = Row::Lent { at: 16384, len: RECORD_BYTES };
    daemon.publish_rows(generation, 0, &[RECORD, other]);
    daemon.publish_rows(generation, 1, &[Row::Lent { at: 32768, len: 10 }]);
    records.write(12288, &[6; 4096]).unwrap();
    daemon.publish_rows(generation, 2, &[Row::Lent { at: 12288, len: 4096 }]);
    let batch = next_batch(&session);
    drop(next_batch(&session));
    let between = next_batch(&session);
    scribble(&batch, 1, 5);
    drop(session);
    assert_eq!(daemon.peer.hear(), Request::Bye);
    // It has said goodbye: the daemon may do what it likes with its records.
    records.write(0, &vec![0; usize::try_from(RECORDS_BYTES).unwrap()]).unwrap();
    assert_eq!(batch.record(0).unwrap().unwrap(), bytes(3));
    assert_eq!(batch.record(1).unwrap().unwrap(), bytes(5));
    drop(daemon);
    assert_eq!(batch.record(0).unwrap().unwrap(), bytes(3));
    drop(batch);
    assert_eq!(between.record(0).unwrap().unwrap(), [6; 4096]);
    between.expect_writes();
    assert_eq!(between.record(0).unwrap().unwrap(), [6; 4096]);
}

#[test]
fn however_much_is_in_hand_it_stays_as_it_is() {
    let (session, mut daemon, records, generation) = lending("much");
    // More than may be resident beside so small a ring: what was looked at first is unmapped on the way.
    let rows: Vec<u64> = (0..8).map(|row| row << 21).collect();
    for (number, &at) in (1..).zip(&rows) {
        records.write(at, &bytes(number)).unwrap();
    }
    let lent: Vec<Row<'_>> = rows.iter().map(|&at| Row::Lent { at, len: RECORD_BYTES }).collect();
    daemon.publish_rows(generation, 0, &lent);
    let batch = next_batch(&session);
    let check = || {
        for (row, number) in (1..=8).enumerate() {
            assert_eq!(batch.record(row).unwrap().unwrap(), bytes(number), "row {row}");
        }
    };
    check();
    drop(session);
    assert_eq!(daemon.peer.hear(), Request::Bye);
    records.write(0, &vec![0; usize::try_from(RECORDS_BYTES).unwrap()]).unwrap();
    check();
    check();
}

#[test]
fn a_copy_has_the_bytes_of_what_was_lent() {
    let (session, mut daemon, records, generation) = lending("copies");
    let mut kept: Vec<Batch> = Vec::new();
    for number in 0..40_u8 {
        // A copy gives its record back at once, so that the daemon may overwrite it. Of those in the ring each has its own.
        let at = u64::from(number % 16) * 2 * 4096;
        let in_ring = kept.iter().filter(|batch| !batch.is_copy()).count();
        let at = if in_ring == 4 { 32 * 4096 } else { at };
        records.write(at, &bytes(number)).unwrap();
        let rows = [Row::Copied(&[number]), Row::Lent { at, len: RECORD_BYTES }];
        daemon.publish_rows(generation, number.into(), &rows);
        kept.push(next_batch(&session));
    }
    assert_eq!(kept.iter().filter(|batch| batch.is_copy()).count(), 36);
    records.write(32 * 4096, &bytes(255)).unwrap();
    for (number, batch) in (0..).zip(&kept) {
        assert_eq!(batch.record(0).unwrap().unwrap(), [number]);
        assert_eq!(batch.record(1).unwrap().unwrap(), bytes(number), "batch {number}");
        let end = batch.record_in_place(0).unwrap().unwrap();
        assert_eq!(end.count, 1);
    }
}

#[test]
fn places_outside_of_the_segment_are_refused() {
    for (test, at, len) in [("over", RECORDS_BYTES - 10, 11), ("far", u64::MAX - 5, 10)] {
        let (session, mut daemon, _records, generation) = lending(test);
        daemon.publish_rows(generation, 0, &[Row::Copied(b"good"), Row::Lent { at, len }]);
        let error = next(&session).unwrap_err();
        assert!(error.to_string().contains("lent record"), "{error}");
    }
    let job = job("no-segment");
    let listener = Listener::bind(&job);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_rows(generation, 0, &[RECORD]);
        daemon
    });
    let session = connect(&job);
    session.start_epoch(0, 0).unwrap();
    let error = next(&session).unwrap_err();
    assert!(error.to_string().contains("within 0 bytes"), "{error}");
    daemon.join().unwrap();
}

#[test]
fn a_segment_that_could_fault_is_not_mapped() {
    let good = SIZE_SEALS | SealFlags::FUTURE_WRITE;
    let attempt = |test: &str, bytes: u64, seals: SealFlags, promised: u64, sent: bool| {
        let is_good = test == "records-good";
        let job = job(test);
        let listener = Listener::bind(&job);
        let daemon = std::thread::spawn(move || {
            let peer = listener.accept();
            let memory = Memory::new();
            let (file, _region) = segment(bytes, seals);
            let mut fds = memory.fds().to_vec();
            if sent {
                fds.push(file.as_fd());
            }
            let said = if promised > 0 { welcome_with_records(promised) } else { welcome(PAYLOAD_BYTES) };
            peer.send(&said, &fds);
            // A hang-up alone would leave the daemon waiting for the end of this process.
            assert!(is_good || peer.hear() == Request::Bye, "no goodbye");
        });
        let connected = Session::connect(&dataset(), &job, 1, spec(), &options());
        daemon.join().unwrap();
        connected
    };
    assert!(attempt("records-good", 8192, good, 8192, true).is_ok());
    let unsealed = attempt("records-unsealed", 8192, SealFlags::SHRINK, 8192, true);
    assert!(matches!(unsealed, Err(ClientError::Segment { segment: "the records segment", .. })));
    let short = attempt("records-short", 4096, good, 8192, true);
    assert!(matches!(short, Err(ClientError::Segment { .. })));
    for (test, promised, sent) in [("records-missing", 8192, false), ("records-unasked", 0, true)] {
        let error = attempt(test, 8192, good, promised, sent).unwrap_err();
        assert!(error.to_string().contains("descriptors"), "{error}");
    }
}

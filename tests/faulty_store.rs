//! A fault of the store that passes costs readers and packer time and no record; a lasting one is
//! reported. Where nothing can be mounted the tests say so and pass.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::Signal;
use shade_client::{FieldsReader, RecordReader};
use shade_formats::index::INDEX_FILE;
use shade_tests::{
    Daemon, FaultyStore, Packed, add_fields, attach, program, sorted_ids, spec, stats, take_epoch,
};

/// Faults that are over by the next try.
const PASSING: [Errno; 7] = [
    Errno::STALE,
    Errno::AGAIN,
    Errno::IO,
    Errno::TIMEDOUT,
    Errno::NOMEM,
    Errno::NFILE,
    // A fault of the store where the shard could be opened before.
    Errno::ACCESS,
];

fn pack(store: &FaultyStore, command: &str, more: &[&Path]) -> Output {
    let mut pack = Command::new(program("shade-pack"));
    pack.arg(command).arg(store.path()).args(more).arg("--quiet").output().unwrap()
}

fn assert_right(packed: &Packed, reader: &RecordReader) {
    let all: Vec<u32> = (0..).take(packed.len()).collect();
    for (source, record) in packed.sources.iter().zip(reader.read(&all).unwrap()) {
        assert!(record == source.bytes, "{}", source.path);
    }
}

#[test]
fn a_trainer_s_reader_goes_on_after_faults_that_pass() {
    let packed = Packed::mixed(8);
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    for buffered in [false, true] {
        let reader = RecordReader::open(store.path(), None, buffered).unwrap();
        assert_right(&packed, &reader);
        let before = store.opened().0;
        store.fail_reads(&PASSING);
        assert_right(&packed, &reader);
        assert_eq!((store.left(), store.opened().0), (0, before + 1), "only the stale shard is opened again");
        // The second ESTALE in a row counts as a fault of the store.
        store.fail_reads(&[Errno::STALE, Errno::STALE]);
        assert_eq!(reader.read(&[3]).unwrap(), [&packed.sources[3].bytes[..]]);
        let anew = RecordReader::open(store.path(), None, buffered).unwrap();
        store.fail_opens(&[Errno::MFILE, Errno::NFILE, Errno::NOMEM]);
        assert_right(&packed, &anew);
        assert_eq!(store.left(), 0);
    }
}

#[test]
fn what_does_not_pass_is_told_with_its_sample_and_place() {
    let packed = Packed::mixed(4);
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    let reader = RecordReader::open(store.path(), None, false).unwrap();
    let fault = |reader: &RecordReader| reader.read(&[2]).unwrap_err().to_string();
    store.fail_opens(&[Errno::ACCESS]);
    let text = fault(&reader);
    assert!(text.starts_with(&packed.name_of(2)) && text.contains("Permission denied"), "{text}");
    store.fail_reads(&[Errno::IO; 3]);
    let text = fault(&reader);
    assert!(text.starts_with(&packed.name_of(2)) && text.contains("failed after 3 tries"), "{text}");
    // An interrupted wait ends at once.
    store.fail_reads(&[Errno::STALE; 100]);
    let looks = AtomicU32::new(0);
    let stopped = reader.read_unless(&[2], &|| looks.fetch_add(1, Ordering::Relaxed) == 3).unwrap_err();
    assert!(stopped.to_string().contains("was stopped"), "{stopped}");
    assert!(store.left() > 90, "{}", store.left());
}

#[test]
fn a_stale_shard_of_another_dataset_is_not_read() {
    let (packed, other) = (Packed::mixed(4), Packed::mixed(5));
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    let reader = RecordReader::open(store.path(), None, false).unwrap();
    reader.read(&[0]).unwrap();
    fs::copy(other.dataset.join(INDEX_FILE), packed.dataset.join(INDEX_FILE)).unwrap();
    store.fail_reads(&[Errno::STALE]);
    let text = reader.read(&[0]).unwrap_err().to_string();
    assert!(text.contains("was replaced"), "{text}");
}

#[test]
fn short_reads_and_refused_direct_reads_bring_every_byte() {
    let packed = Packed::mixed(8);
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    store.shorten_reads();
    assert_right(&packed, &RecordReader::open(store.path(), None, true).unwrap());
    let reader = RecordReader::open(store.path(), None, false).unwrap();
    assert_right(&packed, &reader);
    let (opened, direct) = store.opened();
    assert!(0 < direct && direct < opened, "{direct} of {opened}");
    store.refuse_direct();
    assert_right(&packed, &reader);
    assert_right(&packed, &reader);
    assert_eq!(store.opened().1, direct, "no shard is opened for direct reads after the first refusal");
}

#[test]
fn a_daemon_reads_directly_through_fuse_unless_its_trial_read_is_refused() {
    let packed = Packed::mixed(33);
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    for (refuses, expected) in [(false, "direct: fuse names no alignment"), (true, "buffered: fuse refuses")]
    {
        if refuses {
            store.refuse_direct();
        }
        let mut daemon = Daemon::start(store.path(), &[]);
        let session = attach(store.path(), 0, spec(4, 1));
        assert_eq!(sorted_ids(&take_epoch(&session, 0).unwrap()).len(), 102);
        let engine = stats(&session)["engine"].as_str().unwrap().to_owned();
        assert!(engine.contains(expected), "{engine}");
        drop(session);
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait().code(), Some(0));
    }
}

#[test]
fn fields_come_after_faults_that_pass() {
    let packed = Packed::mixed(4);
    let folder = packed.beside("with-fields");
    add_fields(&packed.dataset, &folder, |sample, _| {
        vec![("txt".to_owned(), format!("of sample {sample}").into_bytes())]
    });
    let Some(store) = FaultyStore::mount(&folder) else { return };
    let content = RecordReader::open(&folder, None, true).unwrap().content();
    for buffered in [false, true] {
        let reader = FieldsReader::new(store.path(), content, buffered);
        reader.read(&[0]).unwrap();
        for errno in PASSING {
            store.fail_reads(&[errno]);
            let fields = reader.read(&[0]).unwrap();
            assert_eq!((&fields[0][0].bytes[..], store.left()), (&b"of sample 0"[..], 0), "{errno}");
        }
    }
}

#[test]
fn the_packer_verifies_and_extracts_after_faults_that_pass() {
    let packed = Packed::mixed(8);
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    store.fail_reads(&PASSING);
    let verified = pack(&store, "verify", &[]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success() && text.contains("are whole"), "{verified:?}");
    store.fail_opens(&[Errno::MFILE]);
    store.fail_reads(&PASSING);
    let out = packed.beside("extracted");
    let extracted = pack(&store, "extract", &[&out]);
    assert!(extracted.status.success(), "{extracted:?}");
    assert_eq!(store.left(), 0);
    for source in &packed.sources {
        assert!(fs::read(out.join(&source.path)).unwrap() == source.bytes, "{}", source.path);
    }
}

#[test]
fn a_byte_that_its_disk_has_lost_is_damage_and_a_shard_that_may_not_be_read_is_not() {
    let packed = Packed::mixed(8);
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    let (entry, _) = packed.place(0);
    store.lose(entry.offset);
    let verified = pack(&store, "verify", &[]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.code() == Some(3) && text.contains("failed after 3 tries"), "{verified:?}");
    let out = packed.beside("extracted");
    let extracted = pack(&store, "extract", &[&out]);
    assert!(extracted.status.code() == Some(3) && !out.exists(), "{extracted:?}");
    let Some(store) = FaultyStore::mount(&packed.dataset) else { return };
    store.fail_opens(&[Errno::ACCESS]);
    let verified = pack(&store, "verify", &[]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.code() == Some(1) && text.contains("that is no damage"), "{verified:?}");
}

//! Bad records are named, counted, and raised, skipped or substituted as the job says.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use shade_client::{ClientError, Decode, FLAG_SUBSTITUTED, JobSpec, OnError};
use shade_formats::ShardId;
use shade_job::{InTurn, Pair, Transform};
use shade_tests::{
    Daemon, Packed, Source, Taken, attach, class_names, copy, eventually, next, png, program, sorted_ids,
    spec, stats, take_epoch,
};

/// A sample of the first class, to be damaged.
const BAD: u32 = 7;

fn job(on_error: OnError) -> JobSpec {
    JobSpec { on_error, ..spec(8, 1) }
}

fn damaged() -> (Packed, Daemon) {
    let packed = Packed::mixed(20);
    packed.damage(BAD);
    let daemon = Daemon::start(&packed.dataset, &[]);
    (packed, daemon)
}

fn total(stats: &Value, name: &str) -> u64 {
    stats["total"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {stats}"))
}

/// The text of the error that ended the epoch.
fn raised(error: &ClientError) -> String {
    assert!(matches!(error, ClientError::Record { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn raise_names_sample_path_shard_and_offset() {
    let (packed, daemon) = damaged();
    let session = attach(&packed.dataset, 0, job(OnError::Raise));
    session.start_epoch(0, 0).unwrap();
    let mut delivered = Vec::new();
    let error = loop {
        match next(&session) {
            Ok(batch) => delivered.push(copy(&batch.expect("an error before the epoch's end"))),
            Err(error) => break error,
        }
    };
    let text = raised(&error);
    assert!(text.contains(&packed.name_of(BAD)) && text.contains("checksum"), "{text}");
    assert!(delivered.iter().all(|batch| batch.ids.len() == 8), "no batch before it is short");
    assert!(!sorted_ids(&delivered).contains(&BAD));
    // Once more if the next epoch's first batches, which are filled ahead, have met it as well.
    assert!((1..=2).contains(&total(&stats(&session), "faults")));
    eventually("the daemon's log says the same", || daemon.log().contains(&text));

    // The session goes on: the next epoch ends with the same error.
    let again = raised(&take_epoch(&session, 1).unwrap_err());
    assert_eq!(again, text);
}

#[test]
fn skip_leaves_one_row_out_and_counts_it() {
    let (packed, daemon) = damaged();
    let session = attach(&packed.dataset, 0, job(OnError::Skip));
    for epoch in 0..2 {
        let batches = take_epoch(&session, epoch).unwrap();
        let mut expected: Vec<u32> = (0..63).collect();
        expected.retain(|&id| id != BAD);
        assert_eq!(sorted_ids(&batches), expected);
        let full = batches.iter().map(|batch| batch.ids.len() + batch.skipped as usize);
        assert!(full.eq([8, 8, 8, 8, 8, 8, 8, 7]), "each short batch says by how much: {batches:?}");
        assert_eq!(batches.iter().map(|batch| batch.skipped).sum::<u32>(), 1);
        for (batch, at) in batches.iter().flat_map(|batch| (0..batch.ids.len()).map(move |at| (batch, at))) {
            assert!(batch.records[at] == packed.sources[batch.ids[at] as usize].bytes, "rows stay together");
        }
        let (stats, so_far) = (stats(&session), u64::from(epoch) + 1);
        assert_eq!(total(&stats, "skipped"), so_far);
        assert!(
            (so_far..=so_far + 1).contains(&total(&stats, "faults")),
            "the next epoch may be filled ahead"
        );
    }
    eventually("the daemon's log names it", || daemon.log().contains(&packed.name_of(BAD)));
}

#[test]
fn decoded_batches_close_the_gap_of_a_skipped_row() {
    let packed = Packed::pngs(20, 16);
    packed.damage(BAD);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let cover = |size| Transform::Cover { size: Pair(size) };
    let grey = vec![cover([3, 5]), Transform::Grayscale { num_output_channels: 1 }];
    let decoded = Decode::Views([vec![cover([16, 16])], grey].map(InTurn).into());
    let reference: Vec<Taken> = {
        let whole = Packed::pngs(20, 16);
        let daemon = Daemon::start(&whole.dataset, &[]);
        let session = attach(&whole.dataset, 0, JobSpec { decode: decoded.clone(), ..job(OnError::Raise) });
        let batches = take_epoch(&session, 0).unwrap();
        drop(daemon);
        batches
    };
    let session = attach(&packed.dataset, 0, JobSpec { decode: decoded, ..job(OnError::Skip) });
    let batches = take_epoch(&session, 0).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.skipped).sum::<u32>(), 1);
    for (batch, reference) in batches.iter().zip(&reference) {
        let images = |taken: &Taken| {
            let later = taken.later_views[0].chunks_exact(3 * 5);
            let images = taken.pixels.chunks_exact(3 * 16 * 16).zip(later);
            let images = images.map(|(first, second)| [first, second].concat());
            taken.ids.iter().copied().zip(images).filter(|(id, _)| *id != BAD).collect::<Vec<_>>()
        };
        assert!(images(batch) == images(reference), "batch {}", batch.number);
    }
    drop(daemon);
}

#[test]
fn substitute_takes_another_sample_of_the_class_flags_and_counts_it() {
    let (packed, daemon) = damaged();
    let session = attach(&packed.dataset, 0, job(OnError::Substitute));
    let batches = take_epoch(&session, 0).unwrap();
    let sizes = batches.iter().map(|batch| batch.ids.len());
    assert!(sizes.eq([8, 8, 8, 8, 8, 8, 8, 7]), "batches keep their size");
    let mut flagged = Vec::new();
    for batch in &batches {
        for (at, &id) in batch.ids.iter().enumerate() {
            let source = &packed.sources[id as usize];
            assert_eq!(batch.labels[at], source.label);
            assert!(batch.records[at] == source.bytes, "sample {id}");
            if batch.flags[at] & FLAG_SUBSTITUTED != 0 {
                flagged.push((batch.number, id, batch.labels[at]));
            }
        }
    }
    let [(number, stand_in, label)] = flagged[..] else { panic!("one row is flagged: {flagged:?}") };
    assert!(stand_in != BAD && label == packed.sources[BAD as usize].label);
    assert!(batches.iter().all(|batch| batch.substituted == u32::from(batch.number == number)));
    let stats = stats(&session);
    assert_eq!((total(&stats, "substituted"), total(&stats, "skipped")), (1, 0));
    eventually("the daemon's log names it", || daemon.log().contains(&packed.name_of(BAD)));
}

#[test]
fn a_truncated_shard_is_warned_of_and_the_records_it_lost_are_named() {
    let packed = Packed::mixed(20);
    let (entry, shard) = packed.place(BAD);
    let kept = entry.offset + u64::from(entry.stored_len) / 2;
    File::options().write(true).open(&shard).unwrap().set_len(kept).unwrap();
    let index = packed.index();
    let lost = (0..63).filter(|&id| {
        let (other, _) = packed.place(id);
        other.shard == entry.shard && other.offset >= entry.offset
    });
    let lost: Vec<u32> = lost.collect();
    let shard_name = index.shard(entry.shard).unwrap().name;

    let daemon = Daemon::start(&packed.dataset, &[]);
    eventually("the daemon warns", || daemon.log().contains("WARN") && daemon.log().contains(shard_name));
    let session = attach(&packed.dataset, 0, JobSpec { bad_max: 1.0, ..job(OnError::Skip) });
    let batches = take_epoch(&session, 0).unwrap();
    let delivered = sorted_ids(&batches);
    assert_eq!(
        delivered.len() as u64 + total(&stats(&session), "skipped"),
        63,
        "every sample is accounted for"
    );
    assert!(lost.iter().all(|id| delivered.binary_search(id).is_err()), "{lost:?} lie beyond the end");
    eventually("the daemon's log names them all", || {
        lost.iter().all(|&id| daemon.log().contains(&packed.name_of(id)))
    });
}

#[test]
fn a_missing_shard_is_warned_of_and_its_records_are_treated_as_bad() {
    let packed = Packed::mixed(20);
    let (entry, shard) = packed.place(BAD);
    fs::remove_file(&shard).unwrap();
    let index = packed.index();
    let missing = index.shard(entry.shard).unwrap();
    assert!(index.shard_count() > 1 && missing.records < 63, "other shards are there");

    let daemon = Daemon::start(&packed.dataset, &[]);
    eventually("the daemon warns", || daemon.log().contains("WARN") && daemon.log().contains(missing.name));
    let session = attach(&packed.dataset, 0, JobSpec { bad_max: 1.0, ..job(OnError::Skip) });
    let batches = take_epoch(&session, 0).unwrap();
    assert_eq!(sorted_ids(&batches).len(), 63 - missing.records as usize);
    assert_eq!(batches.iter().map(|batch| batch.skipped).sum::<u32>(), missing.records);
    assert_eq!(total(&stats(&session), "skipped"), u64::from(missing.records));
    drop(session);

    let session = attach(&packed.dataset, 0, job(OnError::Raise));
    let text = raised(&take_epoch(&session, 0).unwrap_err());
    assert!(text.contains(missing.name) && text.contains("No such file"), "{text}");
}

#[test]
fn a_shard_that_goes_away_is_the_store_s_trouble_and_an_error_whatever_on_error_says() {
    // The simulated store's clock is virtual, so the 60 s of retries pass at once.
    let args: [&dyn AsRef<std::ffi::OsStr>; 2] = [&"--store", &"latency=1ms,clock=virtual"];
    for on_error in [OnError::Skip, OnError::Substitute, OnError::Raise] {
        let packed = Packed::mixed(20);
        let (_, shard) = packed.place(BAD);
        let daemon = Daemon::start(&packed.dataset, &args);
        // After the daemon has started.
        fs::remove_file(&shard).unwrap();
        let session = attach(&packed.dataset, 0, job(on_error));
        let text = raised(&take_epoch(&session, 0).map(|batches| batches.len()).unwrap_err());
        let told = ["No such file", "tried for 60 s", shard.to_str().unwrap()];
        assert!(told.iter().all(|part| text.contains(part)), "{on_error:?}: {text}");
        let stats = stats(&session);
        assert_eq!((total(&stats, "skipped"), total(&stats, "substituted")), (0, 0), "{on_error:?}");
        eventually("the daemon's log says that it waits", || daemon.log().contains("no record is given up"));
    }
}

#[test]
fn a_dataset_that_may_not_be_read_is_an_error_at_once_whatever_on_error_says() {
    let packed = Packed::mixed(20);
    let index = packed.index();
    for shard in 0..index.shard_count() {
        let path = packed.dataset.join(index.shard(ShardId(shard)).unwrap().name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let mut command = Command::new("setpriv");
    let without = "-dac_override,-dac_read_search";
    command.args(["--bounding-set", without, "--inh-caps", without]).arg(program("shade-load"));
    if !rustix::process::geteuid().is_root() {
        command = Command::new(program("shade-load"));
    }
    let daemon = Daemon::start_by(command, &packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, job(OnError::Skip));
    let text = raised(&take_epoch(&session, 0).map(|batches| batches.len()).unwrap_err());
    assert!(text.contains("Permission denied") && !text.contains("tried for"), "{text}");
    assert_eq!(total(&stats(&session), "skipped"), 0);
    drop(daemon);
}

#[test]
fn a_shard_that_was_replaced_is_told_as_another_file() {
    let packed = Packed::mixed(20);
    let (_, shard) = packed.place(BAD);
    let bytes: Vec<u8> = fs::read(&shard).unwrap().iter().map(|byte| !byte).collect();
    let new = packed.beside("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(&new, &shard).unwrap();
    let daemon = Daemon::start(&packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, job(OnError::Raise));
    let text = raised(&take_epoch(&session, 0).map(|batches| batches.len()).unwrap_err());
    let told = ["checksum mismatch", "is perhaps another file: it is newer than the dataset's index"];
    assert!(told.iter().all(|part| text.contains(part)) && text.contains(shard.to_str().unwrap()), "{text}");
    drop(daemon);
}

#[test]
fn a_file_that_is_no_image_is_a_decode_fault_though_its_checksum_is_right() {
    let image = |label: u32, number: u32| {
        let path = format!("{}/{number}.png", class_names()[label as usize]);
        Source { path, label, bytes: png(16, 16, u64::from(10 * label + number)) }
    };
    let mut sources = vec![image(0, 0), image(0, 1), image(0, 2), image(1, 0), image(1, 1)];
    sources[1].bytes = b"not an image, whatever its name says".repeat(20);
    let packed = Packed::of(sources);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let decoded = || Decode::cover(16, 16);
    let session = attach(&packed.dataset, 0, JobSpec { decode: decoded(), ..job(OnError::Raise) });
    let text = raised(&take_epoch(&session, 0).unwrap_err());
    assert!(text.contains(&packed.name_of(1)) && text.contains("no image: text"), "{text}");
    drop(session);

    let other_job = |on_error, decode| {
        let session = attach(&packed.dataset, 0, JobSpec { decode, ..job(on_error) });
        take_epoch(&session, 0).unwrap()
    };
    let skipped = other_job(OnError::Skip, decoded());
    assert_eq!(sorted_ids(&skipped), [0, 2, 3, 4]);
    let substituted = other_job(OnError::Substitute, decoded());
    assert_eq!(sorted_ids(&substituted), [0, 2, 2, 3, 4], "the next sample of its class stands in");
    let raw = other_job(OnError::Raise, Decode::Raw);
    assert_eq!(sorted_ids(&raw), [0, 1, 2, 3, 4], "its bytes can still be had");
    drop(daemon);
}

//! A dataset in a bucket is the dataset in the folder: ids, labels, bytes and pixels, whatever the
//! store answers meanwhile.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use shade_client::{JobSpec, OnError, Order, PlanSpec, Sampler};
use shade_formats::control::socket_name;
use shade_tests::{
    Bucket, Cloud, Daemon, JOBS, Packed, Taken, attach, attach_by, attach_to, checksums, eventually,
    job_named, program, sorted_ids, spec, take_epoch, take_with_losses, text, train,
};

fn served(bucket: &Bucket, args: &[&dyn AsRef<OsStr>]) -> Daemon {
    Daemon::start_by(bucket.command("shade-load"), Path::new(Bucket::URL), args)
}

fn run(bucket: &Bucket, args: &[&str]) -> Output {
    let args = args.iter().map(|arg| Cloud::tested().given(arg));
    bucket.command("shade-pack").args(args).output().unwrap()
}

/// More than the least cache holds, so that each epoch reads.
fn large() -> Packed {
    Packed::pngs(60, 64)
}

fn assert_whole(packed: &Packed, batches: &[Taken]) {
    assert!(sorted_ids(batches).into_iter().eq((0..).take(packed.len())), "each sample once");
    for batch in batches {
        for ((&id, &label), record) in batch.ids.iter().zip(&batch.labels).zip(&batch.records) {
            let source = &packed.sources[id as usize];
            assert!(label == source.label && *record == source.bytes, "sample {id}: {}", source.path);
        }
    }
}

#[test]
fn every_kind_of_job_is_given_what_the_folder_gives() {
    let packed = Packed::mixed(33);
    let bucket = Bucket::of(&packed);
    let local = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    let remote = served(&bucket, &[&"--cache", &"100%"]);
    let known = bucket.known_as();
    for name in JOBS {
        let job = job_named(name);
        let given = |dataset: &Path| {
            let session = attach_to(dataset, name, 0, job.clone()).unwrap();
            [0, 1].map(|epoch| checksums(epoch, &train(&session, &job, (epoch, 0), Duration::ZERO).unwrap()))
        };
        assert_eq!(given(&known), given(&packed.dataset), "{name}");
    }
    let samplers = Sampler::ALL.iter().map(|sampler| (*sampler, Order::Shuffled));
    // The others depend on what is cached at that moment.
    let orders = Order::ALL.iter().filter(|order| !order.asks_for_residents());
    let orders = orders.map(|order| (Sampler::Uniform, *order));
    for (number, (sampler, order)) in samplers.chain(orders).enumerate() {
        let given = |dataset: &Path| {
            let session = attach_by(dataset, &format!("plan-{number}"), sampler, order);
            let [first, second] = take_with_losses(&session);
            [checksums(0, &first), checksums(1, &second)]
        };
        assert_eq!(given(&known), given(&packed.dataset), "{sampler:?} {order:?}");
    }
    drop((local, remote));
}

#[test]
fn every_order_reads_every_sample_once() {
    let packed = Packed::mixed(33);
    let mut bucket = Bucket::of(&packed);
    for (order, cache) in [(Order::Spaced, "20%"), (Order::Shuffled, "0"), (Order::Shuffled, "100%")] {
        let daemon = served(&bucket, &[&"--cache", &cache]);
        let plan = PlanSpec { order, sampler: Sampler::Uniform, seed: 3, ..PlanSpec::default() };
        let session = attach(&bucket.known_as(), 0, JobSpec { plan, ..spec(8, 1) });
        let before = bucket.be("");
        for epoch in 0..2 {
            assert_whole(&packed, &take_epoch(&session, epoch).unwrap());
        }
        let requests = bucket.be("") - before;
        assert!(requests <= 2 * packed.len() as u64, "{order:?}, cache {cache}: {requests} requests");
        if cache == "100%" {
            assert!(requests <= packed.len() as u64, "the second epoch asks for nothing: {requests}");
        }
        drop((session, daemon));
    }
}

#[test]
fn an_object_that_is_replaced_is_named_and_never_mixed() {
    let packed = large();
    let mut bucket = Bucket::of(&packed);
    let daemon = served(&bucket, &[&"--cache", &"0"]);
    let session = attach(&bucket.known_as(), 0, spec(8, 1));
    take_epoch(&session, 0).unwrap();
    // The same length, other bytes: only the version tells.
    let mut bytes = fs::read(bucket.object("shard-000001.tar")).unwrap();
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    bucket.put("shard-000001.tar", &bytes);
    // The next epoch may have been read ahead, but not the one behind it.
    let told =
        (1..=2).find_map(|epoch| take_epoch(&session, epoch).err()).map(|error| error.to_string()).unwrap();
    for part in ["the object was replaced while in use", "in shard shard-000001.tar"] {
        assert!(told.contains(part), "{told}");
    }
    drop((session, daemon));
}

/// Though bad records may be skipped: this is another dataset.
#[test]
fn an_object_of_another_length_is_named_and_not_skipped() {
    let packed = large();
    let len = fs::metadata(packed.dataset.join("shard-000001.tar")).unwrap().len();
    for cut in [0, len / 1024 * 512, len - 512] {
        let mut bucket = Bucket::of(&packed);
        let bytes = fs::read(bucket.object("shard-000001.tar")).unwrap();
        bucket.put("shard-000001.tar", &bytes[..usize::try_from(cut).unwrap()]);
        let daemon = served(&bucket, &[&"--cache", &"0"]);
        let job = JobSpec { on_error: OnError::Skip, bad_max: 1.0, ..spec(8, 1) };
        let session = attach(&bucket.known_as(), 0, job);
        let told = take_epoch(&session, 0).unwrap_err().to_string();
        for part in ["the object was replaced while in use", "in shard shard-000001.tar"] {
            assert!(told.contains(part), "{cut} of {len}: {told}");
        }
        drop((session, daemon));
    }
}

#[test]
fn what_is_wrong_at_the_start_is_told_at_once() {
    let packed = Packed::mixed(8);
    let bucket = Bucket::of(&packed);
    let cloud = Cloud::tested();
    let silent = Some(cloud.at("http://127.0.0.1:9"));
    let unnamed = Some(cloud.at("http://no.such.host.invalid"));
    let mut table = vec![
        ("prefix", "s3://photos/none", None, "s3://photos/none is no dataset: it has no dataset.shade"),
        ("host", Bucket::URL, silent, "the store cannot be reached"),
        ("name", Bucket::URL, unnamed, "cannot be reached"),
        ("scheme", "ftp://photos/train", None, "cannot read from 'ftp'"),
    ];
    let wrong = cloud.with_wrong_keys();
    table.extend(wrong.map(|wrong| ("keys", Bucket::URL, Some(wrong), "the store refuses these keys")));
    for (what, url, setting, part) in table {
        for (program, command) in [("shade-load", "serve"), ("shade-pack", "info")] {
            let mut command_of = bucket.command(program);
            let output =
                command_of.args([command, &cloud.given(url)]).envs(setting.clone()).output().unwrap();
            let told = text(&output.stderr);
            assert!(!output.status.success() && told.contains(part), "{what}, {program}: {told}");
        }
    }
}

#[test]
fn that_there_are_no_keys_is_told_at_once() {
    let (packed, home) = (Packed::mixed(8), tempfile::tempdir().unwrap());
    let bucket = Bucket::of(&packed);
    let source = packed.dataset.to_str().unwrap();
    // Where a cloud's machine asks for keys of its own: nobody is there, or there are none.
    for place in ["http://127.0.0.1:9", bucket.endpoint()] {
        let (host, azure) = (place.replace("http://", ""), format!("{place}/metadata/identity/oauth2/token"));
        let settings = [
            ("AWS_METADATA_ENDPOINT", place),
            ("GCE_METADATA_HOST", &host),
            ("GCE_METADATA_IP", &host),
            ("AZURE_MSI_ENDPOINT", &azure),
            ("AZURE_STORAGE_ACCOUNT_NAME", "shade"),
        ];
        for scheme in ["s3", "gs", "az"] {
            let (url, new) = (format!("{scheme}://photos/train"), format!("{scheme}://photos/new"));
            for args in [vec!["info", &url], vec!["subset", "--copy", "--fraction", "0.5", source, &new]] {
                let mut command = Command::new(program("shade-pack"));
                command.env_clear().env("HOME", home.path()).envs(settings).args(&args);
                let told = text(&command.output().unwrap().stderr);
                assert!(told.contains("no keys for the store: set AWS_ACCESS_KEY_ID"), "{args:?}: {told}");
            }
        }
    }
    let mut command = Command::new(program("shade-pack"));
    command.env_clear().env("HOME", home.path()).args(["info", "az://photos/train"]);
    let told = text(&command.output().unwrap().stderr);
    assert!(told.contains("AZURE_STORAGE_ACCOUNT_NAME is not set"), "{told}");
}

#[test]
fn the_commands_that_read_work_and_a_new_index_is_noticed() {
    let packed = Packed::mixed(8);
    let mut bucket = Bucket::of(&packed);
    let local = packed.dataset.to_str().unwrap();
    for command in ["info", "ls"] {
        let given = |address: &str| text(&run(&bucket, &[command, address]).stdout).replace(address, "");
        let without_times = |text: String| {
            text.lines().filter(|line| !line.starts_with("times")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(without_times(given(Bucket::URL)), without_times(given(local)), "{command}");
    }
    bucket.be("503=0.2 cut=0.1 seed=3");
    let verified = run(&bucket, &["verify", Bucket::URL]);
    assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
    bucket.be("");
    let other = Packed::mixed(5);
    bucket.put("dataset.shade", &fs::read(other.dataset.join("dataset.shade")).unwrap());
    let info = text(&run(&bucket, &["info", Bucket::URL]).stdout);
    assert!(info.contains(&format!("samples     {}", other.len())), "{info}");
}

#[test]
fn a_daemon_stops_at_once_while_the_store_is_silent() {
    let packed = Packed::mixed(33);
    let mut bucket = Bucket::of(&packed);
    let mut daemon = served(&bucket, &[&"--cache", &"0"]);
    let session = attach(&bucket.known_as(), 0, spec(8, 1));
    bucket.be("latency_ms=100000000");
    let before = bucket.be("latency_ms=100000000");
    session.start_epoch(0, 0).unwrap();
    eventually("reads are in flight", || bucket.be("latency_ms=100000000") > before);
    daemon.signal(rustix::process::Signal::TERM);
    daemon.wait();
    let log = daemon.log();
    assert!(!log.contains("left to the kernel"), "{log}");
}

#[test]
fn top_says_what_the_store_answers_while_a_training_waits() {
    let packed = large();
    let mut bucket = Bucket::of(&packed);
    let daemon = served(&bucket, &[&"--cache", &"0"]);
    let name = socket_name(rustix::process::geteuid().as_raw(), &bucket.known_as());
    let socket = format!("@{}", String::from_utf8(name).unwrap());
    let session = attach(&bucket.known_as(), 0, spec(8, 1));
    take_epoch(&session, 0).unwrap();
    let top = |json: bool| {
        let mut command = Command::new(program("shade-load"));
        command.args(["top", "--once", "--interval", "100ms", "--socket", &socket]);
        let output = command.args(json.then_some("--json")).output().unwrap();
        text(&output.stdout)
    };
    assert!(!top(true).contains("slower pace"), "{}", top(true));
    // The next epoch may have been read ahead, and the one behind it not.
    for (epoch, (status, reason)) in (1..).step_by(2).zip([
        ("503", "503: asks for a slower pace"),
        ("429", "429: asks for a slower pace"),
        ("403", "403: refuses these keys"),
        ("500", "500: failed"),
    ]) {
        bucket.be(&format!("{status}=1"));
        std::thread::scope(|threads| {
            let taking = threads.spawn(|| [0, 1].map(|more| take_epoch(&session, epoch + more).unwrap()));
            eventually("top names the answer", || {
                top(false).contains(&format!(" for storage ({reason}): the store refuses requests"))
            });
            let figures: serde_json::Value = serde_json::from_str(&top(true)).unwrap();
            assert_eq!(figures[0]["store_trouble"], reason);
            assert!(figures[0]["reads_in_trouble"].as_u64().unwrap() > 0, "{figures}");
            assert_eq!(figures[0]["jobs"][0]["remedy"]["reason"], reason);
            bucket.be("");
            taking.join().unwrap().iter().for_each(|batches| assert_whole(&packed, batches));
        });
    }
    eventually("it is forgotten", || !top(true).contains("failed"));
    drop((session, daemon));
}

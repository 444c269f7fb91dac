//! What is made in a bucket is what is made in a folder, byte by byte: whole or not there, whatever
//! the store answers and whenever a command is killed; and nothing else is left behind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use shade_tests::{BucketWorld, eventually, files, png, text};

/// Larger shards than one request takes.
const SHARDS: [&str; 3] = ["--shard-size", "9MiB", "--quiet"];

/// Every command that makes a dataset, with its OUT last or, with `merge`, first. They build on one
/// another.
fn commands(out: impl Fn(&str) -> String) -> Vec<Vec<String>> {
    let create = |args: &[&str], name: &str| {
        let args = ["create"].iter().chain(args).chain(&SHARDS).map(|arg| (*arg).to_owned());
        args.chain([out(name)]).collect()
    };
    let of = |args: &[&str], name: &str| {
        args.iter().map(|arg| (*arg).to_owned()).chain([out(name), "--quiet".to_owned()]).collect()
    };
    vec![
        create(&["photos/train"], "plain.shade"),
        create(&["photos", "--splits", "train,val"], "both"),
        create(&["photos/train", "--no-shuffle", "--cls", "--compress", "zstd"], "zstd.shade"),
        create(&["photos/val", "--labels", "none"], "none.shade"),
        vec![
            "merge".to_owned(),
            out("merged.shade"),
            "here.shade".to_owned(),
            "more.shade".to_owned(),
            "-q".to_owned(),
        ],
        of(&["subset", "--copy", "--fraction", "0.5", "here.shade"], "half.shade"),
        of(&["relabel", "--labels", "labels.csv", "here.shade"], "relabelled.shade"),
        of(&["append", "photos/val"], "none.shade"),
    ]
}

#[test]
fn every_command_makes_in_a_bucket_what_it_makes_in_a_folder() {
    let world = BucketWorld::new();
    for (split, name) in [("photos/val", "here.shade"), ("photos/train", "more.shade")] {
        world.packed(&["create", split, name, "--quiet"]);
    }
    let labels = (60..72).map(|number| format!("class{}/{number}.png,other{}\n", number % 3, number % 2));
    fs::write(world.path("labels.csv"), format!("path,label\n{}", labels.collect::<String>())).unwrap();
    let there = commands(|name| format!("s3://photos/{name}"));
    for (mut here, mut there) in commands(str::to_owned).into_iter().zip(there) {
        if here.contains(&"append".to_owned()) {
            // The same file in both: times count.
            fs::write(world.path("photos/val/class0/new.png"), png(9, 9, 1)).unwrap();
            for args in [&mut here, &mut there] {
                args.extend(["--labels".to_owned(), "none".to_owned()]);
            }
        }
        let [here, there] = [&here, &there].map(|args| args.iter().map(String::as_str).collect::<Vec<_>>());
        world.packed(&here);
        world.packed(&there);
        let name = here.iter().find(|arg| arg.ends_with(".shade") || **arg == "both").unwrap();
        let name = match here.first() {
            Some(&"subset") => "half.shade",
            Some(&"relabel") => "relabelled.shade",
            _ => name,
        };
        world.assert_same(name);
        if here.first() == Some(&"create") {
            let again = world.packed(&there);
            assert!(again.contains("nothing was written"), "{again}");
            world.assert_same(name);
        }
    }
    let verified = world.packed(&["verify", "s3://photos/none.shade", "-q"]);
    assert!(verified.contains("are whole"), "{verified}");
    let half = world.packed(&[
        "subset",
        "s3://photos/plain.shade",
        "s3://photos/part.shade",
        "--copy",
        "--fraction",
        "0.5",
    ]);
    assert!(half.contains("30 of 60 samples"), "{half}");
    // One in a bucket and one in a folder, in a folder and in a bucket.
    for out in ["two.shade", "s3://photos/two.shade"] {
        world.packed(&["merge", out, "s3://photos/plain.shade", "here.shade", "-q"]);
    }
    world.assert_same("two.shade");
    let link = ["merge", "three.shade", "s3://photos/plain.shade", "--link"];
    assert!(world.refused(&link).contains("leave --link out to copy"));
    world.assert_clean();
}

#[test]
fn a_command_that_was_killed_behind_its_index_finds_it_whole() {
    let mut world = BucketWorld::new();
    for (split, name) in [("photos/val", "here.shade"), ("photos/train", "more.shade")] {
        world.packed(&["create", split, name, "--quiet"]);
    }
    let labels = (60..72).map(|number| format!("class{}/{number}.png,other{}\n", number % 3, number % 2));
    fs::write(world.path("labels.csv"), format!("path,label\n{}", labels.collect::<String>())).unwrap();
    let commands: [&dyn Fn(&'static str) -> Vec<&'static str>; 3] = [
        &|out| vec!["merge", out, "here.shade", "more.shade", "-q"],
        &|out| vec!["subset", "more.shade", out, "--copy", "--fraction", "0.5", "-q"],
        &|out| vec!["relabel", "--labels", "labels.csv", "here.shade", out, "-q"],
    ];
    for command in commands {
        world.bucket.be("");
        world.packed(&command("out.shade"));
        let there = command("s3://photos/out.shade");
        // Behind its index a command asks two more times: for its claim, and to remove that.
        for answers in 1..=3 {
            let how = format!("silent:dataset.shade={answers}");
            let mut command = world.pack(&there);
            let mut child = world.bucket.falls_silent(&how, &mut command);
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success(), "{there:?} had ended");
            world.bucket.be("");
            let mut before = world.there("out.shade");
            // It says the truth: its process is gone. The next command takes it.
            before.remove("dataset.changing");
            // Another one, and the same where a shard is not what it was.
            let other = ["subset", "here.shade", "s3://photos/out.shade", "--copy", "--fraction", "0.3"];
            assert!(world.refused(&other).contains("s3://photos/out.shade exists"));
            let shard = world.object("out.shade/shard-000000.tar");
            let bytes = fs::read(&shard).unwrap();
            fs::write(&shard, &bytes[1..]).unwrap();
            assert!(world.refused(&there).contains("shard-000000.tar was written and is not there any more"));
            fs::write(&shard, bytes).unwrap();
            assert!(world.there("out.shade") == before, "{answers} answers");
            let again = world.packed(&there);
            assert!(again.contains("it is there already, and whole: nothing was written"), "{again}");
            world.assert_same("out.shade");
            fs::remove_dir_all(world.object("out.shade")).unwrap();
        }
        fs::remove_dir_all(world.path("out.shade")).unwrap();
    }
}

#[test]
fn images_that_were_packed_before_a_kill_are_not_packed_twice() {
    let mut world = BucketWorld::new();
    let create = |out| ["create", "photos/val", out, "--labels", "none", "-q"];
    let append = |out| ["append", "photos/train", out, "--labels", "none", "-q"];
    for answers in 1..=3 {
        let how = format!("silent:dataset.shade={answers}");
        let commands = [
            (create("s3://photos/a.shade"), "nothing was written"),
            (append("s3://photos/a.shade"), "nothing new"),
        ];
        for (args, told) in commands {
            world.packed(&args.map(|arg| if arg.starts_with("s3:") { "a.shade" } else { arg }));
            let mut command = world.pack(&args);
            let mut child = world.bucket.falls_silent(&how, &mut command);
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().code(), None, "{args:?}");
            world.bucket.be("");
            let again = world.packed(&args);
            assert!(again.contains(told), "{args:?}: {again}");
            world.assert_equal("a.shade");
        }
        for folder in [world.object("a.shade"), world.path("a.shade")] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn a_stream_goes_to_a_bucket_and_leaves_nothing_if_it_is_cut() {
    let mut world = BucketWorld::new();
    let made = Command::new("tar")
        .current_dir(world.folder())
        .args(["--sort=name", "-cf", "all.tar", "-C", "photos/train", "."])
        .status();
    assert!(made.unwrap().success());
    let stream = |bytes: &[u8], out: &str| -> Output {
        let args = ["create", "-", out, "--labels", "none", "--shard-size", "9MiB", "-q"];
        let pipes = |command: &mut Command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut child = pipes(&mut world.pack(&args));
        // A command that refuses reads no more.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), bytes);
        child.wait_with_output().unwrap()
    };
    let tar = fs::read(world.path("all.tar")).unwrap();
    let cut = stream(tar.get(..tar.len() / 2).unwrap(), "s3://photos/stream.shade");
    assert!(!cut.status.success(), "{}", text(&cut.stderr));
    assert_eq!(world.there("stream.shade").into_keys().collect::<Vec<_>>(), Vec::<String>::new());
    world.assert_clean();
    for out in ["stream.shade", "s3://photos/stream.shade"] {
        let made = stream(&tar, out);
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    world.assert_same("stream.shade");
    let path = world.path("all.tar");
    // Killed before its index or behind it: then the dataset is whole, and the command is refused.
    let moments = ["held:shard-000001.tar", "held:dataset.shade", "silent:dataset.shade"];
    for (how, answers) in
        [(moments[0], 1), (moments[1], 1), (moments[2], 1), (moments[2], 2), (moments[2], 3)]
    {
        // An address of its own: a product has no folder from which a test could remove anything.
        let name = format!("killed-{}-{answers}.shade", how.replace(':', "-"));
        let out = format!("s3://photos/{name}");
        let args = ["create", "-", &out, "--labels", "none", "--shard-size", "9MiB", "-q"];
        let given = || fs::File::open(&path).unwrap();
        let mut command = world.pack(&args);
        command.stdin(given());
        let mut child = world.bucket.falls_silent(&format!("{how}={answers}"), &mut command);
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        world.bucket.be("");
        let again = world.pack(&args).stdin(given()).output().unwrap();
        let told = text(&again.stderr);
        match how.starts_with("held") {
            true => assert!(again.status.success(), "{how}: {told}"),
            false => assert!(told.contains(&format!("{out} exists: remove it or choose")), "{told}"),
        }
        assert_eq!(world.there(&name), files(&world.path("stream.shade")), "{how}={answers}");
        let work = world.work();
        assert!(work.is_empty(), "{how}={answers}: {work:?}");
    }
}

/// Kills a command twelve times, each at another moment before its index, and lets it end at last.
fn killed_until_done(world: &mut BucketWorld, args: &[&str], random: &mut StdRng) {
    // A faster machine would be behind the index before the kill: what is true then has tests of
    // its own.
    world.bucket.be("latency_ms=8 seed=5 held:dataset.shade=1");
    for _ in 0..12 {
        let mut child = world.pack(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.random_range(5..600)));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), None, "{args:?}");
    }
    world.bucket.be("latency_ms=8 seed=5");
    world.packed(args);
}

#[test]
fn a_killed_command_is_gone_on_with_and_leaves_nothing() {
    let mut world = BucketWorld::new();
    let random = &mut StdRng::seed_from_u64(11);
    world.packed(&["create", "photos/val", "small.shade", "--labels", "none", "-q"]);
    world.packed(&["create", "photos/val", "s3://photos/small.shade", "--labels", "none", "-q"]);
    for name in ["a.shade", "b.shade", "c.shade"] {
        world.packed(&["create", "photos/train", name, "--shard-size", "9MiB", "-q"]);
        let out = format!("s3://photos/{name}");
        killed_until_done(&mut world, &["create", "photos/train", &out, "--shard-size", "9MiB"], random);
        world.assert_equal(name);
    }
    let append = |out| ["append", "photos/train", out, "--labels", "none", "--shard-size", "9MiB"];
    world.packed(&append("small.shade"));
    killed_until_done(&mut world, &append("s3://photos/small.shade"), random);
    world.assert_equal("small.shade");
}

#[test]
fn uploads_that_were_under_way_are_given_up() {
    let mut world = BucketWorld::new();
    let create = |out: &str| ["create", "photos/train", out, "--shard-size", "9MiB", "-q"].map(str::to_owned);
    world.packed(&create("a.shade").each_ref().map(String::as_str));
    for signal in ["INT", "TERM", "KILL"] {
        let args = create(&format!("s3://photos/{signal}"));
        let args = args.each_ref().map(String::as_str);
        // Each upload takes some seconds.
        world.bucket.be("latency_ms=500 seed=5");
        let before = world.bucket.uploads().len();
        let mut child = world.pack(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_upload = |name: &String| name.ends_with(".upload");
        eventually("an upload has begun", || world.work().iter().any(is_upload));
        assert!(
            Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success()
        );
        child.wait().unwrap();
        if signal != "KILL" {
            assert!(!world.work().iter().any(is_upload), "{:?}", world.work());
        }
        world.bucket.be("");
        world.packed(&args);
        assert_eq!(files(&world.object(signal)), files(&world.path("a.shade")), "{signal}");
        // A killed command may have asked for uploads whose ids it did not live to hear: as many as
        // there are shards, except for the one that had begun.
        let left = world.bucket.uploads().len() - before;
        assert!(left <= if signal == "KILL" { 2 } else { 0 }, "{signal}: {:?}", world.bucket.uploads());
    }
}

#[test]
fn a_store_that_fails_is_waited_for() {
    let mut world = BucketWorld::new();
    let bad = [
        "503=0.2 429=0.1 seed=1",
        "500=0.2 502=0.1 seed=2",
        "cut=0.2 latency_ms=3 seed=3",
        "503=0.1 500=0.1 cut=0.1 latency_ms=2 seed=4",
    ];
    for (number, how) in bad.into_iter().enumerate() {
        let name = format!("bad{number}.shade");
        world.packed(&["create", "photos/train", &name, "--shard-size", "9MiB", "-q"]);
        world.bucket.be(how);
        world.packed(&[
            "create",
            "photos/train",
            &format!("s3://photos/{name}"),
            "--shard-size",
            "9MiB",
            "-q",
        ]);
        world.bucket.be("");
        if how.contains("cut") {
            // The id of an upload may have been in an answer that was cut.
            world.assert_equal(&name);
        } else {
            world.assert_same(&name);
        }
    }
}

/// Ten tries, as many as the client's crate makes by itself, take some seconds.
#[test]
fn a_store_that_is_down_for_a_while_is_waited_for() {
    let mut world = BucketWorld::new();
    for how in ["503=1", "429=1"] {
        let name = format!("{}.shade", how.replace('=', "-"));
        world.packed(&["create", "photos/train", &name, "-q"]);
        world.bucket.be(how);
        let mut packing = world.pack(&["create", "photos/train", &format!("s3://photos/{name}"), "-q"]);
        let mut packing = packing.stderr(Stdio::inherit()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(12));
        assert!(packing.try_wait().unwrap().is_none(), "{how}");
        world.bucket.be("");
        assert!(packing.wait().unwrap().success(), "{how}");
        world.assert_same(&name);
    }
}

#[test]
fn what_is_there_is_never_lost() {
    let world = BucketWorld::new();
    let create = |out: &str| world.refused(&["create", "photos/val", out, "-q"]);
    let before = files(&world.bucket.objects());
    let told = create("s3://photos/train");
    assert!(told.contains("s3://photos/train exists: remove it or choose another destination"), "{told}");
    assert_eq!(files(&world.bucket.objects()), before);
    let put = |path: &str, bytes: &[u8]| {
        fs::create_dir_all(world.object(path).parent().unwrap()).unwrap();
        fs::write(world.object(path), bytes).unwrap();
    };
    for (name, object) in [("mine", "holiday.jpg"), ("tars", "shard-000000.tar")] {
        put(&format!("{name}/{object}"), b"mine");
        // A dead command of this machine had the right to write there. It wrote none of this.
        put(&format!("{name}/dataset.changing"), &dead_claim());
        for more in [&["-q"][..], &["-q", "--restart"]] {
            let told =
                world.refused(&[&["create", "photos/val", &format!("s3://photos/{name}")], more].concat());
            assert!(told.contains(&format!("has '{object}', which no pack of this machine made")), "{told}");
        }
        assert_eq!(fs::read(world.object(&format!("{name}/{object}"))).unwrap(), b"mine");
    }
    put("theirs/dataset.changing", b"another-boot\npid:[1]\n17\n1234\n");
    let told = create("s3://photos/theirs");
    assert!(told.contains("another command is writing there") && told.contains("remove s3://"), "{told}");
    let sub = world.refused(&["create", "photos", "s3://photos/tars", "--splits", "train,val", "-q"]);
    assert!(sub.contains("'shard-000000.tar', which no pack"), "{sub}");
    world.assert_clean();
}

/// The claim of a process that is gone.
fn dead_claim() -> Vec<u8> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let process = child.id();
    child.wait().unwrap();
    format!("{}\n{}\n{process}\n1\n", boot.trim(), namespace.display()).into_bytes()
}

#[test]
fn two_machines_never_mix_what_they_make() {
    let mut world = BucketWorld::new();
    let create = |seed: &'static str, more: &'static [&'static str]| {
        [
            &[
                "create",
                "photos",
                "s3://photos/both",
                "--splits",
                "train,val",
                "--seed",
                seed,
                "--shard-size",
                "9MiB",
                "-q",
            ],
            more,
        ]
        .concat()
    };
    world.killed_at("one", &create("1", &[]), 2);
    // The other one has to say that it throws the first one's work away.
    fs::remove_file(world.object("both/dataset.changing")).unwrap();
    for split in ["train", "val"] {
        let _ = fs::remove_file(world.object(&format!("both/{split}/dataset.changing")));
    }
    let told = text(&world.run_elsewhere("two", &create("2", &[])).stderr);
    assert!(told.contains("objects of an unfinished pack of another machine"), "{told}");
    let made = world.run_elsewhere("two", &create("2", &["--restart"]));
    assert!(made.status.success(), "{}", text(&made.stderr));
    let before = files(&world.object("both"));
    let told = text(&world.run_elsewhere("one", &create("1", &[])).stderr);
    assert!(told.contains("exists: remove it or choose another destination"), "{told}");
    assert_eq!(files(&world.object("both")), before, "nothing was overwritten");
    for split in ["train", "val"] {
        assert!(world.packed(&["verify", &format!("s3://photos/both/{split}"), "-q"]).contains("are whole"));
    }
}

#[test]
fn a_refused_command_changes_nothing() {
    let mut world = BucketWorld::new();
    let create = |more: &'static [&'static str]| {
        [&["create", "photos/train", "s3://photos/a.shade", "--shard-size", "9MiB", "-q"], more].concat()
    };
    world.killed_at("one", &create(&[]), 2);
    let before = files(&world.object("a.shade"));
    let told = text(&world.run_elsewhere("one", &create(&["--seed", "5"])).stderr);
    assert!(told.contains("holds an unfinished pack of another source or with other options"), "{told}");
    let shards =
        |files: &BTreeMap<String, Vec<u8>>| files.keys().filter(|name| name.ends_with(".tar")).count();
    assert_eq!(shards(&files(&world.object("a.shade"))), shards(&before));
    // Another kind of work is refused, too.
    let told =
        text(&world.run_elsewhere("one", &["merge", "s3://photos/a.shade", "s3://photos/train"]).stderr);
    assert!(told.contains("holds an unfinished pack for s3://photos/a.shade"), "{told}");
    // With --restart the other one is made, and nothing of the first is left.
    let made = world.run_elsewhere("one", &create(&["--seed", "5", "--restart"]));
    assert!(made.status.success(), "{}", text(&made.stderr));
    world.packed(&["create", "photos/train", "a.shade", "--shard-size", "9MiB", "--seed", "5", "-q"]);
    assert_eq!(files(&world.object("a.shade")), files(&world.path("a.shade")));
    assert_eq!(files(&world.path("one/shade/packing")).len(), 0);
}

#[test]
fn shards_that_are_there_are_not_sent_again() {
    let mut world = BucketWorld::new();
    let create = ["create", "photos/train", "s3://photos/a.shade", "--shard-size", "9MiB", "-q"];
    world.killed_at("one", &create, 1);
    let records = files(&world.path("one"));
    let records = records.keys().filter_map(|name| name.rsplit('/').next()?.strip_suffix(".done"));
    let objects: Vec<PathBuf> = records.map(|shard| world.object(&format!("a.shade/{shard}"))).collect();
    let written =
        || objects.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect::<Vec<_>>();
    let before = written();
    assert!(!before.is_empty());
    assert!(world.run_elsewhere("one", &create).status.success());
    assert_eq!(written(), before);
}

#[test]
fn what_ends_early_leaves_the_address_free() {
    let mut world = BucketWorld::new();
    fs::write(world.path("photos/val/class0/bad.png"), b"").unwrap();
    let listed = ["create", "photos/val", "s3://photos/list", "--on-bad", "list", "-q"];
    assert!(!world.pack(&listed).output().unwrap().status.success());
    assert_eq!(files(&world.object("list")).len(), 0);
    fs::remove_file(world.path("photos/val/class0/bad.png")).unwrap();
    world.packed(&["create", "photos/val", "s3://photos/list", "--on-bad", "list", "-q"]);
    // A merge that is stopped in the middle, and one that is killed.
    world.packed(&["create", "photos/train", "here.shade", "--shard-size", "9MiB", "-q"]);
    for signal in ["INT", "KILL"] {
        let mut merge = world.pack(&["merge", "s3://photos/merged", "here.shade", "-q"]);
        let mut child = world.bucket.falls_silent("silent:shard-000000.tar=1", &mut merge);
        // What it asks for from now on is answered.
        world.bucket.be("held:dataset.shade=1");
        assert!(
            Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success()
        );
        child.wait().unwrap();
        if signal == "INT" {
            assert_eq!(files(&world.object("merged")).len(), 0, "a stop removes what is there");
        }
    }
    world.bucket.be("");
    for out in ["s3://photos/merged", "merged"] {
        world.packed(&["merge", out, "here.shade", "-q"]);
    }
    world.assert_equal("merged");
}

#[test]
fn what_cannot_go_to_a_bucket_is_refused_by_name() {
    let world = BucketWorld::new();
    let table: [(&[&str], &str); 6] = [
        (&["plan", "photos/val", "s3://photos/p"], "plan: s3://photos/p is an address"),
        (&["create", "photos/val", "s3://photos/p", "--part", "0/2"], "--part: s3://photos/p is an address"),
        (&["create", "photos/val", "https://host/p"], "a web server is only read"),
        (&["append", "photos/val", "s3://photos/none"], "s3://photos/none is no dataset"),
        (&["subset", "s3://photos/train", "out", "--fraction", "0.5"], "nothing can be linked: add --copy"),
        (&["finish", "s3://photos/p"], "s3://photos/p"),
    ];
    for (args, expected) in table {
        let told = match args.first() {
            // Said before the command begins, or by the store.
            Some(&"append") => text(&world.pack(args).output().unwrap().stderr),
            _ => world.refused(args),
        };
        assert!(told.contains(expected), "{args:?}: {told}");
    }
    assert!(!world.object("p").exists(), "nothing was written");
    let mut command = world.pack(&["create", "photos/val", "s3://photos/q"]);
    let output = command.env("AWS_SECRET_ACCESS_KEY", "another").output().unwrap();
    let told = text(&output.stderr);
    assert!(told.contains("the store refuses these keys"), "{told}");
    world.assert_clean();
}

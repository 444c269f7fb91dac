//! Whatever else writes to an address while a command does, or comes back later, a dataset there is
//! whole and of one command, and what is somebody else's stays as it is.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use shade_tests::{BucketWorld, eventually, files, names, png, text};

/// A pack of three shards of several parts, of this seed.
fn create(seed: &'static str, more: &[&'static str]) -> Vec<&'static str> {
    let args =
        ["create", "photos/train", "s3://photos/a.shade", "--shard-size", "9MiB", "--seed", seed, "-q"];
    [&args, more].concat()
}

/// The same in a folder: what is in it.
fn in_a_folder(world: &BucketWorld, seed: &'static str) -> BTreeMap<String, Vec<u8>> {
    let name = format!("local-{seed}");
    let args = ["create", "photos/train", &name, "--shard-size", "9MiB", "--seed", seed, "-q"];
    world.packed(&args);
    files(&world.path(&name))
}

fn there(world: &BucketWorld) -> BTreeMap<String, Vec<u8>> {
    files(&world.object("a.shade"))
}

/// A pack of three shards of a tar that comes through standard input, as another machine has it.
fn create_from_stream(world: &BucketWorld, cache: &str) -> Command {
    let made = Command::new("tar")
        .current_dir(world.folder())
        .args(["--sort=name", "-cf", "all.tar", "-C", "photos/train", "."])
        .status();
    assert!(made.unwrap().success());
    let args = ["create", "-", "s3://photos/a.shade", "--labels", "none", "--shard-size", "9MiB", "-q"];
    let mut command = world.elsewhere(cache, &args);
    command.stdin(fs::File::open(world.path("all.tar")).unwrap());
    command
}

fn begun(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// As a user who thinks that the command of the other machine is dead.
fn remove_claim(world: &BucketWorld) {
    let _ = fs::remove_file(world.object("a.shade/dataset.changing"));
}

/// Runs the second machine's command again as long as what the first one had sent comes in its way.
/// Says whether it has made a dataset: else the first one had.
fn ended(world: &BucketWorld, cache: &str) -> bool {
    for _ in 0..10 {
        remove_claim(world);
        let made = world.run_elsewhere(cache, &create("2", &["--restart"]));
        let has_made = made.status.success();
        if has_made || told(&made).contains("a.shade exists") {
            return has_made;
        }
        assert_refused(&made);
    }
    panic!("it is refused again and again");
}

fn told(output: &Output) -> String {
    text(&output.stderr)
}

fn assert_refused(output: &Output) {
    assert_eq!(output.status.code(), Some(2), "{}", told(output));
}

#[test]
fn a_write_that_is_done_twice_or_whose_answer_is_lost_counts_once() {
    let mut world = BucketWorld::new();
    let append = |out: &str| ["append", "photos/val", out, "--shard-size", "9MiB", "-q"].map(str::to_owned);
    let bad = ["lost=0.3 seed=1", "again=0.4 seed=2", "lost=0.1 again=0.1 503=0.1 cut=0.1 seed=3"];
    for (number, how) in bad.into_iter().enumerate() {
        let name = format!("{number}.shade");
        for out in [name.clone(), format!("s3://photos/{name}")] {
            world.bucket.be(if out == name { "" } else { how });
            world.packed(&["create", "photos/train", &out, "--shard-size", "9MiB", "-q"]);
            world.packed(&append(&out).each_ref().map(String::as_str));
        }
        let happened = world.bucket.be_told("");
        assert!(happened.contains("lost=") || happened.contains("again="), "{happened}");
        world.assert_equal(&name);
    }
}

#[test]
fn a_store_without_conditions_is_written_to() {
    let mut world = BucketWorld::new();
    let local = in_a_folder(&world, "1");
    world.bucket.be("unconditional=1");
    world.packed(&create("1", &[]));
    assert!(world.bucket.be_told("").contains("unconditional="));
    assert_eq!(there(&world), local);
    world.assert_clean();
    world.bucket.be("unconditional=1");
    assert!(world.refused(&create("2", &[])).contains("s3://photos/a.shade exists"));
    world.packed(&["append", "photos/val", "s3://photos/a.shade", "-q"]);
    world.bucket.be("");
    assert!(world.packed(&["verify", "s3://photos/a.shade", "-q"]).contains("are whole"));
}

#[test]
fn a_command_that_comes_back_changes_nothing_of_the_one_that_took_its_place() {
    let mut world = BucketWorld::new();
    let random = &mut StdRng::seed_from_u64(3);
    let local = in_a_folder(&world, "2");
    let mut stopped = 0;
    for round in 0..6 {
        world.bucket.be("latency_ms=40 seed=5");
        let first = begun(world.elsewhere(&format!("one-{round}"), &create("1", &[])));
        eventually("it has the right to write", || {
            world.object("a.shade/dataset.changing").exists()
                || world.object("a.shade/dataset.shade").exists()
        });
        std::thread::sleep(Duration::from_millis(random.random_range(0..1500)));
        signal(&first, "STOP");
        world.bucket.be("");
        remove_claim(&world);
        // What the first one had sent may come yet, and ends the second one, which is begun again.
        let has_won = ended(&world, &format!("two-{round}"));
        let before = there(&world);
        signal(&first, "CONT");
        let first = first.wait_with_output().unwrap();
        if has_won {
            assert_refused(&first);
            assert_eq!(before, local);
            stopped += 1;
        }
        assert_eq!(there(&world), before, "{}", told(&first));
        fs::remove_dir_all(world.object("a.shade")).unwrap();
    }
    assert!(stopped > 0);
}

#[test]
fn a_command_whose_claim_was_removed_does_not_go_on() {
    let mut world = BucketWorld::new();
    let mut command = world.elsewhere("one", &create("1", &[]));
    let child = world.bucket.falls_silent("held:shard-000001.tar=1", &mut command);
    remove_claim(&world);
    world.bucket.be("");
    let ended = child.wait_with_output().unwrap();
    assert_refused(&ended);
    let part = "dataset.changing was removed, or another command has it: not going on";
    assert!(told(&ended).contains(part), "{}", told(&ended));
    assert!(!world.object("a.shade/dataset.shade").exists());
}

#[test]
fn what_a_killed_command_had_sent_and_comes_late_is_in_no_dataset_of_another() {
    let mut world = BucketWorld::new();
    let [first, second] = ["1", "2"].map(|seed| in_a_folder(&world, seed));
    for round in 0..4 {
        let before = world.bucket.happened("late=0.5 latency_ms=20", "late");
        let mut child = begun(world.elsewhere("one", &create("1", &[])));
        eventually("something comes late", || {
            world.bucket.happened("late=0.5 latency_ms=20", "late") > before + round
        });
        child.kill().unwrap();
        child.wait().unwrap();
        world.bucket.be("");
        let has_made = ended(&world, "two");
        eventually("all that was late has come", || {
            world.bucket.happened("", "came_late") == world.bucket.happened("", "late")
        });
        let expected = if has_made { &second } else { &first };
        let mut there = there(&world);
        // A claim that came late says the truth: its process is gone.
        there.remove("dataset.changing");
        assert_eq!(&there, expected, "round {round}");
        fs::remove_dir_all(world.object("a.shade")).unwrap();
        let _ = fs::remove_dir_all(world.path("one"));
    }
}

fn copy_all(from: &Path, to: &Path) {
    for name in names(from) {
        fs::create_dir_all(to.join(&name).parent().unwrap()).unwrap();
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn a_cache_that_was_copied_shared_or_lost_destroys_no_dataset() {
    let mut world = BucketWorld::new();
    world.killed_at("one", &create("1", &[]), 1);
    for cache in ["copied", "again"] {
        copy_all(&world.path("one"), &world.path(cache));
    }
    assert!(world.run_elsewhere("one", &create("1", &[])).status.success());
    let before = there(&world);
    assert_eq!(before, in_a_folder(&world, "1"));
    // It knows unfinished work there, with the mark of what is finished by now.
    for more in [&[][..], &["--restart"]] {
        let refused = world.run_elsewhere("copied", &create("2", more));
        assert_refused(&refused);
        assert_eq!(there(&world), before, "{}", told(&refused));
    }
    let made = world.run_elsewhere("again", &create("1", &[]));
    assert!(text(&made.stdout).contains("nothing was written"), "{}", told(&made));
    // Lost: what it had put there is as another machine's.
    fs::remove_dir_all(world.object("a.shade")).unwrap();
    world.killed_at("lost", &create("1", &[]), 1);
    fs::remove_dir_all(world.path("lost")).unwrap();
    let refused = world.run_elsewhere("lost", &create("1", &[]));
    assert!(told(&refused).contains("or of a cache that is gone"), "{}", told(&refused));
    assert!(world.run_elsewhere("lost", &create("1", &["--restart"])).status.success());
    assert_eq!(there(&world), before);
}

#[test]
fn an_object_that_appears_where_a_shard_goes_stays() {
    let mut world = BucketWorld::new();
    for round in 0..4 {
        world.bucket.be("latency_ms=60 held:shard-000002.tar=1");
        let child = begun(world.elsewhere("one", &create("1", &[])));
        eventually("it writes", || world.object("a.shade/dataset.changing").exists());
        std::thread::sleep(Duration::from_millis(150 * round));
        let mine = world.object("a.shade/shard-000001.tar");
        // There already: then it is replaced, which must be seen before the index is written.
        world.bucket.somebody_writes("a.shade/shard-000001.tar", "mine");
        world.bucket.be("");
        let ended = child.wait_with_output().unwrap();
        assert_refused(&ended);
        assert!(told(&ended).contains("shard-000001.tar"), "{}", told(&ended));
        assert_eq!(fs::read(&mine).unwrap(), b"mine", "round {round}");
        assert!(!world.object("a.shade/dataset.shade").exists());
        let refused = world.run_elsewhere("one", &create("1", &[]));
        assert_refused(&refused);
        assert_eq!(fs::read(&mine).unwrap(), b"mine", "round {round}");
        fs::remove_file(&mine).unwrap();
        assert!(world.run_elsewhere("one", &create("1", &["--restart"])).status.success());
        fs::remove_dir_all(world.object("a.shade")).unwrap();
    }
}

#[test]
fn a_shard_that_was_replaced_or_removed_behind_its_record_is_in_no_dataset() {
    let mut world = BucketWorld::new();
    for (is_stream, text) in [(false, Some("mine")), (false, None), (true, Some("mine")), (true, None)] {
        let child = if is_stream {
            // Its shards come one after the other, and it keeps no record of them.
            let mut command = create_from_stream(&world, "one");
            world.bucket.falls_silent("held:shard-000002.tar=1", &mut command)
        } else {
            world.bucket.be("held:shard-000002.tar=1");
            let child = begun(world.elsewhere("one", &create("1", &[])));
            let is_placed = |name: &String| name.ends_with("shard-000001.tar.done");
            eventually("the shard has its record", || names(&world.path("one")).iter().any(is_placed));
            child
        };
        let shard = world.object("a.shade/shard-000001.tar");
        match text {
            Some(text) => world.bucket.somebody_writes("a.shade/shard-000001.tar", text),
            None => fs::remove_file(&shard).unwrap(),
        }
        world.bucket.be("");
        let ended = child.wait_with_output().unwrap();
        assert_refused(&ended);
        let part = "shard-000001.tar is not what was written there any more";
        assert!(told(&ended).contains(part), "{}", told(&ended));
        assert_eq!(fs::read(&shard).ok(), text.map(|text| text.into()));
        assert!(!world.object("a.shade/dataset.shade").exists());
        // A stream that fails leaves nothing of its own.
        let _ = fs::remove_dir_all(world.object("a.shade"));
        let _ = fs::remove_dir_all(world.path("one"));
    }
}

#[test]
fn what_is_replaced_while_others_are_removed_stays() {
    let mut world = BucketWorld::new();
    world.killed_at("one", &create("1", &[]), 3);
    remove_claim(&world);
    world.bucket.be("held:shard-000001.tar=1");
    let child = begun(world.elsewhere("one", &create("1", &["--restart"])));
    let first = world.object("a.shade/shard-000000.tar");
    eventually("all are judged, and the first is removed", || !first.exists());
    let mine = world.object("a.shade/shard-000002.tar");
    world.bucket.somebody_writes("a.shade/shard-000002.tar", "mine");
    world.bucket.be("");
    let ended = child.wait_with_output().unwrap();
    assert_refused(&ended);
    assert!(told(&ended).contains("shard-000002.tar"), "{}", told(&ended));
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
}

#[test]
fn an_index_that_appears_while_another_is_put_stays() {
    let mut world = BucketWorld::new();
    // Its request is on its way: it has seen that there is no index.
    let mut command = world.elsewhere("one", &create("1", &[]));
    let child = world.bucket.falls_silent("held:dataset.shade=1", &mut command);
    world.bucket.somebody_writes("a.shade/dataset.shade", "mine");
    world.bucket.be("");
    let ended = child.wait_with_output().unwrap();
    assert_refused(&ended);
    assert!(told(&ended).contains("dataset.shade was written by another command"), "{}", told(&ended));
    assert_eq!(fs::read(world.object("a.shade/dataset.shade")).unwrap(), b"mine");
}

#[test]
fn append_removes_only_what_it_has_written() {
    let mut world = BucketWorld::new();
    world.packed(&["create", "photos/val", "s3://photos/a.shade", "-q"]);
    let append = |more: &[&'static str]| {
        [&["append", "photos/train", "s3://photos/a.shade", "--shard-size", "9MiB", "-q"], more].concat()
    };
    world.killed_at("one", &append(&[]), 1);
    remove_claim(&world);
    // Records name these numbers; the objects are somebody else's by now.
    let names = [1, 2, 3].map(|number| format!("a.shade/shard-00000{number}.tar"));
    names.iter().for_each(|name| world.bucket.somebody_writes(name, "mine"));
    let mine = names.each_ref().map(|name| world.object(name));
    fs::write(world.path("photos/train/class0/new.png"), png(9, 9, 1)).unwrap();
    for more in [&[][..], &["--restart"]] {
        let refused = world.run_elsewhere("one", &append(more));
        assert_refused(&refused);
        assert!(told(&refused).contains("s3://photos/a.shade/shard-00000"), "{}", told(&refused));
        assert!(mine.iter().all(|path| fs::read(path).unwrap() == b"mine"));
    }
    mine.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert!(world.run_elsewhere("one", &append(&[])).status.success());
    assert!(world.packed(&["verify", "s3://photos/a.shade", "-q"]).contains("are whole"));
}

#[test]
fn errors_name_the_address() {
    let world = BucketWorld::new();
    let url = "s3://photos/a.shade";
    world.packed(&["create", "photos/val", url, "-q"]);
    let output = |args: &[&str]| {
        let told = told(&world.pack(args).output().unwrap());
        assert!(told.contains(url) && !told.contains("/shade/"), "{args:?}: {told}");
        told
    };
    fs::write(world.path("photos/val/class0/60.png"), png(9, 9, 1)).unwrap();
    assert!(output(&["append", "photos/val", url]).contains("has a sample 'class0/60.png' already"));
    fs::write(world.path("none.csv"), "path,label\nnone,a\n").unwrap();
    assert!(output(&["relabel", "--labels", "none.csv", url, "out"]).contains("has no sample 'none'"));
    assert!(output(&["subset", "--copy", "--class", "none", url, "out"]).contains("has no class"));
    assert!(output(&["merge", "out", url, url]).contains("a dataset holds a path once"));
    let index = world.object("a.shade/dataset.shade");
    let mut bytes = fs::read(&index).unwrap();
    bytes.truncate(100);
    fs::write(index, bytes).unwrap();
    for args in [&["append", "photos/val", url][..], &["info", url], &["verify", url]] {
        assert!(output(args).contains("a.shade/dataset.shade"), "{args:?}");
    }
}

#[test]
fn addresses_may_have_odd_names() {
    let world = BucketWorld::new();
    let name = "\u{e4} b/50% #+&='{}~%2F.shade".replace('#', "");
    let url = format!("s3://photos/{name}");
    for out in [&name, &url] {
        fs::create_dir_all(world.path(&name).parent().unwrap()).unwrap();
        world.packed(&["create", "photos/val", out, "-q"]);
        world.packed(&["append", "photos/train", out, "-q"]);
    }
    world.assert_same(&name);
    assert!(world.packed(&["verify", &url, "-q"]).contains("are whole"));
    for odd in
        ["s3://photos/a//b", "s3://photos/../b", "s3://photos/./b", "s3://photos/a\\b", "s3://photos/a?b"]
    {
        let told = world.refused(&["create", "photos/val", odd, "-q"]);
        assert!(told.contains(odd), "{told}");
    }
}

#[test]
fn an_object_that_no_path_can_have_is_told_by_its_name_and_stays() {
    let world = BucketWorld::new();
    let odd = world.object("mine/a@@b.jpg");
    fs::create_dir_all(odd.parent().unwrap()).unwrap();
    fs::write(&odd, png(8, 8, 1)).unwrap();
    for args in [["create", "photos/val", "s3://photos/mine"], ["create", "s3://photos/mine", "out"]] {
        let told = told(&world.pack(&args).output().unwrap());
        for part in ["cannot list s3://photos/mine", "a name that is no path", "mine/a//b.jpg"] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
    assert!(odd.exists());
}

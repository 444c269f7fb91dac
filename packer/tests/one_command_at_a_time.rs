//! Two commands that make or change one dataset never work at it at once, of any users, and after
//! any kill.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{
    copy_program, halt, left_out, names, noise, own_mounts, program, run, run_well, stderr_of, tree, write,
};
use rustix::process::{Pid, Signal, kill_process};

fn images(source: &Path) {
    for number in 0..400u64 {
        write(&source.join(format!("{}/{number:03}.png", number % 4)), &noise(number, 3000));
    }
}

const OPTIONS: [&str; 7] = ["--shard-size", "4KiB", "--jobs", "1", "--in-flight", "1", "-q"];

fn create<'a>(source: &'a Path, out: &'a Path, more: &'a [&'a str]) -> Command {
    let mut command = program(&[&"create", &source, &out]);
    command.args(OPTIONS).args(more).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Begins to create and halts once some shards are complete, as if it waited for a slow store.
fn halted(source: &Path, out: &Path) -> Child {
    let mut child = create(source, out, &[]).spawn().unwrap();
    let parent = out.parent().unwrap();
    loop {
        let partial = names(parent).into_iter().find(|name| name.starts_with("out.part-"));
        let done = partial.map(|name| names(&parent.join(name))).unwrap_or_default();
        if done.iter().filter(|name| name.ends_with(".done")).count() > 3 {
            halt(&child);
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "the packer ended before it could be halted");
    }
}

fn go_on(child: Child) -> Output {
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn of_two_equal_creates_one_works_and_the_other_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    let first = halted(&source, &out);
    let before = names(temp.path());
    for more in [&[][..], &["--restart"], &["--seed", "7"], &["--seed", "7", "--restart"]] {
        let second = create(&source, &out, more).output().unwrap();
        assert_eq!(second.status.code(), Some(2), "{more:?}: {second:?}");
        let text = stderr_of(&second);
        assert!(text.contains("another command is making") && text.contains("out.changing"), "{text}");
    }
    // No other command makes something there either.
    let other = temp.path().join("other");
    run_well(&[&"create", &source, &other, &"-q"]);
    for (command, from) in [("extract", &other), ("merge", &other)] {
        let args: [&dyn AsRef<OsStr>; 4] =
            if command == "merge" { [&command, &out, from, &"-q"] } else { [&command, from, &out, &"-q"] };
        let output = run(&args);
        assert!(
            output.status.code() == Some(2) && stderr_of(&output).contains("another command"),
            "{output:?}"
        );
    }
    assert_eq!(names(temp.path()).len(), before.len() + 1);
    let output = go_on(first);
    assert!(output.status.success(), "{output:?}");
    run_well(&[&"verify", &out, &"-q"]);
    assert_eq!(names(temp.path()), ["images", "other", "out"]);
}

#[test]
fn what_is_said_to_be_kept_is_kept() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    let first = halted(&source, &out);
    let mut second = create(&source, &out, &[]).spawn().unwrap();
    let _ = second.wait().unwrap();
    kill_process(Pid::from_child(&first), Signal::INT).unwrap();
    let output = go_on(first);
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let partial = names(temp.path()).into_iter().find(|name| name.starts_with("out.part-")).unwrap();
    let kept = names(&temp.path().join(&partial)).iter().filter(|name| name.ends_with(".done")).count();
    assert!(
        text.contains(&format!("{kept} complete shards are kept in")) && text.contains(&partial),
        "{text}"
    );
    assert_eq!(names(temp.path()), ["images", partial.as_str()]);
}

#[test]
fn a_killed_ones_claim_is_taken_over() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    let mut first = halted(&source, &out);
    first.kill().unwrap();
    // A process that has ended counts as gone, although its parent has not waited for it.
    let calm = create(&source, &out, &[]).output();
    first.wait().unwrap();
    assert!(calm.unwrap().status.success());
    assert_eq!(names(temp.path()), ["images", "out"]);
}

/// A dataset to which anybody may append, and what is new for it; the program where anybody may run
/// it.
fn for_anybody(temp: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let (source, out, copy) = (temp.join("images"), temp.join("out"), temp.join("shade-pack"));
    write(&source.join("a/1.png"), b"one");
    run_well(&[&"create", &source, &out, &"-q"]);
    write(&source.join("a/2.png"), b"two");
    copy_program(&copy);
    for path in [temp, &out] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    (source, out, copy)
}

#[test]
fn a_living_process_that_proc_hides_is_not_taken_for_dead() {
    if !rustix::process::geteuid().is_root() {
        return left_out("only root becomes another user");
    }
    let Some(mut apart) = own_mounts() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (source, out, program) = for_anybody(temp.path());
    let mut living = Command::new("sleep").arg("1000").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", living.id())).unwrap();
    let began = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let space = fs::read_link("/proc/self/ns/pid").unwrap();
    let claim = out.join("dataset.changing");
    fs::write(&claim, format!("{}\n{}\n{}\n{began}\n", boot.trim(), space.display(), living.id())).unwrap();
    fs::set_permissions(&claim, fs::Permissions::from_mode(0o666)).unwrap();
    let before = tree(&out);
    let line = format!(
        "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups \
         {} append {} {} -q",
        program.display(),
        source.display(),
        out.display()
    );
    let output = apart.args(["sh", "-c", &line]).output().unwrap();
    living.kill().unwrap();
    living.wait().unwrap();
    assert!(output.status.code() == Some(2) && stderr_of(&output).contains("another command"), "{output:?}");
    assert!(tree(&out) == before);
}

#[test]
fn where_there_is_no_proc_no_claim_is_taken_over() {
    let Some(mut apart) = own_mounts() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (source, out, program) = for_anybody(temp.path());
    // The text of a claim where /proc tells nothing: no boot, no namespace, no start time.
    fs::write(out.join("dataset.changing"), format!("\n\n{}\n\n", std::process::id())).unwrap();
    let before = tree(&out);
    let line = format!(
        "mount -t tmpfs none /proc && exec {} append {} {} -q",
        program.display(),
        source.display(),
        out.display()
    );
    let output = apart.args(["sh", "-c", &line]).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr_of(&output).contains("another command"), "{output:?}");
    assert!(tree(&out) == before);
}

//! Keys of Amazon's store are found where Amazon's tools find them, and asked for again before they
//! expire. Web identities: `bucket_with_tls.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use shade_tests::{
    Bucket, Daemon, IDENTITY, KEY_ID, Packed, SECRET, SESSION_TOKEN, attach, sorted_ids, spec, take_epoch,
    text,
};
use tempfile::TempDir;

/// Files of somebody's home that say who he is.
struct Home(TempDir);

impl Home {
    /// A profile `lab` with keys, a default one with others, and a pod's identity.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".aws")).unwrap();
        let home = Self(folder);
        let keys = |section: &str, secret: &str| {
            format!(
                "[{section}]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {secret}\n\
                 aws_session_token = {SESSION_TOKEN}\n"
            )
        };
        let credentials = keys("default", "another") + &keys("lab", SECRET);
        fs::write(home.path(".aws/credentials"), credentials).unwrap();
        fs::write(home.path("identity"), IDENTITY).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same command of somebody who lives here, and has no keys in the environment.
    fn of(&self, mut command: Command) -> Command {
        command
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY")
            .env("HOME", self.0.path());
        command
    }
}

/// What says where keys are, in each way.
fn ways(home: &Home, bucket: &Bucket) -> [(&'static str, Vec<(&'static str, String)>); 3] {
    let pod = format!("{}/v1/credentials", bucket.endpoint());
    let identity = home.path("identity").to_str().unwrap().to_owned();
    [
        ("profile", vec![("AWS_PROFILE", "lab".to_owned())]),
        (
            "container",
            vec![
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", identity),
            ],
        ),
        (
            "instance",
            vec![
                ("AWS_METADATA_ENDPOINT", bucket.endpoint().to_owned()),
                // Nobody's files.
                ("HOME", "/".to_owned()),
            ],
        ),
    ]
}

#[test]
fn a_dataset_is_read_and_written_with_keys_from_anywhere() {
    let (packed, home) = (Packed::mixed(8), Home::new());
    let bucket = Bucket::with_words(&packed.dataset, "train", &["keys=36000"]);
    for (way, settings) in ways(&home, &bucket) {
        let run = |args: &[&str]| {
            let output = home.of(bucket.command("shade-pack")).envs(settings.clone()).args(args).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{way}, {args:?}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        let copy = format!("s3://photos/{way}");
        run(&["subset", "--copy", "--fraction", "1", Bucket::URL, &copy, "-q"]);
        assert!(run(&["verify", &copy, "-q"]).contains("are whole"), "{way}");
    }
    // The default profile's are of somebody else.
    let output = home.of(bucket.command("shade-pack")).args(["info", Bucket::URL]).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("the store refuses these keys"), "{told}");
}

#[test]
fn keys_that_expire_are_asked_for_again() {
    let (packed, home) = (Packed::mixed(64), Home::new());
    let mut bucket = Bucket::with_words(&packed.dataset, "train", &["keys=60"]);
    let [_, container, instance] = ways(&home, &bucket);
    for (way, settings) in [container, instance] {
        let mut command = home.of(bucket.command("shade-load"));
        command.envs(settings);
        let daemon = Daemon::start_by(command, Path::new(Bucket::URL), &[&"--cache", &"0"]);
        let asked_at_first = bucket.happened("latency_ms=20", "keys");
        let session = attach(&bucket.known_as(), 0, spec(4, 1));
        for epoch in 0..2 {
            let batches = take_epoch(&session, epoch).unwrap();
            assert!(sorted_ids(&batches).into_iter().eq((0..).take(packed.len())), "{way}");
        }
        // They are good for a minute, which is too short to rely on for long.
        assert!(bucket.happened("", "keys") > asked_at_first, "{way}");
        drop((session, daemon));
    }
}

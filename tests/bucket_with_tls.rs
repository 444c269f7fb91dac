//! A store that speaks TLS is believed with a certificate that is trusted. What is wrong with
//! another one is told at once, with what to do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use shade_tests::{Bucket, Daemon, IDENTITY, Packed, attach, left_out, sorted_ids, spec, take_epoch, text};
use tempfile::TempDir;

/// For servers at 127.0.0.1 and localhost.
const HERE: &str = "IP:127.0.0.1,DNS:localhost";

/// A certificate to make: for whom, and when it is valid.
type Asked = (&'static str, &'static str, [&'static str; 2]);

const ASKED: [Asked; 4] = [
    ("good", HERE, ["20200101000000Z", "21000101000000Z"]),
    ("elsewhere", "DNS:elsewhere.example", ["20200101000000Z", "21000101000000Z"]),
    ("expired", HERE, ["20200101000000Z", "20200201000000Z"]),
    ("early", HERE, ["20990101000000Z", "21000101000000Z"]),
];

/// An authority, `ca.crt`, and a folder with a server's certificate and key for each that was asked
/// for. `authority` has a server's that is the authority's own.
struct Authority(TempDir);

impl Authority {
    /// `None` where there is no openssl, which is told.
    fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            left_out("no openssl makes certificates here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(
            at("ca.conf"),
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n\
             policy=any\nunique_subject=no\ncertificate=ca.crt\nprivate_key=ca.key\n[any]\ncommonName=supplied\n",
        )
        .unwrap();
        fs::write(at("index"), "").unwrap();
        let openssl = |words: &str| {
            let output = Command::new("openssl").current_dir(folder.path()).args(words.split(' ')).output();
            let output = output.unwrap();
            assert!(output.status.success(), "openssl {words}: {}", text(&output.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(&format!("req -x509 {key} -days 9 -subj /CN=authority -keyout ca.key -out ca.crt"));
        openssl(&format!("req {key} -subj /CN=server -keyout server.key -out server.csr"));
        for (name, names, [from, to]) in ASKED {
            fs::create_dir(at(name)).unwrap();
            fs::write(at("names"), format!("subjectAltName={names}")).unwrap();
            openssl(&format!(
                "ca -batch -notext -config ca.conf -extfile names -in server.csr -out {name}/server.crt \
                 -startdate {from} -enddate {to}"
            ));
            fs::copy(at("server.key"), at(name).join("server.key")).unwrap();
        }
        fs::create_dir(at("authority")).unwrap();
        for (from, to) in [("ca.crt", "authority/server.crt"), ("ca.key", "authority/server.key")] {
            fs::copy(at(from), at(to)).unwrap();
        }
        Some(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A server with this certificate. `more` are other words for it.
    fn bucket(&self, packed: &Packed, name: &str, more: &[&str]) -> Bucket {
        let tls = format!("tls={}", self.path(name).display());
        Bucket::with_words(&packed.dataset, "train", &[&[tls.as_str()], more].concat())
    }
}

fn info(bucket: &Bucket, settings: &[(&str, &Path)], address: &str) -> Output {
    let mut command = bucket.command("shade-pack");
    command.args(["info", address]).envs(settings.iter().copied()).output().unwrap()
}

#[test]
fn a_certificate_that_is_trusted_is_enough_to_read_and_write() {
    let Some(authority) = Authority::new() else { return };
    let packed = Packed::mixed(8);
    let bucket = authority.bucket(&packed, "good", &[]);
    assert!(bucket.endpoint().starts_with("https://"));
    for variable in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"] {
        let read = info(&bucket, &[(variable, &authority.path("ca.crt"))], Bucket::URL);
        assert!(read.status.success(), "{variable}: {}", text(&read.stderr));
    }
    let with_bundle = |name: &str| {
        let mut command = bucket.command(name);
        command.env("AWS_CA_BUNDLE", authority.path("ca.crt"));
        command
    };
    let daemon = Daemon::start_by(with_bundle("shade-load"), Path::new(Bucket::URL), &[&"--cache", &"0"]);
    let batches = take_epoch(&attach(&bucket.known_as(), 0, spec(8, 1)), 0).unwrap();
    assert!(sorted_ids(&batches).into_iter().eq((0..).take(packed.len())));
    drop(daemon);
    let copied = ["subset", "--copy", "--fraction", "1", Bucket::URL, "s3://photos/copy", "-q"];
    let written = with_bundle("shade-pack").args(copied).output().unwrap();
    assert!(written.status.success(), "{}", text(&written.stderr));
    let verified = with_bundle("shade-pack").args(["verify", "s3://photos/copy", "-q"]).output().unwrap();
    assert!(text(&verified.stdout).contains("are whole"), "{}", text(&verified.stderr));
}

#[test]
fn what_is_wrong_with_a_certificate_is_told_with_what_to_do() {
    let Some(authority) = Authority::new() else { return };
    let packed = Packed::mixed(8);
    let (trusted, empty, none) = (authority.path("ca.crt"), authority.path("index"), authority.path("none"));
    let table = [
        ("good", None, "its certificate is of an authority that is not trusted here: let AWS_CA_BUNDLE name"),
        ("good", Some(&empty), "it has no certificate: expected PEM"),
        ("good", Some(&none), "none: No such file or directory"),
        (
            "elsewhere",
            Some(&trusted),
            "its certificate is not for 127.0.0.1, but for elsewhere.example: use a name",
        ),
        ("expired", Some(&trusted), "days ago by this machine's clock: give the server a new one"),
        ("early", Some(&trusted), "days by this machine's clock: set the clock"),
        ("authority", Some(&trusted), "its certificate is that of an authority (CA:TRUE)"),
    ];
    for (name, bundle, part) in table {
        let bucket = authority.bucket(&packed, name, &[]);
        let source = packed.dataset.to_str().unwrap();
        // Writes are patient with trouble that passes; this does not.
        for (program, args) in [
            ("shade-pack", &["info", Bucket::URL][..]),
            ("shade-pack", &["create", Bucket::URL, "s3://photos/new", "-q"]),
            ("shade-pack", &["subset", "--copy", "--fraction", "1", source, "s3://photos/new", "-q"]),
            ("shade-load", &["serve", Bucket::URL]),
            ("shade-load", &["doctor", Bucket::URL]),
        ] {
            let mut command = bucket.command(program);
            let output =
                command.args(args).envs(bundle.map(|path| ("AWS_CA_BUNDLE", path))).output().unwrap();
            let told = text(&output.stderr);
            assert!(!output.status.success() && told.contains(part), "{name}, {args:?}: {told}");
            let is_asked = bundle.is_none_or(|bundle| *bundle == trusted);
            let first = if is_asked { "no secure connection to the store" } else { "AWS_CA_BUNDLE=" };
            assert!(told.contains(first), "{name}, {args:?}: {told}");
        }
    }
}

#[test]
fn a_server_that_speaks_no_tls_or_only_tls_is_told() {
    let Some(authority) = Authority::new() else { return };
    let packed = Packed::mixed(8);
    let plain = Bucket::of(&packed);
    let asked_by = |bucket: &Bucket, endpoint: &str| {
        let mut command = bucket.command("shade-pack");
        let output = command.args(["info", Bucket::URL]).env("AWS_ENDPOINT_URL", endpoint).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let told = asked_by(&plain, &plain.endpoint().replace("http:", "https:"));
    assert!(told.contains("what answers there speaks no TLS: try http:// in its address"), "{told}");
    let secure = authority.bucket(&packed, "good", &[]);
    let told = asked_by(&secure, &secure.endpoint().replace("https:", "http:"));
    assert!(told.contains("what answers there speaks no HTTP: try https:// in its address"), "{told}");
}

#[test]
fn a_web_server_with_tls_serves_a_dataset() {
    let Some(authority) = Authority::new() else { return };
    let packed = Packed::mixed(33);
    let bucket = authority.bucket(&packed, "good", &["anonymous=1"]);
    let address = format!("{}/photos/train", bucket.endpoint().replace("127.0.0.1", "localhost"));
    let told = text(&info(&bucket, &[], &address).stderr);
    assert!(told.contains("is not trusted here: let AWS_CA_BUNDLE name"), "{told}");
    let bundle = authority.path("ca.crt");
    let read = info(&bucket, &[("AWS_CA_BUNDLE", &bundle)], &address);
    assert!(text(&read.stdout).contains(&format!("samples     {}", packed.len())), "{}", text(&read.stderr));
    let mut command = bucket.command("shade-load");
    command.env("AWS_CA_BUNDLE", &bundle);
    let daemon = Daemon::start_by(command, Path::new(&address), &[&"--cache", &"0"]);
    for batch in take_epoch(&attach(&bucket.known_as(), 0, spec(8, 1)), 0).unwrap() {
        for (&id, record) in batch.ids.iter().zip(&batch.records) {
            assert!(*record == packed.sources[id as usize].bytes, "sample {id}");
        }
    }
    drop(daemon);
    let output = info(&bucket, &[("AWS_CA_BUNDLE", &bundle)], &format!("{address}-2"));
    assert!(text(&output.stderr).contains("is no dataset"), "{}", text(&output.stderr));
}

/// The token service is asked over TLS alone.
#[test]
fn a_web_identity_becomes_keys() {
    let Some(authority) = Authority::new() else { return };
    let packed = Packed::mixed(8);
    let bucket = authority.bucket(&packed, "good", &["keys=3600"]);
    let identity = authority.path("identity");
    let asked_by = |who: &str| {
        fs::write(&identity, who).unwrap();
        let mut command = bucket.command("shade-pack");
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_CA_BUNDLE", authority.path("ca.crt")).env("AWS_WEB_IDENTITY_TOKEN_FILE", &identity);
        command
            .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/shade")
            .env("AWS_ENDPOINT_URL_STS", bucket.endpoint());
        command.args(["verify", Bucket::URL, "-q"]).output().unwrap()
    };
    let verified = asked_by(IDENTITY);
    assert!(text(&verified.stdout).contains("are whole"), "{}", text(&verified.stderr));
    let told = text(&asked_by("somebody else").stderr);
    assert!(
        told.contains("the store refuses these keys: see what they may do, and where they come from"),
        "{told}"
    );
}

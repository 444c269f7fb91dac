//! `shade-load doctor --tier`: what is wrong with a tier's servers is told with its remedy, and an
//! encrypted server is believed only with a certificate that is trusted.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use shade_tests::{CacheServers, cache_server_programs, eventually, left_out, program};

/// Exit code, standard output and standard error of `doctor --json --tier`.
fn doctor(tier: &str, environment: &[(&str, &Path)]) -> (Option<i32>, Value, String) {
    let mut command = Command::new(program("shade-load"));
    command.args(["doctor", "--json", "--tier", tier]).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), report, String::from_utf8(output.stderr).unwrap())
}

/// What `doctor` says to change at the servers.
fn changes(report: &Value) -> Vec<String> {
    let advice = report["advice"].as_array().unwrap().iter();
    let of_tier = advice.filter(|advice| advice["topic"] == "tier" && !advice["change"].is_null());
    of_tier.map(|advice| advice["change"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn settings_that_harm_are_told_until_they_are_changed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in cache_server_programs(folder.path()) {
        let servers = CacheServers::cluster(&program, 3, &[]);
        let set = |setting: &str, value: &str| {
            for at in 0..servers.count() {
                servers.call(at, &["CONFIG", "SET", setting, value]);
            }
        };
        let settings = [
            ("cluster-require-full-coverage", "yes", "no"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
            ("save", "3600 1", ""),
            ("appendonly", "yes", "no"),
        ];
        settings.iter().for_each(|(setting, bad, _)| set(setting, bad));
        let (code, report, errors) = doctor(&servers.text(), &[]);
        assert_eq!(code, Some(0), "{errors}");
        let told = changes(&report);
        // And maxmemory.
        assert_eq!(told.len(), settings.len() + 1, "{told:?}");
        for (setting, _, good) in settings {
            set(setting, good);
            assert!(told.iter().any(|change| change.contains(&format!("CONFIG SET {setting}"))), "{told:?}");
        }
        set("maxmemory", "64mb");
        let (_, report, _) = doctor(&servers.text(), &[]);
        assert_eq!(changes(&report), [""; 0], "{name}");
        let found = report["tier"]["found"].as_array().unwrap();
        assert_eq!(found.len(), 3, "{report}");
        assert!(
            found.iter().all(|server| server["get_us"].as_u64().unwrap() > 0 && server["is_cluster"] == true)
        );
        assert_eq!(servers.keys(), 0, "what was stored to measure them is gone");
    }
}

#[test]
fn a_server_that_is_gone_is_told() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, report, errors) = doctor(&format!("valkey://{free}"), &[]);
    assert_eq!(code, Some(1));
    assert!(report["tier"]["error"].as_str().unwrap().contains(&free.to_string()), "{report}");
    assert!(errors.contains("SHADE_TIER_PASSWORD"), "{errors}");
}

/// A server process, which ends with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `openssl` in `folder`.
fn openssl(folder: &Path, words: &str) -> bool {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn an_encrypted_server_is_believed_only_with_a_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let programs = cache_server_programs(folder.path());
    // The Valkey of the Python package has no TLS.
    let Some((_, program)) = programs.into_iter().find(|(name, _)| *name == "redis-server") else { return };
    std::fs::write(folder.path().join("names"), "subjectAltName=DNS:localhost").unwrap();
    let is_made = [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt",
    ];
    if !is_made.iter().all(|words| openssl(folder.path(), words)) {
        return left_out("no openssl makes certificates here");
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let server = Command::new(program)
        .current_dir(folder.path())
        .args([
            "--port",
            "0",
            "--tls-port",
            &port,
            "--tls-cert-file",
            "server.crt",
            "--tls-key-file",
            "server.key",
        ])
        .args([
            "--tls-ca-cert-file",
            "ca.crt",
            "--tls-auth-clients",
            "no",
            "--save",
            "",
            "--maxmemory",
            "64mb",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Server(server);
    let tier = format!("rediss://localhost:{port}");
    let authority = folder.path().join("ca.crt");
    let mut found = Value::Null;
    eventually("the server answers", || {
        if server.0.try_wait().unwrap().is_some() {
            // Built without TLS.
            return true;
        }
        let (code, report, _) = doctor(&tier, &[("SSL_CERT_FILE", &authority)]);
        found = report["tier"]["found"][0].clone();
        code == Some(0)
    });
    if found.is_null() {
        return left_out("the redis-server here has no TLS");
    }
    assert!(found["get_us"].as_u64().unwrap() > 0, "{found}");
    // Another authority, or none, or another name.
    let other = folder.path().join("server.crt");
    let (code, _, errors) = doctor(&tier, &[("SSL_CERT_FILE", &other)]);
    assert!(code == Some(1) && errors.contains("certificate"), "{errors}");
    let by_address = format!("rediss://127.0.0.1:{port}");
    let (code, _, errors) = doctor(&by_address, &[("SSL_CERT_FILE", &authority)]);
    assert!(code == Some(1) && errors.contains("certificate"), "{errors}");
}

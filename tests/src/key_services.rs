//! What gives keys to a program in a cloud of Amazon's, by its documents: an instance's metadata
//! (IMDSv2), a pod's agent (EKS Pod Identity), and the token service (`AssumeRoleWithWebIdentity`).

use std::process::Command;

use crate::cloud::{KEY_ID, SECRET};

/// What a pod's agent and the token service are shown.
pub const IDENTITY: &str = "this-is-who-i-am";
/// Comes with the keys. Requests that are signed by them have to name it.
pub const SESSION_TOKEN: &str = "a token of this session";
const METADATA_TOKEN: &str = "a token of the metadata";
const ROLE: &str = "the-role";

/// Services whose keys are good for some time.
pub struct KeyServices {
    /// As `2026-11-29T12:00:00Z`.
    expiration: String,
}

impl KeyServices {
    /// Their keys expire in `seconds`.
    ///
    /// # Panics
    /// When `date` cannot say when that is.
    #[must_use]
    pub fn new(seconds: u64) -> Self {
        let then = format!("{seconds} seconds");
        let output = Command::new("date").args(["--utc", "--date", &then, "+%FT%TZ"]).output().unwrap();
        Self { expiration: String::from_utf8(output.stdout).unwrap().trim().to_owned() }
    }

    /// What they answer to a request, if it is one for them: a status and a body. `header` gives a
    /// header of it.
    pub fn answer<'a>(
        &self,
        method: &str,
        path: &str,
        query: &str,
        header: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<(u16, String)> {
        let roles = "/latest/meta-data/iam/security-credentials/";
        if method == "PUT" && path == "/latest/api/token" {
            let is_right = header("x-aws-ec2-metadata-token-ttl-seconds").is_some();
            return Some(allowed(is_right, METADATA_TOKEN.to_owned()));
        }
        if let Some(role) = path.strip_prefix(roles) {
            let is_right = header("x-aws-ec2-metadata-token") == Some(METADATA_TOKEN);
            let text = if role.is_empty() { ROLE.to_owned() } else { self.json() };
            return Some(allowed(is_right && ["", ROLE].contains(&role), text));
        }
        if path == "/v1/credentials" {
            return Some(allowed(header("authorization") == Some(IDENTITY), self.json()));
        }
        if method == "POST" && query.contains("Action=AssumeRoleWithWebIdentity") {
            let asked = ["RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fshade", "Version=2011-06-15"];
            let is_right = asked.iter().all(|word| query.contains(word))
                && query.contains(&format!("WebIdentityToken={IDENTITY}"));
            return Some(allowed(is_right, self.xml()));
        }
        None
    }

    fn json(&self) -> String {
        format!(
            r#"{{"Code": "Success", "LastUpdated": "2026-01-01T00:00:00Z", "Type": "AWS-HMAC",
                "AccessKeyId": "{KEY_ID}", "SecretAccessKey": "{SECRET}", "Token": "{SESSION_TOKEN}",
                "Expiration": "{}"}}"#,
            self.expiration
        )
    }

    fn xml(&self) -> String {
        format!(
            r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
                <AssumeRoleWithWebIdentityResult>
                  <SubjectFromWebIdentityToken>shade</SubjectFromWebIdentityToken>
                  <Credentials>
                    <SessionToken>{SESSION_TOKEN}</SessionToken>
                    <SecretAccessKey>{SECRET}</SecretAccessKey>
                    <Expiration>{}</Expiration>
                    <AccessKeyId>{KEY_ID}</AccessKeyId>
                  </Credentials>
                </AssumeRoleWithWebIdentityResult>
              </AssumeRoleWithWebIdentityResponse>"#,
            self.expiration
        )
    }
}

fn allowed(is_right: bool, text: String) -> (u16, String) {
    if is_right { (200, text) } else { (403, String::new()) }
}

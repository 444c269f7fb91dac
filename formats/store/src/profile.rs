//! Keys of AWS as its tools keep them: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Only what stands there is read. What a tool would fetch (`sso_session`, `credential_process`,
//! `role_arn`) is named in the error, with the command that puts it into the environment.

use std::path::{Path, PathBuf};

/// Keys and a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) key_id: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// What the tools would fetch keys by.
    pub(crate) fetched_by: Option<String>,
}

/// Where the two files are, and which profile of theirs counts.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) credentials: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) name: String,
}

impl Place {
    /// As the environment says it: `var` looks a variable up.
    pub(crate) fn of_environment(var: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let home = var("HOME").map(|home| Path::new(&home).join(".aws"));
        let file = |variable, name| {
            var(variable).map(PathBuf::from).or_else(|| home.as_ref().map(|home| home.join(name)))
        };
        Some(Self {
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?,
            config: file("AWS_CONFIG_FILE", "config")?,
            name: var("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()),
        })
    }
}

impl Profile {
    /// The profile `name` of two files' texts.
    pub(crate) fn of_texts(name: &str, credentials: &str, config: &str) -> Self {
        let mut profile = Self::default();
        // In config a section is called "profile NAME", the default one alone is not.
        let in_config = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        for (text, section) in [(config, in_config.as_str()), (credentials, name)] {
            for (key, value) in lines_of(text, section) {
                let value = Some(value.to_owned());
                match key {
                    "aws_access_key_id" => profile.key_id = value,
                    "aws_secret_access_key" => profile.secret = value,
                    "aws_session_token" => profile.token = value,
                    "region" => profile.region = value,
                    "endpoint_url" => profile.endpoint = value,
                    "sso_session" | "sso_start_url" | "credential_process" | "role_arn" => {
                        profile.fetched_by = Some(key.to_owned());
                    }
                    _ => {}
                }
            }
        }
        profile
    }
}

/// The settings of a section. What is indented belongs to a setting of several lines, which none of
/// ours is.
fn lines_of<'a>(text: &'a str, section: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut here = false;
    text.lines().filter_map(move |line| {
        if line.starts_with([' ', '\t', '#', ';']) {
            return None;
        }
        if let Some(name) = line.trim_end().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            here = name.split_whitespace().eq(section.split_whitespace());
            return None;
        }
        let (key, value) = line.split_once('=')?;
        here.then_some((key.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n# other\n[lab]\n\
                               aws_access_key_id=C\naws_secret_access_key = D=E\naws_session_token = F\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  region = nowhere\n[profile lab]\nregion=us-east-2\n\
                          endpoint_url = http://minio:9000\n[profile sso]\nsso_session = corp\n";

    #[test]
    fn both_files_make_a_profile() {
        let text = |text: &str| Some(text.to_owned());
        let default = Profile::of_texts("default", CREDENTIALS, CONFIG);
        assert_eq!((default.key_id, default.secret, default.token), (text("A"), text("B"), None));
        assert_eq!(default.region, text("eu-west-1"));
        let lab = Profile::of_texts("lab", CREDENTIALS, CONFIG);
        assert_eq!((lab.key_id, lab.secret, lab.token), (text("C"), text("D=E"), text("F")));
        assert_eq!((lab.region, lab.endpoint), (text("us-east-2"), text("http://minio:9000")));
        let sso = Profile::of_texts("sso", CREDENTIALS, CONFIG);
        assert_eq!((sso.key_id, sso.fetched_by), (None, text("sso_session")));
        assert_eq!(Profile::of_texts("none", CREDENTIALS, CONFIG), Profile::default());
    }

    #[test]
    fn the_environment_says_where_they_are() {
        let place = Place::of_environment(|name| match name {
            "HOME" => Some("/home/u".to_owned()),
            "AWS_CONFIG_FILE" => Some("/etc/aws".to_owned()),
            _ => None,
        });
        let place = place.unwrap();
        assert_eq!(place.credentials, Path::new("/home/u/.aws/credentials"));
        assert_eq!((place.config.as_path(), place.name.as_str()), (Path::new("/etc/aws"), "default"));
        assert!(Place::of_environment(|_| None).is_none());
    }
}

//! The servers of a tier as a user gives them: `valkey://host:port,host:port`.

use std::fmt;
use std::str::FromStr;

use shade_formats::limits::{TIER_BYTES_MAX, TIER_SERVERS_MAX};

/// Port where none is given.
const PORT: u16 = 6379;
/// Schemes with and without TLS. The first of each is the one that is printed.
const SCHEMES: [(&str, bool); 4] =
    [("valkey://", false), ("redis://", false), ("valkeys://", true), ("rediss://", true)];

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The servers of a tier: those of a cluster that are asked for all others, or single ones that
/// share the records evenly, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The user to log in as; `None` for the default one. The password is no part of it: it comes
    /// from the environment.
    pub user: Option<String>,
    /// At least one, at most [`TIER_SERVERS_MAX`].
    pub addresses: Vec<Address>,
}

/// A text that names no servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?}: {why}; write valkey://HOST:PORT,HOST:PORT (rediss:// for TLS, valkey://USER@HOST for a user)"
)]
pub struct ParseServersError {
    text: String,
    why: &'static str,
}

impl FromStr for Servers {
    type Err = ParseServersError;

    fn from_str(text: &str) -> Result<Self, ParseServersError> {
        let fail = |why| ParseServersError { text: without_password(text), why };
        let scheme = SCHEMES.iter().find_map(|&(scheme, tls)| Some((text.strip_prefix(scheme)?, tls)));
        let (rest, tls) = scheme.ok_or_else(|| fail("no scheme"))?;
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, rest),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(fail(
                "a password does not belong here, where every user of the machine sees it: \
                             set SHADE_TIER_PASSWORD instead",
            ));
        }
        let addresses: Result<Vec<Address>, _> = rest.split(',').map(address).collect();
        let addresses = addresses.map_err(fail)?;
        if addresses.len() > TIER_SERVERS_MAX {
            return Err(fail("too many servers"));
        }
        let user = user.filter(|user| !user.is_empty()).map(str::to_owned);
        let servers = Self { tls, user, addresses };
        // As a daemon tells it, with all ports.
        if servers.to_string().len() > TIER_BYTES_MAX {
            return Err(fail("too long"));
        }
        Ok(servers)
    }
}

/// One server: `host`, `host:port`, `[address]` or `[address]:port`.
fn address(text: &str) -> Result<Address, &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("a bracket is not closed")?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| "a port is no number from 0 to 65535")?,
        None if port.is_empty() => PORT,
        None => return Err("a port is not separated by a colon"),
    };
    let is_part_of_a_name = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() || !host.chars().all(is_part_of_a_name) {
        return Err("a host's name is missing or no name");
    }
    Ok(Address { host: host.to_owned(), port })
}

/// The text for an error message.
fn without_password(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(start), Some(end)) if start + 3 <= end => {
            let (before, after) = (text.get(..start + 3), text.get(end..));
            format!("{}...{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "valkeys://" } else { "valkey://" })?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for (at, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Servers {
        text.parse().unwrap()
    }

    #[test]
    fn texts() {
        let servers = parsed("valkey://cache-0,cache-1:7000,[fd00::1]:7001");
        assert_eq!(servers.addresses.len(), 3);
        assert_eq!(servers.addresses[2], Address { host: "fd00::1".into(), port: 7001 });
        assert_eq!(servers.to_string(), "valkey://cache-0:6379,cache-1:7000,[fd00::1]:7001");
        assert_eq!(parsed("rediss://shade@c:1").to_string(), "valkeys://shade@c:1");
        assert_eq!(parsed("redis://c").to_string(), "valkey://c:6379");
        // It fits as it is typed, and not with its ports.
        let hosts = vec!["a-host-of-17-bytes"; 100].join(",");
        let long = format!("valkey://{hosts}");
        assert!(long.len() < TIER_BYTES_MAX && long.parse::<Servers>().is_err());
        for text in ["valkey://a:1,b:2", "valkeys://me@[::1]:6379"] {
            assert_eq!(parsed(text).to_string(), text);
            assert_eq!(parsed(&parsed(text).to_string()), parsed(text));
        }
    }

    #[test]
    fn bad_texts_say_why_and_never_repeat_a_password() {
        for text in [
            "",
            "cache:6379",
            "http://cache",
            "valkey://",
            "valkey://a,",
            "valkey://a:70000",
            "valkey://[::1",
            "valkey://[::1]7",
            "valkey://a b",
            "valkey://a/0",
            "valkey://a?x",
            "valkey://a:",
        ] {
            assert!(text.parse::<Servers>().is_err(), "{text}");
        }
        let many = format!("valkey://{}", vec!["a"; TIER_SERVERS_MAX + 1].join(","));
        assert!(many.parse::<Servers>().is_err());
        for text in ["valkey://me:hunter2@cache:6379", "valkey://:hunter2@cache"] {
            let error = text.parse::<Servers>().unwrap_err().to_string();
            assert!(error.contains("SHADE_TIER_PASSWORD") && !error.contains("hunter2"), "{error}");
        }
    }
}

//! The names by which a client may ask for metrics.
//!
//! A page in a browser may read what comes from its own host. An attacker's page can make that
//! host's name resolve to this machine's address (DNS rebinding). Then its requests come here, and
//! name the attacker's host. No page has an IP address of this machine for its host, nor this
//! machine's own name.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustix::system::uname;

/// The names, in lower case.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// `localhost`, this machine's name with and without its domain, and the names that the user
    /// gave. Addresses go without saying.
    pub(super) fn new(given: &[String]) -> Self {
        let own = uname().nodename().to_string_lossy().into_owned();
        let short = own.split('.').next().unwrap_or_default().to_owned();
        let all = [own, short, "localhost".to_owned()].into_iter().chain(given.iter().cloned());
        Self(all.filter(|name| !name.is_empty()).map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a Host header names this machine.
    pub(super) fn has(&self, header: &str) -> bool {
        if let Some(address) = header.strip_prefix('[') {
            let Some((address, port)) = address.split_once(']') else { return false };
            return address.parse::<Ipv6Addr>().is_ok() && is_port(port);
        }
        let (name, port) = header.split_at(header.find(':').unwrap_or(header.len()));
        let name = name.to_ascii_lowercase();
        is_port(port) && (name.parse::<Ipv4Addr>().is_ok() || self.0.contains(&name))
    }
}

/// Nothing, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_known_name_are_this_machine_and_no_other_name_is() {
        let hosts = Hosts(vec!["localhost".to_owned(), "node7.cluster".to_owned()]);
        for own in [
            "localhost",
            "LocalHost:9432",
            "127.0.0.1",
            "10.1.2.3:9432",
            "[::1]",
            "[fe80::1]:9432",
            "node7.cluster:1",
        ] {
            assert!(hosts.has(own), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:9432",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost:x",
            "localhost@evil.example",
            "[::1",
            "[::1]x",
            "[evil]",
            "::1",
            "node7",
            "127.1",
            "2130706433",
        ] {
            assert!(!hosts.has(other), "{other}");
        }
        assert!(Hosts::new(&["Node7".to_owned()]).has("node7:9432"));
    }
}

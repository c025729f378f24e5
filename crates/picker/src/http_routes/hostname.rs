//! Host names of listeners and HTTPRoutes.

use std::borrow::Cow;

/// A host name, or a pattern of host names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hostname {
    /// All host names.
    Any,
    /// `*.example.com`: all subdomains of the domain, at any depth. Contains `.example.com`.
    Wildcard(String),
    /// Exactly this host name.
    Exact(String),
}

/// Returns the host name of a `Host` header or `:authority`, in lower case, without the port and a final dot.
pub(super) fn of_authority(authority: &str) -> Cow<'_, str> {
    let host = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

// === impl Hostname ===

impl Hostname {
    /// Parses the field `hostname` of a listener or an element of `hostnames` of a route. An empty text means all names.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        match text.strip_prefix('*') {
            _ if text.is_empty() => Self::Any,
            Some(suffix) => Self::Wildcard(suffix.to_owned()),
            None => Self::Exact(text),
        }
    }

    /// Returns whether `host`, in lower case, matches.
    pub(super) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Wildcard(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Self::Exact(name) => name == host,
        }
    }

    /// Returns the names that both patterns match; `None` if there are none.
    pub(super) fn intersection(&self, other: &Self) -> Option<Self> {
        let (general, specific) = if self.specificity() <= other.specificity() { (self, other) } else { (other, self) };
        let is_covered = match (general, specific) {
            (Self::Any, _) => true,
            (Self::Wildcard(suffix), Self::Wildcard(name)) => name.ends_with(suffix.as_str()),
            (Self::Wildcard(_), Self::Exact(name)) => general.matches(name),
            (general, specific) => general == specific,
        };
        is_covered.then(|| specific.clone())
    }

    /// Returns how specific the pattern is: exact names precede wildcards, and longer ones shorter ones.
    pub(super) fn specificity(&self) -> (u8, usize) {
        match self {
            Self::Any => (0, 0),
            Self::Wildcard(suffix) => (1, suffix.len()),
            Self::Exact(name) => (2, name.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::port("Chat.Example.com:8080", "chat.example.com")]
    #[case::final_dot("chat.example.com.", "chat.example.com")]
    #[case::ipv4("127.0.0.1:80", "127.0.0.1")]
    #[case::ipv6("[::1]:80", "[::1]")]
    #[case::ipv6_without_port("[::1]", "[::1]")]
    #[case::empty("", "")]
    fn authority_contains_the_host(#[case] authority: &str, #[case] expect: &str) {
        assert_eq!(of_authority(authority), expect);
    }

    #[rstest]
    #[case::any("", "x", true)]
    #[case::exact("a.example.com", "a.example.com", true)]
    #[case::other("a.example.com", "b.example.com", false)]
    #[case::upper_case("A.example.com", "a.example.com", true)]
    #[case::subdomain("*.example.com", "a.example.com", true)]
    #[case::two_labels("*.example.com", "a.b.example.com", true)]
    #[case::domain_itself("*.example.com", "example.com", false)]
    #[case::same_suffix("*.example.com", "aexample.com", false)]
    fn patterns_match_hosts(#[case] pattern: &str, #[case] host: &str, #[case] expect: bool) {
        assert_eq!(Hostname::parse(pattern).matches(host), expect);
    }

    /// The examples of `HTTPRouteSpec.hostnames`.
    #[rstest]
    #[case::no_listener_hostname("", "a.example.com", Some("a.example.com"))]
    #[case::equal("test.example.com", "test.example.com", Some("test.example.com"))]
    #[case::different("test.example.com", "test.example.net", None)]
    #[case::exact_and_wildcard("test.example.com", "*.example.com", Some("test.example.com"))]
    #[case::wildcard_and_exact("*.example.com", "test.example.com", Some("test.example.com"))]
    #[case::more_labels("*.example.com", "foo.test.example.com", Some("foo.test.example.com"))]
    #[case::domain_itself("*.example.com", "example.com", None)]
    #[case::wildcards("*.example.com", "*.test.example.com", Some("*.test.example.com"))]
    #[case::other_wildcard("*.example.com", "*.example.net", None)]
    fn listeners_and_routes_intersect(#[case] listener: &str, #[case] route: &str, #[case] expect: Option<&str>) {
        let (listener, route, expect) =
            (Hostname::parse(listener), Hostname::parse(route), expect.map(Hostname::parse));
        assert_eq!(listener.intersection(&route), expect);
        assert_eq!(route.intersection(&listener), expect);
    }
}

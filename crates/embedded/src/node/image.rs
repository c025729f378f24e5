//! Images before a container starts: whether a reference is one, and whether it can be pulled. Sentences are a kubelet's.

use std::time::Duration;

/// A kubelet's back-off between two tries to pull: 10 s doubling to 5 min.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Longest name, without tag and digest.
const NAME_LENGTH: usize = 255;
const TAG_LENGTH: usize = 128;

/// Why `image` is no reference (the grammar of the `distribution` project), in a kubelet's words.
pub(crate) fn fault(image: &str) -> Option<String> {
    let cause = cause(image)?;
    Some(format!("Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": {cause}"))
}

fn cause(image: &str) -> Option<&'static str> {
    const INVALID: &str = "invalid reference format";
    let (rest, digest) = image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) || tag.is_some_and(|tag| !is_tag(tag)) {
        return Some(INVALID);
    }
    let (domain, path) = domain_of(name);
    if domain.is_some_and(|domain| !is_domain(domain)) {
        return Some(INVALID);
    }
    if path.chars().any(|c| c.is_ascii_uppercase()) {
        return Some("invalid reference format: repository name must be lowercase");
    }
    if path.is_empty() || !path.split('/').all(is_component) {
        return Some(INVALID);
    }
    (name.len() > NAME_LENGTH).then_some("repository name must not be more than 255 characters")
}

/// The first part is a domain if it looks like one; otherwise the default registry is meant.
fn domain_of(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first => {
            (Some(first), rest)
        }
        _ => (None, name),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':'),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()))
}

/// Letters and digits, parted by one `.`, one or two `_`, or any number of `-`.
fn is_component(component: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let parted = component.split(is_word).filter(|between| !between.is_empty());
    let mut ends = [component.chars().next(), component.chars().next_back()].into_iter();
    ends.all(|end| end.is_some_and(is_word))
        && parted.clone().all(|by| matches!(by, "." | "_" | "__") || by.chars().all(|c| c == '-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= TAG_LENGTH && tag.starts_with(is_word) && tag.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

/// `sha256:…`, at least 32 hex digits.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let parts = algorithm.split(['+', '.', '-', '_']);
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(|c| c.is_ascii_alphanumeric())
    };
    parts.into_iter().all(is_part) && hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
}

/// Tries to pull one image.
#[derive(Debug, Default)]
pub(crate) struct Pulls {
    failed: u32,
}

impl Pulls {
    /// One more failed: how long to wait before the next.
    pub(crate) fn failed(&mut self) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failed.min(16)).min(LONGEST);
        self.failed = self.failed.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("busybox")]
    #[case("vllm/vllm-openai:v0.11.0")]
    #[case("registry.example:5000/a/b__c/d-e.f:1.0_x")]
    #[case("localhost/x")]
    #[case("[::1]:5000/x")]
    #[case("Registry.Example/x")]
    #[case("x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")]
    #[case("x:v1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")]
    fn references(#[case] image: &str) {
        assert_eq!(fault(image), None);
    }

    #[rstest]
    #[case::upper_case("vllm/vLLM-openai", "repository name must be lowercase")]
    #[case::blank("vllm openai:v1", "invalid reference format")]
    #[case::two_tags("vllm:v1:v2", "invalid reference format")]
    #[case::empty_tag("vllm:", "invalid reference format")]
    #[case::bad_tag("vllm:-x", "invalid reference format")]
    #[case::nothing(":v1", "invalid reference format")]
    #[case::slash_at_the_end("vllm/", "invalid reference format")]
    #[case::two_slashes("a//b", "invalid reference format")]
    #[case::three_underscores("a___b", "invalid reference format")]
    #[case::digest("x@sha256:12", "invalid reference format")]
    #[case::a_template("{{image}}", "invalid reference format")]
    #[case::a_variable("$(IMAGE)", "repository name must be lowercase")]
    fn no_references(#[case] image: &str, #[case] cause: &str) {
        let told = fault(image).unwrap();
        assert!(
            told.starts_with(&format!("Failed to apply default image tag \"{image}\"")) && told.ends_with(cause),
            "{told}"
        );
    }

    #[test]
    fn tries_become_rarer() {
        let mut pulls = Pulls::default();
        let seen: Vec<u64> = (0..7).map(|_| pulls.failed().as_secs()).collect();
        assert_eq!(seen, [10, 20, 40, 80, 160, 300, 300]);
    }
}

//! Image names and pull back-off. The error messages match those of the kubelet.

use std::time::Duration;

/// The kubelet's back-off between image pull attempts: 10 s, doubling up to 5 min.
const INITIAL_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// Maximum length of a name, without tag and digest.
const MAX_NAME_LENGTH: usize = 255;
const MAX_TAG_LENGTH: usize = 128;

/// Returns the kubelet's error message if the image reference is invalid (grammar of the `distribution` project),
/// `None` if it is valid.
pub(crate) fn invalid_name_message(image: &str) -> Option<String> {
    let cause = parse_error(image)?;
    Some(format!("Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": {cause}"))
}

/// Returns the reason why the reference is invalid, `None` for a valid one.
fn parse_error(image: &str) -> Option<&'static str> {
    const INVALID_FORMAT: &str = "invalid reference format";
    let (rest, digest) = image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) || tag.is_some_and(|tag| !is_tag(tag)) {
        return Some(INVALID_FORMAT);
    }
    let (domain, path) = split_domain(name);
    if domain.is_some_and(|domain| !is_domain(domain)) {
        return Some(INVALID_FORMAT);
    }
    if path.chars().any(|c| c.is_ascii_uppercase()) {
        return Some("invalid reference format: repository name must be lowercase");
    }
    if path.is_empty() || !path.split('/').all(is_component) {
        return Some(INVALID_FORMAT);
    }
    (name.len() > MAX_NAME_LENGTH).then_some("repository name must not be more than 255 characters")
}

/// Splits an image name into domain and path. The domain is `None` (the default registry) unless the first component
/// looks like a host name.
fn split_domain(name: &str) -> (Option<&str>, &str) {
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
        let is_label_char = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty() && label.chars().all(is_label_char) && !label.starts_with('-') && !label.ends_with('-')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':'),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()))
}

/// Whether the component consists of lower-case letters and digits, separated by one `.`, one or two `_`, or any
/// number of `-`.
fn is_component(component: &str) -> bool {
    let is_lowercase_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = component.split(is_lowercase_alphanumeric).filter(|separator| !separator.is_empty());
    let mut ends = [component.chars().next(), component.chars().next_back()].into_iter();
    ends.all(|end| end.is_some_and(is_lowercase_alphanumeric))
        && separators
            .clone()
            .all(|separator| matches!(separator, "." | "_" | "__") || separator.chars().all(|c| c == '-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= MAX_TAG_LENGTH
        && tag.starts_with(is_word_char)
        && tag.chars().all(|c| is_word_char(c) || c == '.' || c == '-')
}

/// Whether the digest has the form `ALGORITHM:HEX` with at least 32 hexadecimal digits.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let parts = algorithm.split(['+', '.', '-', '_']);
    let is_algorithm_component = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(|c| c.is_ascii_alphanumeric())
    };
    parts.into_iter().all(is_algorithm_component) && hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
}

/// The pull back-off of one image.
#[derive(Debug, Default)]
pub(crate) struct ImagePullBackOff {
    failures: u32,
}

impl ImagePullBackOff {
    /// Records a failed attempt and returns the delay before the next one.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = INITIAL_DELAY.saturating_mul(1 << self.failures.min(16)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        delay
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
    fn accepts_valid_references(#[case] image: &str) {
        assert_eq!(invalid_name_message(image), None);
    }

    #[rstest]
    #[case::upper_case("vllm/vLLM-openai", "repository name must be lowercase")]
    #[case::space("vllm openai:v1", "invalid reference format")]
    #[case::two_tags("vllm:v1:v2", "invalid reference format")]
    #[case::empty_tag("vllm:", "invalid reference format")]
    #[case::bad_tag("vllm:-x", "invalid reference format")]
    #[case::empty_name(":v1", "invalid reference format")]
    #[case::trailing_slash("vllm/", "invalid reference format")]
    #[case::two_slashes("a//b", "invalid reference format")]
    #[case::three_underscores("a___b", "invalid reference format")]
    #[case::digest("x@sha256:12", "invalid reference format")]
    #[case::template("{{image}}", "invalid reference format")]
    #[case::variable("$(IMAGE)", "repository name must be lowercase")]
    fn rejects_invalid_references(#[case] image: &str, #[case] cause: &str) {
        let message = invalid_name_message(image).unwrap();
        assert!(
            message.starts_with(&format!("Failed to apply default image tag \"{image}\"")) && message.ends_with(cause),
            "{message}"
        );
    }

    #[test]
    fn pull_delays_double() {
        let mut back_off = ImagePullBackOff::default();
        let delays: Vec<u64> = (0..7).map(|_| back_off.next_delay().as_secs()).collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    }
}

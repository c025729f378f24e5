//! Versions of model formats and frameworks: `major[.minor[.patch]]` with optional `v`, pre-release and build.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version with only its specified parts.
///
/// Equality compares the parts as written; use [`Version::cmp_specified`] to compare a runtime with a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Major version.
    pub major: u64,
    /// Minor version, if specified.
    pub minor: Option<u64>,
    /// Patch version, if specified.
    pub patch: Option<u64>,
    /// Pre-release identifiers without the leading `-`, including Python's `dev0` in `4.51.0.dev0` and the post-release
    /// `post1` in `2.6.0.post1`.
    pub pre_release: Option<String>,
    /// Build metadata without the leading `+`; ignored in comparisons.
    pub build: Option<String>,
}

/// Error returned when parsing text that is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version; write major[.minor[.patch]], such as `4.36.2`")]
pub struct VersionError(String);

/// Position of a version relative to the release with the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReleasePhase {
    /// Before the release, such as `rc1` or `dev0`.
    PreRelease,
    /// The release itself.
    Release,
    /// After the release, such as `post1`.
    PostRelease,
}

// === impl Version ===

impl Version {
    /// Compares the specified parts of `self` (the version of a runtime) with those of `other` (the version of a model).
    ///
    /// Missing parts of `other` count as 0: `1` equals `1.0.0` and `1.7`. A pre-release precedes its release, and a
    /// Python post-release follows it.
    pub fn cmp_specified(&self, other: &Version) -> Ordering {
        let cmp_part = |part: Option<u64>, other_part: Option<u64>| {
            part.map_or(Ordering::Equal, |part| part.cmp(&other_part.unwrap_or(0)))
        };
        self.major
            .cmp(&other.major)
            .then_with(|| cmp_part(self.minor, other.minor))
            .then_with(|| cmp_part(self.patch, other.patch))
            .then_with(|| self.cmp_pre_release(other))
    }

    fn cmp_pre_release(&self, other: &Version) -> Ordering {
        // Without a patch version, all pre-releases of the specified parts are equal.
        if self.patch.is_none() && self.pre_release.is_none() {
            return Ordering::Equal;
        }
        let identifiers = |version: &Version| version.pre_release.clone().unwrap_or_default();
        self.release_phase()
            .cmp(&other.release_phase())
            .then_with(|| cmp_identifiers(&identifiers(self), &identifiers(other)))
    }

    fn release_phase(&self) -> ReleasePhase {
        match self.pre_release.as_deref() {
            None => ReleasePhase::Release,
            Some(identifiers) if identifiers.starts_with("post") => ReleasePhase::PostRelease,
            Some(_) => ReleasePhase::PreRelease,
        }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).ok_or_else(|| VersionError(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        for part in [self.minor, self.patch].into_iter().flatten() {
            write!(f, ".{part}")?;
        }
        if let Some(pre_release) = &self.pre_release {
            write!(f, "-{pre_release}")?;
        }
        if let Some(build) = &self.build {
            write!(f, "+{build}")?;
        }
        Ok(())
    }
}

/// Compares dotted identifiers as in semantic versioning: numbers are compared by value and precede words.
fn cmp_identifiers(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(x), Some(y)) => match (x.parse::<u64>(), y.parse::<u64>()) {
                (Ok(x), Ok(y)) => x.cmp(&y),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => cmp_words(x, y),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Compares words with a trailing number by that number: `dev2` precedes `dev10`.
fn cmp_words(a: &str, b: &str) -> Ordering {
    let split = |word: &str| {
        let prefix_length = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (word[..prefix_length].to_owned(), word[prefix_length..].parse::<u64>().ok())
    };
    split(a).cmp(&split(b)).then_with(|| a.cmp(b))
}

fn parse(text: &str) -> Option<Version> {
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let (text, build) = split_suffix(text, '+')?;
    let (core, pre_release) = split_suffix(text, '-')?;
    let (core, python_pre_release) = split_python_pre_release(core);
    let mut pre_release = match (pre_release, python_pre_release) {
        (Some(_), Some(_)) => return None,
        (pre_release, python_pre_release) => pre_release.or(python_pre_release),
    };
    let parts: Vec<&str> = core.split('.').collect();
    let number_count = parts.iter().take(3).take_while(|part| is_number(part)).count();
    let numbers = parts[..number_count].iter().map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    if number_count < parts.len() {
        // Python separates pre-releases by a dot: 4.51.0.dev0
        let is_python_suffix =
            parts[number_count].len() > 1 && parts[number_count].starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_python_suffix || pre_release.is_some() {
            return None;
        }
        pre_release = Some(parts[number_count..].join("."));
    }
    let major = *numbers.first()?;
    let (minor, patch) = (numbers.get(1).copied(), numbers.get(2).copied());
    let is_valid = |text: &Option<String>| text.as_deref().is_none_or(are_identifiers);
    let version = Version { major, minor, patch, pre_release, build };
    (is_valid(&version.pre_release) && is_valid(&version.build)).then_some(version)
}

/// Splits off a Python pre-release without a separator: `5.0.0rc1`, `4.0a2`.
fn split_python_pre_release(core: &str) -> (&str, Option<String>) {
    let is_pre_release = |text: &str| {
        let number = ["rc", "a", "b"].iter().find_map(|kind| text.strip_prefix(kind));
        number.is_some_and(|number| is_number(number.split('.').next().unwrap_or_default()))
    };
    let end = core.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(core.len());
    let (numbers, rest) = core.split_at(end);
    if numbers.ends_with(|c: char| c.is_ascii_digit()) && is_pre_release(rest) {
        return (numbers, Some(rest.to_owned()));
    }
    (core, None)
}

/// Splits `text` at the first `separator`; returns `None` if the text after it is empty.
fn split_suffix(text: &str, separator: char) -> Option<(&str, Option<String>)> {
    match text.split_once(separator) {
        None => Some((text, None)),
        Some((_, "")) => None,
        Some((head, tail)) => Some((head, Some(tail.to_owned()))),
    }
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn are_identifiers(text: &str) -> bool {
    let is_identifier =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    text.split('.').all(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1", "1.0.0", Ordering::Equal)]
    #[case("1", "1.7", Ordering::Equal)]
    #[case("1.0.0", "1", Ordering::Equal)]
    #[case("v4.45", "4.33.1", Ordering::Greater)]
    #[case("4.9", "4.10", Ordering::Less)]
    #[case("4.36.0-rc1", "4.36.0", Ordering::Less)]
    #[case("4.36.0", "4.36.0.dev0", Ordering::Greater)]
    #[case("4.36", "4.36.0.dev0", Ordering::Equal)]
    #[case("4.36.0.dev2", "4.36.0.dev10", Ordering::Less)]
    #[case("5.0.0rc1", "5.0.0", Ordering::Less)]
    #[case("5.0.0", "5.0.0rc1", Ordering::Greater)]
    #[case("5.0.0rc1", "5.0.0-rc1", Ordering::Equal)]
    #[case("1.0.0+cu128", "1.0.0", Ordering::Equal)]
    #[case::post_release("2.6.0.post1", "2.6.0", Ordering::Greater)]
    #[case::post_releases("2.6.0.post2", "2.6.0.post10", Ordering::Less)]
    #[case::unspecified_patch("2.6", "2.6.0.post1", Ordering::Equal)]
    fn compares_specified_parts(#[case] runtime: &str, #[case] model: &str, #[case] expect: Ordering) {
        let parse = |text: &str| text.parse::<Version>().unwrap();
        assert_eq!(parse(runtime).cmp_specified(&parse(model)), expect);
    }

    #[rstest]
    #[case("")]
    #[case("latest")]
    #[case("1.")]
    #[case("1.2.3.4")]
    #[case("1.x")]
    #[case("1.0xyz")]
    #[case("1.0rc")]
    #[case("1.0rc1-rc2")]
    #[case("1.0-")]
    #[case("1.0+")]
    #[case("-1")]
    fn rejects_malformed_versions(#[case] text: &str) {
        assert_eq!(text.parse::<Version>(), Err(VersionError(text.to_owned())));
    }

    #[rstest]
    #[case("v1.2.3-rc.1+build.5", "1.2.3-rc.1+build.5")]
    #[case("4.51.0.dev0", "4.51.0-dev0")]
    #[case("5.0.0rc1", "5.0.0-rc1")]
    fn formats_versions(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(text.parse::<Version>().unwrap().to_string(), expect);
    }
}

//! Versions of model formats and frameworks: `major[.minor[.patch]]` with optional `v`, pre-release and build.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version with the parts that were stated.
///
/// Equality and order are of the written parts; compare with a requirement by [`Version::cmp_stated`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub major: u64,
    pub minor: Option<u64>,
    pub patch: Option<u64>,
    /// Without the leading `-`; `dev0` of `4.51.0.dev0` too, and `post1` of `2.6.0.post1`, which comes after its release.
    pub pre_release: Option<String>,
    /// Without the leading `+`; never compared.
    pub build: Option<String>,
}

/// Text that is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version; write major[.minor[.patch]], such as `4.36.2`")]
pub struct VersionError(String);

impl Version {
    /// Compares only the parts that `self` (the runtime's version) states with those of `other` (the model's),
    /// whose missing parts count as 0: `1` is equal to `1.0.0` and to `1.7`. A pre-release is below its release, a
    /// post-release of Python above it.
    pub fn cmp_stated(&self, other: &Version) -> Ordering {
        let part = |mine: Option<u64>, theirs: Option<u64>| {
            mine.map_or(Ordering::Equal, |mine| mine.cmp(&theirs.unwrap_or(0)))
        };
        self.major
            .cmp(&other.major)
            .then_with(|| part(self.minor, other.minor))
            .then_with(|| part(self.patch, other.patch))
            .then_with(|| self.cmp_pre_release(other))
    }

    fn cmp_pre_release(&self, other: &Version) -> Ordering {
        // "Only the parts that the runtime states": `4` says nothing about which 4.x, pre-releases included.
        if self.patch.is_none() && self.pre_release.is_none() {
            return Ordering::Equal;
        }
        let words = |version: &Version| version.pre_release.clone().unwrap_or_default();
        self.phase().cmp(&other.phase()).then_with(|| cmp_identifiers(&words(self), &words(other)))
    }

    fn phase(&self) -> Phase {
        match self.pre_release.as_deref() {
            None => Phase::Release,
            Some(words) if words.starts_with("post") => Phase::After,
            Some(_) => Phase::Before,
        }
    }
}

/// How a version stands to the release of its numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    Release,
    After,
}

/// Dotted identifiers as semantic versioning orders them: numbers by value and below words.
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

/// Words with a number at the end by that number: `dev2` is below `dev10`.
fn cmp_words(a: &str, b: &str) -> Ordering {
    let split = |word: &str| {
        let stem = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (word[..stem].to_owned(), word[stem..].parse::<u64>().ok())
    };
    split(a).cmp(&split(b)).then_with(|| a.cmp(b))
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).ok_or_else(|| VersionError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Version> {
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let (text, build) = cut(text, '+')?;
    let (core, stated) = cut(text, '-')?;
    let (core, glued) = python_pre_release(core);
    let mut pre_release = match (stated, glued) {
        (Some(_), Some(_)) => return None,
        (one, other) => one.or(other),
    };
    let parts: Vec<&str> = core.split('.').collect();
    let stated = parts.iter().take(3).take_while(|part| is_number(part)).count();
    let numbers = parts[..stated].iter().map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
    if stated < parts.len() {
        // Python writes the pre-release with a dot: 4.51.0.dev0
        let python = parts[stated].len() > 1 && parts[stated].starts_with(|c: char| c.is_ascii_alphabetic());
        if !python || pre_release.is_some() {
            return None;
        }
        pre_release = Some(parts[stated..].join("."));
    }
    let major = *numbers.first()?;
    let (minor, patch) = (numbers.get(1).copied(), numbers.get(2).copied());
    let words = |text: &Option<String>| text.as_deref().is_none_or(is_identifiers);
    let version = Version { major, minor, patch, pre_release, build };
    (words(&version.pre_release) && words(&version.build)).then_some(version)
}

/// Python also writes pre-releases without a mark: `5.0.0rc1`, `4.0a2`.
fn python_pre_release(core: &str) -> (&str, Option<String>) {
    let is_one = |text: &str| {
        let number = ["rc", "a", "b"].iter().find_map(|kind| text.strip_prefix(kind));
        number.is_some_and(|number| is_number(number.split('.').next().unwrap_or_default()))
    };
    let at = core.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(core.len());
    let (numbers, rest) = core.split_at(at);
    if numbers.ends_with(|c: char| c.is_ascii_digit()) && is_one(rest) {
        return (numbers, Some(rest.to_owned()));
    }
    (core, None)
}

/// The text before `mark` and the part after it, which must not be empty.
fn cut(text: &str, mark: char) -> Option<(&str, Option<String>)> {
    match text.split_once(mark) {
        None => Some((text, None)),
        Some((_, "")) => None,
        Some((head, tail)) => Some((head, Some(tail.to_owned()))),
    }
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_identifiers(text: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    text.split('.').all(word)
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
    #[case::unstated_patch("2.6", "2.6.0.post1", Ordering::Equal)]
    fn compared(#[case] runtime: &str, #[case] model: &str, #[case] expect: Ordering) {
        let parse = |text: &str| text.parse::<Version>().unwrap();
        assert_eq!(parse(runtime).cmp_stated(&parse(model)), expect);
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
    fn refused(#[case] text: &str) {
        assert_eq!(text.parse::<Version>(), Err(VersionError(text.to_owned())));
    }

    #[rstest]
    #[case("v1.2.3-rc.1+build.5", "1.2.3-rc.1+build.5")]
    #[case("4.51.0.dev0", "4.51.0-dev0")]
    #[case("5.0.0rc1", "5.0.0-rc1")]
    fn shown(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(text.parse::<Version>().unwrap().to_string(), expect);
    }
}

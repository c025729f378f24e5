//! The corpus of the fuzz targets, and what is made from it by cutting, doubling and mixing; `OSTLER_FUZZ_CASES` says how
//! much of that. Coverage-guided runs are in `fuzz/`.

#[path = "../../fuzz/targets.rs"]
#[allow(unreachable_pub, reason = "the fuzz tree has them in a crate of their own")]
mod targets;

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rstest::rstest;

/// What tells the reader something; mixed into the corpus.
const TOKENS: &[&str] = &[
    "null",
    "[]",
    "{}",
    "\"\"",
    "-1",
    "1e308",
    "$patch",
    "delete",
    "$setElementOrder/containers",
    "$retainKeys",
    "metadata",
    "managedFields",
    "(",
    ")",
    "[",
    "]",
    "!",
    "==",
    "!=",
    " in (",
    "notin",
    ",",
    "=",
    "..",
    "%2F",
    "%",
    "/",
    "//",
    "?",
    "&",
    "namespaces/",
    "watch=true",
    "limit=",
    "continue=",
    "labelSelector=",
    "self",
    "oldSelf",
    ".all(x, ",
    ".map(x, ",
    "lists.range(9999999)",
    "matches('",
    "replace('','a')",
    " ? ",
    " : ",
    " && ",
    "\u{0}",
    "\u{FFFD}",
    "é",
    "\n",
];

#[rstest]
#[case::patches("patches", targets::patches)]
#[case::selectors("selectors", targets::selectors)]
#[case::cel("cel", targets::cel)]
#[case::paths("paths", targets::paths)]
fn any_bytes_are_read(#[case] name: &str, #[case] target: fn(&[u8])) {
    let corpus = corpus(name);
    corpus.iter().for_each(|bytes| target(bytes));
    let cases = std::env::var("OSTLER_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(192);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let strategy =
        (prop::sample::select(corpus.clone()), prop::sample::select(corpus), prop::collection::vec(edit(), 0..8));
    let outcome = TestRunner::new(config).run(&strategy, |(bytes, other, edits)| {
        let changed = edits.iter().fold(bytes, |bytes, edit| edit.on(bytes, &other));
        target(&changed);
        Ok(())
    });
    outcome.unwrap();
}

/// One change of a text; places are parts of 1000.
#[derive(Debug, Clone)]
enum Edit {
    Cut(usize, usize),
    Double(usize, usize),
    Token(usize, &'static str),
    Repeat(usize, &'static str, usize),
    Byte(usize, u8),
    /// The rest of another text.
    Other(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0..1000_usize;
    let token = || prop::sample::select(TOKENS);
    prop_oneof![
        (place(), 1..12_usize).prop_map(|(at, count)| Edit::Cut(at, count)),
        (place(), 1..40_usize).prop_map(|(at, count)| Edit::Double(at, count)),
        (place(), token()).prop_map(|(at, token)| Edit::Token(at, token)),
        (place(), token(), 2..200_usize).prop_map(|(at, token, count)| Edit::Repeat(at, token, count)),
        (place(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        place().prop_map(Edit::Other),
    ]
}

// === impl Edit ===

impl Edit {
    fn on(&self, bytes: Vec<u8>, other: &[u8]) -> Vec<u8> {
        let place = |part: usize| part * bytes.len() / 1000;
        let replaced = |at: usize, count: usize, new: &[u8]| {
            let end = (at + count).min(bytes.len());
            [&bytes[..at], new, &bytes[end..]].concat()
        };
        match self {
            Self::Cut(at, count) => replaced(place(*at), *count, &[]),
            Self::Double(at, count) => {
                let (start, end) = (place(*at), (place(*at) + count).min(bytes.len()));
                replaced(end, 0, &bytes[start..end])
            }
            Self::Token(at, token) => replaced(place(*at), 0, token.as_bytes()),
            Self::Repeat(at, token, count) => replaced(place(*at), 0, token.repeat(*count).as_bytes()),
            Self::Byte(at, byte) => replaced(place(*at), 1, &[*byte]),
            Self::Other(at) => [&bytes[..place(*at)], &other[at * other.len() / 1000..]].concat(),
        }
    }
}

/// The files of one target, by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

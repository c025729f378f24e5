//! Runs the fuzz targets on their corpus and on mutations of it. `OSTLER_FUZZ_CASES` sets the number of mutations;
//! coverage-guided fuzzing is in `fuzz/`.

#[path = "../../fuzz/targets.rs"]
#[allow(unreachable_pub, reason = "the file is also a module of the fuzz crate")]
mod targets;

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rstest::rstest;

/// Tokens of the fuzzed formats, inserted into inputs of the corpus.
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
fn targets_accept_mutated_corpus(#[case] name: &str, #[case] target: fn(&[u8])) {
    let corpus = corpus(name);
    corpus.iter().for_each(|bytes| target(bytes));
    let cases = std::env::var("OSTLER_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(192);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let strategy =
        (prop::sample::select(corpus.clone()), prop::sample::select(corpus), prop::collection::vec(mutation(), 0..8));
    let result = TestRunner::new(config).run(&strategy, |(bytes, other, mutations)| {
        let mutated = mutations.iter().fold(bytes, |bytes, mutation| mutation.apply(bytes, &other));
        target(&mutated);
        Ok(())
    });
    result.unwrap();
}

/// Mutation of an input. Positions are thousandths of the input length.
#[derive(Debug, Clone)]
enum Mutation {
    Delete(usize, usize),
    Duplicate(usize, usize),
    Insert(usize, &'static str),
    InsertRepeated(usize, &'static str, usize),
    Overwrite(usize, u8),
    /// Replaces the tail with the tail of another input.
    Splice(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let position = || 0..1000_usize;
    let token = || prop::sample::select(TOKENS);
    prop_oneof![
        (position(), 1..12_usize).prop_map(|(at, count)| Mutation::Delete(at, count)),
        (position(), 1..40_usize).prop_map(|(at, count)| Mutation::Duplicate(at, count)),
        (position(), token()).prop_map(|(at, token)| Mutation::Insert(at, token)),
        (position(), token(), 2..200_usize).prop_map(|(at, token, count)| Mutation::InsertRepeated(at, token, count)),
        (position(), any::<u8>()).prop_map(|(at, byte)| Mutation::Overwrite(at, byte)),
        position().prop_map(Mutation::Splice),
    ]
}

// === impl Mutation ===

impl Mutation {
    fn apply(&self, bytes: Vec<u8>, other: &[u8]) -> Vec<u8> {
        let offset = |position: usize| position * bytes.len() / 1000;
        let replace = |at: usize, count: usize, new: &[u8]| {
            let end = (at + count).min(bytes.len());
            [&bytes[..at], new, &bytes[end..]].concat()
        };
        match self {
            Self::Delete(at, count) => replace(offset(*at), *count, &[]),
            Self::Duplicate(at, count) => {
                let (start, end) = (offset(*at), (offset(*at) + count).min(bytes.len()));
                replace(end, 0, &bytes[start..end])
            }
            Self::Insert(at, token) => replace(offset(*at), 0, token.as_bytes()),
            Self::InsertRepeated(at, token, count) => replace(offset(*at), 0, token.repeat(*count).as_bytes()),
            Self::Overwrite(at, byte) => replace(offset(*at), 1, &[*byte]),
            Self::Splice(at) => [&bytes[..offset(*at)], &other[at * other.len() / 1000..]].concat(),
        }
    }
}

/// Returns the corpus of a target, ordered by file name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

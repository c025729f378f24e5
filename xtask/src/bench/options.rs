//! Options of a benchmark from the command line.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// Options of all benchmarks; one that does not apply to a benchmark has no effect there.
#[derive(Default)]
pub(super) struct Options {
    pub(super) size: Size,
    /// Directory with the binaries of etcd and kube-apiserver that `load` is compared with.
    pub(super) compare_binaries: Option<PathBuf>,
}

/// Size of a benchmark.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Size {
    /// The size whose results `docs/benchmarks.md` shows.
    #[default]
    Full,
    /// Half as many objects.
    Half,
    /// A tenth of the objects, one round and short measurements: shows that the benchmark works.
    Small,
}

// === impl Options ===

impl Options {
    /// Parses the arguments after the name of the benchmark.
    pub(super) fn parse(arguments: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--half" => options.size = Size::Half,
                "--small" => options.size = Size::Small,
                "--beside" => options.compare_binaries = arguments.next().map(PathBuf::from),
                unexpected => bail!(
                    "bench: unexpected argument {unexpected:?}\nhint: use --half or --small for smaller sizes, and --beside DIR with a directory of the binaries etcd and kube-apiserver"
                ),
            }
        }
        Ok(options)
    }
}

// === impl Size ===

impl Size {
    /// Returns the number of objects at this size, at least one.
    pub(super) fn scale(self, full: usize) -> usize {
        let divisor = match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Small => 10,
        };
        (full / divisor).max(1)
    }

    /// Returns `full`, or `small` at the smallest size: rounds, seconds.
    pub(super) fn choose<T>(self, full: T, small: T) -> T {
        if self == Self::Small { small } else { full }
    }
}

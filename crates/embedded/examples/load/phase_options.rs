//! Options of a phase from the command line.

use std::collections::BTreeMap;

use crate::result::Result;

/// Numeric options of a phase by name.
pub(crate) struct PhaseOptions(BTreeMap<String, usize>);

impl PhaseOptions {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let pair = |argument: String| -> Result<(String, usize)> {
            let (name, value) = argument.split_once('=').ok_or_else(|| format!("{argument}: expected name=value"))?;
            Ok((name.to_owned(), value.parse()?))
        };
        Ok(Self(arguments.map(pair).collect::<Result<_>>()?))
    }

    pub(crate) fn get(&self, name: &str, default: usize) -> usize {
        self.0.get(name).copied().unwrap_or(default)
    }
}

//! Schedules: what the models do in a run, and when. Their text has one JSON object per line: the seed, then the injections.

use std::fmt::{self, Display, Formatter};
use std::io::{Error, ErrorKind};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::seed::Seed;

/// One action of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Injection {
    /// Virtual time since the start of the run, in milliseconds.
    pub at_ms: u64,
    /// Name of the model.
    pub model: String,
    /// What it does.
    pub action: Value,
}

/// What the models do in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Determines everything else that is random, such as UIDs and back-offs.
    pub seed: Seed,
    /// In the order of their times.
    pub injections: Vec<Injection>,
}

/// The first line of a schedule.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    seed: u64,
}

// === impl Injection ===

impl Injection {
    /// Returns the virtual time since the start of the run.
    #[must_use]
    pub fn at(&self) -> Duration {
        Duration::from_millis(self.at_ms)
    }
}

// === impl Schedule ===

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid =
            |line: usize, cause: &dyn Display| Error::new(ErrorKind::InvalidData, format!("line {line}: {cause}"));
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let (_, header) = lines.next().ok_or_else(|| invalid(1, &"the line with the seed is missing"))?;
        let header: Header = serde_json::from_str(header).map_err(|error| invalid(1, &error))?;
        let parse = |(line, text)| serde_json::from_str(text).map_err(|error| invalid(line, &error));
        let injections: Vec<Injection> = lines.map(parse).collect::<Result<_, _>>()?;
        if !injections.is_sorted_by_key(|injection| injection.at_ms) {
            return Err(Error::new(ErrorKind::InvalidData, "the injections are not in the order of their times"));
        }
        Ok(Self { seed: Seed(header.seed), injections })
    }
}

impl Display for Schedule {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let header = serde_json::to_string(&Header { seed: self.seed.0 }).map_err(|_| fmt::Error)?;
        writeln!(formatter, "{header}")?;
        for injection in &self.injections {
            writeln!(formatter, "{}", serde_json::to_string(injection).map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn text_contains_the_whole_schedule() {
        let injection =
            |at_ms| Injection { at_ms, model: "nodes".to_owned(), action: json!({"add": {"name": "gpu-b"}}) };
        let schedule = Schedule { seed: Seed(7), injections: vec![injection(5_000), injection(5_001)] };
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
    }

    #[rstest]
    #[case::empty("", "line 1: the line with the seed is missing")]
    #[case::no_seed("{}", "line 1: missing field `seed` at line 1 column 2")]
    #[case::no_model("{\"seed\": 1}\n{\"atMs\": 1}", "line 2: missing field `model` at line 1 column 11")]
    #[case::order(
        "{\"seed\": 1}\n{\"atMs\": 2, \"model\": \"a\", \"action\": 0}\n{\"atMs\": 1, \"model\": \"a\", \"action\": 0}",
        "the injections are not in the order of their times"
    )]
    fn invalid_text_is_rejected(#[case] text: &str, #[case] error: &str) {
        assert_eq!(text.parse::<Schedule>().unwrap_err().to_string(), error);
    }
}

//! An endpoint with what scorers may know of it.

use std::{collections::BTreeMap, time::Duration};

use crate::{pool::Endpoint, reading::Gauges};

/// A reading this young is believed entirely.
const FRESH: Duration = Duration::from_secs(3);

/// A reading this old is not believed at all.
const STALE: Duration = Duration::from_secs(15);

/// One candidate at the moment of the decision.
#[derive(Debug, Clone)]
pub struct Member {
    pub endpoint: Endpoint,
    /// Labels of its Pod.
    pub labels: BTreeMap<String, String>,
    /// What its engine last said of itself, if it ever did.
    pub reading: Option<Reading>,
    /// Whether nobody listens at its address, although its Pod is still told to be ready.
    pub refuses: bool,
}

/// Gauges, and how long ago they were read.
#[derive(Debug, Clone)]
pub struct Reading {
    pub gauges: Gauges,
    pub age: Duration,
}

impl Member {
    /// How far the reading is to be believed, 0 to 1. It falls with age instead of ending at a limit: an engine that is too
    /// busy to be read must not take its whole pool out of service.
    pub fn confidence(&self) -> f64 {
        let Some(reading) = &self.reading else { return 0.0 };
        let beyond = reading.age.saturating_sub(FRESH).as_secs_f64();
        (1.0 - beyond / (STALE - FRESH).as_secs_f64()).max(0.0)
    }

    /// `value` of the gauges as far as it is believed, `otherwise` for the rest.
    pub(crate) fn believed(&self, value: impl Fn(&Gauges) -> Option<f64>, otherwise: f64) -> f64 {
        let Some(value) = self.reading.as_ref().and_then(|reading| value(&reading.gauges)) else { return otherwise };
        let confidence = self.confidence();
        confidence * value + (1.0 - confidence) * otherwise
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pool::Pools;
    use rstest::rstest;

    /// `10.0.0.N:8000`, read `age` seconds ago if at all.
    pub(crate) fn member(number: u8, read: Option<(Gauges, u64)>) -> Member {
        let address = ([10, 0, 0, number], 8000).into();
        Member {
            endpoint: Endpoint {
                address,
                pod: format!("pod-{number}"),
                prompts: crate::Prompts::default(),
                load: Pools::new(0).load(address),
            },
            labels: BTreeMap::new(),
            reading: read.map(|(gauges, age)| Reading { gauges, age: Duration::from_secs(age) }),
            refuses: false,
        }
    }

    #[rstest]
    #[case::never_read(None, 0.0)]
    #[case::just_read(Some(0), 1.0)]
    #[case::fresh(Some(3), 1.0)]
    #[case::half(Some(9), 0.5)]
    #[case::old(Some(15), 0.0)]
    #[case::ancient(Some(3_600), 0.0)]
    // spec: GW-27
    fn confidence_falls_with_age(#[case] age: Option<u64>, #[case] expect: f64) {
        let member = member(1, age.map(|age| (Gauges::default(), age)));
        assert!((member.confidence() - expect).abs() < 1e-9, "{}", member.confidence());
    }
}

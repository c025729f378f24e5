//! Headers that state how a request waits for an engine. HTTPRoutes, or the proxy in front of the endpoint picker, set them.

use http::HeaderMap;

/// Headers with the name of an InferenceObjective, in order of precedence.
const OBJECTIVE_HEADERS: [&str; 2] = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];

/// Headers with the name of a flow, in order of precedence. Flows share the engines of a pool.
const FAIRNESS_ID_HEADERS: [&str; 2] = ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];

/// Maximum length of a value in bytes, that of a name in Kubernetes. Longer ones are ignored: each flow keeps its name in memory.
const MAX_LENGTH: usize = 253;

/// How a request waits. It has no effect on requests of use cases, which state this themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowHeaders {
    /// Name of an InferenceObjective of the pool, which states the priority.
    pub(crate) objective: Option<String>,
    /// Requests with the same name share their part of the engines.
    pub(crate) fairness_id: Option<String>,
}

// === impl FlowHeaders ===

impl FlowHeaders {
    /// Removes the headers.
    pub(crate) fn remove(headers: &mut HeaderMap) {
        for name in OBJECTIVE_HEADERS.into_iter().chain(FAIRNESS_ID_HEADERS) {
            headers.remove(name);
        }
    }

    /// Reads the headers of a request, whose values `value` returns by name. Returns `None` if it has none of them.
    pub(crate) fn read<V: Into<String>>(value: impl Fn(&'static str) -> Option<V>) -> Option<Box<Self>> {
        let first = |names: [&'static str; 2]| {
            let found: String = names.into_iter().find_map(&value)?.into();
            (1..=MAX_LENGTH).contains(&found.len()).then_some(found)
        };
        let (objective, fairness_id) = (first(OBJECTIVE_HEADERS), first(FAIRNESS_ID_HEADERS));
        (objective.is_some() || fairness_id.is_some()).then(|| Box::new(Self { objective, fairness_id }))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Columns: headers, expected objective and fairness ID.
    #[rstest]
    #[case::none(&[("x-other", "a")], None)]
    #[case::both(&[("x-gateway-inference-objective", "high"), ("x-llm-d-inference-fairness-id", "team-a")], Some((Some("high"), Some("team-a"))))]
    #[case::precedence(&[("x-gateway-inference-objective", "old"), ("x-llm-d-inference-objective", "new")], Some((Some("new"), None)))]
    #[case::empty(&[("x-llm-d-inference-objective", "")], None)]
    fn first_header_is_read(#[case] headers: &[(&str, &str)], #[case] expect: Option<(Option<&str>, Option<&str>)>) {
        let value = |name: &str| headers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        let headers = FlowHeaders::read(value);
        let values = headers.as_ref().map(|headers| (headers.objective.as_deref(), headers.fairness_id.as_deref()));
        assert_eq!(values, expect);
    }

    #[test]
    fn long_names_are_ignored() {
        let (name, long) = ("n".repeat(MAX_LENGTH), "n".repeat(MAX_LENGTH + 1));
        assert!(FlowHeaders::read(|_| Some(name.as_str())).is_some());
        assert!(FlowHeaders::read(|_| Some(long.as_str())).is_none());
    }
}

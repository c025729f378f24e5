//! Projection of BackendPools: the InferencePool of the same name, to which HTTPRoutes of any conforming gateway can point.

use std::str::FromStr;

use cluster::{ApplyOutcome, Condition, NamespacedName, ObjectOwner, controller_of};
use serde_json::{Value, json};

use crate::{
    code,
    kinds::{BACKEND_POOL, INFERENCE_POOL_V1},
};

/// Condition type of a BackendPool: whether an InferencePool represents it.
const PROJECTED: &str = "Projected";

/// Port of `ostler picker` for `ext_proc`.
const DEFAULT_PORT: u16 = 9002;

/// Part of the name of a Service that is replaced by the name of the pool.
const POOL_PLACEHOLDER: &str = "{pool}";

/// Name and port of the Services of endpoint pickers, one in the namespace of each pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPickerService {
    /// Name, in which the name of the pool replaces [`POOL_PLACEHOLDER`].
    name: String,
    /// Port for `ext_proc`.
    port: u16,
}

/// A text that is not `NAME[:PORT]` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write NAME or NAME:PORT of a Service; `{{pool}}` in NAME is the name of the pool")]
pub struct InvalidService;

// === impl EndpointPickerService ===

impl FromStr for EndpointPickerService {
    type Err = InvalidService;

    fn from_str(text: &str) -> Result<Self, InvalidService> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0).ok_or(InvalidService)?),
            None => (text, DEFAULT_PORT),
        };
        // A label of DNS (RFC 1035), as names of Services are.
        let example = name.replace(POOL_PLACEHOLDER, "a");
        let is_valid = (1..=63).contains(&example.len())
            && example.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && example.starts_with(|first: char| first.is_ascii_lowercase())
            && !example.ends_with('-');
        is_valid.then(|| Self { name: name.to_owned(), port }).ok_or(InvalidService)
    }
}

impl EndpointPickerService {
    fn name_for(&self, pool: &str) -> String {
        self.name.replace(POOL_PLACEHOLDER, pool)
    }
}

/// Returns the InferencePool that represents a BackendPool.
pub(crate) fn inference_pool(pool: &Value, service: &EndpointPickerService) -> Value {
    let key = NamespacedName::from_object(pool);
    let spec = &pool["spec"];
    let ports = spec["targetPorts"].as_array().into_iter().flatten();
    let failure_mode = spec["failureMode"].as_str().unwrap_or("FailClose");
    json!({
        "apiVersion": INFERENCE_POOL_V1.api_version(),
        "kind": INFERENCE_POOL_V1.kind,
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": {
            "selector": {"matchLabels": spec["selector"]},
            "targetPorts": ports.map(|port| json!({"number": port})).collect::<Vec<_>>(),
            "endpointPickerRef": {
                "name": service.name_for(&key.name),
                "port": {"number": service.port},
                "failureMode": failure_mode,
            },
        },
    })
}

/// Returns whether this BackendPool controls an InferencePool, instead of a deleted one of its name.
pub(crate) fn is_projection_of(pool: &Value, inference_pool: &Value) -> bool {
    let is_pool = |controller: &Value| controller["uid"] == pool["metadata"]["uid"];
    is_projection(inference_pool) && controller_of(inference_pool).is_some_and(is_pool)
}

/// Returns whether a BackendPool controls an InferencePool.
pub(crate) fn is_projection(inference_pool: &Value) -> bool {
    let is_pool = |controller: &Value| {
        controller["kind"] == BACKEND_POOL.kind && controller["apiVersion"] == BACKEND_POOL.api_version()
    };
    controller_of(inference_pool).is_some_and(is_pool)
}

/// Returns the condition after the InferencePool of `pool` was applied, or `None` while nothing is known: the last condition remains.
pub(crate) fn condition(
    pool: &NamespacedName,
    service: &EndpointPickerService,
    outcome: &ApplyOutcome,
) -> Option<Condition> {
    Some(match outcome {
        ApplyOutcome::Unchanged | ApplyOutcome::Created | ApplyOutcome::Updated => {
            projected(pool, &service.name_for(&pool.name), service.port)
        }
        ApplyOutcome::NotOwned(owner) => {
            let owner = match owner {
                ObjectOwner::Controller { kind, name } => format!("is controlled by {kind} {name}"),
                ObjectOwner::FieldManager => "was created by another client".to_owned(),
            };
            let message = format!("InferencePool {pool} {owner}; it was not modified.");
            Condition::new(PROJECTED, false, code::NAME_TAKEN, message)
        }
        ApplyOutcome::KindNotServed => Condition::new(
            PROJECTED,
            false,
            code::INFERENCE_POOL_NOT_SERVED,
            "The API server does not serve InferencePools of inference.networking.k8s.io/v1.",
        ),
        ApplyOutcome::KindNotListed(Some(_)) => Condition::new(
            PROJECTED,
            false,
            code::INFERENCE_POOL_NOT_SERVED,
            "The gateway cannot list InferencePools of inference.networking.k8s.io/v1.",
        ),
        ApplyOutcome::Rejected(cause) => {
            let message = format!("Failed to apply InferencePool {pool}: {}", cause.trim_end_matches('.'));
            Condition::new(PROJECTED, false, code::PROJECTION_FAILED, format!("{message}."))
        }
        ApplyOutcome::KindNotListed(None) | ApplyOutcome::Terminating | ApplyOutcome::Deferred => return None,
    })
}

/// Returns the condition of a gateway without a Service of endpoint pickers. `live` is the InferencePool of the name of `pool` if this
/// pool controls it: another gateway projects the pool.
pub(crate) fn condition_without_service(pool: &NamespacedName, live: Option<&Value>) -> Condition {
    let picker = live.map(|live| &live["spec"]["endpointPickerRef"]);
    match picker.and_then(|picker| Some((picker["name"].as_str()?, picker["port"]["number"].as_u64()?))) {
        Some((name, port)) => projected(pool, name, u16::try_from(port).unwrap_or_default()),
        None => Condition::new(
            PROJECTED,
            false,
            code::NO_ENDPOINT_PICKER,
            "No InferencePool represents the pool for other gateways: the gateway runs without `--endpoint-picker-service`.",
        ),
    }
}

fn projected(pool: &NamespacedName, service: &str, port: u16) -> Condition {
    let message =
        format!("InferencePool {pool} represents the pool, with the endpoint picker of Service {service}:{port}.");
    Condition::new(PROJECTED, true, code::PROJECTED, message)
}

/// Returns the condition in the status of `live`, which remains until another one is known.
pub(crate) fn live_condition(live: &Value) -> Option<Condition> {
    let condition = cluster::find_condition(&live["status"]["conditions"], PROJECTED)?;
    let (reason, message) = (condition["reason"].as_str()?, condition["message"].as_str()?);
    Some(Condition::with_reason(PROJECTED, condition["status"] == "True", reason, message))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn service(text: &str) -> EndpointPickerService {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::default_port("epp", Some(("epp", 9002)))]
    #[case::port("epp:9443", Some(("epp", 9443)))]
    #[case::pool("{pool}-epp", Some(("llama-epp", 9002)))]
    #[case::empty("", None)]
    #[case::no_name(":9002", None)]
    #[case::no_port("epp:", None)]
    #[case::port_0("epp:0", None)]
    #[case::large_port("epp:65536", None)]
    #[case::namespace("ns/epp", None)]
    #[case::upper_case("EPP", None)]
    #[case::digit("1epp", None)]
    #[case::dash("epp-", None)]
    #[case::url("http://epp", None)]
    fn service_is_a_name_with_an_optional_port(#[case] text: &str, #[case] expect: Option<(&str, u16)>) {
        let parsed = text.parse::<EndpointPickerService>().ok();
        let parsed = parsed.as_ref().map(|service| (service.name_for("llama"), service.port));
        assert_eq!(parsed, expect.map(|(name, port)| (name.to_owned(), port)));
    }

    // spec: GW-20
    #[rstest]
    #[case::default(json!(null), "FailClose")]
    #[case::closed(json!("FailClose"), "FailClose")]
    #[case::open(json!("FailOpen"), "FailOpen")]
    fn inference_pool_has_the_fields_of_the_backend_pool(#[case] failure_mode: Value, #[case] expect: &str) {
        let pool = json!({"metadata": {"namespace": "ns", "name": "llama"}, "spec": {
            "selector": {"app": "llama"}, "targetPorts": [8000, 8001], "failureMode": failure_mode}});
        let projected = inference_pool(&pool, &service("{pool}-epp"));
        assert_eq!(projected["metadata"], json!({"namespace": "ns", "name": "llama"}));
        let expected = json!({
            "selector": {"matchLabels": {"app": "llama"}},
            "targetPorts": [{"number": 8000}, {"number": 8001}],
            "endpointPickerRef": {"name": "llama-epp", "port": {"number": 9002}, "failureMode": expect},
        });
        assert_eq!(projected["spec"], expected);
    }

    #[rstest]
    #[case::created(ApplyOutcome::Created, Some((true, "Projected")))]
    #[case::unchanged(ApplyOutcome::Unchanged, Some((true, "Projected")))]
    #[case::of_another_client(ApplyOutcome::NotOwned(ObjectOwner::FieldManager), Some((false, "NameTaken")))]
    #[case::not_served(ApplyOutcome::KindNotServed, Some((false, "InferencePoolNotServed")))]
    #[case::forbidden(ApplyOutcome::KindNotListed(Some("forbidden".to_owned())), Some((false, "InferencePoolNotServed")))]
    #[case::not_listed_yet(ApplyOutcome::KindNotListed(None), None)]
    #[case::rejected(ApplyOutcome::Rejected("quota exceeded.".to_owned()), Some((false, "ProjectionFailed")))]
    #[case::terminating(ApplyOutcome::Terminating, None)]
    fn condition_states_the_outcome(#[case] outcome: ApplyOutcome, #[case] expect: Option<(bool, &str)>) {
        let condition = condition(&NamespacedName::new("ns", "llama"), &service("epp"), &outcome);
        let stated = condition.as_ref().map(|condition| (condition.status == true.into(), condition.reason.as_str()));
        assert_eq!(stated, expect);
        assert!(
            condition.is_none_or(|condition| condition.message.ends_with('.') && !condition.message.contains(".."))
        );
    }

    /// Gateways with and without the option report the same about a projected pool.
    #[test]
    fn conditions_of_several_gateways_agree() {
        let (pool, service) = (NamespacedName::new("ns", "llama"), service("epp"));
        let object =
            json!({"metadata": {"namespace": "ns", "name": "llama"}, "spec": {"selector": {}, "targetPorts": []}});
        let with = condition(&pool, &service, &ApplyOutcome::Unchanged).unwrap();
        let without = condition_without_service(&pool, Some(&inference_pool(&object, &service)));
        assert_eq!((with.reason, with.message), (without.reason, without.message));
        assert_eq!(condition_without_service(&pool, None).reason, "NoEndpointPicker");
    }

    /// A BackendPool that was created again does not control the InferencePool of the deleted one.
    #[rstest]
    #[case::own("a", true)]
    #[case::of_a_deleted_pool("b", false)]
    fn projection_belongs_to_one_pool(#[case] uid: &str, #[case] expect: bool) {
        let owner = json!({"apiVersion": BACKEND_POOL.api_version(), "kind": BACKEND_POOL.kind, "uid": "a", "controller": true});
        let live = json!({"metadata": {"ownerReferences": [owner]}});
        assert_eq!(is_projection_of(&json!({"metadata": {"uid": uid}}), &live), expect);
    }
}

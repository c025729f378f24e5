//! `ostler scale KIND/NAME ROLE=N`: sets the number of replicas of a role or a component.

use std::cmp::Ordering;
use std::str::FromStr;

use anyhow::Result;
use api::MAX_REPLICAS;
use api::dual_pods::{DUAL_PODS, OME_ACTUATION};
use cluster::kind_and_name;
use serde_json::{Value, json};

use super::object_reference::{AcceptedObjects, ObjectReference};
use super::target_service::{ClusterArgs, Target};
use crate::exit::Exit;
use crate::output;
use crate::report::errors::error_with_hint;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScaleArgs {
    /// Service: inferenceservice/NAME, or inferenceservice.GROUP/NAME if ambiguous
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Number of replicas, or MIN..MAX for the autoscaler of an `ome.io` component
    ///
    /// The name of the service precedes the assignments if the first argument is only the kind.
    #[arg(required = true, value_name = "ROLE=N")]
    arguments: Vec<Argument>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

const EXAMPLES: &str = "\
Examples:
  ostler scale inferenceservice/chat decode=3              Set 3 decode replicas
  ostler scale inferenceservice/chat prefill=2 decode=4    Scale two roles in one update
  ostler scale inferenceservice.ome.io/chat engine=1..8    Let an autoscaler run 1 to 8 replicas

Scaling does not restart replicas and does not create a revision: `ostler rollout undo` does not change the replicas.";

/// A role or component and its replicas: `decode=3`, `engine=1..8`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Assignment {
    role: String,
    replicas: Replicas,
}

/// The replicas of an [`Assignment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replicas {
    /// This number of replicas.
    Fixed(i32),
    /// The minimum and the maximum of an autoscaler.
    Range(i32, i32),
}

/// An argument after the object. clap cannot distinguish an optional name from the assignments that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Argument {
    /// The name of a service whose kind is the first argument.
    Name(String),
    /// The replicas of a role or component.
    Assignment(Assignment),
}

/// The forms of an assignment, as the error of an invalid one describes them.
const EXPECTED_ASSIGNMENT: &str = "expected ROLE=N, such as decode=3, or COMPONENT=MIN..MAX, such as engine=1..4";

// === impl Argument ===

impl FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('=') { text.parse().map(Self::Assignment) } else { Ok(Self::Name(text.to_owned())) }
    }
}

// === impl Assignment ===

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid_assignment = || EXPECTED_ASSIGNMENT.to_owned();
        let (role, replicas) =
            text.split_once('=').filter(|(role, _)| !role.is_empty()).ok_or_else(invalid_assignment)?;
        let replicas = match replicas.split_once("..") {
            None => Replicas::Fixed(replica_count(role, replicas)?),
            Some((min, max)) => match (replica_count(role, min)?, replica_count(role, max)?) {
                (min, max) if min <= max => Replicas::Range(min, max),
                (min, max) => {
                    return Err(format!("the minimum {min} exceeds the maximum {max}; write {role}={max}..{min}"));
                }
            },
        };
        Ok(Self { role: role.to_owned(), replicas })
    }
}

/// Parses a number of replicas of `role`.
fn replica_count(role: &str, text: &str) -> Result<i32, String> {
    // An integer of any size has an error that names the limits; anything else has the wrong form.
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EXPECTED_ASSIGNMENT.to_owned());
    }
    let count = text.parse().ok().filter(|count| (0..=MAX_REPLICAS).contains(count));
    count.ok_or_else(|| format!("{role} cannot have {text} replicas; write a number from 0 to {MAX_REPLICAS}"))
}

pub(super) async fn run(args: ScaleArgs) -> Result<Exit> {
    let (name, assignments) = split_arguments(&args.object, args.arguments)?;
    let reference = ObjectReference::parse(&args.object, name.as_deref(), AcceptedObjects::Services)?;
    let target = Target::find(&reference, &args.cluster).await?;
    let mut service = target.service.clone();
    let mut lines = Vec::new();
    for assignment in &assignments {
        lines.push(format!("{}: {}", target.display_name, scale(&mut service, assignment)?));
    }
    if service["spec"] != target.service["spec"] {
        target.replace_spec(&service["spec"]).await?;
    }
    output::print_line(&lines.join("\n"))?;
    Ok(Exit::Success)
}

/// Separates the name, which may follow a kind, from the assignments.
fn split_arguments(object: &str, arguments: Vec<Argument>) -> Result<(Option<String>, Vec<Assignment>)> {
    const HINT: &str = "run `ostler scale --help` for usage";
    let (mut name, mut assignments) = (None, Vec::<Assignment>::new());
    for (index, argument) in arguments.into_iter().enumerate() {
        match argument {
            Argument::Assignment(Assignment { role, .. }) if assignments.iter().any(|other| other.role == role) => {
                let hint = format!("write one number or range for {role}");
                return Err(error_with_hint(format!("the replicas of {role} are set more than once"), hint));
            }
            Argument::Assignment(assignment) => assignments.push(assignment),
            Argument::Name(text) if index == 0 && !object.contains('/') => name = Some(text),
            Argument::Name(text) => {
                let cause = format!("invalid value `{text}` for <ROLE=N>...: {EXPECTED_ASSIGNMENT}");
                return Err(error_with_hint(cause, HINT));
            }
        }
    }
    if assignments.is_empty() {
        return Err(error_with_hint("`ostler scale` requires <ROLE=N>...", HINT));
    }
    Ok((name, assignments))
}

/// Sets the replicas in `service` and returns a description of the change.
fn scale(service: &mut Value, assignment: &Assignment) -> Result<String> {
    match service["spec"]["roles"].is_array() {
        true => scale_role(service, assignment),
        false => scale_component(service, assignment),
    }
}

fn scale_role(service: &mut Value, Assignment { role: role_name, replicas }: &Assignment) -> Result<String> {
    let roles = service["spec"]["roles"].as_array_mut().into_iter().flatten();
    let mut names = Vec::new();
    for role in roles {
        let name = role["name"].as_str().unwrap_or_default().to_owned();
        if name != *role_name {
            names.push(name);
            continue;
        }
        if role["componentType"] == "router" {
            let hint = "scale the roles that run engines";
            return Err(error_with_hint(format!("role {role_name} is a router, which always has 1 replica"), hint));
        }
        let Replicas::Fixed(replicas) = *replicas else {
            return Err(error_with_hint(
                format!("role {role_name} does not support a range of replicas"),
                format!("write {role_name}=N"),
            ));
        };
        let old_replicas = role["replicas"].as_i64().unwrap_or(1);
        role["replicas"] = json!(replicas);
        return Ok(describe_change(role_name, &old_replicas.to_string(), &replicas.to_string()));
    }
    Err(error_with_hint(
        format!("{} has no role `{role_name}`", kind_and_name(service)),
        format!("available roles: {}", names.join(", ")),
    ))
}

/// Sets the replicas of a component of an `ome.io` service. The engine always exists, since the runtime may define it; any
/// other component must exist already, because adding one would change the topology.
fn scale_component(service: &mut Value, Assignment { role: component, replicas }: &Assignment) -> Result<String> {
    let exists = |name: &str| {
        name == "engine" || service["spec"][name].is_object() || service["status"]["components"][name].is_object()
    };
    let names: Vec<&str> = ["engine", "decoder", "router"].into_iter().filter(|name| exists(name)).collect();
    if !names.contains(&component.as_str()) {
        return Err(error_with_hint(
            format!("{} has no component `{component}`", kind_and_name(service)),
            format!("available components: {}", names.join(", ")),
        ));
    }
    // `predictor` is the deprecated name of the engine.
    let is_predictor =
        component == "engine" && service["spec"]["engine"].is_null() && service["spec"]["predictor"].is_object();
    let field = if is_predictor { "predictor" } else { component.as_str() };
    let spec = &service["spec"][field];
    let old_min = spec["minReplicas"].as_i64().unwrap_or(1);
    let old_max = spec["maxReplicas"].as_i64().unwrap_or(old_min).max(old_min);
    let sleeps = component != "router" && service["metadata"]["annotations"][OME_ACTUATION] == DUAL_PODS;
    let (min, max) = match *replicas {
        // The engines of dual pods sleep until the component has replicas again.
        Replicas::Fixed(0) | Replicas::Range(0, 0) if sleeps => (0, 0),
        Replicas::Fixed(0) | Replicas::Range(_, 0) => {
            let written = if matches!(replicas, Replicas::Fixed(_)) { "0" } else { "0..0" };
            return Err(error_with_hint(
                format!(
                    "{component}={written} is not supported: without an autoscaler, the component would stay at 0 replicas"
                ),
                format!("write {component}=0..1 to scale to zero while there are no requests"),
            ));
        }
        Replicas::Fixed(count) if old_max > old_min => {
            return Err(error_with_hint(
                format!("an autoscaler sets the replicas of {component} between {old_min} and {old_max}"),
                fixed_number_hint(component, old_min, old_max, count.into()),
            ));
        }
        Replicas::Fixed(count) => (count, count),
        Replicas::Range(min, max) => (min, max),
    };
    service["spec"][field]["minReplicas"] = json!(min);
    service["spec"][field]["maxReplicas"] = json!(max);
    Ok(describe_change(component, &format_range(old_min, old_max), &format_range(min.into(), max.into())))
}

/// Proposes ranges for `count` replicas of a component whose autoscaler has the bounds `min` and `max`.
fn fixed_number_hint(component: &str, min: i64, max: i64, count: i64) -> String {
    let fix = format!("{component}={count}..{count} to fix the number");
    match count.cmp(&min) {
        Ordering::Less => format!("write {component}={count}..{max} to change the bounds, or {fix}"),
        Ordering::Equal => format!("write {fix}"),
        Ordering::Greater => format!("write {component}={min}..{count} to change the bounds, or {fix}"),
    }
}

fn format_range(min: i64, max: i64) -> String {
    if min == max { min.to_string() } else { format!("{min}..{max}") }
}

fn describe_change(name: &str, before: &str, after: &str) -> String {
    if before == after { format!("{name} already has {after}") } else { format!("{name} {before} → {after}") }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn role_based_service() -> Value {
        json!({"kind": "InferenceService", "metadata": {"namespace": "n", "name": "pair"}, "spec": {"roles": [{"name": "prefill", "componentType": "prefiller"},
            {"name": "decode", "componentType": "decoder", "replicas": 2}, {"name": "entry", "componentType": "router"}]}})
    }

    fn ome_service(min: i64, max: i64) -> Value {
        json!({"kind": "InferenceService", "metadata": {"namespace": "n", "name": "chat"},
            "spec": {"engine": {"minReplicas": min, "maxReplicas": max}}})
    }

    #[rstest]
    #[case::increase(role_based_service(), "decode=3", "decode 2 → 3")]
    #[case::default_is_one(role_based_service(), "prefill=0", "prefill 1 → 0")]
    #[case::unchanged(role_based_service(), "decode=2", "decode already has 2")]
    #[case::router(role_based_service(), "entry=2", "role entry is a router, which always has 1 replica")]
    #[case::unknown_role(role_based_service(), "decoder=2", "InferenceService n/pair has no role `decoder`")]
    #[case::range_of_role(role_based_service(), "decode=1..3", "role decode does not support a range of replicas")]
    #[case::component(json!({"spec": {}}), "engine=2", "engine 1 → 2")]
    #[case::fixed_to_range(ome_service(2, 2), "engine=1..4", "engine 2 → 1..4")]
    #[case::autoscaled(ome_service(1, 4), "engine=3", "an autoscaler sets the replicas of engine between 1 and 4")]
    #[case::zero(
        ome_service(1, 1),
        "engine=0",
        "engine=0 is not supported: without an autoscaler, the component would stay at 0 replicas"
    )]
    #[case::zero_range(
        ome_service(1, 1),
        "engine=0..0",
        "engine=0..0 is not supported: without an autoscaler, the component would stay at 0 replicas"
    )]
    #[case::unknown_component(ome_service(1, 1), "decoder=2", "InferenceService n/chat has no component `decoder`")]
    fn describes_changes_and_errors(#[case] mut service: Value, #[case] assignment: &str, #[case] expected: &str) {
        let message = scale(&mut service, &assignment.parse().unwrap()).unwrap_or_else(|error| error.to_string());
        assert_eq!(message, expected);
    }

    #[rstest]
    #[case::above_the_minimum(2, 3, "write engine=2..3 to change the bounds, or engine=3..3 to fix the number")]
    #[case::above_the_maximum(2, 6, "write engine=2..6 to change the bounds, or engine=6..6 to fix the number")]
    #[case::minimum(1, 1, "write engine=1..1 to fix the number")]
    #[case::below_the_minimum(2, 1, "write engine=1..4 to change the bounds, or engine=1..1 to fix the number")]
    fn proposes_ranges_for_a_number(#[case] min: i64, #[case] count: i64, #[case] expected: &str) {
        assert_eq!(fixed_number_hint("engine", min, 4, count), expected);
    }

    #[test]
    fn sets_replicas_in_the_spec() {
        let (mut roles, mut ome) = (role_based_service(), json!({"spec": {}}));
        scale(&mut roles, &"decode=3".parse().unwrap()).unwrap();
        assert_eq!(roles["spec"]["roles"][1]["replicas"], 3);
        scale(&mut ome, &"engine=2..5".parse().unwrap()).unwrap();
        assert_eq!(ome["spec"]["engine"], json!({"minReplicas": 2, "maxReplicas": 5}));
        let mut deprecated = json!({"spec": {"predictor": {"runner": {"image": "a"}}}});
        scale(&mut deprecated, &"engine=3".parse().unwrap()).unwrap();
        assert_eq!(
            deprecated["spec"],
            json!({"predictor": {"runner": {"image": "a"}, "minReplicas": 3, "maxReplicas": 3}})
        );
    }

    #[test]
    fn engines_of_dual_pods_can_sleep() {
        let annotations = json!({"ome.io/actuation": "dual-pods"});
        let mut service = json!({"metadata": {"annotations": annotations}, "spec": {"router": {}}});
        assert_eq!(scale(&mut service, &"engine=0".parse().unwrap()).unwrap(), "engine 1 → 0");
        assert_eq!(service["spec"]["engine"], json!({"minReplicas": 0, "maxReplicas": 0}));
        assert_eq!(scale(&mut service, &"engine=1".parse().unwrap()).unwrap(), "engine 0 → 1");
        assert!(scale(&mut service, &"router=0".parse().unwrap()).is_err());
    }

    #[rstest]
    #[case("decode", EXPECTED_ASSIGNMENT)]
    #[case("=3", EXPECTED_ASSIGNMENT)]
    #[case("decode=", EXPECTED_ASSIGNMENT)]
    #[case("decode=x", EXPECTED_ASSIGNMENT)]
    #[case("decode=1.5", EXPECTED_ASSIGNMENT)]
    #[case("engine=1-4", EXPECTED_ASSIGNMENT)]
    #[case("engine=1..", EXPECTED_ASSIGNMENT)]
    #[case("decode=-1", "decode cannot have -1 replicas; write a number from 0 to 10000")]
    #[case("decode=1000000", "decode cannot have 1000000 replicas; write a number from 0 to 10000")]
    #[case("decode=99999999999", "decode cannot have 99999999999 replicas; write a number from 0 to 10000")]
    #[case("engine=1..1000000", "engine cannot have 1000000 replicas; write a number from 0 to 10000")]
    #[case("engine=3..1", "the minimum 3 exceeds the maximum 1; write engine=1..3")]
    fn rejects_invalid_assignments(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(text.parse::<Assignment>(), Err(expected.to_owned()));
    }

    const INVALID_X: &str = "invalid value `x` for <ROLE=N>...: expected ROLE=N, such as decode=3, or COMPONENT=MIN..MAX, such as engine=1..4";

    #[rstest]
    #[case::one_word("isvc/chat", &["decode=3", "prefill=1"], Ok((None, 2)))]
    #[case::two_words("isvc", &["chat", "decode=3"], Ok((Some("chat"), 1)))]
    #[case::no_name("isvc", &["decode=3"], Ok((None, 1)))]
    #[case::no_assignment("isvc", &["chat"], Err("`ostler scale` requires <ROLE=N>..."))]
    #[case::name_twice("isvc/chat", &["x", "decode=3"], Err(INVALID_X))]
    #[case::role_twice("isvc/chat", &["decode=2", "decode=3"], Err("the replicas of decode are set more than once"))]
    #[case::same_number_twice("isvc", &["chat", "decode=2", "decode=2"], Err("the replicas of decode are set more than once"))]
    #[case::late_name("isvc", &["decode=3", "x"], Err(INVALID_X))]
    fn separates_the_name_from_assignments(
        #[case] object: &str,
        #[case] arguments: &[&str],
        #[case] expected: Result<(Option<&str>, usize), &str>,
    ) {
        let arguments = arguments.iter().map(|text| text.parse().unwrap()).collect();
        let result = split_arguments(object, arguments).map_err(|error| error.to_string());
        let result = result.as_ref().map(|(name, assignments)| (name.as_deref(), assignments.len()));
        assert_eq!(result.map_err(String::as_str), expected);
    }
}

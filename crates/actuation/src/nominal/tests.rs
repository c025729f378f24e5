//! Tests of the derivation, with the example of the specification.

use rstest::rstest;

use super::*;
use crate::requester::split_list;

const EXAMPLE: &str = include_str!("../../tests/data/requester.yaml");

/// Returns the example as the API server and the kubelet complete it.
fn example() -> Value {
    let mut pod: Value = serde_saphyr::from_str(EXAMPLE).unwrap();
    pod["metadata"]["namespace"] = json!("default");
    pod["metadata"]["labels"] = json!({"app": "requester"});
    let spec = &mut pod["spec"];
    spec["nodeName"] = json!("node-1");
    spec["priority"] = json!(0);
    spec["restartPolicy"] = json!("Always");
    spec["volumes"] = json!([{"name": "kube-api-access-x2b9k", "projected": {}}]);
    spec["tolerations"] = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
    let container = &mut spec["containers"][0];
    container["volumeMounts"] = json!([{"name": "kube-api-access-x2b9k", "mountPath": "/var/run/secrets"}]);
    container["resources"]["requests"] = container["resources"]["limits"].clone();
    pod
}

struct Input {
    requester: Value,
    accelerators: BTreeSet<String>,
    owner: Option<Owner>,
    settings: Settings,
}

fn input() -> Input {
    Input { requester: example(), accelerators: split_list("GPU-d"), owner: None, settings: Settings::default() }
}

fn gpu_map() -> GpuMap {
    GpuMap::from_config_map(&json!({"data": {"node-1": r#"{"GPU-a":0,"GPU-b":1,"GPU-d":3}"#}}))
}

impl Input {
    fn derive(&self) -> Result<NominalProvider, Problem> {
        nominal_provider(&Derivation {
            requester: &self.requester,
            node: "node-1",
            hostname: "somenode",
            accelerators: &self.accelerators,
            gpu_map: Some(&gpu_map()),
            owner: self.owner.as_ref(),
            settings: &self.settings,
        })
    }

    /// Replaces the patch by one that results from `edit`.
    fn with_patch(mut self, edit: impl Fn(&mut Value)) -> Input {
        let annotations = &mut self.requester["metadata"]["annotations"];
        let text = annotations["dual-pod.llm-d.ai/server-patch"].as_str().unwrap();
        let mut patch: Value = serde_saphyr::from_str(text).unwrap();
        edit(&mut patch);
        annotations["dual-pod.llm-d.ai/server-patch"] = json!(patch.to_string());
        self
    }

    fn with_spec(mut self, field: &str, value: Value) -> Input {
        self.requester["spec"][field] = value;
        self
    }
}

// spec: DP-1, DP-2, DP-4, DP-17, DP-23, DP-24, DP-25, DP-26, DP-29, DP-38, DP-39
#[test]
fn example_of_the_specification() {
    let nominal = input().derive().unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&nominal.spec).unwrap());
    let labels = json!({"model-reg": "ibm-granite", "model-repo": "granite-3.3-2b-instruct"});
    assert_eq!(json!(nominal.pool_labels), labels);
    assert_eq!(json!(nominal.labels), json!({"app": "requester"}));
    assert!(nominal.annotations.is_empty(), "annotations of the requester are not inherited");
    assert_eq!(nominal.port, 8000);
}

/// The provider runs on the requester's node, which is selected by label, whatever the affinity of the requester is.
// spec: DP-27, DP-30
#[test]
fn provider_is_placed_by_the_label_of_the_node() {
    let input =
        input().with_spec("nodeSelector", json!({"zone": "a"})).with_spec("schedulingGates", json!([{"name": "g"}]));
    let spec = input.derive().unwrap().spec;
    assert_eq!(spec["nodeSelector"], json!({"zone": "a", "kubernetes.io/hostname": "somenode"}));
    for field in ["nodeName", "affinity", "schedulingGates", "priority"] {
        assert!(spec.get(field).is_none(), "{field} is inherited");
    }
}

#[test]
fn fields_that_the_patch_states_are_retained() {
    let affinity = json!({"podAffinity": {}});
    let input = input().with_patch(|patch| {
        patch["spec"]["affinity"] = affinity.clone();
        patch["spec"]["restartPolicy"] = json!("OnFailure");
        patch["spec"]["nodeName"] = json!("elsewhere");
        patch["metadata"]["annotations"] = json!({"a": "b"});
    });
    let nominal = input.derive().unwrap();
    assert_eq!((&nominal.spec["affinity"], &nominal.spec["restartPolicy"]), (&affinity, &json!("OnFailure")));
    assert_eq!(nominal.annotations, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert!(nominal.spec.get("nodeName").is_none());
}

// spec: DP-34
#[test]
fn patch_is_a_strategic_merge_patch() {
    let input = input().with_patch(|patch| {
        patch["metadata"]["labels"]["app"] = Value::Null;
        patch["spec"]["containers"] = json!([
            {"name": "sidecar", "image": "s:1"},
            {"name": "inference-server", "command": ["vllm"], "env": [{"name": "A", "value": "1"}],
                "readinessProbe": {"$patch": "replace", "httpGet": {"port": "http"}}, "ports": [{"name": "http", "containerPort": 9000}],
                "resources": {"limits": {"cpu": null}}},
        ]);
    });
    let nominal = input.derive().unwrap();
    assert!(nominal.labels.is_empty() && nominal.port == 9000);
    let names: Vec<&Value> = items(nominal.spec.get("containers")).map(|container| &container["name"]).collect();
    assert_eq!(names, ["sidecar", "inference-server"]);
    let engine = &nominal.spec["containers"][1];
    assert_eq!((&engine["command"], &engine["resources"]["limits"]["cpu"]), (&json!(["vllm"]), &Value::Null));
}

/// Sets by which the identity of an engine must not differ, and such by which it must.
// spec: DP-53
#[rstest]
#[case::requester_label(|pod: &mut Value| pod["metadata"]["labels"]["pod-template-hash"] = json!("5d8"), true)]
#[case::name(|pod: &mut Value| pod["metadata"]["name"] = json!("other"), true)]
#[case::hostname(|pod: &mut Value| pod["spec"]["hostname"] = json!("x-0"), true)]
#[case::priority(|pod: &mut Value| pod["spec"]["priority"] = json!(7), true)]
#[case::leader_worker_set(|pod: &mut Value| pod["spec"]["containers"][0]["env"] = json!([{"name": "LWS_WORKER_INDEX", "value": "3"}]), true)]
#[case::default_toleration(|pod: &mut Value| pod["spec"]["tolerations"] = json!([]), true)]
#[case::token_volume(|pod: &mut Value| {
    pod["spec"].as_object_mut().unwrap().remove("volumes");
    pod["spec"]["containers"][0].as_object_mut().unwrap().remove("volumeMounts");
}, true)]
#[case::toleration(|pod: &mut Value| pod["spec"]["tolerations"][0]["key"] = json!("gpu"), false)]
#[case::claim_per_ordinal(|pod: &mut Value| pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-1"}}]), false)]
#[case::env(|pod: &mut Value| pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "3"}]), false)]
#[case::namespace(|pod: &mut Value| pod["metadata"]["namespace"] = json!("other"), false)]
fn identity_of_an_engine(#[case] edit: fn(&mut Value), #[case] is_equal: bool) {
    let mut edited = input();
    edit(&mut edited.requester);
    assert_eq!(edited.derive().unwrap().identity == input().derive().unwrap().identity, is_equal);
}

// spec: DP-53
#[rstest]
#[case::image("image", json!("other:1"))]
#[case::command("command", json!(["vllm", "serve"]))]
#[case::args("args", json!(["--x"]))]
fn identity_depends_on_the_engine(#[case] field: &str, #[case] value: Value) {
    let edited = input().with_patch(|patch| patch["spec"]["containers"][0][field] = value.clone());
    assert_ne!(edited.derive().unwrap().identity, input().derive().unwrap().identity);
    let annotated = input().with_patch(|patch| patch["metadata"]["annotations"] = json!({"a": "b"}));
    assert_ne!(annotated.derive().unwrap().identity, input().derive().unwrap().identity);
}

// spec: DP-53, DP-94
#[test]
fn accelerators_are_a_set() {
    let derive = |list: &str| Input { accelerators: split_list(list), ..input() }.derive().unwrap();
    let (pair, reversed, other) = (derive("GPU-a,GPU-d"), derive("GPU-d,GPU-a"), derive("GPU-a,GPU-b"));
    assert_eq!(pair, reversed);
    assert_ne!(pair.identity, other.identity);
    let env = pair.spec["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env.last().unwrap(), &json!({"name": "CUDA_VISIBLE_DEVICES", "value": "0,3"}));
}

// spec: DP-9, DP-31, DP-35, DP-106
#[rstest]
#[case::no_container(json!({"spec": {"containers": [{"$patch": "delete", "name": "inference-server"}]}}), "failed to construct the nominal server-providing Pod: container \"inference-server\" not found in spec.containers")]
#[case::no_probe(json!({"spec": {"containers": [{"name": "inference-server", "readinessProbe": null}]}}), "failed to construct the nominal server-providing Pod: the inference server container has no readinessProbe: spec.containers[0].readinessProbe")]
#[case::tcp_probe(json!({"spec": {"containers": [{"name": "inference-server", "readinessProbe": {"httpGet": null, "tcpSocket": {"port": 1}}}]}}), "failed to construct the nominal server-providing Pod: the readinessProbe is not an HTTPGet: spec.containers[0].readinessProbe")]
#[case::port_name(json!({"spec": {"containers": [{"name": "inference-server", "readinessProbe": {"httpGet": {"port": "web"}}}]}}), "failed to construct the nominal server-providing Pod: unsupported readinessProbe port \"web\": spec.containers[0].readinessProbe.httpGet.port")]
#[case::merge_key(json!({"spec": {"containers": [{"image": "x"}]}}), "failed to construct the nominal server-providing Pod: failed to apply server patch: ")]
fn invalid_patches_are_problems(#[case] patch: Value, #[case] expected: &str) {
    let mut input = input();
    input.requester["metadata"]["annotations"] = json!({"dual-pods.llm-d.ai/server-patch": patch.to_string()});
    let problem = input.derive().unwrap_err();
    assert!(problem.to_string().starts_with(expected), "{problem}");
    assert_eq!(problem.code(), "InvalidPatch");
}

// spec: DP-9
#[rstest]
#[case::pod(|pod: &mut Value| pod["spec"]["resourceClaims"] = json!([{"name": "gpu"}]), "spec.resourceClaims")]
#[case::container(|pod: &mut Value| pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]), "spec.containers[*].resources.claims")]
fn resource_claims_are_not_supported(#[case] edit: fn(&mut Value), #[case] field: &str) {
    let mut input = input();
    edit(&mut input.requester);
    let message = format!("resource claims are not supported: {field} of the server-requesting Pod must be empty");
    assert_eq!(input.derive().unwrap_err().to_string(), message);
}

/// A set must not adopt the provider, whether its engine is awake or asleep.
// spec: DP-37
#[rstest]
#[case::inherited_label(json!({"matchLabels": {"app": "requester"}}), true)]
#[case::pool_label(json!({"matchLabels": {"model-reg": "ibm-granite"}}), true)]
#[case::only_while_asleep(json!({"matchLabels": {"app": "requester"}, "matchExpressions": [{"key": "model-reg", "operator": "DoesNotExist"}]}), true)]
#[case::template_hash(json!({"matchLabels": {"app": "requester", "pod-template-hash": "5d8"}}), false)]
fn provider_must_not_match_the_selector_of_the_set(#[case] selector: Value, #[case] is_rejected: bool) {
    let selector = LabelSelector::from_json(&selector).unwrap();
    let input = Input { owner: Some(Owner { name: "ReplicaSet r".to_owned(), selector }), ..input() };
    let code = input.derive().map_err(|problem| problem.code());
    assert_eq!(code.err() == Some(crate::code::SELECTOR_MATCHES), is_rejected);
}

#[test]
fn missing_map_is_a_problem() {
    let input = input();
    let derivation = Derivation {
        requester: &input.requester,
        node: "node-1",
        hostname: "somenode",
        accelerators: &input.accelerators,
        gpu_map: None,
        owner: None,
        settings: &input.settings,
    };
    assert_eq!(nominal_provider(&derivation).unwrap_err(), Problem::GpuMapUnavailable);
}

/// Returns the derivation of the example in launcher mode, with a patch that results from `edit`.
fn in_launcher(edit: fn(&mut Value)) -> Result<NominalProvider, Problem> {
    let mut input = input().with_patch(edit);
    input.settings.mode = Mode::Launcher;
    input.derive()
}

fn engine(patch: &mut Value) -> &mut Value {
    &mut patch["spec"]["containers"][0]
}

// spec: DP-20, DP-21
#[test]
fn launcher_runs_the_engine_with_its_image() {
    let nominal = in_launcher(|patch: &mut Value| {
        engine(patch)["command"] = json!(["vllm", "serve"]);
        engine(patch)["args"] = json!(["--name=$(NAME)", "$$(NAME)"]);
        let token = json!({"secretKeyRef": {"name": "hf", "key": "token"}});
        engine(patch)["env"] = json!([{"name": "TOKEN", "valueFrom": token}, {"name": "A", "value": "1"}, {"name": "NAME", "value": "a$(A)"}, {"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]);
    });
    let nominal = nominal.unwrap();
    let instance = nominal.instance.clone().unwrap();
    assert_eq!(instance.command, ["vllm", "serve"]);
    assert_eq!(instance.args, ["--name=a1", "$(NAME)"]);
    assert_eq!(instance.env, BTreeMap::from([("A", "1"), ("NAME", "a1")].map(|(a, b)| (a.to_owned(), b.to_owned()))));
    let request = instance.request(&nominal.accelerators, nominal.port);
    let variables = json!({"A": "1", "NAME": "a1"});
    let expected = json!({"command": ["vllm", "serve"], "args": ["--name=a1", "$(NAME)"], "env_vars": variables, "gpu_uuids": ["GPU-d"], "annotations": {"inference-port": nominal.port.to_string()}});
    assert_eq!(request, expected);
    let direct = input().derive().unwrap();
    let (container, engine) = (&nominal.spec["containers"][0], &direct.spec["containers"][0]);
    assert_eq!((&container["image"], &container["resources"]), (&engine["image"], &engine["resources"]));
    assert_eq!(container["command"][0], "/ostler/ostler");
    assert_eq!(container["command"][1], "launcher");
    assert_eq!(container.get("args"), None);
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 8001);
    let names: Vec<&str> = items(container.get("env")).map(|entry| object::text(entry, "/name")).collect();
    assert_eq!(names, ["TOKEN", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"]);
    let installer = &nominal.spec["initContainers"][0];
    assert_eq!(
        (&installer["image"], &installer["args"]),
        (&json!("ostler:0.1.0"), &json!(["launcher", "--install=/ostler"]))
    );
    assert_eq!(
        (&nominal.labels, &nominal.pool_labels, nominal.port),
        (&direct.labels, &direct.pool_labels, direct.port)
    );
    assert_ne!(nominal.identity, direct.identity);
}

/// Engines that share a launcher differ in command, arguments, variables, probes and accelerators only.
// spec: DP-20
#[rstest]
#[case::command(|patch: &mut Value| engine(patch)["command"] = json!(["x"]), true)]
#[case::args(|patch: &mut Value| engine(patch)["args"] = json!(["x"]), true)]
#[case::variable(|patch: &mut Value| engine(patch)["env"] = json!([{"name": "X", "value": "x"}]), true)]
#[case::port(|patch: &mut Value| engine(patch)["readinessProbe"]["httpGet"]["port"] = json!(9), true)]
#[case::secret(|patch: &mut Value| engine(patch)["env"] = json!([{"name": "X", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]), false)]
#[case::image(|patch: &mut Value| engine(patch)["image"] = json!("x"), false)]
#[case::memory(|patch: &mut Value| engine(patch)["resources"]["limits"]["memory"] = json!("1Gi"), false)]
fn engines_share_a_launcher(#[case] edit: fn(&mut Value), #[case] is_shared: bool) {
    let (one, other) = (in_launcher(|_| {}).unwrap(), in_launcher(edit).unwrap());
    assert_ne!(one.identity, other.identity);
    assert_eq!(one.instance.unwrap().launcher == other.instance.unwrap().launcher, is_shared);
}

// spec: DP-20, DP-108
#[test]
fn launcher_does_not_depend_on_accelerators_and_its_own_version() {
    let derive = |accelerators: &str, image: &str| {
        let mut input = Input { accelerators: split_list(accelerators), ..input() };
        (input.settings.mode, input.settings.launcher.image) = (Mode::Launcher, image.to_owned());
        input.derive().unwrap()
    };
    let (one, other) = (derive("GPU-a", "ostler:1"), derive("GPU-not-in-gpu-map", "ostler:2"));
    assert_ne!(one.identity, other.identity);
    assert_eq!(one.instance.unwrap().launcher, other.instance.unwrap().launcher);
}

#[rstest]
#[case::port_of_the_launcher(
    |patch: &mut Value| engine(patch)["readinessProbe"]["httpGet"]["port"] = json!(8001),
    "port 8001 is that of the launcher, use another one: spec.containers[0].readinessProbe.httpGet.port"
)]
#[case::variable_without_value(
    |patch: &mut Value| {
        engine(patch)["env"] = json!([{"name": "T", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
        engine(patch)["args"] = json!(["--x=$(T)"]);
    },
    "the reference to variable T, which has no `value`, is not supported in mode launcher: spec.containers[0].args[0]"
)]
fn engines_that_a_launcher_cannot_run(#[case] edit: fn(&mut Value), #[case] expected: &str) {
    let problem = in_launcher(edit).unwrap_err();
    assert_eq!(problem_of(&problem).to_string(), expected);
}

fn problem_of(problem: &Problem) -> &PatchError {
    match problem {
        Problem::InvalidPatch(error) => error,
        problem => panic!("{problem}"),
    }
}

#[rstest]
#[case::launcher("launcher", Ok(true))]
#[case::direct("direct", Ok(false))]
#[case::unknown(
    "x",
    Err("the annotation \"dual-pods.llm-d.ai/mode\" is invalid: \"x\" is neither \"direct\" nor \"launcher\"")
)]
fn annotation_has_precedence_over_the_default_mode(#[case] mode: &str, #[case] expected: Result<bool, &str>) {
    for default in [Mode::Direct, Mode::Launcher] {
        let mut input = input();
        input.settings.mode = default;
        input.requester["metadata"]["annotations"]["dual-pods.llm-d.ai/mode"] = json!(mode);
        let result = input.derive().map(|nominal| nominal.instance.is_some());
        assert_eq!(result.map_err(|problem| problem.to_string()), expected.map_err(str::to_owned));
    }
}

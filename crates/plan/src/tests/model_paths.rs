//! Paths of models, variables in commands, and LoRA adapters.

use rstest::rstest;
use serde_json::json;

use super::{code, codes, container, plan_manifests, service, strings, template, variable};
use crate::ServicePlan;

/// Plans a service with a model of this `storage`, and an engine with this `runner`.
fn plan_with(storage: &str, runner: &str, service_fields: &str) -> ServicePlan {
    let model = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: tiny}}, spec: {{modelFormat: {{name: safetensors}}, \
         modelParameterSize: 1B, {storage}}}}}"
    );
    let adapter = "{apiVersion: ome.io/v1beta1, kind: BaseModel, metadata: {name: sql-lora, namespace: default}, \
                   spec: {storage: {storageUri: 'pvc://weights/sql'}}}";
    let runtime = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: r}}, spec: {{supportedModelFormats: \
         [{{modelFormat: {{name: safetensors}}, autoSelect: true}}], engineConfig: {{runner: {{{runner}}}}}}}}}"
    );
    let spec = format!("{{model: {{name: tiny{service_fields}}}}}");
    plan_manifests(&[&model, adapter, &runtime, &service("chat", &spec)])
}

const VLLM: &str = "image: 'vllm/vllm-openai:v0.32.0', command: [vllm, serve, $(MODEL_PATH)]";

// spec: RT-44
#[rstest]
#[case::hugging_face("storage: {storageUri: 'hf://a/b'}", VLLM, "Selected", "a/b")]
#[case::claim("storage: {storageUri: 'pvc://weights/tiny'}", VLLM, "Selected", "/mnt/models/tiny")]
#[case::none("", VLLM, "Selected", "tiny")]
#[case::bucket("storage: {storageUri: 's3://weights/tiny'}", VLLM, "StorageUnsupported", "")]
#[case::oci("storage: {storageUri: 'oci://n/a/b/c/o/d'}", VLLM, "StorageUnsupported", "")]
#[case::google("storage: {storageUri: 'gs://weights/tiny'}", VLLM, "StorageUnsupported", "")]
#[case::downloaded_bucket(
    "storage: {storageUri: 's3://weights/tiny', path: /models/tiny}",
    VLLM,
    "Selected",
    "/models/tiny"
)]
#[case::bucket_that_the_engine_reads(
    "storage: {storageUri: 's3://weights/tiny'}",
    "image: vllm, command: [vllm, serve, 's3://weights/tiny', --load-format, runai_streamer]",
    "Selected",
    ""
)]
#[case::bucket_of_an_init_container(
    "storage: {storageUri: 's3://weights/tiny'}",
    "image: vllm, command: [vllm, serve, $(MODEL_PATH)], env: [{name: MODEL_PATH, value: /download}]",
    "Selected",
    "/download"
)]
#[case::bucket_in_a_script(
    "storage: {storageUri: 's3://weights/tiny'}",
    "image: vllm, command: [sh, -c, 'exec vllm serve ${MODEL_PATH}']",
    "StorageUnsupported",
    ""
)]
#[case::bucket_behind_a_variable(
    "storage: {storageUri: 's3://weights/tiny'}",
    "image: vllm, command: [vllm, serve, $(CONFIG)], env: [{name: CONFIG, value: $(MODEL_PATH)/config.json}]",
    "StorageUnsupported",
    ""
)]
#[case::bucket_downloaded_by_the_script(
    "storage: {storageUri: 's3://weights/tiny'}",
    "image: vllm, command: [sh, -c, 'MODEL_PATH=/tmp/m; download $MODEL_PATH; exec vllm serve $MODEL_PATH']",
    "Selected",
    ""
)]
#[case::path_of_a_config_map(
    "storage: {storageUri: 's3://weights/tiny'}",
    "image: vllm, command: [vllm, serve, $(MODEL_PATH)], envFrom: [{configMapRef: {name: paths}}]",
    "Selected",
    ""
)]
#[case::claim_of_another_namespace("storage: {storageUri: 'pvc://other:weights/tiny'}", VLLM, "StorageUnsupported", "")]
fn model_path_is_defined_or_rejected(
    #[case] storage: &str,
    #[case] runner: &str,
    #[case] expect: &str,
    #[case] path: &str,
) {
    let plan = plan_with(storage, runner, "");
    assert_eq!(code(&plan), (expect == "Selected", expect), "{}", plan.message);
    if expect == "Selected" {
        assert_eq!(variable(&plan, "MODEL_PATH"), path);
    } else {
        assert!(plan.message.contains("hf://ORG/NAME") && plan.message.contains("model tiny"), "{}", plan.message);
    }
}

#[test]
fn warns_about_models_without_storage() {
    assert!(codes(&plan_with("", VLLM, "")).contains(&"ModelStorageUnset"));
    assert!(!codes(&plan_with("", "image: vllm, command: [vllm, serve, a/b]", "")).contains(&"ModelStorageUnset"));
}

#[rstest]
#[case::words("storage: {storageUri: 'hf://a/b@v2'}", VLLM, Some("--revision v2"))]
#[case::stated(
    "storage: {storageUri: 'hf://a/b@v2'}",
    "image: vllm, command: [vllm, serve, $(MODEL_PATH), --revision=v3]",
    Some("")
)]
#[case::script(
    "storage: {storageUri: 'hf://a/b@v2'}",
    "image: vllm, command: [sh, -c, 'vllm serve $(MODEL_PATH)']",
    None
)]
fn selects_the_revision(#[case] storage: &str, #[case] runner: &str, #[case] expect: Option<&str>) {
    let plan = plan_with(storage, runner, "");
    match expect {
        Some(args) => assert_eq!(strings(&container(&plan, "-engine")["args"]).join(" "), args),
        None => assert_eq!(code(&plan), (false, "StorageUnsupported"), "{}", plan.message),
    }
}

/// References remain for the kubelet, and variables of the runtime or the service replace the standard ones.
// spec: RT-44
#[test]
fn standard_variables_are_added_where_they_are_absent() {
    const STANDARD: [&str; 5] =
        ["MODEL_PATH", "INFERENCESERVICE_NAME", "NAMESPACE", "PARALLELISM_SIZE", "SERVED_MODEL_NAME"];
    let references = STANDARD.map(|name| format!("$({name})"));
    let plan = plan_with("", &format!("image: i, args: [{}]", references.join(", ")), "");
    assert_eq!(strings(&container(&plan, "-engine")["args"]), references);
    let values = STANDARD.map(|name| super::variable(&plan, name));
    assert_eq!(values, ["tiny", "chat", "default", "1", "chat"]);
    let own = STANDARD.map(|name| format!("{{name: {name}, value: own}}")).join(", ");
    for (runtime_fields, service_fields) in
        [(format!(", env: [{own}]"), String::new()), (String::new(), format!("}}, engine: {{runner: {{env: [{own}]}}"))]
    {
        let runner = format!("image: i, args: [{}]{runtime_fields}", references.join(", "));
        let plan = plan_with("", &runner, &service_fields);
        assert_eq!(strings(&container(&plan, "-engine")["args"]), references, "{}", plan.message);
        assert_eq!(STANDARD.map(|name| super::variable(&plan, name)), ["own"; 5]);
        assert_eq!(container(&plan, "-engine")["env"].as_array().unwrap().len(), 5);
    }
}

// spec: RT-44
#[rstest]
#[case::undefined("image: i, args: [--token, $(HF_TOKEN)]", "UndefinedVariable")]
#[case::defined("image: i, args: [--token, $(HF_TOKEN)], env: [{name: HF_TOKEN, value: x}]", "Selected")]
#[case::secret("image: i, args: [--token, $(HF_TOKEN)], envFrom: [{secretRef: {name: hf}}]", "Selected")]
#[case::standard(
    "image: i, args: [$(PARALLELISM_SIZE), $(SERVED_MODEL_NAME), $(NAMESPACE), $(INFERENCESERVICE_NAME)]",
    "Selected"
)]
#[case::misspelled("image: i, args: [--tp-size, $(PARALELISM_SIZE)]", "UndefinedVariable")]
fn variables_are_defined(#[case] runner: &str, #[case] expect: &str) {
    let plan = plan_with("", runner, "");
    assert_eq!(code(&plan), (expect == "Selected", expect), "{}", plan.message);
    assert_eq!(plan.objects.is_empty(), expect != "Selected");
}

#[test]
fn model_path_requires_a_model() {
    let runtime = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: r}, spec: {engineConfig: {runner: {image: i, args: [$(MODEL_PATH)]}}}}";
    let plan = plan_manifests(&[runtime, &service("chat", "{runtime: {name: r}}")]);
    assert_eq!(code(&plan), (false, "UndefinedVariable"));
    assert!(plan.message.contains("set spec.model"), "{}", plan.message);
}

/// The kubelet expands references in `env` to earlier variables only.
#[test]
fn variables_that_others_refer_to_come_first() {
    let runner = "image: i, args: [$(CONFIG)], env: [{name: CONFIG, value: $(MODEL_PATH)/config.json}]";
    let plan = plan_with("storage: {storageUri: 'pvc://weights/tiny'}", runner, "");
    let names: Vec<&str> = container(&plan, "-engine")["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[..2], ["MODEL_PATH", "CONFIG"]);
}

#[rstest]
#[case::undefined("args: [--model, m, --seed, $(SEED)]", "UndefinedVariable")]
#[case::leader_worker_set("args: [--model, m, --seed, $(LWS_WORKER_INDEX)]", "Rendered")]
fn variables_of_roles_are_defined(#[case] command: &str, #[case] expect: &str) {
    let manifest = format!(
        "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: chat}}, spec: {{roles: [{{name: w, \
         componentType: worker, template: {{spec: {{containers: [{{name: e, image: i, {command}}}]}}}}}}]}}}}"
    );
    let plan = plan_manifests(&[&manifest]);
    assert_eq!(code(&plan), (expect == "Rendered", expect), "{}", plan.message);
}

const SGLANG: &str = "image: 'lmsysorg/sglang:v0.5.23', command: [python3, -m, sglang.launch_server], args: [--model-path, $(MODEL_PATH), --served-model-name, base]";
const STORAGE: &str = "storage: {storageUri: 'hf://a/b'}";

fn use_cases(plan: &ServicePlan) -> Vec<(String, String)> {
    let set = plan.objects.iter().find(|object| object["kind"] == "LLMUseCaseSet").unwrap();
    let use_cases = set["spec"]["useCases"].as_array().unwrap().iter();
    use_cases
        .map(|use_case| {
            let name = use_case["modelName"].as_str().unwrap();
            let target = use_case["targetModels"][0]["targetModelName"].as_str().unwrap_or(name);
            (name.to_owned(), target.to_owned())
        })
        .collect()
}

#[test]
fn loads_an_adapter_with_vllm() {
    let plan = plan_with(STORAGE, VLLM, ", fineTunedWeights: [sql-lora]");
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let args = strings(&container(&plan, "-engine")["args"]).join(" ");
    assert_eq!(args, "--enable-lora --lora-modules sql-lora=/mnt/adapters/sql-lora/sql");
    assert_eq!(
        container(&plan, "-engine")["volumeMounts"],
        json!([{"name": "adapter-sql-lora", "mountPath": "/mnt/adapters/sql-lora", "readOnly": true}])
    );
    assert_eq!(template(&plan, "-engine")["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "weights");
    let expected = [("chat", "sql-lora"), ("sql-lora", "sql-lora")];
    assert_eq!(use_cases(&plan), expected.map(|(name, target)| (name.to_owned(), target.to_owned())));
}

/// The name of the service selects the adapter of the same name.
#[test]
fn adapter_has_the_name_of_the_service() {
    let plan = plan_with(STORAGE, SGLANG, ", fineTunedWeights: [sql=x/sql, chat=x/chat]");
    let expected = [("chat", "base:chat"), ("sql", "base:sql")];
    assert_eq!(use_cases(&plan), expected.map(|(name, target)| (name.to_owned(), target.to_owned())));
}

/// Flags of the engine are not those of another program in its image.
#[rstest]
#[case::program("command: [ray, start, '--address=$(LWS_LEADER_ADDRESS)', --block]", false)]
#[case::script("command: [sh, -c, 'ray start --address=$(LWS_LEADER_ADDRESS) --block']", false)]
#[case::engine("command: [vllm, serve, m, --headless]", true)]
fn only_workers_that_start_the_engine_load_adapters(#[case] command: &str, #[case] expect: bool) {
    let service_fields = format!(
        ", fineTunedWeights: [sql-lora]}}, engine: {{leader: {{runner: {{{VLLM}}}}}, worker: {{size: 1, runner: {{image: \
         'vllm/vllm-openai:v0.32.0', {command}}}}}"
    );
    let plan = plan_with(STORAGE, VLLM, &service_fields);
    let set = plan.objects.iter().find(|object| object["kind"] == "LeaderWorkerSet").expect(&plan.message);
    let has_adapters = |role: &str| set["spec"]["leaderWorkerTemplate"][role].to_string().contains("--lora-modules");
    assert_eq!((has_adapters("leaderTemplate"), has_adapters("workerTemplate")), (true, expect));
}

#[test]
fn loads_adapters_with_sglang() {
    let plan = plan_with(STORAGE, SGLANG, ", fineTunedWeights: [sql=x/sql, sql-lora]");
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let args = strings(&container(&plan, "-engine")["args"]).join(" ");
    assert!(args.ends_with("--enable-lora --lora-paths sql=x/sql sql-lora=/mnt/adapters/sql-lora/sql"), "{args}");
    // With several adapters, the name of the service selects the base model.
    let expected = [("chat", "base"), ("sql", "base:sql"), ("sql-lora", "base:sql-lora")];
    assert_eq!(use_cases(&plan), expected.map(|(name, target)| (name.to_owned(), target.to_owned())));
}

#[rstest]
#[case::engine_without_lora(
    "image: 'nvcr.io/nvidia/tritonserver:24.01', command: [tritonserver]",
    "sql-lora",
    "NoCompatibleRuntime",
    "AdaptersUnsupported"
)]
#[case::script(
    "image: vllm, command: [sh, -c, 'vllm serve $(MODEL_PATH)']",
    "sql-lora",
    "AdaptersNotConfigured",
    "--lora-modules sql-lora="
)]
#[case::script_file(
    "image: vllm, command: [sh, /start.sh]",
    "sql-lora",
    "AdaptersNotConfigured",
    "--lora-modules sql-lora="
)]
#[case::invalid_name(VLLM, "'sql@v1=x/sql'", "AdapterInvalid", "NAME=LOCATION")]
#[case::equal_volume_names(VLLM, "a.b=x/sql, a-b=y/sql", "AdapterInvalid", "fineTunedWeights[1]")]
#[case::separator_in_the_path(VLLM, "'pvc://weights/rank=8'", "AdapterInvalid", "NAME=LOCATION")]
#[case::separator_in_the_location(VLLM, "'sql=pvc://weights/rank=8'", "AdapterInvalid", "contains `=` or `,`")]
#[case::not_found(VLLM, "sql", "AdapterNotFound", "fineTunedWeights[0]: adapter sql not found")]
#[case::equal_names(VLLM, "x/sql, y/sql", "AdapterInvalid", "fineTunedWeights[1]")]
#[case::bucket(VLLM, "'s3://bucket/sql'", "AdapterInvalid", "ostler does not download from s3://bucket/sql")]
fn rejects_adapters_that_would_not_be_loaded(
    #[case] runner: &str,
    #[case] weights: &str,
    #[case] expect: &str,
    #[case] message: &str,
) {
    let plan = plan_with(STORAGE, runner, &format!(", fineTunedWeights: [{weights}]"));
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert!(plan.message.contains(message), "{}", plan.message);
}

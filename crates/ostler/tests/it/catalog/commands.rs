//! `ostler catalog list` and `show`.

use rstest::rstest;
use serde_json::Value;

use super::{format_accelerators, list_objects, name, runtime_name, service, services_of};
use crate::session::{TempDirectory, ostler, outcome};

// spec: RT-81
#[test]
fn lists_all_kinds() {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "list"]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!("catalog_list", stdout);
}

// spec: RT-85
#[rstest]
#[case::runtimes("runtimes")]
#[case::classes("classes")]
#[case::models("models")]
fn shows_listed_objects(#[case] kind: &str) {
    let objects = list_objects(kind);
    let object = objects.last().unwrap();
    for output in ["json", "yaml"] {
        let (stdout, _, code) = outcome(&ostler(&["catalog", "show", name(object), "-o", output]).output().unwrap());
        let documents = api::parse_manifest(output, &stdout).unwrap();
        assert_eq!((code, documents.len(), &documents[0].value), (Some(0), 1, object));
    }
}

#[test]
fn shows_one_object() {
    let (stdout, _, code) = outcome(&ostler(&["catalog", "show", "vllm-e5-mistral-7b-instruct"]).output().unwrap());
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r#"
    apiVersion: ome.io/v1beta1
    kind: ClusterServingRuntime
    metadata:
      name: vllm-e5-mistral-7b-instruct
    spec:
      acceleratorRequirements:
        requiredCapabilities:
          computeCapability: "8.0"
          features:
          - tensor-cores
      engineConfig:
        maxReplicas: 1
        minReplicas: 1
        runner:
          args:
          - --host=0.0.0.0
          - --port=8080
          - --shutdown-timeout=120
          - --served-model-name=$(SERVED_MODEL_NAME)
          - --tensor-parallel-size=$(PARALLELISM_SIZE)
          - --gpu-memory-utilization=0.9
          - --runner=pooling
          command:
          - vllm
          - serve
          - $(MODEL_PATH)
          env:
          - name: HF_TOKEN
            valueFrom:
              secretKeyRef:
                key: token
                name: hf-token
                optional: true
          image: docker.io/vllm/vllm-openai:v0.32.0
          livenessProbe:
            failureThreshold: 6
            httpGet:
              path: /health
              port: 8080
            periodSeconds: 10
            timeoutSeconds: 10
          name: ome-container
          ports:
          - containerPort: 8080
            name: http
            protocol: TCP
          readinessProbe:
            failureThreshold: 3
            httpGet:
              path: /health
              port: 8080
            periodSeconds: 5
            timeoutSeconds: 5
          resources:
            limits:
              cpu: "8"
              memory: 30Gi
            requests:
              cpu: "8"
              memory: 30Gi
          startupProbe:
            failureThreshold: 720
            httpGet:
              path: /health
              port: 8080
            periodSeconds: 5
          volumeMounts:
          - mountPath: /dev/shm
            name: dshm
        terminationGracePeriodSeconds: 150
        tolerations:
        - effect: NoSchedule
          key: nvidia.com/gpu
          operator: Exists
        volumes:
        - emptyDir:
            medium: Memory
          name: dshm
      modelSizeRange:
        max: 10B
        min: 5B
      protocolVersions:
      - openAI
      supportedModelFormats:
      - autoSelect: true
        modelArchitecture: MistralModel
        modelFormat:
          name: safetensors
          version: "1.0.0"
        modelFramework:
          name: transformers
          operator: GreaterThanOrEqual
          version: "5.19"
        priority: 1
    "#);
}

#[rstest]
#[case::one_engine("deepseek-rdma-rt", "name: srt-deepseek-rdma\n")]
#[case::prefill_and_decode("mistral-7b-instruct-pd-rt", "name: srt-mistral-7b-instruct-pd\n")]
#[case::model("mistral-7b-instruct", "kind: ClusterBaseModel\n")]
fn finds_specification_names(#[case] name: &str, #[case] expected: &str) {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "show", name]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.contains(expected), "{stdout}");
}

#[rstest]
#[case::both_engines("mistral-7b-instruct-rt")]
#[case::misspelt("nvidia-h100-80")]
#[case::unknown("nope")]
fn rejects_ambiguous_and_unknown_names(#[case] name: &str) {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "show", name]).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let expected = match name {
        "mistral-7b-instruct-rt" => {
            "error: runtime \"mistral-7b-instruct-rt\" exists for 2 engines: srt-mistral-7b-instruct (SGLang), vllm-mistral-7b-instruct (vLLM)\nhint: run `ostler catalog show srt-mistral-7b-instruct`\n"
        }
        "nvidia-h100-80" => {
            "error: \"nvidia-h100-80\" is not in the catalog\nhint: did you mean \"nvidia-h100-80gb\"? `ostler catalog list` lists all names\n"
        }
        _ => "error: \"nope\" is not in the catalog\nhint: `ostler catalog list` lists all names\n",
    };
    assert_eq!(stderr, expected);
}

#[test]
fn shows_what_a_model_runs_on() {
    let (stdout, _, code) = outcome(&ostler(&["catalog", "show", "glm-5-fp8"]).output().unwrap());
    assert_eq!(code, Some(0));
    let lines: Vec<_> = stdout.lines().take_while(|line| line.starts_with('#')).collect();
    let cheapest = lines.iter().position(|line| line.contains("srt-amd")).unwrap();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["#", "ACCELERATORS", "PRICE", "RUNTIME"]);
    assert_eq!(cheapest, 1, "{stdout}");
    assert!(lines[1].starts_with("# 4×amd-mi325x "), "{stdout}");
    assert!(lines.iter().any(|line| line.starts_with("# Not on ") && line.contains("nvidia-l4")), "{stdout}");
}

const CONFIG: &str = r#"{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "transformers_version": "4.51.0",
    "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960}"#;
const INDEX: &str = r#"{"metadata": {"total_size": 16381470720}, "weight_map": {}}"#;

fn model_directory() -> TempDirectory {
    let directory = TempDirectory::new();
    std::fs::create_dir(directory.0.join("My-Qwen3-8B")).unwrap();
    directory.file("My-Qwen3-8B/config.json", CONFIG);
    directory.file("My-Qwen3-8B/model.safetensors.index.json", INDEX);
    directory
}

#[test]
fn describes_other_models() {
    let directory = model_directory();
    let args = ["catalog", "add", "My-Qwen3-8B", "--storage", "pvc://models/qwen"];
    let (stdout, stderr, code) = outcome(&ostler(&args).current_dir(&directory.0).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout, @r#"
    apiVersion: ome.io/v1beta1
    kind: ClusterBaseModel
    metadata:
      name: my-qwen3-8b
    spec:
      additionalMetadata:
        total_size: "16381470720"
      maxTokens: 40960
      modelArchitecture: Qwen3ForCausalLM
      modelCapabilities:
      - text-to-text
      modelConfiguration:
        head_dim: 128
        hidden_size: 4096
        intermediate_size: 12288
        max_position_embeddings: 40960
        model_type: qwen3
        num_attention_heads: 32
        num_hidden_layers: 36
        num_key_value_heads: 8
        vocab_size: 151936
      modelFormat:
        name: safetensors
        version: "1.0.0"
      modelFramework:
        name: transformers
        version: "4.51.0"
      modelType: qwen3
      storage:
        storageUri: pvc://models/qwen
    "#);
}

#[test]
fn plans_the_files_of_a_model() {
    let directory = model_directory();
    for path in ["My-Qwen3-8B", "My-Qwen3-8B/config.json"] {
        let args = ["plan", "-o", "json", "-f", path, "--nodes", "4×L4-24G"];
        let (stdout, stderr, code) = outcome(&ostler(&args).current_dir(&directory.0).output().unwrap());
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
        let service = &services_of(&stdout)[0];
        assert_eq!((runtime_name(service), service["name"].as_str()), ("vllm-qwen", Some("my-qwen3-8b")));
        assert_eq!(format_accelerators(service), "1×nvidia-l4, $0.81");
    }
}

#[test]
fn plans_the_files_of_a_model_with_a_service() {
    let directory = model_directory();
    let service = service("chat", "my-qwen3-8b", None);
    directory.file("service.yaml", &service);
    let args = ["plan", "-o", "json", "-f", "My-Qwen3-8B", "service.yaml", "--nodes", "4×L4-24G"];
    let (stdout, stderr, code) = outcome(&ostler(&args).current_dir(&directory.0).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
    let services = services_of(&stdout);
    assert_eq!(services.iter().map(name).collect::<Vec<_>>(), ["chat"]);

    directory.file("My-Qwen3-8B/service.yaml", &service);
    directory.file("My-Qwen3-8B/mergekit_config.yml", "models: []\n");
    let (stdout, stderr, code) =
        outcome(&ostler(&["plan", "-f", "My-Qwen3-8B"]).current_dir(&directory.0).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert_eq!(
        stderr,
        "error: My-Qwen3-8B: contains a model and the manifest My-Qwen3-8B/service.yaml\nhint: pass the manifests and My-Qwen3-8B/config.json as separate arguments\n"
    );
}

#[test]
fn lists_one_object_as_a_list() {
    let args = ["catalog", "list", "models", "--family", "phi-4-reasoning-plus", "-o", "json"];
    let (stdout, _, code) = outcome(&ostler(&args).output().unwrap());
    let list: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &list["kind"], list["items"].as_array().unwrap().len()), (Some(0), &"List".into(), 1));
}

#[test]
fn checks_sources() {
    let args = ["catalog", "check", "--date", "2026-11-28"];
    let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.contains("AcceleratorClass/amd-mi308x"), "{stdout}");
    assert!(!stdout.contains("older than a year"), "{stdout}");
    let (stdout, ..) = outcome(&ostler(&["catalog", "check", "--date", "2027-12-01"]).output().unwrap());
    assert!(stdout.contains("the source of 2026-11-28 is older than a year"), "{stdout}");
}

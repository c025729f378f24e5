//! `ostler catalog list` and `show`.

use rstest::rstest;

use super::{list_objects, name};
use crate::session::{ostler, outcome};

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

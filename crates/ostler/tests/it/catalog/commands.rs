//! `ostler catalog list` and `show`.

use rstest::rstest;

use super::{list_objects, name};
use crate::session::{ostler, outcome};

// spec: RT-81
#[test]
fn lists_all_kinds() {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "list"]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout, @r"
    RUNTIME                                        ENGINE  SERVES                          SIZE       QUANTIZATION     TOPOLOGY                        AUTO-SELECT
    srt-deepseek-rdma                              SGLang  DeepseekV3ForCausalLM           650B–700B  fp8              one engine, 2 nodes             yes
    srt-deepseek-rdma-pd                           SGLang  DeepseekV3ForCausalLM           650B–700B  fp8              prefill + decode, 2 nodes each  no
    srt-e5-mistral-7b-instruct                     SGLang  MistralModel                    5B–10B     –                one engine                      yes
    srt-llama-3-1-70b-instruct                     SGLang  LlamaForCausalLM                68B–72B    –                one engine                      yes
    srt-llama-3-1-70b-instruct-pd                  SGLang  LlamaForCausalLM                68B–72B    –                prefill + decode                no
    srt-llama-3-2-11b-vision-instruct              SGLang  MllamaForConditionalGeneration  10B–12B    –                one engine                      yes
    srt-llama-3-2-1b-instruct                      SGLang  LlamaForCausalLM                500M–2B    –                one engine                      yes
    srt-llama-3-2-1b-instruct-pd                   SGLang  LlamaForCausalLM                500M–2B    –                prefill + decode                no
    srt-llama-3-2-3b-instruct                      SGLang  LlamaForCausalLM                2B–4B      –                one engine                      yes
    srt-llama-3-2-3b-instruct-pd                   SGLang  LlamaForCausalLM                2B–4B      –                prefill + decode                no
    srt-llama-3-2-90b-vision-instruct              SGLang  MllamaForConditionalGeneration  85B–95B    –                one engine                      yes
    srt-llama-3-3-70b-instruct                     SGLang  LlamaForCausalLM                60B–75B    –                one engine                      yes
    srt-llama-3-3-70b-instruct-pd                  SGLang  LlamaForCausalLM                60B–75B    –                prefill + decode                no
    srt-llama-4-maverick-17b-128e-instruct-fp8     SGLang  Llama4ForConditionalGeneration  395B–405B  fp8              one engine                      yes
    srt-llama-4-maverick-17b-128e-instruct-fp8-pd  SGLang  Llama4ForConditionalGeneration  395B–405B  fp8              prefill + decode                no
    srt-llama-4-scout-17b-16e-instruct             SGLang  Llama4ForConditionalGeneration  100B–110B  –                one engine                      yes
    srt-llama-4-scout-17b-16e-instruct-pd          SGLang  Llama4ForConditionalGeneration  100B–110B  –                prefill + decode                no
    srt-mistral-7b-instruct                        SGLang  MistralForCausalLM              5B–9B      –                one engine                      yes
    srt-mistral-7b-instruct-pd                     SGLang  MistralForCausalLM              5B–9B      –                prefill + decode                no
    srt-mixtral-8x7b-instruct                      SGLang  MixtralForCausalLM              45B–50B    –                one engine                      yes
    srt-mixtral-8x7b-instruct-pd                   SGLang  MixtralForCausalLM              45B–50B    –                prefill + decode                no
    vllm-e5-mistral-7b-instruct                    vLLM    MistralModel                    5B–10B     –                one engine                      yes
    vllm-llama-3-1-405b-instruct-fp8               vLLM    LlamaForCausalLM                400B–410B  fp8, fbgemm_fp8  one engine                      yes
    vllm-llama-3-1-nemotron-nano-8b-v1             vLLM    LlamaForCausalLM                7B–9B      –                one engine                      yes
    vllm-llama-3-1-nemotron-ultra-253b-v1          vLLM    DeciLMForCausalLM               250B–256B  –                one engine                      yes
    vllm-llama-3-2-11b-vision-instruct             vLLM    MllamaForConditionalGeneration  10B–12B    –                one engine                      yes
    vllm-llama-3-2-1b-instruct                     vLLM    LlamaForCausalLM                500M–2B    –                one engine                      yes
    vllm-llama-3-2-3b-instruct                     vLLM    LlamaForCausalLM                2B–4B      –                one engine                      yes
    vllm-llama-3-3-70b-instruct                    vLLM    LlamaForCausalLM                60B–75B    –                one engine                      yes
    vllm-llama-3-3-nemotron-super-49b-v1           vLLM    DeciLMForCausalLM               48B–50B    –                one engine                      yes
    vllm-llama-4-maverick-17b-128e-instruct-fp8    vLLM    Llama4ForConditionalGeneration  395B–405B  fp8              one engine                      yes
    vllm-llama-4-scout-17b-16e-instruct            vLLM    Llama4ForConditionalGeneration  100B–110B  –                one engine                      yes
    vllm-mistral-7b-instruct                       vLLM    MistralForCausalLM              5B–9B      –                one engine                      yes
    vllm-mixtral-8x7b-instruct                     vLLM    MixtralForCausalLM              45B–50B    –                one engine                      yes

    CLASS                          MEMORY  CAPABILITY  GB/S  TFLOPS  RESOURCE                $/H    TIER
    amd-mi100                      32Gi    –           1229  184.6   amd.com/gpu             –      low
    amd-mi210                      64Gi    –           1638  181     amd.com/gpu             –      medium
    amd-mi250                      128Gi   –           3276  362.1   amd.com/gpu             –      medium
    amd-mi250x                     128Gi   –           3276  383     amd.com/gpu             –      medium
    amd-mi300a                     128Gi   –           5300  980.6   amd.com/gpu             –      high
    amd-mi300x                     192Gi   –           5300  1307.4  amd.com/gpu             6.00   high
    amd-mi325x                     256Gi   –           6000  1307.4  amd.com/gpu             –      high
    amd-mi350x                     288Gi   –           8000  2306.9  amd.com/gpu             –      high
    amd-mi355x                     288Gi   –           8000  2516.6  amd.com/gpu             –      high
    aws-inferentia                 8Gi     –           50    64      aws.amazon.com/neuron   0.23   low
    aws-inferentia2                32Gi    –           820   190     aws.amazon.com/neuron   0.76   low
    aws-trainium                   32Gi    –           820   190     aws.amazon.com/neuron   1.34   medium
    aws-trainium2                  96Gi    –           2900  667     aws.amazon.com/neuron   –      medium
    aws-trainium3                  144Gi   –           4900  671     aws.amazon.com/neuron   –      high
    google-tpu-v4                  32Gi    –           1228  275     google.com/tpu          3.22   medium
    google-tpu-v5e                 16Gi    –           819   197     google.com/tpu          1.20   low
    google-tpu-v5p                 95Gi    –           2765  459     google.com/tpu          4.20   high
    google-tpu-v6e                 32Gi    –           1640  918     google.com/tpu          2.70   medium
    google-tpu7x                   192Gi   –           7380  2307    google.com/tpu          –      high
    huawei-ascend-310              8Gi     –           51    11      huawei.com/Ascend310    –      low
    huawei-ascend-310p             24Gi    –           204   70      huawei.com/Ascend310P   –      low
    huawei-ascend-910a             32Gi    –           1200  256     huawei.com/Ascend910    –      medium
    huawei-ascend-910b3            64Gi    –           1600  313     huawei.com/Ascend910    –      medium
    huawei-ascend-910b4            32Gi    –           800   280     huawei.com/Ascend910    –      medium
    huawei-ascend-910c             128Gi   –           3200  752     huawei.com/Ascend910    –      high
    intel-flex-170                 16Gi    –           576   128     gpu.intel.com/i915      –      low
    intel-gaudi                    32Gi    –           1000  116     habana.ai/gaudi         1.64   low
    intel-gaudi2                   96Gi    –           2460  432     habana.ai/gaudi         –      medium
    intel-gaudi3                   128Gi   –           3700  1835    habana.ai/gaudi         –      medium
    intel-max-1100                 48Gi    –           1229  352     gpu.intel.com/i915      –      medium
    intel-max-1550                 128Gi   –           3277  839     gpu.intel.com/i915      –      high
    nvidia-a10                     24Gi    8.6         600   125     nvidia.com/gpu          –      low
    nvidia-a100-40gb               40Gi    8.0         1555  312     nvidia.com/gpu          2.21   medium
    nvidia-a100-40gb-mig-1g.5gb    5Gi     8.0         194   40.4    nvidia.com/mig-1g.5gb   –      low
    nvidia-a100-40gb-mig-2g.10gb   10Gi    8.0         389   80.9    nvidia.com/mig-2g.10gb  –      low
    nvidia-a100-40gb-mig-3g.20gb   20Gi    8.0         778   121.3   nvidia.com/mig-3g.20gb  –      low
    nvidia-a100-80gb               80Gi    8.0         2039  312     nvidia.com/gpu          3.43   medium
    nvidia-a100-80gb-mig-1g.10gb   10Gi    8.0         242   40.4    nvidia.com/mig-1g.10gb  –      low
    nvidia-a100-80gb-mig-2g.20gb   20Gi    8.0         484   80.9    nvidia.com/mig-2g.20gb  –      low
    nvidia-a100-80gb-mig-3g.40gb   40Gi    8.0         968   121.3   nvidia.com/mig-3g.40gb  –      low
    nvidia-a100-pcie-80gb          80Gi    8.0         1935  312     nvidia.com/gpu          3.67   medium
    nvidia-a10g                    24Gi    8.6         600   70      nvidia.com/gpu          1.01   low
    nvidia-a2                      16Gi    8.6         200   18      nvidia.com/gpu          –      low
    nvidia-a30                     24Gi    8.0         933   165     nvidia.com/gpu          –      low
    nvidia-a40                     48Gi    8.6         696   149.7   nvidia.com/gpu          –      low
    nvidia-b200                    179Gi   10.0        7700  2250    nvidia.com/gpu          14.24  high
    nvidia-b200-mig-1g.23gb        23Gi    10.0        962   273.6   nvidia.com/mig-1g.23gb  –      low
    nvidia-b200-mig-3g.90gb        90Gi    10.0        3850  1064.2  nvidia.com/mig-3g.90gb  –      medium
    nvidia-b300                    268Gi   10.3        8000  2250    nvidia.com/gpu          –      high
    nvidia-gb200                   185Gi   10.0        8000  2500    nvidia.com/gpu          –      high
    nvidia-gb300                   277Gi   10.3        8000  2500    nvidia.com/gpu          –      high
    nvidia-gh200-96gb              96Gi    9.0         4000  989     nvidia.com/gpu          –      medium
    nvidia-h100-80gb               80Gi    9.0         3350  989     nvidia.com/gpu          5.12   high
    nvidia-h100-80gb-mig-1g.10gb   10Gi    9.0         419   119.9   nvidia.com/mig-1g.10gb  –      low
    nvidia-h100-80gb-mig-2g.20gb   20Gi    9.0         838   239.8   nvidia.com/mig-2g.20gb  –      low
    nvidia-h100-80gb-mig-3g.40gb   40Gi    9.0         1675  449.5   nvidia.com/mig-3g.40gb  –      medium
    nvidia-h100-nvl-94gb           94Gi    9.0         3938  835     nvidia.com/gpu          6.98   high
    nvidia-h100-pcie-80gb          80Gi    9.0         2039  756     nvidia.com/gpu          –      high
    nvidia-h20-96gb                96Gi    9.0         4000  148     nvidia.com/gpu          –      medium
    nvidia-h200-141gb              141Gi   9.0         4800  989     nvidia.com/gpu          7.91   high
    nvidia-h200-141gb-mig-1g.18gb  18Gi    9.0         600   119.9   nvidia.com/mig-1g.18gb  –      low
    nvidia-h200-141gb-mig-3g.71gb  71Gi    9.0         2400  449.5   nvidia.com/mig-3g.71gb  –      medium
    nvidia-h200-nvl-141gb          141Gi   9.0         4800  835     nvidia.com/gpu          –      high
    nvidia-l20                     48Gi    8.9         864   119.5   nvidia.com/gpu          –      low
    nvidia-l4                      24Gi    8.9         300   121     nvidia.com/gpu          0.81   low
    nvidia-l40                     48Gi    8.9         864   181     nvidia.com/gpu          –      low
    nvidia-l40s                    48Gi    8.9         864   362     nvidia.com/gpu          1.55   low
    nvidia-rtx-4090                24Gi    8.9         1008  165.2   nvidia.com/gpu          –      low
    nvidia-rtx-5090                32Gi    12.0        1792  209.5   nvidia.com/gpu          –      low
    nvidia-rtx-6000-ada            48Gi    8.9         960   364.2   nvidia.com/gpu          –      low
    nvidia-rtx-a6000               48Gi    8.6         768   154.8   nvidia.com/gpu          –      low
    nvidia-rtx-pro-6000-blackwell  96Gi    12.0        1597  500     nvidia.com/gpu          –      medium
    nvidia-t4                      16Gi    7.5         320   65      nvidia.com/gpu          0.53   low
    nvidia-v100-16gb               16Gi    7.0         900   125     nvidia.com/gpu          3.06   medium
    nvidia-v100-32gb               32Gi    7.0         900   125     nvidia.com/gpu          3.90   medium

    MODEL                                   ARCHITECTURE                    SIZE    QUANTIZATION  CONTEXT  SOURCE
    deepseek-r1                             DeepseekV3ForCausalLM           671B    fp8           160K     hf://deepseek-ai/DeepSeek-R1
    deepseek-r1-0528                        DeepseekV3ForCausalLM           671B    fp8           160K     hf://deepseek-ai/DeepSeek-R1-0528
    deepseek-r1-distill-llama-70b           LlamaForCausalLM                70.6B   –             128K     hf://deepseek-ai/DeepSeek-R1-Distill-Llama-70B
    deepseek-r1-distill-llama-8b            LlamaForCausalLM                8.03B   –             128K     hf://deepseek-ai/DeepSeek-R1-Distill-Llama-8B
    deepseek-v3                             DeepseekV3ForCausalLM           671B    fp8           160K     hf://deepseek-ai/DeepSeek-V3
    deepseek-v3-0324                        DeepseekV3ForCausalLM           671B    fp8           160K     hf://deepseek-ai/DeepSeek-V3-0324
    e5-mistral-7b-instruct                  MistralModel                    7.11B   –             32K      hf://intfloat/e5-mistral-7b-instruct
    llama-3-1-405b-instruct-fp8             LlamaForCausalLM                405.9B  fbgemm_fp8    128K     hf://meta-llama/Llama-3.1-405B-Instruct-FP8
    llama-3-1-70b-instruct                  LlamaForCausalLM                70.6B   –             128K     hf://meta-llama/Llama-3.1-70B-Instruct
    llama-3-1-8b-instruct                   LlamaForCausalLM                8.03B   –             128K     hf://meta-llama/Llama-3.1-8B-Instruct
    llama-3-1-nemotron-70b-instruct         LlamaForCausalLM                70.6B   –             128K     hf://nvidia/Llama-3.1-Nemotron-70B-Instruct-HF
    llama-3-1-nemotron-nano-8b-v1           LlamaForCausalLM                8.03B   –             128K     hf://nvidia/Llama-3.1-Nemotron-Nano-8B-v1
    llama-3-1-nemotron-ultra-253b-v1        DeciLMForCausalLM               253.4B  –             128K     hf://nvidia/Llama-3_1-Nemotron-Ultra-253B-v1
    llama-3-2-11b-vision-instruct           MllamaForConditionalGeneration  10.7B   –             128K     hf://meta-llama/Llama-3.2-11B-Vision-Instruct
    llama-3-2-1b-instruct                   LlamaForCausalLM                1.24B   –             128K     hf://meta-llama/Llama-3.2-1B-Instruct
    llama-3-2-3b-instruct                   LlamaForCausalLM                3.2B    –             128K     hf://meta-llama/Llama-3.2-3B-Instruct
    llama-3-2-90b-vision-instruct           MllamaForConditionalGeneration  88.6B   –             128K     hf://meta-llama/Llama-3.2-90B-Vision-Instruct
    llama-3-3-70b-instruct                  LlamaForCausalLM                70.6B   –             128K     hf://meta-llama/Llama-3.3-70B-Instruct
    llama-3-3-nemotron-super-49b-v1         DeciLMForCausalLM               49.9B   –             128K     hf://nvidia/Llama-3_3-Nemotron-Super-49B-v1
    llama-3-70b-instruct                    LlamaForCausalLM                70.6B   –             8K       hf://meta-llama/Meta-Llama-3-70B-Instruct
    llama-3-8b-instruct                     LlamaForCausalLM                8.03B   –             8K       hf://meta-llama/Meta-Llama-3-8B-Instruct
    llama-4-maverick-17b-128e-instruct-fp8  Llama4ForConditionalGeneration  401.6B  fp8           1024K    hf://meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8
    llama-4-scout-17b-16e-instruct          Llama4ForConditionalGeneration  108.6B  –             10240K   hf://meta-llama/Llama-4-Scout-17B-16E-Instruct
    llama-guard-3-1b                        LlamaForCausalLM                1.5B    –             128K     hf://meta-llama/Llama-Guard-3-1B
    llama-guard-3-8b                        LlamaForCausalLM                8.03B   –             128K     hf://meta-llama/Llama-Guard-3-8B
    mistral-7b-instruct                     MistralForCausalLM              7.2B    –             32K      hf://mistralai/Mistral-7B-Instruct-v0.2
    mistral-7b-instruct-v0-3                MistralForCausalLM              7.25B   –             32K      hf://mistralai/Mistral-7B-Instruct-v0.3
    mixtral-8x7b-instruct                   MixtralForCausalLM              46.7B   –             32K      hf://mistralai/Mixtral-8x7B-Instruct-v0.1
    ");
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

//! What is shipped, as it is printed, and what is decided with it.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::{Value, json};

use crate::session::{Folder, ostler, outcome};

/// The tables of specification 001: name, architecture.
const SGLANG: [(&str, &str); 21] = [
    ("deepseek-rdma-pd-rt", "DeepseekV3ForCausalLM"),
    ("deepseek-rdma-rt", "DeepseekV3ForCausalLM"),
    ("e5-mistral-7b-instruct-rt", "MistralModel"),
    ("llama-3-1-70b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-1-70b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-11b-vision-instruct-rt", "MllamaForConditionalGeneration"),
    ("llama-3-2-1b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-2-1b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-3b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-2-3b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-90b-vision-instruct-rt", "MllamaForConditionalGeneration"),
    ("llama-3-3-70b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-3-70b-instruct-rt", "LlamaForCausalLM"),
    ("llama-4-maverick-17b-128e-instruct-fp8-pd-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-maverick-17b-128e-instruct-fp8-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-scout-17b-16e-instruct-pd-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-scout-17b-16e-instruct-rt", "Llama4ForConditionalGeneration"),
    ("mistral-7b-instruct-pd-rt", "MistralForCausalLM"),
    ("mistral-7b-instruct-rt", "MistralForCausalLM"),
    ("mixtral-8x7b-instruct-pd-rt", "MixtralForCausalLM"),
    ("mixtral-8x7b-instruct-rt", "MixtralForCausalLM"),
];
const VLLM: [(&str, &str); 13] = [
    ("e5-mistral-7b-instruct-rt", "MistralModel"),
    ("llama-3-1-405b-instruct-fp8-rt", "LlamaForCausalLM"),
    ("llama-3-1-nemotron-nano-8b-v1-rt", "LlamaForCausalLM"),
    ("llama-3-1-nemotron-ultra-253b-v1-rt", "DeciLMForCausalLM"),
    ("llama-3-2-11b-vision-instruct-rt", "MllamaForConditionalGeneration"),
    ("llama-3-2-1b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-3b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-3-70b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-3-nemotron-super-49b-v1-rt", "DeciLMForCausalLM"),
    ("llama-4-maverick-17b-128e-instruct-fp8-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-scout-17b-16e-instruct-rt", "Llama4ForConditionalGeneration"),
    ("mistral-7b-instruct-rt", "MistralForCausalLM"),
    ("mixtral-8x7b-instruct-rt", "MixtralForCausalLM"),
];

/// Two nodes of eight H100, as GPU feature discovery labels them.
const FLEET: &str = "
apiVersion: v1
kind: Node
metadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
status: {allocatable: {cpu: '192', memory: 2Ti, pods: '250', nvidia.com/gpu: '8'}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
status: {allocatable: {cpu: '192', memory: 2Ti, pods: '250', nvidia.com/gpu: '8'}}
";

// spec: RT-81
#[test]
fn the_list_says_what_everything_is_for() {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "list"]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout, @r"
    RUNTIME                                        ENGINE  SERVES                          SIZE       QUANTIZATION     LAYOUT                          BY ITSELF
    srt-deepseek-rdma                              SGLang  DeepseekV3ForCausalLM           650B–700B  fp8              one engine, 2 nodes             yes
    srt-deepseek-rdma-pd                           SGLang  DeepseekV3ForCausalLM           650B–700B  fp8              prefill + decode, 2 nodes each  when named
    srt-e5-mistral-7b-instruct                     SGLang  MistralModel                    5B–10B     –                one engine                      yes
    srt-llama-3-1-70b-instruct                     SGLang  LlamaForCausalLM                68B–72B    –                one engine                      yes
    srt-llama-3-1-70b-instruct-pd                  SGLang  LlamaForCausalLM                68B–72B    –                prefill + decode                when named
    srt-llama-3-2-11b-vision-instruct              SGLang  MllamaForConditionalGeneration  10B–12B    –                one engine                      yes
    srt-llama-3-2-1b-instruct                      SGLang  LlamaForCausalLM                500M–2B    –                one engine                      yes
    srt-llama-3-2-1b-instruct-pd                   SGLang  LlamaForCausalLM                500M–2B    –                prefill + decode                when named
    srt-llama-3-2-3b-instruct                      SGLang  LlamaForCausalLM                2B–4B      –                one engine                      yes
    srt-llama-3-2-3b-instruct-pd                   SGLang  LlamaForCausalLM                2B–4B      –                prefill + decode                when named
    srt-llama-3-2-90b-vision-instruct              SGLang  MllamaForConditionalGeneration  85B–95B    –                one engine                      yes
    srt-llama-3-3-70b-instruct                     SGLang  LlamaForCausalLM                60B–75B    –                one engine                      yes
    srt-llama-3-3-70b-instruct-pd                  SGLang  LlamaForCausalLM                60B–75B    –                prefill + decode                when named
    srt-llama-4-maverick-17b-128e-instruct-fp8     SGLang  Llama4ForConditionalGeneration  395B–405B  fp8              one engine                      yes
    srt-llama-4-maverick-17b-128e-instruct-fp8-pd  SGLang  Llama4ForConditionalGeneration  395B–405B  fp8              prefill + decode                when named
    srt-llama-4-scout-17b-16e-instruct             SGLang  Llama4ForConditionalGeneration  100B–110B  –                one engine                      yes
    srt-llama-4-scout-17b-16e-instruct-pd          SGLang  Llama4ForConditionalGeneration  100B–110B  –                prefill + decode                when named
    srt-mistral-7b-instruct                        SGLang  MistralForCausalLM              5B–9B      –                one engine                      yes
    srt-mistral-7b-instruct-pd                     SGLang  MistralForCausalLM              5B–9B      –                prefill + decode                when named
    srt-mixtral-8x7b-instruct                      SGLang  MixtralForCausalLM              45B–50B    –                one engine                      yes
    srt-mixtral-8x7b-instruct-pd                   SGLang  MixtralForCausalLM              45B–50B    –                prefill + decode                when named
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

    MODEL                                   ARCHITECTURE                    SIZE    QUANTIZATION  CONTEXT  FROM
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

// spec: RT-78
#[rstest]
#[case::sglang("srt-", SGLANG.as_slice(), "lmsysorg/sglang:")]
// spec: RT-79
// spec: RT-80
#[case::vllm("vllm-", VLLM.as_slice(), "vllm/vllm-openai:")]
fn the_runtimes_of_the_specification_ship(#[case] prefix: &str, #[case] table: &[(&str, &str)], #[case] image: &str) {
    let shipped = listed("runtimes");
    let of_engine = shipped.iter().filter(|runtime| name(runtime).starts_with(prefix));
    let mut named: Vec<_> = of_engine.clone().map(|runtime| name(runtime).replacen(prefix, "", 1) + "-rt").collect();
    named.sort_unstable();
    assert_eq!(named, table.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for runtime in of_engine {
        let wanted = table.iter().find(|(table, _)| format!("{prefix}{table}") == format!("{}-rt", name(runtime)));
        for entry in runtime["spec"]["supportedModelFormats"].as_array().unwrap() {
            let stated = ["modelFormat", "modelFramework"].map(|field| entry[field]["name"].as_str().unwrap());
            assert_eq!(stated, ["safetensors", "transformers"], "{}", name(runtime));
            assert_eq!(entry["modelArchitecture"], wanted.unwrap().1, "{}", name(runtime));
        }
        assert!(runners(runtime).iter().all(|runner| runner["image"].as_str().unwrap().contains(image)));
    }
}

#[test]
fn prefill_and_decode_runtimes_have_both_halves_and_wait_to_be_named() {
    let shipped = listed("runtimes");
    let pairs: Vec<_> = shipped.iter().filter(|runtime| name(runtime).ends_with("-pd")).collect();
    assert_eq!(pairs.len(), 9);
    for runtime in pairs {
        assert!(auto_selected(runtime).is_empty(), "{}", name(runtime));
        for (half, mode) in [("engineConfig", "prefill"), ("decoderConfig", "decode")] {
            let half = &runtime["spec"][half];
            let line = half.pointer("/runner/args").or(half.pointer("/leader/runner/args")).unwrap();
            let mode = json!(format!("--disaggregation-mode={mode}"));
            assert!(line.as_array().unwrap().contains(&mode), "{}: {line}", name(runtime));
        }
    }
}

/// SGLang before vLLM wherever both serve a model, and no two runtimes of one engine are asked for the same models.
#[test]
fn priorities_set_the_engines_apart() {
    for runtime in listed("runtimes") {
        let expected = if name(&runtime).starts_with("srt-") { 2 } else { 1 };
        for entry in runtime["spec"]["supportedModelFormats"].as_array().unwrap() {
            assert_eq!(entry["priority"], expected, "{}", name(&runtime));
        }
    }
}

// spec: RT-85
#[test]
fn every_flag_is_one_that_the_engine_of_the_image_accepts() {
    let mut seen = BTreeSet::new();
    for runtime in listed("runtimes") {
        for runner in runners(&runtime) {
            let image = runner["image"].as_str().unwrap();
            let known = flags_of(image);
            let words = ["command", "args"].into_iter().flat_map(|field| runner[field].as_array().unwrap());
            for flag in words.filter_map(Value::as_str).filter(|word| word.starts_with('-')) {
                let flag = flag.split('=').next().unwrap();
                // `python3 -m` starts the module; everything behind it is the engine's.
                assert!(flag == "-m" || known.contains(flag), "{}: {image} has no {flag}", name(&runtime));
            }
            seen.insert(image.to_owned());
        }
    }
    insta::assert_debug_snapshot!(seen, @r#"
    {
        "docker.io/lmsysorg/sglang:v0.5.23",
        "docker.io/vllm/vllm-openai:v0.10.2",
        "docker.io/vllm/vllm-openai:v0.32.0",
    }
    "#);
}

// spec: RT-84
#[test]
fn every_runtime_serves_what_it_was_made_for() {
    let mut manifests = String::new();
    for runtime in listed("runtimes") {
        manifests += &made_for(&runtime);
    }
    let folder = Folder::new();
    folder.file("services.yaml", &manifests);
    folder.file("nodes.yaml", FLEET);
    let args = ["plan", "-f", "services.yaml", "--cluster", "nodes.yaml", "-o", "json"];
    let (stdout, stderr, _) = outcome(&ostler(&args).current_dir(&folder.0).output().unwrap());
    assert_eq!(stderr, "");
    let rows = services(&stdout).into_iter().map(|service| {
        let reason = if service["feasible"] == true { "feasible" } else { service["reason"].as_str().unwrap() };
        format!("{:<46} {:<30} {reason}", name_of_runtime(&service), shape(&service))
    });
    insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @r"
    srt-deepseek-rdma                              8×nvidia-h100-80gb ×2, $81.92  TopologyNotSupported
    srt-deepseek-rdma-pd                           8×nvidia-h100-80gb ×2, $81.92  TopologyNotSupported
    srt-e5-mistral-7b-instruct                     1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-11b-vision-instruct              1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-90b-vision-instruct              4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-1-70b-instruct                     4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-1-70b-instruct-pd                  4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-2-1b-instruct                      1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-1b-instruct-pd                   1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-3b-instruct                      1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-3b-instruct-pd                   1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-3-70b-instruct                     4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-3-70b-instruct-pd                  4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-4-maverick-17b-128e-instruct-fp8     8×nvidia-h100-80gb, $40.96     feasible
    srt-llama-4-maverick-17b-128e-instruct-fp8-pd  8×nvidia-h100-80gb, $40.96     feasible
    srt-llama-4-scout-17b-16e-instruct             4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-4-scout-17b-16e-instruct-pd          4×nvidia-h100-80gb, $20.48     feasible
    srt-mistral-7b-instruct                        1×nvidia-h100-80gb, $5.12      feasible
    srt-mistral-7b-instruct-pd                     1×nvidia-h100-80gb, $5.12      feasible
    srt-mixtral-8x7b-instruct                      2×nvidia-h100-80gb, $10.24     feasible
    srt-mixtral-8x7b-instruct-pd                   2×nvidia-h100-80gb, $10.24     feasible
    vllm-e5-mistral-7b-instruct                    1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-2-11b-vision-instruct             1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-1-405b-instruct-fp8               8×nvidia-h100-80gb, $40.96     feasible
    vllm-llama-3-1-405b-instruct-fp8               8×nvidia-h100-80gb, $40.96     feasible
    vllm-llama-3-2-1b-instruct                     1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-2-3b-instruct                     1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-3-70b-instruct                    4×nvidia-h100-80gb, $20.48     feasible
    vllm-llama-4-maverick-17b-128e-instruct-fp8    8×nvidia-h100-80gb, $40.96     feasible
    vllm-llama-4-scout-17b-16e-instruct            4×nvidia-h100-80gb, $20.48     feasible
    vllm-mistral-7b-instruct                       1×nvidia-h100-80gb, $5.12      feasible
    vllm-mixtral-8x7b-instruct                     2×nvidia-h100-80gb, $10.24     feasible
    vllm-llama-3-1-nemotron-nano-8b-v1             1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-3-nemotron-super-49b-v1           2×nvidia-h100-80gb, $10.24     feasible
    vllm-llama-3-1-nemotron-ultra-253b-v1          8×nvidia-h100-80gb, $40.96     feasible
    ");
}

/// The review form of the catalogue: what each model gets when nothing is known of a cluster, and what came second.
// spec: RT-86
#[test]
fn each_model_selects_a_runtime_made_for_it() {
    let (models, runtimes) = (listed("models"), listed("runtimes"));
    let manifests: String = models.iter().map(|model| service(name(model), name(model), None)).collect();
    let (stdout, stderr, _) = planned(&manifests, &[]);
    assert_eq!(stderr, "");
    let mut rows = Vec::new();
    for (model, service) in models.iter().zip(services(&stdout)) {
        let chosen = name_of_runtime(&service);
        let runtime = runtimes.iter().find(|runtime| name(runtime) == chosen).unwrap();
        let entries = auto_selected(runtime);
        assert!(entries.iter().any(|entry| entry["modelArchitecture"] == model["spec"]["modelArchitecture"]));
        assert!(!warnings(&service).contains(&"AmbiguousRuntimes"), "{}: {service}", name(model));
        let second = service["candidates"].as_array().unwrap().iter().find(|candidate| candidate["rank"] == 2);
        let second = second.map_or("–", |candidate| candidate["runtime"].as_str().unwrap());
        rows.push(format!("{:<40} {chosen:<43} {:<30} {second}", name(model), shape(&service)));
        if let Some(rival) = second.strip_prefix("vllm-") {
            assert_eq!(chosen.strip_prefix("srt-"), Some(rival), "SGLang comes first");
        }
    }
    insta::assert_snapshot!(rows.join("\n"), @r"
    deepseek-v3                              srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-v3-0324                         srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-r1                              srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-r1-0528                         srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-r1-distill-llama-8b             vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    deepseek-r1-distill-llama-70b            srt-llama-3-3-70b-instruct                  1×nvidia-b200, $14.24          vllm-llama-3-3-70b-instruct
    e5-mistral-7b-instruct                   srt-e5-mistral-7b-instruct                  1×nvidia-l4, $0.81             vllm-e5-mistral-7b-instruct
    llama-3-8b-instruct                      vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    llama-3-70b-instruct                     srt-llama-3-1-70b-instruct                  1×nvidia-b200, $14.24          srt-llama-3-3-70b-instruct
    llama-3-1-8b-instruct                    vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    llama-3-1-70b-instruct                   srt-llama-3-1-70b-instruct                  1×nvidia-b200, $14.24          srt-llama-3-3-70b-instruct
    llama-3-1-405b-instruct-fp8              vllm-llama-3-1-405b-instruct-fp8            8×nvidia-h100-80gb, $40.96     –
    llama-3-2-1b-instruct                    srt-llama-3-2-1b-instruct                   1×nvidia-l4, $0.81             vllm-llama-3-2-1b-instruct
    llama-3-2-3b-instruct                    srt-llama-3-2-3b-instruct                   1×nvidia-l4, $0.81             vllm-llama-3-2-3b-instruct
    llama-3-2-11b-vision-instruct            srt-llama-3-2-11b-vision-instruct           1×nvidia-l40s, $1.55           vllm-llama-3-2-11b-vision-instruct
    llama-3-2-90b-vision-instruct            srt-llama-3-2-90b-vision-instruct           4×nvidia-h100-80gb, $20.48     –
    llama-3-3-70b-instruct                   srt-llama-3-3-70b-instruct                  1×nvidia-b200, $14.24          vllm-llama-3-3-70b-instruct
    llama-4-scout-17b-16e-instruct           srt-llama-4-scout-17b-16e-instruct          4×nvidia-h100-80gb, $20.48     vllm-llama-4-scout-17b-16e-instruct
    llama-4-maverick-17b-128e-instruct-fp8   srt-llama-4-maverick-17b-128e-instruct-fp8  8×nvidia-h100-80gb, $40.96     vllm-llama-4-maverick-17b-128e-instruct-fp8
    llama-guard-3-1b                         srt-llama-3-2-1b-instruct                   1×nvidia-l4, $0.81             vllm-llama-3-2-1b-instruct
    llama-guard-3-8b                         vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    mistral-7b-instruct                      srt-mistral-7b-instruct                     1×nvidia-l4, $0.81             vllm-mistral-7b-instruct
    mistral-7b-instruct-v0-3                 srt-mistral-7b-instruct                     1×nvidia-l4, $0.81             vllm-mistral-7b-instruct
    mixtral-8x7b-instruct                    srt-mixtral-8x7b-instruct                   4×nvidia-l40s, $6.20           vllm-mixtral-8x7b-instruct
    llama-3-1-nemotron-nano-8b-v1            vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    llama-3-1-nemotron-70b-instruct          srt-llama-3-1-70b-instruct                  1×nvidia-b200, $14.24          srt-llama-3-3-70b-instruct
    llama-3-3-nemotron-super-49b-v1          vllm-llama-3-3-nemotron-super-49b-v1        2×nvidia-h100-80gb, $10.24     –
    llama-3-1-nemotron-ultra-253b-v1         vllm-llama-3-1-nemotron-ultra-253b-v1       8×nvidia-h100-80gb, $40.96     –
    ");
}

// spec: ACC-44
#[test]
fn at_least_forty_classes_state_the_facts_that_decisions_need() {
    let classes = listed("classes");
    assert!(classes.len() >= 40, "{}", classes.len());
    let mut vendors = BTreeMap::<String, usize>::new();
    for class in &classes {
        let spec = &class["spec"];
        for fact in [
            "/capabilities/memoryGB",
            "/capabilities/memoryBandwidthGBps",
            "/capabilities/features/0",
            "/capabilities/performance/fp16TFLOPS",
            "/resources/0/name",
            "/cost/tier",
        ] {
            assert!(spec.pointer(fact).is_some(), "{} lacks {fact}", name(class));
        }
        let found =
            ["nodeSelector", "nodeSelectorTerms", "deviceIDs"].iter().any(|way| !spec["discovery"][way].is_null());
        assert!(found, "{} matches no node", name(class));
        let capability = spec["capabilities"]["computeCapability"].is_string();
        assert_eq!(capability, spec["vendor"] == "nvidia", "{}: the number is NVIDIA's", name(class));
        *vendors.entry(spec["vendor"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    insta::assert_debug_snapshot!(vendors, @r#"
    {
        "amd": 9,
        "aws": 5,
        "google": 5,
        "huawei": 6,
        "intel": 6,
        "nvidia": 44,
    }
    "#);
}

/// No label value belongs to two classes, else a node would be counted twice.
#[test]
fn no_two_classes_claim_one_product() {
    let mut owners = BTreeMap::new();
    for class in listed("classes") {
        let discovery = &class["spec"]["discovery"];
        let selector = discovery["nodeSelector"].as_object().into_iter().flatten();
        let mut labels: Vec<(String, String)> =
            selector.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
        for term in discovery["nodeSelectorTerms"].as_array().into_iter().flatten() {
            for expression in term["matchExpressions"].as_array().unwrap() {
                let key = expression["key"].as_str().unwrap();
                let values = expression["values"].as_array().unwrap().iter();
                labels.extend(values.map(|value| (key.to_owned(), value.as_str().unwrap().to_owned())));
            }
        }
        for label in labels {
            let other = owners.insert(label.clone(), name(&class).to_owned());
            assert!(
                other.as_deref().is_none_or(|other| other == name(&class)),
                "{label:?}: {other:?}, {}",
                name(&class)
            );
        }
    }
}

/// The documentation's classes, figure for figure as specification 000 prints them, take part in a plan.
// spec: ACC-32
// spec: ACC-33
// spec: ACC-34
// spec: ACC-130
#[test]
fn the_four_example_classes_are_valid_and_planned() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/accelerator-classes.yaml");
    let (_, stderr, code) = outcome(&ostler(&["lint", "-f", examples]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("4 documents: 0 errors, 0 warnings\n", Some(0)));

    let runtime = "
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: universal}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  acceleratorRequirements: {requiredCapabilities: {memoryGB: 40Gi}}
  engineConfig: {runner: {image: example/engine, args: [--port=8080]}}
---
apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: llama-13b}
spec: {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 13B}
";
    let manifests = format!("{}{}---{runtime}", service("balanced", "llama-13b", None), cheap("llama-13b"));
    let (stdout, stderr, _) = planned(&manifests, &[examples, "--no-catalog"]);
    assert_eq!(stderr, "");
    let rows = services(&stdout).into_iter().flat_map(|service| {
        let classes = service["candidates"][0]["accelerators"].as_array().unwrap().clone();
        let service = name(&service).to_owned();
        classes.into_iter().map(move |class| {
            format!("{service:<9} {:<17} {}", class["class"].as_str().unwrap(), class["message"].as_str().unwrap())
        })
    });
    insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @r"
    balanced  nvidia-a100-40gb  balanced 1.00 (cost 1.00, performance 1.00), ×1, $2.21/h, availability unknown
    balanced  nvidia-h100-80gb  balanced 0.46 (cost 0.43, performance 0.50), ×1, $5.12/h, availability unknown
    balanced  amd-mi250x        balanced 0.31 (performance 0.31), ×1, availability unknown
    balanced  intel-max-1550    balanced 0.31 (performance 0.31), ×1, availability unknown
    cheap     nvidia-a100-40gb  cost 1.00 (cost 1.00, performance 0.31), ×1, $2.21/h, availability unknown
    cheap     nvidia-h100-80gb  cost 0.43 (cost 0.43, performance 0.62), ×1, $5.12/h, availability unknown
    cheap     amd-mi250x        cost 0.00 (performance 1.00), ×1, availability unknown
    cheap     intel-max-1550    cost 0.00 (performance 1.00), ×1, availability unknown
    ");
}

// spec: RT-85
#[rstest]
#[case::runtimes("runtimes")]
#[case::classes("classes")]
#[case::models("models")]
fn whatever_is_listed_can_be_shown(#[case] kind: &str) {
    let all = listed(kind);
    let one = all.last().unwrap();
    for output in ["json", "yaml"] {
        let (stdout, _, code) = outcome(&ostler(&["catalog", "show", name(one), "-o", output]).output().unwrap());
        let read = api::manifest::read(output, &stdout).unwrap();
        assert_eq!((code, read.len(), &read[0].value), (Some(0), 1, one));
    }
}

#[test]
fn show_prints_one_object() {
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
#[case::of_one_engine("deepseek-rdma-rt", "name: srt-deepseek-rdma\n")]
#[case::prefill_and_decode("mistral-7b-instruct-pd-rt", "name: srt-mistral-7b-instruct-pd\n")]
#[case::a_model_of_that_name("mistral-7b-instruct", "kind: ClusterBaseModel\n")]
fn names_of_the_specification_are_understood(#[case] wanted: &str, #[case] shown: &str) {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "show", wanted]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.contains(shown), "{stdout}");
}

#[rstest]
#[case::both_engines("mistral-7b-instruct-rt")]
#[case::misspelt("nvidia-h100-80")]
#[case::nothing_like_it("nope")]
fn a_name_that_says_too_little(#[case] wanted: &str) {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "show", wanted]).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    let expected = match wanted {
        "mistral-7b-instruct-rt" => {
            "error: \"mistral-7b-instruct-rt\" is shipped for 2 engines: srt-mistral-7b-instruct (SGLang), vllm-mistral-7b-instruct (vLLM)\nhint: ostler catalog show srt-mistral-7b-instruct\n"
        }
        "nvidia-h100-80" => {
            "error: nothing called \"nvidia-h100-80\" is shipped\nhint: did you mean \"nvidia-h100-80gb\"? `ostler catalog list` shows all names\n"
        }
        _ => "error: nothing called \"nope\" is shipped\nhint: `ostler catalog list` shows the names\n",
    };
    assert_eq!(stderr, expected);
}

#[test]
fn crds_are_yaml_of_every_kind() {
    let (stdout, _, code) = outcome(&ostler(&["crds"]).output().unwrap());
    assert_eq!(code, Some(0));
    let documents = api::manifest::read("crds", &stdout).unwrap();
    let names: Vec<_> = documents.iter().map(api::manifest::Document::name).collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    acceleratorclasses.ome.io
    basemodels.ome.io
    clusterbasemodels.ome.io
    servingruntimes.ome.io
    clusterservingruntimes.ome.io
    inferenceservices.ome.io
    inferenceservices.fusioninfer.io
    backendpools.inference.networking.x-k8s.io
    llmusecasesets.inference.networking.x-k8s.io
    llmusecases.inference.networking.x-k8s.io
    ");
}

/// The shipped objects of a kind, as `catalog list -o json` prints them.
fn listed(kind: &str) -> Vec<Value> {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "list", kind, "-o", "json"]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    serde_json::from_str::<Value>(&stdout).unwrap()["items"].as_array().unwrap().clone()
}

fn planned(manifests: &str, args: &[&str]) -> (String, String, Option<i32>) {
    let folder = Folder::new();
    folder.file("f.yaml", manifests);
    outcome(&ostler(&["plan", "-o", "json", "-f", "f.yaml"]).args(args).current_dir(&folder.0).output().unwrap())
}

fn services(plan: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(plan).unwrap()["services"].as_array().unwrap().clone()
}

fn service(name: &str, model: &str, runtime: Option<&str>) -> String {
    let runtime = runtime.map_or_else(String::new, |runtime| format!("\n  runtime: {{name: {runtime}}}"));
    format!(
        "---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {name}}}\nspec:\n  model: {{name: {model}}}{runtime}\n"
    )
}

fn cheap(model: &str) -> String {
    service("cheap", model, None) + "  acceleratorSelector: {strategy: cost}\n"
}

/// A model in the middle of the runtime's range for each of its entries, and a service that names both.
fn made_for(runtime: &Value) -> String {
    let spec = &runtime["spec"];
    let bound =
        |end: &str| spec["modelSizeRange"][end].as_str().unwrap().parse::<api::size::ParameterCount>().unwrap().0;
    let parameters = bound("min").midpoint(bound("max"));
    let entries = spec["supportedModelFormats"].as_array().unwrap().iter().enumerate();
    let one = |(index, entry): (usize, &Value)| {
        let model = format!("{}-{index}", name(runtime));
        let mut facts = json!({
            "apiVersion": "ome.io/v1beta1",
            "kind": "ClusterBaseModel",
            "metadata": {"name": model},
            "spec": {
                "modelFormat": {"name": entry["modelFormat"]["name"], "version": entry["modelFormat"]["version"]},
                "modelFramework": {"name": entry["modelFramework"]["name"], "version": entry["modelFramework"]["version"]},
                "modelArchitecture": entry["modelArchitecture"],
                "quantization": entry["quantization"],
                "modelParameterSize": parameters.to_string(),
            },
        });
        facts["spec"].as_object_mut().unwrap().retain(|_, fact| !fact.is_null());
        format!("---\n{facts}\n{}", service(&model, &model, Some(name(runtime))))
    };
    entries.map(one).collect()
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").or(object.get("name")).and_then(Value::as_str).unwrap()
}

fn name_of_runtime(service: &Value) -> &str {
    service["runtime"]["name"].as_str().unwrap_or("–")
}

/// `8×nvidia-h100-80gb ×2, $81.92`
fn shape(service: &Value) -> String {
    let engine = &service["components"]["engine"];
    let class = engine["acceleratorClass"].as_str().unwrap_or("–");
    let nodes =
        engine["nodes"].as_u64().filter(|nodes| *nodes > 1).map(|nodes| format!(" ×{nodes}")).unwrap_or_default();
    let price = engine["costPerHour"].as_f64().map(|price| format!(", ${price:.2}")).unwrap_or_default();
    format!("{}×{class}{nodes}{price}", engine["acceleratorsPerNode"])
}

fn warnings(service: &Value) -> Vec<&str> {
    service["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

fn auto_selected(runtime: &Value) -> Vec<&Value> {
    let entries = runtime["spec"]["supportedModelFormats"].as_array().unwrap().iter();
    entries.filter(|entry| entry["autoSelect"] == true).collect()
}

/// Every container of a runtime: of engine and decoder, of leader and worker.
fn runners(runtime: &Value) -> Vec<&Value> {
    let halves = ["engineConfig", "decoderConfig"].into_iter().map(|half| &runtime["spec"][half]);
    halves
        .flat_map(|half| [half, &half["leader"], &half["worker"]])
        .map(|part| &part["runner"])
        .filter(|runner| !runner.is_null())
        .collect()
}

/// Flags of the engine release that an image carries, one per line; our own list, from the release itself.
fn flags_of(image: &str) -> BTreeSet<&'static str> {
    let text = match image.rsplit_once('/').unwrap().1 {
        "sglang:v0.5.23" => include_str!("../data/flags/sglang-0.5.23.txt"),
        "vllm-openai:v0.32.0" => include_str!("../data/flags/vllm-0.32.0.txt"),
        "vllm-openai:v0.10.2" => include_str!("../data/flags/vllm-0.10.2.txt"),
        other => panic!("no list of flags for {other}: add tests/data/flags"),
    };
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

//! What is shipped, as it is printed.

use crate::session::{ostler, outcome};

#[test]
fn list_names_every_kind() {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "list"]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    insta::assert_snapshot!(stdout, @r"
    KIND                   NAME
    AcceleratorClass       nvidia-h100-80gb
    AcceleratorClass       nvidia-a100-40gb
    AcceleratorClass       nvidia-l40s
    ClusterBaseModel       llama-3-2-3b-instruct
    ClusterBaseModel       llama-3-3-70b-instruct
    ClusterBaseModel       mistral-7b-instruct
    ClusterServingRuntime  srt-llama-3-2-3b-instruct
    ClusterServingRuntime  srt-llama-3-3-70b-instruct
    ClusterServingRuntime  srt-mistral-7b-instruct
    ClusterServingRuntime  vllm-llama-3-2-3b-instruct
    ");
}

#[test]
fn show_prints_one_object() {
    let (stdout, _, code) = outcome(&ostler(&["catalog", "show", "nvidia-l40s"]).output().unwrap());
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(stdout, @r#"
    ---
    apiVersion: ome.io/v1beta1
    kind: AcceleratorClass
    metadata:
      name: nvidia-l40s
    spec:
      capabilities:
        computeCapability: "8.9"
        features:
        - tensor-cores
        - transformer-engine
        - fp8
        memoryBandwidthGBps: "864"
        memoryGB: 48Gi
        performance:
          fp16TFLOPS: 362
          fp32TFLOPS: 91.6
          fp8TFLOPS: 733
          int8TOPS: 733
      cost:
        perHour: "1.10"
        tier: low
      discovery:
        deviceIDs:
        - 26b9
        nodeSelector:
          nvidia.com/gpu.product: NVIDIA-L40S
        pciVendorID: 10de
      family: ada
      model: l40s
      resources:
      - name: nvidia.com/gpu
        quantity: "1"
      vendor: nvidia
    "#);
}

#[test]
fn an_unknown_name_points_to_the_list() {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "show", "nope"]).output().unwrap());
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    insta::assert_snapshot!(stderr, @r#"
    error: nothing called "nope" is shipped
    hint: `ostler catalog list` shows the names
    "#);
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

//! Commands that connect to a running cluster.

use rstest::rstest;

use crate::session::{Session, TempDirectory, ostler, outcome, wait_until};

const SERVICE: &str = "apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: late}
spec:
  model: {name: llama-3-2-3b-instruct}
";

/// Runtimes, classes, free accelerators and the namespace come from the cluster.
#[test]
fn plans_with_objects_of_the_cluster() {
    let session = Session::start(&[]);
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", SERVICE);
    let args = ["--kubeconfig", &session.kubeconfig];
    let (stdout, stderr, code) = outcome(&ostler(&["plan", "-f", &file]).args(args).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
    assert!(stdout.starts_with("inferenceservice default/late — feasible"), "{stdout}");
    let engine = stdout.lines().find(|line| line.trim_start().starts_with("engine ")).unwrap();
    let words: Vec<&str> = engine.split_whitespace().collect();
    assert_eq!(words[2], "nvidia-a100-40gb", "{stdout}");
    assert_eq!(words[words.len() - 3..], ["8", "of", "8"], "{stdout}");
    assert!(!stdout.contains("AvailabilityUnknown"), "{stdout}");
}

/// A Pod that may not be scheduled yet occupies no accelerator, but its service claims one.
#[test]
fn plan_counts_the_accelerators_that_live_services_claim() {
    let directory = TempDirectory::new();
    let gated = SERVICE.replace("name: late", "name: early, namespace: default")
        + "  engine: {schedulingGates: [{name: example.com/wait}]}\n";
    let session = Session::start(&["--nodes", "1×L40S-48G", "-f", &directory.file("gated.yaml", &gated)]);
    let file = directory.file("f.yaml", SERVICE);
    let plan = || outcome(&ostler(&["plan", "-f", &file, "--kubeconfig", &session.kubeconfig]).output().unwrap()).0;
    let waiting = "0 of 1 are free on eligible nodes (1 claimed by default/early)";
    wait_until("the claim of the first service", || plan().contains(waiting).then_some(()));
}

#[test]
fn unknown_context_lists_available_contexts() {
    let session = Session::start(&[]);
    let args = ["explain", "isvc/x", "--kubeconfig", &session.kubeconfig, "--context", "nope"];
    let (_, stderr, code) = outcome(&ostler(&args).output().unwrap());
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(stderr, @r"
    error: kubeconfig: context `nope` does not exist
    hint: available contexts: ostler
    ");
    let (_, stderr, _) =
        outcome(&ostler(&["redecide", "isvc/x", "--kubeconfig", &session.kubeconfig]).output().unwrap());
    assert!(stderr.starts_with("error: InferenceService `x` of ome.io not found in namespace `default`"), "{stderr}");
}

/// Proxies of the environment are not used for loopback addresses.
#[rstest]
#[case("HTTPS_PROXY", "http://192.0.2.1:3128")]
#[case("https_proxy", "socks5://192.0.2.1:1080")]
fn loopback_addresses_bypass_proxies(#[case] variable: &str, #[case] proxy: &str) {
    let session = Session::start(&[]);
    let args = ["redecide", "isvc/x", "--kubeconfig", &session.kubeconfig];
    let (_, stderr, _) = outcome(&ostler(&args).env(variable, proxy).output().unwrap());
    assert!(stderr.starts_with("error: InferenceService `x`"), "{stderr}");
}

const GANG: &str = "apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {name: large}
spec:
  roles:
  - name: inference
    componentType: worker
    replicas: 2
    multinode: {nodeCount: 2}
    template:
      spec:
        containers:
        - name: vllm
          image: vllm/vllm-openai:v0.11.0
          command: [vllm, serve, Qwen/Qwen3-8B]
          resources: {limits: {nvidia.com/gpu: 8}}
";

/// Before version 1.14, Volcano cannot schedule parts of a gang.
#[rstest]
#[case::old("1.13", true)]
#[case::new("v1.14.0", false)]
fn gang_scheduling_depends_on_volcano_version(#[case] version: &str, #[case] all_or_nothing: bool) {
    let directory = TempDirectory::new();
    let file = directory.file("f.yaml", GANG);
    let (stdout, stderr, code) = outcome(&ostler(&["plan", "-f", &file, "--volcano", version]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert!(stdout.contains("PodGroup "), "{stdout}");
    assert_eq!(stdout.contains("GangAllOrNothing"), all_or_nothing, "{stdout}");
}

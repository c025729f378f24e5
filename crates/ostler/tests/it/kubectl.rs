//! User journeys with `kubectl`, run by `cargo xtask test --with kubectl` for each installed version. Each version has its own
//! server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::session::{Session, ostler, outcome, wait_until};
use crate::suites::required_variable;

const SERVICE: &str = "
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {name: llama-3-2-3b-instruct}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: vllm/vllm-openai:v0.9.0
        args: [--model, m, --port, \"8080\"]
        readinessProbe: {httpGet: {path: /health, port: 8080}}
";

/// Two multi-node roles in a gang that no node can run.
const PAIR: &str = "
apiVersion: fusioninfer.io/v1alpha1
kind: InferenceService
metadata: {name: pair}
spec:
  roles:
  - name: prefill
    componentType: prefiller
    multinode: {nodeCount: 2}
    template: {spec: {containers: [{name: vllm, image: vllm/vllm-openai:v0.11.0, resources: {limits: {nvidia.com/gpu: 64}}}]}}
  - name: decode
    componentType: decoder
    multinode: {nodeCount: 2}
    template: {spec: {containers: [{name: vllm, image: vllm/vllm-openai:v0.11.0, resources: {limits: {nvidia.com/gpu: 64}}}]}}
";

/// The end of a container of [`PAIR`] that a node can run.
const RUNNABLE: &str = "v0.11.0, args: [--model, m], resources: {limits: {nvidia.com/gpu: 1}}";

/// Tests all versions of `$OSTLER_KUBECTL` concurrently.
#[test]
#[ignore = "needs kubectl: cargo xtask test --with kubectl"]
fn journeys() {
    let paths = required_variable("OSTLER_KUBECTL");
    std::thread::scope(|scope| {
        for path in std::env::split_paths(&paths) {
            scope.spawn(move || {
                let kubectl = Kubectl { path, session: Session::start(&[]) };
                service_lifecycle(&kubectl);
                describe_services(&kubectl);
                read_objects(&kubectl);
                change_objects(&kubectl);
                roll_out(&kubectl);
                query_server(&kubectl);
                use_unsupported_features(&kubectl);
                delete_objects(&kubectl);
                add_node(&kubectl);
            });
        }
    });
}

// spec: ACC-13
fn list_accelerator_class(kubectl: &Kubectl) {
    let output = kubectl.run(&["get", "acceleratorclass", "nvidia-l40s"]);
    let cells: Vec<Vec<&str>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0][..5], ["NAME", "VENDOR", "FAMILY", "MEMORY", "NODES"], "{output}");
    assert_eq!(cells[1][..5], ["nvidia-l40s", "nvidia", "ada", "46068Mi", "1"], "{output}");
}

/// Applies, updates and deletes an InferenceService.
fn service_lifecycle(kubectl: &Kubectl) {
    let file = kubectl.file("chat.yaml", SERVICE);
    kubectl.assert_contains(&["apply", "-f", &file], "inferenceservice.ome.io/chat created");
    kubectl.assert_contains(&["apply", "-f", &file], "unchanged");
    kubectl.run(&["wait", "--for=condition=Ready", "inferenceservice.ome.io/chat", "--timeout=10m"]);
    let output = kubectl.run(&["get", "inference,acceleratorclasses,pods"]);
    assert!(output.contains("chat-engine-") && output.contains("nvidia-l40s"), "{output}");
    list_accelerator_class(kubectl);
    let description = kubectl.run(&["describe", "inferenceservice.ome.io", "chat"]);
    assert!(description.contains("Nearest:") && description.lines().count() < 60, "{description}");
    let pod = kubectl.run(&["get", "pods", "-o", "name"]);
    kubectl.assert_contains(&["logs", pod.trim()], "simulated engine");
    kubectl.assert_contains(&["explain", "inferenceservices.ome.io.spec.model"], "FIELD: model <Object>");

    let two_replicas = kubectl.file("two.yaml", &SERVICE.replace("spec:", "spec:\n  engine: {minReplicas: 2}"));
    kubectl.assert_contains(&["apply", "-f", &two_replicas], "configured");
    kubectl.run(&["wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/chat-engine", "--timeout=10m"]);
    kubectl.run(&["wait", "--for=condition=Ready", "inferenceservice.ome.io/chat", "--timeout=10m"]);
    let description = kubectl.run(&["describe", "inferenceservice.ome.io", "chat"]);
    assert!(description.contains("Min Replicas:  2") && description.lines().count() < 60, "{description}");
    kubectl.assert_contains(&["apply", "--server-side", "--force-conflicts", "-f", &file], "serverside-applied");

    kubectl.run(&["delete", "inferenceservice.ome.io", "chat", "--timeout=10m"]);
    // The garbage collector deletes the dependents asynchronously.
    kubectl.wait_for_output(&["get", "deployments,services,backendpools,llmusecasesets,pods", "-o", "name"], "");
}

/// Checks the number of lines that `kubectl describe` prints for a service: at most `max_status` for the status, and less than 60
/// in total for one whose spec has less than 15.
fn assert_short_description(kubectl: &Kubectl, service: &str, max_status: usize) {
    let description = kubectl.run(&["describe", service]);
    let start = |section: &str| description.lines().position(|line| line.starts_with(section)).unwrap();
    let (spec, status, events) = (start("Spec:"), start("Status:"), start("Events:"));
    assert!(events - status <= max_status, "{} lines of status: {description}", events - status);
    assert!(status - spec >= 15 || description.lines().count() < 60, "{description}");
}

/// Describes the services of the demo, and two roles that wait for nodes.
fn describe_services(kubectl: &Kubectl) {
    let file = kubectl.file("demo.yaml", include_str!("../../src/demo/manifests.yaml"));
    kubectl.run(&["apply", "-f", &file]);
    for service in ["inferenceservice.ome.io/chat", "inferenceservice.ome.io/summarise", "fisvc/qwen"] {
        kubectl.run(&["wait", "--for=condition=Ready", service, "--timeout=10m"]);
        // An engine without a readiness probe must run for some time before its rollout ends.
        kubectl.wait_for_output(&["get", service, "-o", "jsonpath={.status.rollouts}"], "");
        assert_short_description(kubectl, service, 36);
    }
    kubectl.run(&["delete", "-f", &file, "--timeout=10m"]);
    let pair = kubectl.file("pair.yaml", PAIR);
    kubectl.run(&["apply", "-f", &pair]);
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}";
    kubectl.wait_for_output(&["get", "fisvc", "pair", "-o", ready], "Unschedulable");
    assert_short_description(kubectl, "fisvc/pair", 40);
    kubectl.run(&["delete", "-f", &pair, "--timeout=10m"]);
    let runnable = PAIR.replace("    multinode: {nodeCount: 2}\n", "");
    let runnable = runnable.replace("v0.11.0, resources: {limits: {nvidia.com/gpu: 64}}", RUNNABLE);
    let small_pair = kubectl.file("small-pair.yaml", &runnable);
    kubectl.run(&["apply", "-f", &small_pair]);
    kubectl.run(&["wait", "--for=condition=Ready", "fisvc/pair", "--timeout=1m"]);
    kubectl.wait_for_output(&["get", "fisvc", "pair", "-o", "jsonpath={.status.rollouts}"], "");
    assert_short_description(kubectl, "fisvc/pair", 36);
    kubectl.run(&["delete", "-f", &small_pair, "--timeout=10m"]);
}

/// Adds a node to a full class with the command that `ostler explain` proposes, executed literally.
fn add_node(kubectl: &Kubectl) {
    let spec = "spec:\n  acceleratorSelector: {preferredClasses: [nvidia-l40s]}\n  engine: {minReplicas: 5}";
    kubectl.run(&["apply", "-f", &kubectl.file("five.yaml", &SERVICE.replace("spec:", spec))]);
    let command = wait_until("the command that adds a node", || {
        let mut explain = ostler(&["explain", "isvc/chat", "--kubeconfig", &kubectl.session.kubeconfig]);
        let (text, _, _) = outcome(&explain.output().unwrap());
        let remedy = text.lines().find(|line| line.contains("add 1 node with 4 × nvidia-l40s"))?;
        Some(remedy.split('`').nth(1)?.to_owned())
    });
    let programs = kubectl.directory().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(&kubectl.path, programs.join("kubectl")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env("PATH", path).env("KUBECONFIG", &kubectl.session.kubeconfig);
    let (stdout, stderr, code) = outcome(&shell.output().unwrap());
    assert_eq!((stdout.trim(), code), ("node/small-1 created", Some(0)), "{command}: {stderr}");
    kubectl.run(&["wait", "--for=condition=Ready", "inferenceservice.ome.io/chat", "--timeout=10m"]);
    kubectl.run(&["delete", "inferenceservice.ome.io", "chat", "--timeout=10m"]);
}

/// Client-side and server-side apply, and the output formats.
fn read_objects(kubectl: &Kubectl) {
    let file = kubectl.file("web.yaml", DEPLOYMENT);
    kubectl.assert_contains(&["apply", "-f", &file], "deployment.apps/web created");
    kubectl.assert_contains(&["rollout", "status", "deployment/web", "--timeout=10m"], "successfully rolled out");
    kubectl.assert_contains(&["get", "pods", "-o", "wide"], "NOMINATED NODE");
    let nodes = kubectl.run(&["get", "nodes", "-o", "wide"]);
    assert!(nodes.contains("INTERNAL-IP") && !nodes.contains("<unknown>"), "{nodes}");
    kubectl.assert_contains(
        &["get", "deployment", "web", "-o", "yaml"],
        "kubectl.kubernetes.io/last-applied-configuration",
    );
    kubectl.assert_prints(&["get", "pods", "-o", "jsonpath={.items[*].metadata.labels.app}"], "web web");
    kubectl.assert_prints(
        &["get", "pods", "--no-headers", "-o", "custom-columns=A:.metadata.labels.app,P:.status.phase"],
        "web   Running\nweb   Running",
    );
    kubectl.assert_contains(&["get", "deployments", "-l", "app=web", "--show-labels"], "app=web");
    kubectl.assert_contains(&["get", "pods", "--field-selector", "status.phase=Running", "-o", "name"], "pod/web-");
    kubectl.assert_contains(&["get", "all", "-A"], "deployment.apps/web");
    kubectl.assert_prints(&["get", "--raw", "/readyz"], "ok");

    let three_replicas = kubectl.file("three.yaml", &DEPLOYMENT.replace("replicas: 2", "replicas: 3"));
    let (difference, _) = kubectl.run_failing(&["diff", "-f", &three_replicas]);
    assert!(difference.contains("-  replicas: 2\n+  replicas: 3"), "{difference}");
    let (_, conflict) = kubectl.run_failing(&["apply", "--server-side", "-f", &three_replicas]);
    assert!(conflict.contains("conflict with \"kubectl-client-side-apply\"") && conflict.contains(".spec.replicas"));
    kubectl
        .assert_contains(&["apply", "--server-side", "--force-conflicts", "-f", &three_replicas], "serverside-applied");
    // The status may change between the two requests of `kubectl diff`.
    kubectl.wait_for_output(&["diff", "--server-side", "--force-conflicts", "-f", &three_replicas], "");
}

/// Edit, patch, label, annotate, scale, autoscale, cordon and taint.
fn change_objects(kubectl: &Kubectl) {
    let replicas = || kubectl.run(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]);
    kubectl.edit(&["edit", "deployment", "web"], "s/replicas: 3/replicas: 1/");
    assert_eq!(replicas(), "1", "edited");
    for (kind, patch, expected) in [
        ("strategic", r#"{"spec":{"replicas":2}}"#, "2"),
        ("merge", r#"{"spec":{"replicas":3}}"#, "3"),
        ("json", r#"[{"op":"replace","path":"/spec/replicas","value":1}]"#, "1"),
    ] {
        kubectl.assert_contains(&["patch", "deployment", "web", "--type", kind, "-p", patch], "patched");
        assert_eq!(replicas(), expected, "{kind}");
    }
    let invalid_patch = ["patch", "deployment", "web", "-p", r#"{"spec":{"replicas":"many"}}"#];
    assert!(
        kubectl.run_failing(&invalid_patch).1.contains("Invalid value"),
        "a patch with a value of the wrong type is rejected"
    );

    kubectl.assert_contains(&["label", "deployment", "web", "tier=front"], "labeled");
    assert!(kubectl.run_failing(&["label", "deployment", "web", "tier=back"]).1.contains("already has a value"));
    kubectl.assert_contains(&["label", "deployment", "web", "tier=back", "--overwrite"], "labeled");
    kubectl.assert_contains(&["label", "deployment", "web", "tier-"], "unlabeled");
    kubectl.assert_contains(&["annotate", "deployment", "web", "note=hello"], "annotated");
    kubectl.assert_prints(&["get", "deployment", "web", "-o", "jsonpath={.metadata.annotations.note}"], "hello");
    assert!(
        kubectl
            .run_failing(&["scale", "deployment", "web", "--replicas=2", "--current-replicas=5"])
            .1
            .contains("was 1")
    );
    kubectl.assert_contains(&["scale", "deployment", "web", "--replicas=2"], "scaled");
    assert_eq!(replicas(), "2", "scaled");
    kubectl.assert_contains(&["autoscale", "deployment", "web", "--min=2", "--max=3"], "autoscaled");
    kubectl.assert_contains(&["get", "hpa", "web"], "<unknown>/80%");
    kubectl.assert_contains(&["delete", "hpa", "web"], "deleted");
    kubectl.assert_contains(&["cordon", "small-0"], "cordoned");
    kubectl.assert_contains(&["taint", "node", "small-0", "a=b:NoSchedule"], "tainted");
    kubectl.assert_contains(&["taint", "node", "small-0", "a-"], "untainted");
    kubectl.assert_contains(&["uncordon", "small-0"], "uncordoned");
}

fn roll_out(kubectl: &Kubectl) {
    let wait_for_rollout = || {
        kubectl.assert_contains(&["rollout", "status", "deployment/web", "--timeout=10m"], "successfully rolled out");
    };
    let image =
        || kubectl.run(&["get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"]);
    kubectl.assert_contains(&["set", "image", "deployment/web", "main=vllm/vllm-openai:v0.9.1"], "image updated");
    wait_for_rollout();
    kubectl.assert_contains(&["rollout", "history", "deployment/web"], "REVISION");
    kubectl.assert_contains(&["rollout", "undo", "deployment/web"], "rolled back");
    assert_eq!(image(), "vllm/vllm-openai:v0.9.0");
    kubectl.assert_contains(&["rollout", "restart", "deployment/web"], "restarted");
    wait_for_rollout();
    kubectl.assert_contains(&["wait", "--for=condition=Available", "deployment/web", "--timeout=10m"], "condition met");
    kubectl.assert_contains(&["describe", "deployment", "web"], "ScalingReplicaSet");
    // `kubectl describe` lists the Pods and then reads each one: terminating Pods may have been deleted by then.
    kubectl.wait_for_output(
        &["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}"],
        "",
    );
    kubectl.assert_contains(&["describe", "pods", "-l", "app=web"], "Successfully assigned");
    kubectl.assert_contains(&["describe", "node", "big-0"], "nvidia.com/gpu");
    kubectl.follow_logs();
}

/// Discovery, authorization, OpenAPI, events and version.
fn query_server(kubectl: &Kubectl) {
    kubectl.assert_prints(&["auth", "can-i", "create", "pods"], "yes");
    kubectl.assert_contains(&["auth", "can-i", "--list"], "*.*");
    let user = kubectl.run(&["auth", "whoami"]);
    assert!(user.contains("Username") && user.contains("ostler") && user.contains("system:masters"), "{user}");
    let kinds = kubectl.run(&["api-resources"]);
    assert!(["deployments", "inferenceservices", "selfsubjectreviews"].iter().all(|kind| kinds.contains(kind)));
    kubectl.assert_contains(&["api-versions"], "apps/v1");
    kubectl.assert_contains(&["explain", "deployment.spec.strategy"], "FIELD: strategy <DeploymentStrategy>");
    kubectl.assert_contains(&["explain", "pods.spec.containers", "--recursive"], "imagePullPolicy");
    kubectl.assert_contains(&["events", "--for", "deployment/web"], "ScalingReplicaSet");
    kubectl.assert_contains(&["get", "events"], "Scheduled");
    kubectl.assert_contains(&["cluster-info"], "Kubernetes control plane");
    kubectl.assert_contains(&["version"], "Server Version");
}

/// Errors of unsupported features name the alternative.
fn use_unsupported_features(kubectl: &Kubectl) {
    let cron = kubectl.file("cron.yaml", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {}\n");
    let pod = kubectl.pod();
    let commands: [(&[&str], &str); 6] = [
        (&["exec", &pod, "--", "ls"], "exec is not supported: containers are processes of this host"),
        (&["attach", &pod], "read the output of the container with `kubectl logs -f`"),
        (&["port-forward", &pod, ":8080"], "the address of the Pod is reachable from this host"),
        (&["top", "pods"], "Metrics API not available"),
        (&["apply", "-f", &cron], "no matches for kind \"CronJob\" in version \"batch/v1\""),
        (&["top", "nodes"], "Metrics API not available"),
    ];
    for (args, message) in commands {
        let (_, error) = kubectl.run_failing(args);
        assert!(error.contains(message), "{args:?}: {error}");
    }
    let (_, error) = kubectl.run_failing(&["get", "deployment", "missing"]);
    assert!(error.contains("deployments.apps \"missing\" not found"), "{error}");
}

/// Imperative commands, and deletion with all propagation policies.
fn delete_objects(kubectl: &Kubectl) {
    kubectl.assert_contains(&["create", "namespace", "other"], "namespace/other created");
    kubectl.assert_contains(&["create", "configmap", "settings", "--from-literal=a=b"], "created");
    kubectl.assert_contains(&["create", "deployment", "orphaned", "--image=vllm/vllm-openai:v0.9.0"], "created");
    kubectl.assert_contains(&["rollout", "status", "deployment/orphaned", "--timeout=10m"], "successfully rolled out");
    kubectl.assert_contains(&["run", "alone", "--image=vllm/vllm-openai:v0.9.0"], "pod/alone created");
    kubectl.assert_contains(&["expose", "deployment", "web", "--port=80"], "service/web exposed");

    kubectl.assert_contains(&["delete", "deployment", "orphaned", "--cascade=orphan"], "deleted");
    kubectl.assert_contains(&["get", "replicasets", "-l", "app=orphaned", "-o", "name"], "replicaset.apps/orphaned-");
    kubectl.assert_contains(&["delete", "replicasets", "-l", "app=orphaned", "--cascade=background"], "deleted");
    kubectl.assert_contains(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=10m"], "deleted");
    kubectl.assert_prints(&["get", "deployments,replicasets,pods", "-l", "app=web", "-o", "name"], "");
    kubectl.assert_contains(&["delete", "pod", "alone", "--now"], "deleted");
    kubectl.assert_contains(&["delete", "configmap", "settings", "--dry-run=server"], "deleted (server dry run)");
    kubectl.assert_contains(&["delete", "configmap", "settings"], "deleted");
    kubectl.assert_contains(&["delete", "namespace", "other", "--timeout=10m"], "deleted");
    kubectl.run(&["wait", "--for=delete", "pods", "--all", "--timeout=10m"]);
}

struct Kubectl {
    path: PathBuf,
    session: Session,
}

// === impl Kubectl ===

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["--kubeconfig", &self.session.kubeconfig, "--cache-dir"]).arg(self.directory().join("cache"));
        // Ignores the preferences and the locale of the user.
        command.env("KUBECTL_KUBERC", "false").env("LC_ALL", "C");
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Returns the file name of the program, for messages.
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let (stdout, stderr, code) = outcome(&self.command(args).output().unwrap());
        assert_eq!(code, Some(0), "{} {args:?}: {stdout}{stderr}", self.name());
        stdout
    }

    #[track_caller]
    fn assert_contains(&self, args: &[&str], expected: &str) {
        let stdout = self.run(args);
        assert!(stdout.contains(expected), "{} {args:?} does not contain {expected:?}: {stdout}", self.name());
    }

    #[track_caller]
    fn assert_prints(&self, args: &[&str], expected: &str) {
        assert_eq!(self.run(args).trim(), expected, "{} {args:?}", self.name());
    }

    /// Repeats the command until it succeeds and prints `expected`, since controllers change objects concurrently.
    #[track_caller]
    fn wait_for_output(&self, args: &[&str], expected: &str) {
        wait_until(&format!("{} {args:?} to print {expected:?}", self.name()), || {
            let (stdout, _, code) = outcome(&self.command(args).output().unwrap());
            (code == Some(0) && stdout.trim() == expected).then_some(())
        });
    }

    /// Runs a command that must fail, and returns standard output and standard error.
    #[track_caller]
    fn run_failing(&self, args: &[&str]) -> (String, String) {
        let (stdout, stderr, code) = outcome(&self.command(args).output().unwrap());
        assert_eq!(code, Some(1), "{} {args:?}: {stdout}{stderr}", self.name());
        (stdout, stderr)
    }

    /// Runs a command that opens an editor, with `sed` as the editor.
    #[track_caller]
    fn edit(&self, args: &[&str], change: &str) {
        let editor = format!("sed -i '{change}'");
        let (stdout, stderr, code) = outcome(&self.command(args).env("KUBE_EDITOR", editor).output().unwrap());
        assert!(code == Some(0) && stdout.contains("edited"), "{}: {stdout}{stderr}", self.name());
    }

    /// `kubectl logs -f` prints the log until the container terminates because its Pod is deleted.
    fn follow_logs(&self) {
        let pod = self.pod();
        let mut child = self.command(&["logs", "-f", &pod]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("simulated engine"), "{} logs -f: {line}", self.name());
        self.run(&["delete", &pod, "--timeout=10m"]);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{} logs -f exits after its container", self.name());
        self.run(&["rollout", "status", "deployment/web", "--timeout=10m"]);
    }

    /// Returns a running Pod of `web` that is not terminating, as `pod/NAME`.
    fn pod(&self) -> String {
        let condition = "and (eq .status.phase \"Running\") (not .metadata.deletionTimestamp)";
        let template = format!(
            "go-template={{{{range .items}}}}{{{{if {condition}}}}}pod/{{{{.metadata.name}}}} {{{{end}}}}{{{{end}}}}"
        );
        wait_until("a running Pod", || {
            let names = self.run(&["get", "pods", "-l", "app=web", "-o", &template]);
            names.split_whitespace().next().map(str::to_owned)
        })
    }

    fn file(&self, name: &str, text: &str) -> String {
        self.session.directory.file(name, text)
    }

    fn directory(&self) -> &Path {
        &self.session.directory.0
    }
}

//! What a user does with `kubectl`, with every version of it, each against a server of its own: started by
//! `cargo xtask test --with kubectl`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::session::{Session, outcome, patiently};
use crate::suites::part;

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

/// Every `kubectl` of `$OSTLER_KUBECTL`, at the same time.
#[test]
#[ignore = "needs kubectl: cargo xtask test --with kubectl"]
fn journeys() {
    let paths = part("OSTLER_KUBECTL");
    std::thread::scope(|scope| {
        for path in std::env::split_paths(&paths) {
            scope.spawn(move || {
                let kubectl = Kubectl { path, session: Session::start(&[]) };
                a_service(&kubectl);
                reading(&kubectl);
                changing(&kubectl);
                rolling_out(&kubectl);
                asking(&kubectl);
                not_there(&kubectl);
                deleting(&kubectl);
            });
        }
    });
}

// spec: ACC-13
fn classes(kubectl: &Kubectl) {
    let shown = kubectl.run(&["get", "acceleratorclass", "nvidia-l40s"]);
    let cells: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0][..5], ["NAME", "VENDOR", "FAMILY", "MEMORY", "NODES"], "{shown}");
    assert_eq!(cells[1][..5], ["nvidia-l40s", "nvidia", "ada", "48Gi", "1"], "{shown}");
}

/// One manifest of ours, from `apply` to nothing left.
fn a_service(kubectl: &Kubectl) {
    let file = kubectl.file("chat.yaml", SERVICE);
    kubectl.says(&["apply", "-f", &file], "inferenceservice.ome.io/chat created");
    kubectl.says(&["apply", "-f", &file], "unchanged");
    kubectl.run(&["wait", "--for=condition=Ready", "inferenceservice.ome.io/chat", "--timeout=10m"]);
    let shown = kubectl.run(&["get", "inference,acceleratorclasses,pods"]);
    assert!(shown.contains("chat-engine-") && shown.contains("nvidia-l40s"), "{shown}");
    classes(kubectl);
    kubectl.says(&["describe", "inferenceservice.ome.io", "chat"], "Ready");
    let pod = kubectl.run(&["get", "pods", "-o", "name"]);
    kubectl.says(&["logs", pod.trim()], "simulated engine");
    kubectl.says(&["explain", "inferenceservices.ome.io.spec.model"], "FIELD: model <Object>");

    let two = kubectl.file("two.yaml", &SERVICE.replace("spec:", "spec:\n  engine: {minReplicas: 2}"));
    kubectl.says(&["apply", "-f", &two], "configured");
    kubectl.run(&["wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/chat-engine", "--timeout=10m"]);
    kubectl.says(&["apply", "--server-side", "--force-conflicts", "-f", &file], "serverside-applied");

    kubectl.run(&["delete", "inferenceservice.ome.io", "chat", "--timeout=10m"]);
    // Deleting leaves nothing behind; the garbage collector comes after.
    kubectl.comes_to(&["get", "deployments,services,backendpools,llmusecasesets,pods", "-o", "name"], "");
}

/// Both ways of applying, and every way of showing.
fn reading(kubectl: &Kubectl) {
    let file = kubectl.file("web.yaml", DEPLOYMENT);
    kubectl.says(&["apply", "-f", &file], "deployment.apps/web created");
    kubectl.says(&["rollout", "status", "deployment/web", "--timeout=10m"], "successfully rolled out");
    kubectl.says(&["get", "pods", "-o", "wide"], "NOMINATED NODE");
    let nodes = kubectl.run(&["get", "nodes", "-o", "wide"]);
    assert!(nodes.contains("INTERNAL-IP") && !nodes.contains("<unknown>"), "{nodes}");
    kubectl.says(&["get", "deployment", "web", "-o", "yaml"], "kubectl.kubernetes.io/last-applied-configuration");
    kubectl.prints(&["get", "pods", "-o", "jsonpath={.items[*].metadata.labels.app}"], "web web");
    kubectl.prints(
        &["get", "pods", "--no-headers", "-o", "custom-columns=A:.metadata.labels.app,P:.status.phase"],
        "web   Running\nweb   Running",
    );
    kubectl.says(&["get", "deployments", "-l", "app=web", "--show-labels"], "app=web");
    kubectl.says(&["get", "pods", "--field-selector", "status.phase=Running", "-o", "name"], "pod/web-");
    kubectl.says(&["get", "all", "-A"], "deployment.apps/web");
    kubectl.prints(&["get", "--raw", "/readyz"], "ok");

    let three = kubectl.file("three.yaml", &DEPLOYMENT.replace("replicas: 2", "replicas: 3"));
    let (difference, _) = kubectl.fails(&["diff", "-f", &three]);
    assert!(difference.contains("-  replicas: 2\n+  replicas: 3"), "{difference}");
    let (_, conflict) = kubectl.fails(&["apply", "--server-side", "-f", &three]);
    assert!(conflict.contains("conflict with \"kubectl-client-side-apply\"") && conflict.contains(".spec.replicas"));
    kubectl.says(&["apply", "--server-side", "--force-conflicts", "-f", &three], "serverside-applied");
    // What is written between its two questions is a difference too.
    kubectl.comes_to(&["diff", "--server-side", "--force-conflicts", "-f", &three], "");
}

/// Every way of changing.
fn changing(kubectl: &Kubectl) {
    let replicas = || kubectl.run(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]);
    kubectl.edits(&["edit", "deployment", "web"], "s/replicas: 3/replicas: 1/");
    assert_eq!(replicas(), "1", "edited");
    for (kind, patch, expected) in [
        ("strategic", r#"{"spec":{"replicas":2}}"#, "2"),
        ("merge", r#"{"spec":{"replicas":3}}"#, "3"),
        ("json", r#"[{"op":"replace","path":"/spec/replicas","value":1}]"#, "1"),
    ] {
        kubectl.says(&["patch", "deployment", "web", "--type", kind, "-p", patch], "patched");
        assert_eq!(replicas(), expected, "{kind}");
    }
    let wrong = ["patch", "deployment", "web", "-p", r#"{"spec":{"replicas":"many"}}"#];
    assert!(kubectl.fails(&wrong).1.contains("Invalid value"), "a patch of the wrong type is an invalid object");

    kubectl.says(&["label", "deployment", "web", "tier=front"], "labeled");
    assert!(kubectl.fails(&["label", "deployment", "web", "tier=back"]).1.contains("already has a value"));
    kubectl.says(&["label", "deployment", "web", "tier=back", "--overwrite"], "labeled");
    kubectl.says(&["label", "deployment", "web", "tier-"], "unlabeled");
    kubectl.says(&["annotate", "deployment", "web", "note=hello"], "annotated");
    kubectl.prints(&["get", "deployment", "web", "-o", "jsonpath={.metadata.annotations.note}"], "hello");
    assert!(kubectl.fails(&["scale", "deployment", "web", "--replicas=2", "--current-replicas=5"]).1.contains("was 1"));
    kubectl.says(&["scale", "deployment", "web", "--replicas=2"], "scaled");
    assert_eq!(replicas(), "2", "scaled");
    kubectl.says(&["autoscale", "deployment", "web", "--min=2", "--max=3"], "autoscaled");
    kubectl.says(&["get", "hpa", "web"], "<unknown>/80%");
    kubectl.says(&["delete", "hpa", "web"], "deleted");
    kubectl.says(&["cordon", "small-0"], "cordoned");
    kubectl.says(&["taint", "node", "small-0", "a=b:NoSchedule"], "tainted");
    kubectl.says(&["taint", "node", "small-0", "a-"], "untainted");
    kubectl.says(&["uncordon", "small-0"], "uncordoned");
}

fn rolling_out(kubectl: &Kubectl) {
    let done = || kubectl.says(&["rollout", "status", "deployment/web", "--timeout=10m"], "successfully rolled out");
    let image =
        || kubectl.run(&["get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"]);
    kubectl.says(&["set", "image", "deployment/web", "main=vllm/vllm-openai:v0.9.1"], "image updated");
    done();
    kubectl.says(&["rollout", "history", "deployment/web"], "REVISION");
    kubectl.says(&["rollout", "undo", "deployment/web"], "rolled back");
    assert_eq!(image(), "vllm/vllm-openai:v0.9.0");
    kubectl.says(&["rollout", "restart", "deployment/web"], "restarted");
    done();
    kubectl.says(&["wait", "--for=condition=Available", "deployment/web", "--timeout=10m"], "condition met");
    kubectl.says(&["describe", "deployment", "web"], "ScalingReplicaSet");
    // It lists Pods and then asks for each: those that are going may have gone.
    kubectl.comes_to(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}"], "");
    kubectl.says(&["describe", "pods", "-l", "app=web"], "Successfully assigned");
    kubectl.says(&["describe", "node", "big-0"], "nvidia.com/gpu");
    kubectl.follows();
}

/// What the server says of itself and of the user.
fn asking(kubectl: &Kubectl) {
    kubectl.prints(&["auth", "can-i", "create", "pods"], "yes");
    kubectl.says(&["auth", "can-i", "--list"], "*.*");
    let me = kubectl.run(&["auth", "whoami"]);
    assert!(me.contains("Username") && me.contains("ostler") && me.contains("system:masters"), "{me}");
    let kinds = kubectl.run(&["api-resources"]);
    assert!(["deployments", "inferenceservices", "selfsubjectreviews"].iter().all(|kind| kinds.contains(kind)));
    kubectl.says(&["api-versions"], "apps/v1");
    kubectl.says(&["explain", "deployment.spec.strategy"], "FIELD: strategy <DeploymentStrategy>");
    kubectl.says(&["explain", "pods.spec.containers", "--recursive"], "imagePullPolicy");
    kubectl.says(&["events", "--for", "deployment/web"], "ScalingReplicaSet");
    kubectl.says(&["get", "events"], "Scheduled");
    kubectl.says(&["cluster-info"], "Kubernetes control plane");
    kubectl.says(&["version"], "Server Version");
}

/// What does not exist here says so, and what to do instead.
fn not_there(kubectl: &Kubectl) {
    let cron = kubectl.file("cron.yaml", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {}\n");
    let pod = kubectl.pod();
    let refused: [(&[&str], &str); 6] = [
        (&["exec", &pod, "--", "ls"], "exec is not available here"),
        (&["attach", &pod], "read the container's output with `kubectl logs -f`"),
        (&["port-forward", &pod, ":8080"], "the Pod's own address is reachable from this machine"),
        (&["top", "pods"], "Metrics API not available"),
        (&["apply", "-f", &cron], "no matches for kind \"CronJob\" in version \"batch/v1\""),
        (&["top", "nodes"], "Metrics API not available"),
    ];
    for (args, why) in refused {
        let (_, error) = kubectl.fails(args);
        assert!(error.contains(why), "{args:?}: {error}");
    }
    let (_, missing) = kubectl.fails(&["get", "deployment", "nobody"]);
    assert!(missing.contains("deployments.apps \"nobody\" not found"), "{missing}");
}

/// The imperative commands, and every way of deleting.
fn deleting(kubectl: &Kubectl) {
    kubectl.says(&["create", "namespace", "other"], "namespace/other created");
    kubectl.says(&["create", "configmap", "settings", "--from-literal=a=b"], "created");
    kubectl.says(&["create", "deployment", "orphaned", "--image=vllm/vllm-openai:v0.9.0"], "created");
    kubectl.says(&["rollout", "status", "deployment/orphaned", "--timeout=10m"], "successfully rolled out");
    kubectl.says(&["run", "alone", "--image=vllm/vllm-openai:v0.9.0"], "pod/alone created");
    kubectl.says(&["expose", "deployment", "web", "--port=80"], "service/web exposed");

    kubectl.says(&["delete", "deployment", "orphaned", "--cascade=orphan"], "deleted");
    kubectl.says(&["get", "replicasets", "-l", "app=orphaned", "-o", "name"], "replicaset.apps/orphaned-");
    kubectl.says(&["delete", "replicasets", "-l", "app=orphaned", "--cascade=background"], "deleted");
    kubectl.says(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=10m"], "deleted");
    kubectl.prints(&["get", "deployments,replicasets,pods", "-l", "app=web", "-o", "name"], "");
    kubectl.says(&["delete", "pod", "alone", "--now"], "deleted");
    kubectl.says(&["delete", "configmap", "settings", "--dry-run=server"], "deleted (server dry run)");
    kubectl.says(&["delete", "configmap", "settings"], "deleted");
    kubectl.says(&["delete", "namespace", "other", "--timeout=10m"], "deleted");
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
        command.args(["--kubeconfig", &self.session.kubeconfig, "--cache-dir"]).arg(self.folder().join("cache"));
        // Without the preferences and the language of whoever runs this.
        command.env("KUBECTL_KUBERC", "false").env("LC_ALL", "C");
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Its name for messages.
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
    fn says(&self, args: &[&str], expected: &str) {
        let stdout = self.run(args);
        assert!(stdout.contains(expected), "{} {args:?} does not say {expected:?}: {stdout}", self.name());
    }

    #[track_caller]
    fn prints(&self, args: &[&str], expected: &str) {
        assert_eq!(self.run(args).trim(), expected, "{} {args:?}", self.name());
    }

    /// Once it succeeds and prints that: of what controllers change beside us.
    #[track_caller]
    fn comes_to(&self, args: &[&str], expected: &str) {
        patiently(&format!("{} {args:?} comes to {expected:?}", self.name()), || {
            let (stdout, _, code) = outcome(&self.command(args).output().unwrap());
            (code == Some(0) && stdout.trim() == expected).then_some(())
        });
    }

    /// stdout and stderr of what has to fail.
    #[track_caller]
    fn fails(&self, args: &[&str]) -> (String, String) {
        let (stdout, stderr, code) = outcome(&self.command(args).output().unwrap());
        assert_eq!(code, Some(1), "{} {args:?}: {stdout}{stderr}", self.name());
        (stdout, stderr)
    }

    /// Runs what opens an editor, which changes the file as `sed` does.
    #[track_caller]
    fn edits(&self, args: &[&str], change: &str) {
        let editor = format!("sed -i '{change}'");
        let (stdout, stderr, code) = outcome(&self.command(args).env("KUBE_EDITOR", editor).output().unwrap());
        assert!(code == Some(0) && stdout.contains("edited"), "{}: {stdout}{stderr}", self.name());
    }

    /// `logs -f` shows what was said and goes on until the container ends: here by deleting its Pod.
    fn follows(&self) {
        let pod = self.pod();
        let mut child = self.command(&["logs", "-f", &pod]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("simulated engine"), "{} logs -f: {line}", self.name());
        self.run(&["delete", &pod, "--timeout=10m"]);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{} logs -f ends with its container", self.name());
        self.run(&["rollout", "status", "deployment/web", "--timeout=10m"]);
    }

    /// Some Pod of `web` that runs and is to stay, as `pod/NAME`.
    fn pod(&self) -> String {
        let stays = "and (eq .status.phase \"Running\") (not .metadata.deletionTimestamp)";
        let template = format!(
            "go-template={{{{range .items}}}}{{{{if {stays}}}}}pod/{{{{.metadata.name}}}} {{{{end}}}}{{{{end}}}}"
        );
        patiently("a Pod that runs", || {
            let names = self.run(&["get", "pods", "-l", "app=web", "-o", &template]);
            names.split_whitespace().next().map(str::to_owned)
        })
    }

    fn file(&self, name: &str, text: &str) -> String {
        self.session.folder.file(name, text)
    }

    fn folder(&self) -> &Path {
        &self.session.folder.0
    }
}

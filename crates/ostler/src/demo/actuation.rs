//! `ostler up --demo actuation`: models take turns on one GPU, and their engines sleep in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::dual_pods;
use api::{Document, parse_manifest};
use apimachinery::{object, pod};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::request::{millis, send_request};
use crate::apply;
use crate::local_cluster::LocalCluster;
use crate::progress::MessageOutput;
use crate::report::actuation_demo::{ModelStart, StartParts, StartPath};
use crate::report::demo::RequestOutcome;

/// Nodes of the demo.
pub(crate) const NODES: &str = "1×L40S";

/// Label of the requesters of a model, whose value is its name.
const REQUESTER_LABEL: &str = "demo-requester";
const NAMESPACE: &str = "default";
/// Maximum time for each step of the demo.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the objects are read, which are in this process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between requests to a model that the gateway does not serve yet.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// Length of a response in tokens.
const MAX_TOKENS: u32 = 16;

/// The models by the name by which clients request them. The time to load one follows from the size in its name.
const MODELS: [(&str, &str); 3] = [
    ("granite", "ibm-granite/granite-3.3-2b-instruct"),
    ("llama", "meta-llama/Llama-3.2-1B-Instruct"),
    ("qwen", "Qwen/Qwen3-0.6B"),
];

/// The demo in progress.
struct Demo<'a> {
    cluster: &'a LocalCluster,
    messages: &'a MessageOutput,
    print: &'a dyn Fn(&ModelStart) -> Result<()>,
    starts: u32,
}

/// What is to be observed of a start, as soon as it has begun.
struct Before {
    time: Instant,
    /// UIDs of requesters and providers that exist already.
    pods: BTreeSet<String>,
    /// Names of the providers whose engines sleep.
    sleepers: BTreeSet<String>,
}

/// Runs the demo. `print` is called with each start.
///
/// # Errors
/// A step takes longer than a minute, or the API server rejects a request.
pub(crate) async fn run(
    cluster: &LocalCluster,
    messages: &MessageOutput,
    print: &dyn Fn(&ModelStart) -> Result<()>,
) -> Result<()> {
    for (name, model) in MODELS {
        apply::documents(&cluster.client, &manifests(name, model)?).await?;
    }
    let mut demo = Demo { cluster, messages, print, starts: 0 };
    let [(granite, _), (llama, _), (qwen, _)] = MODELS;
    for (model, comment) in [
        (granite, "no engine exists"),
        (llama, "another model gets the GPU"),
        (granite, "its engine is woken"),
        (qwen, "a third model: the engine that was awake least recently is deleted"),
    ] {
        demo.messages.print(&format!("{model}: replicas 0 → 1; {comment}"));
        demo.start(model).await?;
        if model != qwen {
            demo.stop(model).await?;
        }
    }
    demo.replace(qwen).await
}

/// Returns the manifests of a model.
fn manifests(name: &str, model: &str) -> Result<Vec<Document>> {
    let text = include_str!("actuation.yaml").replace("NAME", name).replace("MODEL", model);
    Ok(parse_manifest("demo/actuation.yaml", &text)?)
}

// === impl Demo ===

impl Demo<'_> {
    /// Scales a model to one replica and sends a request to it.
    async fn start(&mut self, model: &str) -> Result<()> {
        let before = self.before();
        self.scale(model, 1).await?;
        self.finish_start(model, &before).await
    }

    /// Scales a model to zero and waits until its engine sleeps.
    async fn stop(&self, model: &str) -> Result<()> {
        let start = Instant::now();
        self.scale(model, 0).await?;
        self.wait(&format!("the engine of {model} to sleep"), |pods| {
            let has_ended = !pods.iter().any(|pod| is_requester_of(pod, model));
            let sleeps = |pod: &Arc<Value>| is_engine_of(pod, model) && is_sleeper(pod);
            (has_ended && pods.iter().any(sleeps)).then_some(())
        })
        .await?;
        let seconds = start.elapsed().as_secs_f64();
        self.messages.print(&format!("{model}: replicas 1 → 0; asleep after {seconds:.1} s"));
        Ok(())
    }

    /// Deletes the provider of a model. The controller deletes its requester, and the set creates another one.
    async fn replace(&mut self, model: &str) -> Result<()> {
        let before = self.before();
        let pods = self.pods();
        let provider = pods.iter().find(|pod| is_engine_of(pod, model)).context("the model has no engine")?;
        let name = object::name(provider);
        self.messages.print(&format!("{model}: kubectl delete pod {name}; its requester is replaced"));
        let api: Api<Pod> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        api.delete(name, &DeleteParams::default()).await.with_context(|| format!("failed to delete Pod {name}"))?;
        self.finish_start(model, &before).await
    }

    async fn scale(&self, model: &str, replicas: u32) -> Result<()> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let response = sets.patch(model, &PatchParams::default(), &patch).await;
        response.map(drop).with_context(|| format!("failed to scale ReplicaSet {model}"))
    }

    /// Waits until a new requester of the model is ready, sends a request, and prints the start.
    async fn finish_start(&mut self, model: &str, before: &Before) -> Result<()> {
        let is_new = |pod: &Value| !before.pods.contains(object::uid(pod)) && !object::is_deleting(pod);
        let requester = |pods: &[Arc<Value>]| {
            pods.iter().find(|pod| is_requester_of(pod, model) && is_new(pod)).map(|pod| object::uid(pod).to_owned())
        };
        let uid = self.wait(&format!("a requester of {model}"), requester).await?;
        let find = |pods: &[Arc<Value>]| pods.iter().find(|pod| object::uid(pod) == uid).cloned();
        let engine = |pods: &[Arc<Value>]| pods.iter().find(|pod| is_bound_to(pod, &uid)).cloned();
        let running = |pods: &[Arc<Value>]| (find(pods)?["status"]["phase"] == "Running").then_some(());
        self.wait(&format!("the requester of {model} to run"), running).await?;
        let started = Instant::now();
        let provider = self.wait(&format!("an engine for {model}"), engine).await?;
        let bound = Instant::now();
        let awake = |pods: &[Arc<Value>]| {
            let pod = engine(pods)?;
            let was_awake = pod["metadata"]["annotations"][dual_pods::LAST_AWAKE].is_string();
            (was_awake && object::label(&pod, dual_pods::SLEEPING) == Some("false")).then_some(())
        };
        self.wait(&format!("the engine of {model} to serve"), awake).await?;
        let served = Instant::now();
        self.wait(&format!("the requester of {model} to be ready"), |pods| pod::is_ready(&*find(pods)?).then_some(()))
            .await?;
        let ready = Instant::now();
        let request = self.ask(model).await?;
        self.starts += 1;
        let is_known = before.pods.contains(object::uid(&provider));
        let providers: BTreeSet<String> = self.pods().iter().map(|pod| object::name(pod).to_owned()).collect();
        (self.print)(&ModelStart {
            start: self.starts,
            model: model.to_owned(),
            path: if is_known { StartPath::Hot } else { StartPath::Cold },
            provider: object::name(&provider).to_owned(),
            evicted: before.sleepers.difference(&providers).cloned().collect(),
            total_ms: millis(before.time, ready),
            parts: StartParts {
                requester_ms: millis(before.time, started),
                bound_ms: millis(started, bound),
                engine_ms: millis(bound, served),
                ready_ms: millis(served, ready),
            },
            request,
        })
    }

    /// Sends a request to a model, repeatedly until the gateway has observed its engine.
    async fn ask(&self, model: &str) -> Result<RequestOutcome> {
        let gateway = format!("http://{}", self.cluster.gateway);
        let requests = async {
            loop {
                match send_request(&gateway, model, MAX_TOKENS).await {
                    Ok((outcome, _)) => return outcome,
                    Err(error) => tracing::debug!(%error, model, "request of the demo failed"),
                }
                tokio::time::sleep(REQUEST_INTERVAL).await;
            }
        };
        let outcome = tokio::time::timeout(STEP_TIMEOUT, requests).await;
        outcome.with_context(|| format!("the gateway did not serve {model} within {} s", STEP_TIMEOUT.as_secs()))
    }

    fn pods(&self) -> Vec<Arc<Value>> {
        self.cluster.cluster.server().list("pods")
    }

    fn before(&self) -> Before {
        let pods = self.pods();
        Before {
            time: Instant::now(),
            pods: pods.iter().map(|pod| object::uid(pod).to_owned()).collect(),
            sleepers: pods.iter().filter(|pod| is_sleeper(pod)).map(|pod| object::name(pod).to_owned()).collect(),
        }
    }

    /// Waits until `observe` returns a value. The error contains the problems that requesters report.
    async fn wait<T>(&self, expected: &str, observe: impl Fn(&[Arc<Value>]) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let pods = self.pods();
            if let Some(value) = observe(&pods) {
                return Ok(value);
            }
            if Instant::now() >= deadline {
                let problems: Vec<String> = pods.iter().flat_map(|pod| dual_pods::status_errors(pod)).collect();
                let cause = if problems.is_empty() { String::new() } else { format!(": {}", problems.join("; ")) };
                bail!("timed out after {} s waiting for {expected}{cause}", STEP_TIMEOUT.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn is_requester_of(pod: &Value, model: &str) -> bool {
    object::label(pod, REQUESTER_LABEL) == Some(model)
}

/// Whether the Pod is a provider of the model: it was created for a requester of the set.
fn is_engine_of(pod: &Value, model: &str) -> bool {
    dual_pods::is_provider(pod) && object::name(pod).starts_with(&format!("{model}-"))
}

fn is_bound_to(pod: &Value, uid: &str) -> bool {
    let binding = pod["metadata"]["annotations"][dual_pods::REQUESTER].as_str().unwrap_or_default();
    binding.split_once(' ').is_some_and(|(bound, _)| bound == uid)
}

fn is_sleeper(pod: &Value) -> bool {
    dual_pods::is_provider(pod)
        && object::label(pod, dual_pods::SLEEPING) == Some("true")
        && pod["metadata"]["annotations"][dual_pods::REQUESTER].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_pass_lint() {
        for (name, model) in MODELS {
            for document in manifests(name, model).unwrap() {
                assert_eq!(api::lint_document(&document), [], "{} {}", document.kind(), document.name());
            }
        }
    }
}

//! The life of one Pod, from its first status to its removal.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::context::NodeContext;
use crate::pod_signals::PodSignals;
use crate::pod_termination::{self, TerminationReason, grace_period};
use crate::pod_worker::PodWorker;

/// Runs one Pod until it is removed or the agent shuts down.
pub(crate) async fn run(context: Arc<NodeContext>, pod: Arc<Value>, signals: PodSignals) {
    let Some(pod_ip) = context.pod_ips.allocate() else {
        context.server.record_event(&pod, "Warning", "FailedCreatePodSandBox", "no free loopback address", "kubelet");
        return;
    };
    let mut worker = PodWorker::new(context, pod, pod_ip, Arc::clone(&signals.refresh));
    worker.publish_initial_status();
    let mut reason = run_until_termination(&mut worker, &signals).await;
    if matches!(reason, TerminationReason::DeadlineExceeded) {
        pod_termination::fail_on_deadline(&mut worker, &signals).await;
        reason = wait_for_termination(&worker, &signals).await;
    }
    pod_termination::terminate(&mut worker, reason, &signals).await;
    worker.context.pod_ips.release(pod_ip);
}

/// Runs the Pod until it has to terminate.
async fn run_until_termination(worker: &mut PodWorker, signals: &PodSignals) -> TerminationReason {
    let deadline = time_until_deadline(worker);
    tokio::select! {
        biased;
        () = signals.removed.cancelled() => TerminationReason::Deleted { grace: Duration::ZERO },
        () = signals.shutdown.cancelled() => TerminationReason::Shutdown,
        () = signals.delete.cancelled() => TerminationReason::Deleted { grace: grace_period(worker) },
        () = tokio::time::sleep(deadline.unwrap_or_default()), if deadline.is_some() => TerminationReason::DeadlineExceeded,
        never = worker.run_containers() => match never {},
    }
}

/// Waits for the deletion of a Pod whose containers have stopped, or for the shutdown of the agent.
async fn wait_for_termination(worker: &PodWorker, signals: &PodSignals) -> TerminationReason {
    tokio::select! {
        biased;
        () = signals.removed.cancelled() => TerminationReason::Deleted { grace: Duration::ZERO },
        () = signals.shutdown.cancelled() => TerminationReason::Shutdown,
        () = signals.delete.cancelled() => TerminationReason::Deleted { grace: grace_period(worker) },
    }
}

/// Returns the remaining time of `activeDeadlineSeconds`.
fn time_until_deadline(worker: &PodWorker) -> Option<Duration> {
    let seconds = worker.pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_u64)?;
    let started: Timestamp = worker.placement.start_time.parse().ok()?;
    let elapsed = Duration::try_from(worker.context.server.now().duration_since(started)).unwrap_or_default();
    Some(Duration::from_secs(seconds).saturating_sub(elapsed))
}

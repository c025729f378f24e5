//! The life of one Pod, from its first status to its removal.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::pod::is_finished;
use apimachinery::{catch_future_panic, object, time};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::context::NodeContext;
use crate::pod_signals::PodSignals;
use crate::pod_termination::{self, TerminationReason};
use crate::pod_worker::PodWorker;
use crate::restart::CrashLoopBackOff;

/// Runs one Pod until it is removed or the agent shuts down. If its worker panics, kills its containers and starts another
/// worker after a delay that grows like that of a crashing container; other Pods are not affected.
pub(crate) async fn run(context: Arc<NodeContext>, mut pod: Arc<Value>, signals: PodSignals) {
    let Some(pod_ip) = context.pod_ips.allocate() else {
        context.server.record_event(&pod, "Warning", "FailedCreatePodSandBox", "no free loopback address", "kubelet");
        return;
    };
    let mut back_off = CrashLoopBackOff::default();
    loop {
        let started_at = Instant::now();
        let mut worker = None;
        let life = run_worker(Arc::clone(&context), Arc::clone(&pod), pod_ip, &signals, &mut worker);
        let Err(panic) = catch_future_panic(life).await else { break };
        tracing::error!(namespace = object::namespace(&pod), pod = object::name(&pod), %panic, "the worker of a Pod failed");
        if let Some(mut worker) = worker {
            worker.kill_containers().await;
        }
        let message = format!("error syncing pod: internal error of the node agent: {panic}");
        context.server.record_event(&pod, "Warning", "FailedSync", &message, "kubelet");
        let has_work = context.stored_pod(&pod).is_some_and(|stored| !is_finished(&stored));
        tokio::select! {
            biased;
            () = signals.shutdown.cancelled() => break,
            () = signals.removed.cancelled() => {}
            _ = signals.deleted() => {}
            () = tokio::time::sleep(back_off.next_delay(started_at.elapsed())), if has_work => {}
        }
        let stored = context.stored_pod(&pod);
        match stored.filter(|_| !signals.is_deleted() && !signals.removed.is_cancelled()) {
            Some(stored) => pod = stored,
            // The containers of the Pod have already been killed.
            None => {
                context.remove_pod(&pod);
                break;
            }
        }
    }
    context.pod_ips.release(pod_ip);
}

/// Runs one worker of the Pod. The caller keeps the worker, so that it can kill the containers after a panic.
async fn run_worker(
    context: Arc<NodeContext>,
    pod: Arc<Value>,
    pod_ip: Ipv4Addr,
    signals: &PodSignals,
    worker: &mut Option<PodWorker>,
) {
    let worker = worker.insert(PodWorker::new(context, pod, pod_ip, Arc::clone(&signals.refresh)));
    worker.publish_initial_status();
    let mut reason = run_until_termination(worker, signals).await;
    if matches!(reason, TerminationReason::DeadlineExceeded) {
        pod_termination::fail_on_deadline(worker, signals).await;
        reason = wait_for_termination(signals).await;
    }
    pod_termination::terminate(worker, reason, signals).await;
}

/// Runs the Pod until it has to terminate.
async fn run_until_termination(worker: &mut PodWorker, signals: &PodSignals) -> TerminationReason {
    let deadline = time_until_deadline(worker);
    tokio::select! {
        biased;
        () = signals.removed.cancelled() => TerminationReason::Deleted { grace: Duration::ZERO },
        () = signals.shutdown.cancelled() => TerminationReason::Shutdown,
        grace = signals.deleted() => TerminationReason::Deleted { grace },
        () = tokio::time::sleep(deadline.unwrap_or_default()), if deadline.is_some() => TerminationReason::DeadlineExceeded,
        never = worker.run_containers() => match never {},
    }
}

/// Waits for the deletion of a Pod whose containers have stopped, or for the shutdown of the agent.
async fn wait_for_termination(signals: &PodSignals) -> TerminationReason {
    tokio::select! {
        biased;
        () = signals.removed.cancelled() => TerminationReason::Deleted { grace: Duration::ZERO },
        () = signals.shutdown.cancelled() => TerminationReason::Shutdown,
        grace = signals.deleted() => TerminationReason::Deleted { grace },
    }
}

/// Returns the remaining time of `activeDeadlineSeconds`.
fn time_until_deadline(worker: &PodWorker) -> Option<Duration> {
    let seconds = worker.pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64)?;
    let started: Timestamp = worker.placement.start_time.parse().ok()?;
    Some(time::duration_until(time::add_seconds(started, seconds), worker.context.server.now()))
}

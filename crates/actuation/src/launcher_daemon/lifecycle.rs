//! The life of an instance, from its start until it is deleted.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use super::instance::{Program, StartedInstance};
use super::instance_log::InstanceLog;
use super::processes::InstanceProcesses;
use super::state::LauncherState;

/// Maximum number of bytes that are copied to the log at once.
const PIECE_BYTES: usize = 32 << 10;

/// Exit code of an engine that SIGKILL ended.
const KILLED: i32 = -9;

/// Why the main process ended, with its exit code.
enum End {
    Exited(i32),
    Deleted(i32),
}

/// Runs an instance until it is deleted and its processes have ended.
pub(super) async fn run_instance(instance: StartedInstance, state: Arc<LauncherState>) {
    let StartedInstance { id, program, log, delete, deleted, stop_timeout } = instance;
    let end = match program {
        Program::Processes(processes, output) => run_processes(*processes, output, &log, &delete, stop_timeout).await,
        Program::Future(mut engine, shutdown) => tokio::select! {
            code = &mut engine => End::Exited(code),
            () = delete.cancelled() => {
                shutdown.cancel();
                // Without an exit code in time, the engine is dropped.
                End::Deleted(tokio::time::timeout(stop_timeout, engine).await.unwrap_or(KILLED))
            }
        },
    };
    let exit_code = match end {
        End::Exited(code) => {
            tracing::warn!(instance = id, exit_code = code, "instance stopped");
            state.change(|table| table.stop(&id, code));
            delete.cancelled().await;
            None
        }
        End::Deleted(code) => Some(code),
    };
    tracing::info!(instance = id, "instance deleted");
    let last = state.change(|table| table.remove(&id, exit_code));
    deleted.send_replace(last);
}

/// Runs processes until they have ended.
async fn run_processes(
    mut processes: InstanceProcesses,
    output: pipe::Receiver,
    log: &Arc<InstanceLog>,
    delete: &CancellationToken,
    stop_timeout: Duration,
) -> End {
    let ended = CancellationToken::new();
    let processes = async {
        let end = tokio::select! {
            code = processes.wait() => End::Exited(code),
            () = delete.cancelled() => End::Deleted(processes.terminate(stop_timeout).await),
        };
        processes.kill_remaining().await;
        ended.cancel();
        end
    };
    tokio::join!(processes, copy_output(output, log, &ended)).0
}

/// Copies the output to the log until all writers have closed it, or until the processes have ended and the pipe is empty.
async fn copy_output(mut output: pipe::Receiver, log: &Arc<InstanceLog>, ended: &CancellationToken) {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut is_logged = true;
    loop {
        let read = tokio::select! {
            biased;
            read = output.read_buf(&mut piece) => read,
            () = ended.cancelled() => return,
        };
        if !matches!(read, Ok(count) if count > 0) {
            return;
        }
        let log = Arc::clone(log);
        let append = tokio::task::spawn_blocking(move || {
            let result = log.append(&piece);
            piece.clear();
            (result, piece)
        });
        let Ok((result, buffer)) = append.await else { return };
        piece = buffer;
        if let Err(error) = &result
            && is_logged
        {
            tracing::error!(%error, "failed to write the log of an instance: a part is lost");
        }
        is_logged = result.is_ok();
    }
}

//! Flags of the launcher of engines.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use actuation::{GpuSource, InstanceOptions, LauncherOptions};

/// Start and stop engines in one Pod over HTTP
///
/// Serves the REST API of llm-d's launcher: `PUT /v2/vllm/instances/ID` starts an engine as a process, `DELETE` stops all its
/// processes, `GET /v2/vllm/instances/watch` streams changes, and `GET /v2/vllm/instances/ID/log` returns its output. The
/// launcher translates UUIDs of GPUs to indexes with nvidia-smi, so its container must see all GPUs of the node.
#[derive(clap::Args)]
pub(crate) struct LauncherArgs {
    /// Copy this program into a directory and exit, for containers of other images
    #[arg(long, value_name = "DIR")]
    pub install: Option<PathBuf>,
    /// Listen on this IP address
    #[arg(long, alias = "host", value_name = "IP", default_value = "0.0.0.0")]
    address: IpAddr,
    /// Port of the REST API
    #[arg(long, value_name = "PORT", default_value_t = 8001)]
    port: u16,
    /// Program and arguments of engines whose request has no `command`, separated by whitespace
    #[arg(long, value_name = "COMMAND", value_parser = parse_command, default_value = "python3 -m vllm.entrypoints.openai.api_server")]
    engine_command: EngineCommand,
    /// Start at most this many engines, including those that have stopped but were not deleted
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    max_instances: usize,
    /// Directory of the logs of engines [default: a directory for temporary files]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Retain this many MiB of each log
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    log_size: u32,
    /// Kill an engine that runs this many seconds after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=3600))]
    stop_timeout: u32,
    /// Read indexes of GPUs from this file, a JSON object by UUID such as an entry of `gpu-map`
    #[arg(long, value_name = "FILE", conflicts_with = "mock_gpus")]
    gpu_map: Option<PathBuf>,
    /// Use these UUIDs instead of the GPUs of the node; the position is the index. For tests
    #[arg(long, value_name = "UUID,…", value_delimiter = ',')]
    mock_gpus: Option<Vec<String>>,
}

/// Words of a command, at least one.
#[derive(Clone)]
struct EngineCommand(Vec<String>);

fn parse_command(text: &str) -> Result<EngineCommand, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match words.is_empty() {
        true => Err("a command has at least one word".to_owned()),
        false => Ok(EngineCommand(words)),
    }
}

// === impl LauncherArgs ===

impl LauncherArgs {
    /// Returns the options of the launcher.
    pub(crate) fn options(self) -> LauncherOptions {
        let gpus = match (self.mock_gpus, self.gpu_map) {
            (Some(uuids), _) => GpuSource::Mock(uuids),
            (None, Some(path)) => GpuSource::File(path),
            (None, None) => GpuSource::NvidiaSmi,
        };
        LauncherOptions {
            address: SocketAddr::new(self.address, self.port),
            instances: InstanceOptions {
                engine_command: self.engine_command.0,
                gpus,
                max_instances: self.max_instances,
                log_directory: self.log_dir.unwrap_or_else(std::env::temp_dir),
                log_bytes: u64::from(self.log_size) << 20,
                stop_timeout: Duration::from_secs(self.stop_timeout.into()),
            },
        }
    }
}

//! The GPUs of this host, as `nvidia-smi` reports them.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// Name of the extended resource.
pub(crate) const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Environment variable that lists the devices visible to a CUDA program; if it is empty, no device is visible.
pub(crate) const VISIBLE_DEVICES_ENV: &str = "CUDA_VISIBLE_DEVICES";

/// Timeout of `nvidia-smi`, which does not end while a driver is stuck.
const NVIDIA_SMI_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of its output in bytes.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Interval between checks whether a command has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A GPU as `nvidia-smi` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub uuid: String,
    pub product: String,
    pub memory_mib: u32,
    /// Major and minor version.
    pub compute_capability: (u8, u8),
}

/// The accelerators of this host, or simulated ones that it pretends to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostAccelerators {
    /// Extended resource that Pods request.
    pub resource: String,
    /// IDs in the order of allocation.
    pub ids: Vec<String>,
    /// Node labels of the vendor's feature discovery.
    pub labels: Map<String, Value>,
    /// Shorthand of simulated accelerators, such as `2×L4`.
    pub simulated: Option<String>,
}

// === impl HostAccelerators ===

impl HostAccelerators {
    /// Runs `nvidia-smi`. If it is not installed, the host has no accelerators.
    pub(crate) fn discover() -> Self {
        let fields = "--query-gpu=uuid,name,memory.total,compute_cap";
        let mut command = Command::new("nvidia-smi");
        command.args([fields, "--format=csv,noheader,nounits"]);
        let text = command_output(command, NVIDIA_SMI_TIMEOUT).unwrap_or_default();
        Self::from_gpus(&text.lines().filter_map(Gpu::parse).collect::<Vec<_>>())
    }

    fn from_gpus(gpus: &[Gpu]) -> Self {
        Self {
            resource: GPU_RESOURCE.to_owned(),
            ids: gpus.iter().map(|gpu| gpu.uuid.clone()).collect(),
            labels: labels(gpus),
            simulated: None,
        }
    }
}

/// Returns the node labels of GPU feature discovery. With several products, they describe the first one.
fn labels(gpus: &[Gpu]) -> Map<String, Value> {
    let Some(first_gpu) = gpus.first() else { return Map::new() };
    let label = |name: &str, value: String| (format!("nvidia.com/gpu.{name}"), json!(value));
    let (major, minor) = first_gpu.compute_capability;
    Map::from_iter([
        label("present", "true".to_owned()),
        label("product", first_gpu.product.replace(' ', "-")),
        label("count", gpus.len().to_string()),
        label("memory", first_gpu.memory_mib.to_string()),
        label("family", family(first_gpu.compute_capability).to_owned()),
        label("compute.major", major.to_string()),
        label("compute.minor", minor.to_string()),
    ])
}

// === impl Gpu ===

impl Gpu {
    /// Parses a line such as `GPU-5f…, NVIDIA H100 80GB HBM3, 81559, 9.0`.
    fn parse(line: &str) -> Option<Self> {
        let mut columns = line.split(',').map(str::trim);
        let (uuid, product, memory) = (columns.next()?, columns.next()?, columns.next()?);
        let (major, minor) = columns.next()?.split_once('.')?;
        Some(Self {
            uuid: uuid.to_owned(),
            product: product.to_owned(),
            memory_mib: memory.parse().ok()?,
            compute_capability: (major.parse().ok()?, minor.parse().ok()?),
        })
    }
}

/// Runs a command and returns its standard output. `None` if it is not installed, fails, or does not end in time; in the
/// last case, kills it.
fn command_output(mut command: Command, timeout: Duration) -> Option<String> {
    let deadline = Instant::now() + timeout;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let output = child.stdout.take()?.take(MAX_OUTPUT_BYTES);
    // The thread ends with the pipe, which closes at the latest when the command is killed.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut output, mut bytes) = (output, Vec::new());
        if output.read_to_end(&mut bytes).is_ok() {
            // An error means that the receiver no longer waits.
            let _ = sender.send(bytes);
        }
    });
    let bytes = receiver.recv_timeout(timeout);
    while bytes.is_ok() && Instant::now() < deadline {
        if let Some(status) = child.try_wait().ok()? {
            return bytes.ok().filter(|_| status.success()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        }
        thread::sleep(EXIT_POLL_INTERVAL);
    }
    tracing::warn!(command = %command.get_program().display(), ?timeout, "a command did not end in time; killing it");
    // An error means that it has just ended. A command that a driver blocks ends later.
    let _ = child.kill();
    None
}

/// Returns the GPU family of a compute capability, as GPU feature discovery names it.
fn family(compute_capability: (u8, u8)) -> &'static str {
    match compute_capability {
        (7, 5) => "turing",
        (7, _) => "volta",
        (8, 9) => "ada-lovelace",
        (8, _) => "ampere",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        _ => "undefined",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_gpus() -> HostAccelerators {
        let lines = "GPU-a, NVIDIA H100 80GB HBM3, 81559, 9.0\nGPU-b, NVIDIA H100 80GB HBM3, 81559, 9.0\nNo devices";
        HostAccelerators::from_gpus(&lines.lines().filter_map(Gpu::parse).collect::<Vec<_>>())
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn commands_have_a_deadline_and_limited_output() {
        let timeout = Duration::from_secs(300);
        assert_eq!(command_output(shell("echo GPU"), timeout).as_deref(), Some("GPU\n"));
        assert_eq!(command_output(shell("echo GPU; exit 9"), timeout), None);
        assert_eq!(command_output(Command::new("/no/such/program"), timeout), None);
        assert_eq!(command_output(shell("exec sleep 1000"), Duration::ZERO), None);
        assert_eq!(command_output(shell("exec >&-; exec sleep 1000"), Duration::from_millis(1)), None);
        // The command ends because nobody reads the rest of its output.
        let output = command_output(shell("yes GPU; exit 0"), timeout).unwrap();
        assert_eq!(output.len() as u64, MAX_OUTPUT_BYTES);
    }

    #[test]
    fn labels_match_gpu_feature_discovery() {
        let HostAccelerators { ids, labels, .. } = two_gpus();
        assert_eq!(ids, ["GPU-a", "GPU-b"]);
        assert_eq!(labels["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3");
        assert_eq!(
            (&labels["nvidia.com/gpu.count"], &labels["nvidia.com/gpu.family"]),
            (&json!("2"), &json!("hopper"))
        );
    }
}

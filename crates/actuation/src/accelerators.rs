//! Finds the accelerators that the device plugin assigned to this container. Only identifiers are read: no compute context is
//! created, and no accelerator memory is used.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// Variable that the device plugin of NVIDIA sets.
const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Directory with one directory per accelerator that the container can access.
const PROC_DIRECTORY: &str = "/proc/driver/nvidia/gpus";
const NVIDIA_SMI: &str = "nvidia-smi";
/// Maximum number of bytes of its output that are read.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
const NVIDIA_SMI_TIMEOUT: Duration = Duration::from_secs(10);

/// An accelerator of this container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// Index among the accelerators that the container can access; absent if only the UUID is known. It is the index of the node
    /// if the container can access all accelerators of the node.
    pub index: Option<u32>,
    /// UUID, such as `GPU-5a4b…` or `MIG-…`.
    pub uuid: String,
}

/// Returns the accelerators: those of `NVIDIA_VISIBLE_DEVICES`, else those that `nvidia-smi` lists, else those in procfs.
///
/// # Errors
/// None of these has an accelerator.
pub async fn find_accelerators() -> Result<Vec<Accelerator>, String> {
    let visible = std::env::var(VISIBLE_DEVICES).unwrap_or_default();
    if let Some(uuids) = parse_visible_devices(&visible) {
        return Ok(without_indexes(uuids));
    }
    list_accelerators().await
}

/// Returns all accelerators that the container can access, with their indexes where `nvidia-smi` is available.
///
/// # Errors
/// Neither `nvidia-smi` nor procfs has an accelerator.
pub async fn list_accelerators() -> Result<Vec<Accelerator>, String> {
    let error = match nvidia_smi("index,uuid").await.map(|text| parse_list(&text)) {
        Ok(accelerators) if !accelerators.is_empty() => return Ok(accelerators),
        Ok(_) => "nvidia-smi lists no GPUs".to_owned(),
        Err(error) => error,
    };
    let uuids = read_procfs(Path::new(PROC_DIRECTORY)).unwrap_or_default();
    match uuids.is_empty() {
        true => Err(format!("{VISIBLE_DEVICES} has no UUIDs; {error}; {PROC_DIRECTORY} has no GPUs")),
        false => Ok(without_indexes(uuids)),
    }
}

/// Returns the used memory in MiB by UUID.
///
/// # Errors
/// `nvidia-smi` failed.
pub(crate) async fn memory_usage(uuids: &[String]) -> Result<BTreeMap<String, u64>, String> {
    let usage = parse_memory(&nvidia_smi("uuid,memory.used").await?);
    let missing: Vec<&str> = uuids.iter().filter(|uuid| !usage.contains_key(*uuid)).map(String::as_str).collect();
    match missing.is_empty() {
        true => Ok(usage.into_iter().filter(|(uuid, _)| uuids.contains(uuid)).collect()),
        false => Err(format!("nvidia-smi does not report the memory of {}", missing.join(", "))),
    }
}

/// Returns accelerators of which only the UUIDs are known.
pub(crate) fn without_indexes(uuids: Vec<String>) -> Vec<Accelerator> {
    uuids.into_iter().map(|uuid| Accelerator { index: None, uuid }).collect()
}

/// Returns the UUIDs in a value of `NVIDIA_VISIBLE_DEVICES`; `None` for `all`, `none`, `void`, indexes and paths.
fn parse_visible_devices(value: &str) -> Option<Vec<String>> {
    let devices: Vec<String> =
        value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect();
    let is_uuid = |device: &String| device.starts_with("GPU-") || device.starts_with("MIG-");
    (!devices.is_empty() && devices.iter().all(is_uuid)).then_some(devices)
}

/// Runs `nvidia-smi` and returns its CSV output without header and units.
async fn nvidia_smi(columns: &str) -> Result<String, String> {
    let output = tokio::time::timeout(NVIDIA_SMI_TIMEOUT, read_output(query_command(columns))).await;
    let output = output.map_err(|_| format!("{NVIDIA_SMI} did not end within {} s", NVIDIA_SMI_TIMEOUT.as_secs()))?;
    let (status, output) = output.map_err(|error| format!("failed to run {NVIDIA_SMI}: {error}"))?;
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    match status.success() {
        true => Ok(text),
        false => Err(format!("{NVIDIA_SMI} failed ({status}): {text}")),
    }
}

fn query_command(columns: &str) -> Command {
    let mut command = Command::new(NVIDIA_SMI);
    command.arg(format!("--query-gpu={columns}")).arg("--format=csv,noheader,nounits");
    command
}

/// Runs a command, and returns the start of its output. It is killed if the returned future is dropped.
async fn read_output(mut command: Command) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut process =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
    let mut output = Vec::new();
    if let Some(stdout) = process.stdout.take() {
        // Closing the pipe ends a process that writes more.
        stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
    }
    Ok((process.wait().await?, output))
}

/// Parses lines `INDEX, UUID`.
fn parse_list(text: &str) -> Vec<Accelerator> {
    let parse = |line: &str| {
        let (index, uuid) = line.split_once(',')?;
        Some(Accelerator { index: Some(index.trim().parse().ok()?), uuid: uuid.trim().to_owned() })
    };
    text.lines().filter_map(parse).collect()
}

/// Parses lines `UUID, MIB`.
fn parse_memory(text: &str) -> BTreeMap<String, u64> {
    let parse = |line: &str| {
        let (uuid, used) = line.split_once(',')?;
        Some((uuid.trim().to_owned(), used.trim().parse().ok()?))
    };
    text.lines().filter_map(parse).collect()
}

/// Returns the UUIDs in the files `information` of the driver, in the order of the PCI addresses.
fn read_procfs(directory: &Path) -> io::Result<Vec<String>> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let uuid = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("information")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?;
        Some(line.trim().to_owned())
    };
    Ok(paths.iter().filter_map(uuid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::one("GPU-a", Some(&["GPU-a"][..]))]
    #[case::slices("MIG-a, MIG-b", Some(&["MIG-a", "MIG-b"][..]))]
    #[case::all("all", None)]
    #[case::indexes("0,1", None)]
    #[case::volume_mounts("/var/run/nvidia-container-devices", None)]
    #[case::void("void", None)]
    #[case::unset("", None)]
    fn visible_devices(#[case] value: &str, #[case] expected: Option<&[&str]>) {
        let expected = expected.map(|uuids| uuids.iter().map(|uuid| (*uuid).to_owned()).collect());
        assert_eq!(parse_visible_devices(value), expected);
    }

    /// Queries of the management library create no compute context; other programs that could are not run.
    // spec: DP-5
    #[test]
    fn accelerators_are_only_queried() {
        let command = query_command("uuid,memory.used");
        assert_eq!(command.as_std().get_program(), "nvidia-smi");
        let arguments: Vec<_> = command.as_std().get_args().collect();
        assert_eq!(arguments, ["--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]);
    }

    #[test]
    fn output_of_nvidia_smi() {
        let accelerator = |index, uuid: &str| Accelerator { index: Some(index), uuid: uuid.to_owned() };
        assert_eq!(parse_list("0, GPU-a\n1, GPU-b\n"), [accelerator(0, "GPU-a"), accelerator(1, "GPU-b")]);
        assert_eq!(parse_list("No devices were found"), []);
        let usage = parse_memory("GPU-a, 1532\nGPU-b, [N/A]\n");
        assert_eq!(usage, BTreeMap::from([("GPU-a".to_owned(), 1532)]));
    }

    #[test]
    fn procfs_lists_accelerators() {
        let directory = tempfile::tempdir().unwrap();
        for (address, uuid) in [("0000:41:00.0", "GPU-b"), ("0000:01:00.0", "GPU-a")] {
            let path = directory.path().join(address);
            std::fs::create_dir(&path).unwrap();
            let text = format!("Model: \t\t NVIDIA L4\nIRQ:   \t\t 42\nGPU UUID: \t {uuid}\nVideo BIOS: \t 95\n");
            std::fs::write(path.join("information"), text).unwrap();
        }
        assert_eq!(read_procfs(directory.path()).unwrap(), ["GPU-a", "GPU-b"]);
    }
}

//! The weights of simulated models: their size, and how long it takes to load them. The bandwidths and the start time are
//! assumptions about a typical machine, not measurements.

use std::time::Duration;

use engine::ServerCommand;

/// Bytes per parameter in bf16.
const BYTES_PER_PARAMETER: u64 = 2;
/// Bytes per second from a local disk.
const DISK_BANDWIDTH: f64 = 2e9;
/// Bytes per second from host memory to one accelerator (PCIe 5.0).
const DEVICE_BANDWIDTH: f64 = 25e9;
/// Time for starting an engine, apart from its weights.
const START_TIME: Duration = Duration::from_secs(5);

/// Estimates the size of the weights of the engine that `command` starts, from the number of parameters in the name of the
/// model; 0 if it has none.
pub(crate) fn weight_bytes(command: &ServerCommand) -> u64 {
    let mut names = std::iter::once(&command.model).chain(&command.served_model_names);
    names.find_map(|name| decide::model_size(name)).unwrap_or(0).saturating_mul(BYTES_PER_PARAMETER)
}

/// Returns how long an engine takes to start.
pub(crate) fn load_time(weight_bytes: u64) -> Duration {
    START_TIME.saturating_add(copy_time(weight_bytes, DISK_BANDWIDTH))
}

/// Returns how long an engine on `accelerators` takes to wake up; each copies a part of the weights.
pub(crate) fn wake_time(weight_bytes: u64, accelerators: usize) -> Duration {
    copy_time(weight_bytes, DEVICE_BANDWIDTH * accelerators.max(1) as f64)
}

fn copy_time(bytes: u64, bandwidth: f64) -> Duration {
    Duration::try_from_secs_f64(bytes as f64 / bandwidth).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::eight_billion(&["Llama-3.1-8B"], 16_000_000_000, 13_000, 640)]
    #[case::served_name(&["/models/m", "--served-model-name", "qwen3-0.6b"], 1_200_000_000, 5_600, 48)]
    #[case::unknown(&["tiny"], 0, 5_000, 0)]
    fn times_follow_from_the_size(#[case] args: &[&str], #[case] bytes: u64, #[case] load: u128, #[case] wake: u128) {
        let words: Vec<String> = ["vllm", "serve"].iter().chain(args).map(|word| (*word).to_owned()).collect();
        let command = ServerCommand::parse(&words, &[], &[]).unwrap();
        let size = weight_bytes(&command);
        assert_eq!((size, load_time(size).as_millis(), wake_time(size, 1).as_millis()), (bytes, load, wake));
        assert_eq!(wake_time(size, 2), wake_time(size, 1) / 2);
    }
}

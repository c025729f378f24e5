//! Configuration of one engine process.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{EngineMemory, LoraModule, ServerCommand, Timing};

/// Configuration of a simulated engine. `Config::new("m")` serves model `m` at 127.0.0.1:8000 with vLLM's defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Model path or name; `root` in `/v1/models`.
    pub model: String,
    /// Names that clients may request; empty means [`Config::model`]. Responses name the first one by default.
    pub served_model_names: Vec<String>,
    /// LoRA adapters that clients may request; their responses name the adapter.
    pub lora_modules: Vec<LoraModule>,
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; 0 lets the operating system choose a free port.
    pub port: u16,
    /// Seed of the generated text: equal seed, model and prompt give equal text.
    pub seed: u64,
    /// Speed of the simulated accelerator.
    pub timing: Timing,
    /// Maximum number of sequences in a batch (`--max-num-seqs`); further requests wait.
    pub max_num_seqs: usize,
    /// Maximum length of prompt plus completion, in tokens (`--max-model-len`).
    pub max_model_len: usize,
    /// Accelerators per model replica (`--tensor-parallel-size`); divides all simulated times.
    pub tensor_parallel_size: usize,
    /// Tokens per block of the KV cache (`--block-size`).
    pub block_size: usize,
    /// Number of blocks of the KV cache.
    pub num_gpu_blocks: usize,
    /// Whether the routes of sleep mode are served (`VLLM_SERVER_DEV_MODE=1`).
    pub dev_mode: bool,
    /// Whether a sleeping engine releases memory (`--enable-sleep-mode`).
    pub enable_sleep_mode: bool,
    /// Simulated memory that the engine shares with others; `None` means that memory is unlimited.
    pub memory: Option<EngineMemory>,
    /// Fraction of the memory of each device that the engine allocates (`--gpu-memory-utilization`).
    pub gpu_memory_utilization: f64,
    /// Simulated time for loading the weights.
    pub load_time: Duration,
    /// Simulated time for copying the weights back from host memory when the engine wakes up.
    pub wake_time: Duration,
    /// Idle connections are closed after this time (vLLM: 5 s), as are those that do not send the complete head of a request
    /// within it.
    pub keep_alive: Duration,
    /// Connections are closed if the client receives nothing of a response for this time although data is ready.
    pub stall_timeout: Duration,
    /// Maximum time for completing requests after the stop (vLLM's `--shutdown-timeout`); SGLang completes all.
    pub shutdown_timeout: Duration,
    /// Maximum number of open connections, which also limits the number of queued requests: a connection carries one at a
    /// time. Further clients wait until a connection closes.
    pub max_connections: usize,
}

impl Config {
    /// Returns vLLM's defaults for `model`, listening on loopback.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            served_model_names: Vec::new(),
            lora_modules: Vec::new(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8000,
            seed: 0,
            timing: Timing::default(),
            max_num_seqs: 256,
            max_model_len: 32_768,
            tensor_parallel_size: 1,
            block_size: 16,
            num_gpu_blocks: 16_384,
            dev_mode: false,
            enable_sleep_mode: false,
            memory: None,
            gpu_memory_utilization: 0.92,
            load_time: Duration::ZERO,
            wake_time: Duration::ZERO,
            keep_alive: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::ZERO,
            max_connections: 8192,
        }
    }

    /// Returns the configuration of the engine that `command` starts. The engine listens on `address`, the Pod's IP address,
    /// unless the command sets `--host` to another specific address.
    pub fn from_server_command(command: &ServerCommand, address: IpAddr) -> Self {
        let defaults = Self::new(command.model.clone());
        Self {
            served_model_names: command.served_model_names.clone(),
            lora_modules: command.lora_modules.clone(),
            address: command.host.filter(|host| !host.is_unspecified()).unwrap_or(address),
            port: command.port,
            max_num_seqs: command.max_num_seqs.unwrap_or(defaults.max_num_seqs),
            max_model_len: command.max_model_len.unwrap_or(defaults.max_model_len),
            tensor_parallel_size: command.tensor_parallel_size,
            block_size: command.block_size.unwrap_or(defaults.block_size),
            dev_mode: command.dev_mode,
            enable_sleep_mode: command.enable_sleep_mode,
            gpu_memory_utilization: command.gpu_memory_utilization.unwrap_or(defaults.gpu_memory_utilization),
            shutdown_timeout: command.shutdown_timeout,
            ..defaults
        }
    }

    /// Returns the model name in responses to requests that name no model.
    pub fn default_model_name(&self) -> &str {
        self.served_model_names.first().unwrap_or(&self.model)
    }

    /// Returns the number of tokens in the KV cache.
    pub(crate) fn kv_cache_tokens(&self) -> usize {
        self.block_size.saturating_mul(self.num_gpu_blocks)
    }

    /// Returns whether `model` is one of the served names, or an adapter.
    pub fn serves_model(&self, model: &str) -> bool {
        let is_adapter = self.lora_modules.iter().any(|module| module.name == model);
        is_adapter
            || match self.served_model_names.is_empty() {
                true => model == self.model,
                false => self.served_model_names.iter().any(|name| name == model),
            }
    }

    /// Returns the names of the base model.
    pub fn model_names(&self) -> Vec<&str> {
        match self.served_model_names.is_empty() {
            true => vec![&self.model],
            false => self.served_model_names.iter().map(String::as_str).collect(),
        }
    }
}

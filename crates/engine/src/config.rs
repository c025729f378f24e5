//! What one engine process is started with.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{LaunchLine, Timing};

/// One engine. `Config::new("m")` serves model `m` at 127.0.0.1:8000 with vLLM's defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Model path or name; `root` in `/v1/models`.
    pub model: String,
    /// Names clients may send; empty means [`Config::model`]. The first one is shown in answers.
    pub served_names: Vec<String>,
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; 0 lets the system choose.
    pub port: u16,
    /// Same seed, model and prompt: same text.
    pub seed: u64,
    /// Speed of the simulated accelerator.
    pub timing: Timing,
    /// Sequences decoded together; more wait (`--max-num-seqs`).
    pub max_num_seqs: usize,
    /// Prompt and answer together, in tokens (`--max-model-len`).
    pub max_model_len: usize,
    /// Accelerators that share one sequence; scales speed.
    pub tensor_parallel: usize,
    /// Tokens per prefix cache block.
    pub block_size: usize,
    /// Blocks of KV cache.
    pub kv_blocks: usize,
    /// Time from start to loaded weights.
    pub load_time: Duration,
    /// Idle connections are closed after this (vLLM: 5 s).
    pub keep_alive: Duration,
    // LoRA: adapters will be listed here beside the base model.
}

impl Config {
    /// vLLM's defaults for `model`, on loopback.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            served_names: Vec::new(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8000,
            seed: 0,
            timing: Timing::default(),
            max_num_seqs: 256,
            max_model_len: 32_768,
            tensor_parallel: 1,
            block_size: 16,
            kv_blocks: 16_384,
            load_time: Duration::ZERO,
            keep_alive: Duration::from_secs(5),
        }
    }

    /// What a container's command line asks for; `address` is the Pod's address.
    pub fn from_launch_line(line: &LaunchLine, address: IpAddr) -> Self {
        let defaults = Self::new(line.model.clone());
        Self {
            served_names: line.served_model_names.clone(),
            address: line.host.filter(|host| !host.is_unspecified()).unwrap_or(address),
            port: line.port,
            max_num_seqs: line.max_num_seqs.unwrap_or(defaults.max_num_seqs),
            max_model_len: line.max_model_len.unwrap_or(defaults.max_model_len),
            tensor_parallel: line.tensor_parallel,
            block_size: line.block_size.unwrap_or(defaults.block_size),
            ..defaults
        }
    }

    /// The name answers carry when a request names none.
    pub fn base_name(&self) -> &str {
        self.served_names.first().unwrap_or(&self.model)
    }

    /// Whether a request may name `model`.
    pub fn serves(&self, model: &str) -> bool {
        match self.served_names.is_empty() {
            true => model == self.model,
            false => self.served_names.iter().any(|name| name == model),
        }
    }

    /// Every name listed in `/v1/models`.
    pub fn names(&self) -> Vec<&str> {
        match self.served_names.is_empty() {
            true => vec![&self.model],
            false => self.served_names.iter().map(String::as_str).collect(),
        }
    }
}

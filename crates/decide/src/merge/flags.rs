//! Flag names of engines: aliases, unambiguous prefixes and switches.

/// Returns the canonical name of the flag in `word`, or `None` if the word is not a flag. `--tp-size=8` and `-tp` are
/// `tensor-parallel-size`. A one-letter flag retains its dash, because `-m` of `python3 -m` is not an engine flag. Negative
/// numbers are values.
#[must_use]
pub(super) fn canonical_flag(word: &str) -> Option<String> {
    let name = word.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or(word);
    let bare = name.trim_start_matches('-');
    let is_flag = name.starts_with('-') && bare.starts_with(|c: char| c.is_ascii_alphabetic());
    is_flag.then(|| canonical(name, bare))
}

/// Whether the flag is a switch, which takes no value. Switches of all known engines have these names.
#[must_use]
pub(super) fn is_switch(word: &str) -> bool {
    let bare = word.trim_start_matches('-').replace('_', "-");
    ["enable-", "disable-", "no-", "skip-"].iter().any(|prefix| bare.starts_with(prefix))
        || SWITCHES.contains(&bare.as_str())
}

/// Whether the flag disables a feature.
#[must_use]
pub(super) fn is_negation(word: &str) -> bool {
    let bare = word.trim_start_matches('-').replace('_', "-");
    bare.starts_with("no-") || bare.starts_with("disable-")
}

/// Whether the word is a boolean, which older vLLM accepts after a switch (`--enable-chunked-prefill False`).
#[must_use]
pub(super) fn is_boolean(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "true" | "false" | "0" | "1")
}

const SWITCHES: [&str; 5] = ["trust-remote-code", "is-embedding", "enforce-eager", "async-scheduling", "log-requests"];

/// Aliases of a flag, after its canonical name.
const ALIASES: [(&str, &[&str]); 10] = [
    // `num-shard` is the flag of text-generation-inference.
    ("tensor-parallel-size", &["tp", "tp-size", "num-shard"]),
    ("pipeline-parallel-size", &["pp", "pp-size"]),
    ("data-parallel-size", &["dp", "dp-size"]),
    ("data-parallel-rank", &["dpn"]),
    ("expert-parallel-size", &["ep", "ep-size"]),
    ("model-path", &["model"]),
    ("quantization", &["q"]),
    ("dist-init-addr", &["nccl-init-addr", "nccl-init"]),
    ("served-model-name", &["served-model"]),
    ("max-model-len", &["max-model-length"]),
];

fn canonical(name: &str, bare: &str) -> String {
    let bare = bare.replace('_', "-");
    let is_short = !name.starts_with("--") && bare.len() == 1 && bare != "q";
    if is_short {
        return format!("-{bare}");
    }
    let full_name = full_name(&bare);
    // A switch and its negation share one name, so that an accelerator configuration cannot enable what the service
    // disables.
    let positive = full_name.strip_prefix("no-").unwrap_or(&full_name);
    positive.strip_prefix("disable-").map_or_else(|| positive.to_owned(), |feature| format!("enable-{feature}"))
}

/// Resolves aliases and unambiguous prefixes.
fn full_name(bare: &str) -> String {
    let alias = ALIASES.iter().find(|(name, aliases)| *name == bare || aliases.contains(&bare));
    if let Some((name, _)) = alias {
        return (*name).to_owned();
    }
    let engines = [SGLANG, VLLM];
    if engines.iter().any(|engine| engine.contains(&bare)) || bare.len() < 4 {
        return bare.to_owned();
    }
    // argparse accepts any prefix that is unique among the flags of the engine.
    let unique_match = |engine: &[&'static str]| {
        let mut matches = engine.iter().filter(|flag| flag.starts_with(bare));
        matches.next().filter(|_| matches.next().is_none()).copied()
    };
    let mut matches = engines.into_iter().filter_map(unique_match);
    match (matches.next(), matches.next()) {
        (Some(name), other) if other.is_none_or(|other| other == name) => name.to_owned(),
        _ => bare.to_owned(),
    }
}

/// Long flags of `sglang.launch_server` (0.5) that are commonly abbreviated, and flags that make their prefixes ambiguous.
const SGLANG: &[&str] = &[
    "allow-auto-truncate",
    "api-key",
    "attention-backend",
    "base-gpu-id",
    "chat-template",
    "chunked-prefill-size",
    "completion-template",
    "context-length",
    "cpu-offload-gb",
    "crash-dump-folder",
    "cuda-graph-bs",
    "cuda-graph-max-bs",
    "data-parallel-size",
    "decode-attention-backend",
    "decode-log-interval",
    "deepep-mode",
    "device",
    "disaggregation-bootstrap-port",
    "disaggregation-decode-dp",
    "disaggregation-decode-tp",
    "disaggregation-ib-device",
    "disaggregation-mode",
    "disaggregation-prefill-pp",
    "disaggregation-transfer-backend",
    "dist-init-addr",
    "dist-timeout",
    "download-dir",
    "dtype",
    "enable-dp-attention",
    "enable-hierarchical-cache",
    "enable-lora",
    "enable-metrics",
    "enable-mixed-chunk",
    "enable-torch-compile",
    "expert-parallel-size",
    "file-storage-path",
    "grammar-backend",
    "host",
    "is-embedding",
    "json-model-override-args",
    "kv-cache-dtype",
    "load-balance-method",
    "load-format",
    "log-level",
    "log-level-http",
    "log-requests",
    "log-requests-level",
    "lora-backend",
    "lora-paths",
    "lora-target-modules",
    "max-lora-rank",
    "max-loras-per-batch",
    "max-micro-batch-size",
    "max-prefill-tokens",
    "max-queued-requests",
    "max-running-requests",
    "max-total-tokens",
    "mem-fraction-static",
    "mm-attention-backend",
    "model-impl",
    "model-path",
    "moe-a2a-backend",
    "moe-dense-tp-size",
    "moe-runner-backend",
    "nnodes",
    "node-rank",
    "num-continuous-decode-steps",
    "page-size",
    "pipeline-parallel-size",
    "port",
    "prefill-attention-backend",
    "preferred-sampling-params",
    "quantization",
    "quantization-param-path",
    "random-seed",
    "reasoning-parser",
    "revision",
    "sampling-backend",
    "schedule-conservativeness",
    "schedule-policy",
    "served-model-name",
    "sleep-on-idle",
    "speculative-accept-threshold-acc",
    "speculative-accept-threshold-single",
    "speculative-algorithm",
    "speculative-attention-mode",
    "speculative-draft-model-path",
    "speculative-draft-model-revision",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
    "speculative-num-steps",
    "speculative-token-map",
    "stream-interval",
    "stream-output",
    "tensor-parallel-size",
    "tokenizer-mode",
    "tokenizer-path",
    "tokenizer-worker-num",
    "tool-call-parser",
    "torch-compile-max-bs",
    "triton-attention-num-kv-splits",
    "trust-remote-code",
    "warmups",
    "watchdog-timeout",
    "weight-loader-disable-mmap",
];

/// Long flags of `vllm serve` (0.11), chosen by the same criteria as `SGLANG`.
const VLLM: &[&str] = &[
    "allowed-local-media-path",
    "api-key",
    "api-server-count",
    "async-scheduling",
    "block-size",
    "chat-template",
    "chat-template-content-format",
    "code-revision",
    "compilation-config",
    "config-format",
    "cpu-offload-gb",
    "cuda-graph-sizes",
    "data-parallel-address",
    "data-parallel-backend",
    "data-parallel-rank",
    "data-parallel-rpc-port",
    "data-parallel-size",
    "data-parallel-size-local",
    "data-parallel-start-rank",
    "decode-context-parallel-size",
    "distributed-executor-backend",
    "download-dir",
    "dtype",
    "enable-auto-tool-choice",
    "enable-chunked-prefill",
    "enable-expert-parallel",
    "enable-lora",
    "enable-prefix-caching",
    "enable-prompt-tokens-details",
    "enable-sleep-mode",
    "enforce-eager",
    "generation-config",
    "gpu-memory-utilization",
    "guided-decoding-backend",
    "hf-config-path",
    "hf-overrides",
    "hf-token",
    "host",
    "kv-cache-dtype",
    "kv-cache-memory-bytes",
    "kv-events-config",
    "kv-transfer-config",
    "limit-mm-per-prompt",
    "load-format",
    "long-prefill-token-threshold",
    "lora-dtype",
    "lora-modules",
    "max-cpu-loras",
    "max-log-len",
    "max-logprobs",
    "max-lora-rank",
    "max-loras",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-partial-prefills",
    "max-num-seqs",
    "max-parallel-loading-workers",
    "max-seq-len-to-capture",
    "mm-processor-kwargs",
    "model-impl",
    "model-loader-extra-config",
    "num-gpu-blocks-override",
    "num-speculative-tokens",
    "override-generation-config",
    "pipeline-parallel-size",
    "port",
    "prefix-caching-hash-algo",
    "quantization",
    "reasoning-parser",
    "response-role",
    "revision",
    "root-path",
    "scheduler-cls",
    "scheduling-policy",
    "seed",
    "served-model-name",
    "speculative-config",
    "swap-space",
    "task",
    "tensor-parallel-size",
    "tokenizer",
    "tokenizer-mode",
    "tokenizer-revision",
    "tool-call-parser",
    "trust-remote-code",
    "uvicorn-log-level",
    "worker-cls",
];

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    // spec: ACC-92
    #[rstest]
    #[case::inline_value("--tp-size=8", "tensor-parallel-size")]
    #[case::single_dash("-tp", "tensor-parallel-size")]
    #[case::underscores("--tensor_parallel_size", "tensor-parallel-size")]
    #[case::unique_prefix("--mem-frac", "mem-fraction-static")]
    #[case::prefix_unique_to_one_engine("--gpu-mem", "gpu-memory-utilization")]
    #[case::full_name_that_is_also_a_prefix("--tokenizer", "tokenizer")]
    #[case::ambiguous_prefix("--max-lora", "max-lora")]
    #[case::unknown_flag("--spec-decoding-acceptance-method=typical", "spec-decoding-acceptance-method")]
    #[case::negation("--no-enable-prefix-caching", "enable-prefix-caching")]
    #[case::disable_prefix("--disable-log-requests", "enable-log-requests")]
    #[case::one_letter_flag("-m", "-m")]
    #[case::json_value("--speculative-config={\"a\": \"b=c --x\"}", "speculative-config")]
    fn canonicalizes_flags(#[case] word: &str, #[case] expected: &str) {
        assert_eq!(canonical_flag(word).as_deref(), Some(expected));
    }

    #[rstest]
    #[case("-1")]
    #[case("--")]
    #[case("{\"a\": 1}")]
    #[case("value")]
    fn ignores_words_that_are_no_flags(#[case] word: &str) {
        assert_eq!(canonical_flag(word), None);
    }
}

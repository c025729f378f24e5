//! Names of engines' flags: which spellings are one setting, and which flags take no value.

/// The setting that a word names, or `None` if the word is no flag. `--tp-size=8` and `-tp` are `tensor-parallel-size`;
/// a single letter keeps its dash (`-m` of `python3 -m` is no engine's flag). Negative numbers are values.
#[must_use]
pub(super) fn setting(word: &str) -> Option<String> {
    let name = word.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or(word);
    let bare = name.trim_start_matches('-');
    let is_flag = name.starts_with('-') && bare.starts_with(|c: char| c.is_ascii_alphabetic());
    is_flag.then(|| canonical(name, bare))
}

/// Whether a flag takes no word after it. On and off switches have these names in every engine we know.
#[must_use]
pub(super) fn is_switch(word: &str) -> bool {
    let bare = word.trim_start_matches('-').replace('_', "-");
    ["enable-", "disable-", "no-", "skip-"].iter().any(|prefix| bare.starts_with(prefix))
        || SWITCHES.contains(&bare.as_str())
}

/// Whether a word switches something off.
#[must_use]
pub(super) fn is_negation(word: &str) -> bool {
    let bare = word.trim_start_matches('-').replace('_', "-");
    bare.starts_with("no-") || bare.starts_with("disable-")
}

/// What a switch may be followed by all the same (`--enable-chunked-prefill False` of older vLLM).
#[must_use]
pub(super) fn is_truth(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "true" | "false" | "0" | "1")
}

const SWITCHES: [&str; 5] = ["trust-remote-code", "is-embedding", "enforce-eager", "async-scheduling", "log-requests"];

/// Names that an engine accepts for one setting, the whole name first.
const ALIASES: [(&str, &[&str]); 9] = [
    // Of text-generation-inference too, which calls its parts shards.
    ("tensor-parallel-size", &["tp", "tp-size", "num-shard"]),
    ("pipeline-parallel-size", &["pp", "pp-size"]),
    ("data-parallel-size", &["dp", "dp-size"]),
    ("expert-parallel-size", &["ep", "ep-size"]),
    ("model-path", &["model"]),
    ("quantization", &["q"]),
    ("dist-init-addr", &["nccl-init-addr", "nccl-init"]),
    ("served-model-name", &["served-model"]),
    ("max-model-len", &["max-model-length"]),
];

fn canonical(name: &str, bare: &str) -> String {
    let bare = bare.replace('_', "-");
    let short = !name.starts_with("--") && bare.len() == 1 && bare != "q";
    if short {
        return format!("-{bare}");
    }
    let whole = whole(&bare);
    // A switch and its opposite are one setting: what a person switched off, tuning does not switch on.
    let on = whole.strip_prefix("no-").unwrap_or(&whole);
    on.strip_prefix("disable-").map_or_else(|| on.to_owned(), |what| format!("enable-{what}"))
}

fn whole(bare: &str) -> String {
    let alias = ALIASES.iter().find(|(whole, aliases)| *whole == bare || aliases.contains(&bare));
    if let Some((whole, _)) = alias {
        return (*whole).to_owned();
    }
    let known = [SGLANG, VLLM];
    if known.iter().any(|engine| engine.contains(&bare)) || bare.len() < 4 {
        return bare.to_owned();
    }
    // argparse takes any prefix that only one flag of its engine has.
    let only = |engine: &[&'static str]| {
        let mut longer = engine.iter().filter(|flag| flag.starts_with(bare));
        longer.next().filter(|_| longer.next().is_none()).copied()
    };
    let mut meant = known.into_iter().filter_map(only);
    match (meant.next(), meant.next()) {
        (Some(one), other) if other.is_none_or(|other| other == one) => one.to_owned(),
        _ => bare.to_owned(),
    }
}

/// Long flags of `sglang.launch_server` (0.5) that people shorten, and their neighbours that make a prefix ambiguous.
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

/// The same of `vllm serve` (0.11).
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
    #[case::with_a_value("--tp-size=8", "tensor-parallel-size")]
    #[case::one_dash("-tp", "tensor-parallel-size")]
    #[case::underscores("--tensor_parallel_size", "tensor-parallel-size")]
    #[case::prefix("--mem-frac", "mem-fraction-static")]
    #[case::prefix_of_one_engine("--gpu-mem", "gpu-memory-utilization")]
    #[case::a_whole_name_is_no_prefix("--tokenizer", "tokenizer")]
    #[case::ambiguous("--max-lora", "max-lora")]
    #[case::unknown("--spec-decoding-acceptance-method=typical", "spec-decoding-acceptance-method")]
    #[case::opposite("--no-enable-prefix-caching", "enable-prefix-caching")]
    #[case::switched_off("--disable-log-requests", "enable-log-requests")]
    #[case::a_short_flag_is_itself("-m", "-m")]
    #[case::json("--speculative-config={\"a\": \"b=c --x\"}", "speculative-config")]
    fn settings(#[case] word: &str, #[case] expect: &str) {
        assert_eq!(setting(word).as_deref(), Some(expect));
    }

    #[rstest]
    #[case("-1")]
    #[case("--")]
    #[case("{\"a\": 1}")]
    #[case("value")]
    fn no_flags(#[case] word: &str) {
        assert_eq!(setting(word), None);
    }
}

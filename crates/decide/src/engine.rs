//! Engines, and the settings of an engine that determine how much memory it uses and on which accelerators it runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::configuration::ClassConfiguration;
use crate::merge::args::stated_flags;
use crate::task::EngineTask;

/// An engine that is recognized by its program or image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    TensorRt,
    /// Triton Inference Server.
    Triton,
}

/// Context length that an engine is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextLength {
    /// Tokens of one sequence.
    Tokens(u64),
    /// The engine reduces the context to what its memory holds.
    Automatic,
}

/// Settings of one layer (runtime, configuration or service) that determine the memory of an engine, and on which accelerators it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineSettings {
    engine: Option<Engine>,
    /// Major and minor number of the image's tag, if it states them; `None` if the layer sets no image.
    release: Option<Option<(u32, u32)>>,
    /// Task that flags select.
    task: Option<EngineTask>,
    /// Whether the layer sets a command, which replaces the command line of weaker layers.
    has_command: bool,
    /// Values by canonical flag name.
    flags: BTreeMap<&'static str, String>,
    /// Whether a variable permits a context that exceeds the model's.
    permits_longer_context: bool,
    /// Literal environment variables that flags may refer to.
    variables: BTreeMap<String, String>,
}

/// Settings of an engine from all layers, strongest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayeredSettings<'a>(Vec<Cow<'a, EngineSettings>>);

const MAX_MODEL_LEN: &str = "max-model-len";
const CONTEXT_LENGTH: &str = "context-length";
const GPU_MEMORY_UTILIZATION: &str = "gpu-memory-utilization";
const MEM_FRACTION_STATIC: &str = "mem-fraction-static";
const KV_CACHE_DTYPE: &str = "kv-cache-dtype";
const MAX_NUM_BATCHED_TOKENS: &str = "max-num-batched-tokens";
const CHUNKED_PREFILL_SIZE: &str = "chunked-prefill-size";
const DTYPE: &str = "dtype";
/// Flags that replace fields of the model's `config.json`, such as the scaling of RoPE.
const CONFIG_OVERRIDES: [&str; 3] = ["hf-overrides", "rope-scaling", "json-model-override-args"];

/// Variables with which vLLM (0.32, envs.py) and SGLang (0.5.23, configs/model_config.py) accept a context that exceeds the model's.
const LONGER_CONTEXT: [&str; 2] = ["VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"];

/// The flags that [`EngineSettings`] contains.
const FLAGS: [&str; 11] = [
    MAX_MODEL_LEN,
    CONTEXT_LENGTH,
    GPU_MEMORY_UTILIZATION,
    MEM_FRACTION_STATIC,
    KV_CACHE_DTYPE,
    MAX_NUM_BATCHED_TOKENS,
    CHUNKED_PREFILL_SIZE,
    DTYPE,
    CONFIG_OVERRIDES[0],
    CONFIG_OVERRIDES[1],
    CONFIG_OVERRIDES[2],
];

/// A stated context length with which the engine does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedContext {
    /// The flag, without dashes.
    flag: &'static str,
    value: String,
    /// The maximum of the model, which the value exceeds; `None` if the value is no number of tokens.
    maximum: Option<u64>,
}

// === impl RejectedContext ===

impl fmt::Display for RejectedContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, value, maximum } = self;
        match maximum {
            Some(maximum) => write!(
                f,
                "--{flag} {value} exceeds the {maximum} tokens of the model, so that the engine does not start unless its rope scaling is set as well"
            ),
            None => write!(f, "--{flag} {value} is not a number of tokens, so that the engine does not start"),
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Recognizes an engine by the words of its command line before the first flag, otherwise by its image. Flag values, such
    /// as model names, are ignored.
    #[must_use]
    pub fn detect<'a>(image: &str, words: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        const MARKERS: [(&str, Engine); 5] = [
            ("sglang", Engine::Sglang),
            ("vllm", Engine::Vllm),
            ("trtllm", Engine::TensorRt),
            ("tensorrt", Engine::TensorRt),
            ("triton", Engine::Triton),
        ];
        let find = |text: &str| MARKERS.iter().find(|(marker, _)| text.contains(marker)).map(|(_, engine)| *engine);
        let program = words.into_iter().take_while(|word| !word.starts_with("--")).find_map(find);
        program.or_else(|| find(image))
    }

    /// Returns whether ostler configures LoRA adapters of the engine: the flags of vLLM (docs.vllm.ai, LoRA Adapters) and SGLang
    /// (docs.sglang.io, LoRA Serving). It configures no adapters of TensorRT-LLM and Triton.
    pub(crate) fn supports_adapters(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }

    /// Returns the name of the engine in labels: `vllm`, `sglang`, `trtllm` or `triton`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TensorRt => "trtllm",
            Self::Triton => "triton",
        }
    }
}

// === impl EngineSettings ===

impl EngineSettings {
    /// Reads the settings of a container: image, command line, and literal environment variables.
    pub(crate) fn of_container(container: &Value) -> Self {
        let list = |field: &str| container[field].as_array().map(Vec::as_slice).unwrap_or_default();
        let words = |field: &str| list(field).iter().filter_map(Value::as_str);
        Self {
            has_command: words("command").next().is_some(),
            ..Self::read(container["image"].as_str(), words("command").chain(words("args")), list("env"))
        }
    }

    /// Reads the settings of a configuration for a class.
    fn of_configuration(configuration: &ClassConfiguration) -> Self {
        let command = configuration.string_list("command");
        let args = configuration.args();
        let image = configuration.runner.get("image").and_then(Value::as_str);
        let words = command.iter().chain(&args).map(String::as_str);
        Self { has_command: !command.is_empty(), ..Self::read(image, words, &configuration.env) }
    }

    fn read<'w>(image: Option<&str>, words: impl Iterator<Item = &'w str> + Clone, env: &[Value]) -> Self {
        let literal = |entry: &Value| Some((entry["name"].as_str()?.to_owned(), entry["value"].as_str()?.to_owned()));
        Self {
            engine: Engine::detect(image.unwrap_or_default(), words.clone().flat_map(str::split_whitespace)),
            release: image.map(release_of_image),
            task: EngineTask::of_command(words.clone()),
            has_command: false,
            flags: stated_flags(words, &FLAGS),
            permits_longer_context: env.iter().any(permits_longer_context),
            variables: env.iter().filter_map(literal).filter(|(_, value)| is_setting(value)).collect(),
        }
    }
}

// === impl LayeredSettings ===

impl<'a> LayeredSettings<'a> {
    /// Combines runtime, its configurations for one class, and the service with its own configurations, weakest first.
    pub(crate) fn new(
        runtime: &'a EngineSettings,
        configurations: impl DoubleEndedIterator<Item = &'a ClassConfiguration>,
        service: &'a EngineSettings,
    ) -> Self {
        let configured = configurations.rev().map(EngineSettings::of_configuration);
        let layers = std::iter::once(Cow::Borrowed(service)).chain(configured.map(Cow::Owned));
        Self(layers.chain([Cow::Borrowed(runtime)]).collect())
    }

    pub(crate) fn engine(&self) -> Option<Engine> {
        self.0.iter().find_map(|layer| layer.engine)
    }

    /// Returns the release of the strongest image, such as `(0, 32)` for tag `v0.32.0`.
    pub(crate) fn release(&self) -> Option<(u32, u32)> {
        self.0.iter().find_map(|layer| layer.release).flatten()
    }

    /// Returns the data type of unquantized numbers that a flag states: `bfloat16`, `float16` or another one.
    pub(crate) fn data_type(&self) -> Option<&str> {
        match self.flag(DTYPE)? {
            "auto" => None,
            "half" => Some("float16"),
            stated => Some(stated),
        }
    }

    /// Returns the task that flags select; `None` if none does.
    pub(crate) fn task(&self) -> Option<EngineTask> {
        let end = self.0.iter().position(|layer| layer.has_command).map_or(self.0.len(), |index| index + 1);
        self.0.iter().take(end).find_map(|layer| layer.task)
    }

    /// Returns the context length that the engine is started with. `maximum` is the model's own, which engines use by default.
    pub(crate) fn context(&self, maximum: Option<u64>) -> ContextLength {
        let stated = self.flag(MAX_MODEL_LEN).or_else(|| self.flag(CONTEXT_LENGTH));
        match (stated, self.engine()) {
            // vLLM reads `auto` and -1 as "what fits" (vllm 0.32, v1/core/kv_cache_utils.py, _auto_fit_max_model_len).
            (Some("auto" | "-1"), _) => ContextLength::Automatic,
            (Some(text), engine) => match parse_tokens(text) {
                Some(tokens) => ContextLength::Tokens(tokens),
                None => self.default_context(engine, maximum),
            },
            (None, engine) => self.default_context(engine, maximum),
        }
    }

    /// Returns the stated context length if the engine rejects it: vLLM (0.32, config/model.py, `_get_and_verify_max_len`) and SGLang
    /// (0.5.23, configs/model_config.py, `_derive_context_length`) accept more than the model's `maximum` only by an environment variable.
    /// A replaced `config.json` may state another maximum.
    pub(crate) fn rejected_context(&self, maximum: Option<u64>) -> Option<RejectedContext> {
        let stated = |flag| Some((flag, self.flag(flag)?));
        let (flag, text) = stated(MAX_MODEL_LEN).or_else(|| stated(CONTEXT_LENGTH))?;
        let is_automatic = matches!(text, "auto" | "-1") && self.engine() != Some(Engine::Sglang);
        if is_automatic || text.contains('$') {
            return None;
        }
        let is_permitted = self.0.iter().any(|layer| layer.permits_longer_context)
            || CONFIG_OVERRIDES.iter().any(|flag| self.flag(flag).is_some());
        let maximum = maximum.filter(|_| !is_permitted);
        let rejected = |maximum| Some(RejectedContext { flag, value: text.to_owned(), maximum });
        match (parse_tokens(text), maximum) {
            (None, _) => rejected(None),
            (Some(tokens), Some(maximum)) if tokens > maximum => rejected(Some(maximum)),
            _ => None,
        }
    }

    /// vLLM fails to start if the KV cache does not hold one sequence of the model's maximum (vllm 0.32,
    /// `check_enough_kv_cache_memory`); without a maximum it assumes 2,048 tokens (`_get_and_verify_max_len`). SGLang limits
    /// requests to the tokens of its memory pool (sglang 0.5.23, managers/tp_worker.py, `max_req_len`).
    fn default_context(&self, engine: Option<Engine>, maximum: Option<u64>) -> ContextLength {
        match engine {
            Some(Engine::Sglang) => ContextLength::Automatic,
            _ => ContextLength::Tokens(maximum.unwrap_or(2048)),
        }
    }

    /// Returns the fraction of memory that the engine is permitted to use, if it is stated and valid.
    pub(crate) fn memory_fraction(&self) -> Option<f64> {
        let name = if self.engine() == Some(Engine::Sglang) { MEM_FRACTION_STATIC } else { GPU_MEMORY_UTILIZATION };
        self.flag(name)?.parse::<f64>().ok().filter(|fraction| *fraction > 0.0 && *fraction <= 1.0)
    }

    /// Returns the bytes of one element of the KV cache, if a flag states its format.
    pub(crate) fn kv_cache_element(&self) -> Option<u64> {
        let name = self.flag(KV_CACHE_DTYPE).filter(|name| *name != "auto")?;
        Some(if name.starts_with("fp8") || name == "int8" { 1 } else { 2 })
    }

    /// Returns the largest number of tokens that the engine computes in one step, if it is stated.
    pub(crate) fn batched_tokens(&self) -> Option<u64> {
        parse_tokens(self.flag(MAX_NUM_BATCHED_TOKENS).or_else(|| self.flag(CHUNKED_PREFILL_SIZE))?)
    }

    fn flag(&self, name: &str) -> Option<&str> {
        let end = self.0.iter().position(|layer| layer.has_command).map_or(self.0.len(), |index| index + 1);
        let value = self.0.iter().take(end).find_map(|layer| layer.flags.get(name))?;
        match value.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')')) {
            Some(variable) => self.0.iter().find_map(|layer| layer.variables.get(variable)).map(String::as_str),
            None => Some(value),
        }
    }
}

fn permits_longer_context(variable: &Value) -> bool {
    let is_set = |value: &str| matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes");
    variable["name"].as_str().is_some_and(|name| LONGER_CONTEXT.contains(&name))
        && variable["value"].as_str().is_some_and(is_set)
}

/// Returns the major and minor number of the tag of an image: `v0.32.0`, `0.5.23-cu129`.
fn release_of_image(image: &str) -> Option<(u32, u32)> {
    let (_, tag) = image.split('@').next()?.rsplit_once(':')?;
    let mut numbers = tag.strip_prefix('v').unwrap_or(tag).split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some((major, minor))
}

/// Whether a flag of [`FLAGS`] accepts the value, so that edits of other variables do not change the settings.
fn is_setting(value: &str) -> bool {
    parse_tokens(value).is_some()
        || value.parse::<f64>().is_ok()
        || matches!(value, "auto" | "int8" | "half" | "float16" | "bfloat16")
        || value.starts_with("fp8")
}

/// Parses a number of tokens: `8192`, and as in vLLM `32k` (thousands) and `32K` (multiples of 1,024), also with decimals.
fn parse_tokens(text: &str) -> Option<u64> {
    let factor = match text.chars().last()? {
        'k' => 1_000.0,
        'm' => 1e6,
        'K' => 1024.0,
        'M' => 1024.0 * 1024.0,
        _ => return text.parse().ok().filter(|tokens| *tokens > 0),
    };
    let number = text.get(..text.len() - 1)?.parse::<f64>().ok()?;
    Some((number * factor) as u64).filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("8192", Some(8192))]
    #[case("32k", Some(32_000))]
    #[case("32K", Some(32_768))]
    #[case("1.5k", Some(1_500))]
    #[case("1M", Some(1_048_576))]
    #[case("0", None)]
    #[case("-5k", None)]
    #[case("x", None)]
    #[case("", None)]
    fn parses_numbers_of_tokens(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(parse_tokens(text), expected);
    }

    #[rstest]
    #[case::runtime(json!({}), Some((0, 6)))]
    #[case::service(json!({"image": "vllm/vllm-openai:v0.32.0"}), Some((0, 32)))]
    #[case::service_without_release(json!({"image": "vllm/vllm-openai:latest"}), None)]
    fn release_is_that_of_the_strongest_image(#[case] service: Value, #[case] expect: Option<(u32, u32)>) {
        let runtime = EngineSettings::of_container(&json!({"image": "vllm/vllm-openai:v0.6.3"}));
        let service = EngineSettings::of_container(&service);
        assert_eq!(LayeredSettings::new(&runtime, [].iter(), &service).release(), expect);
    }

    #[rstest]
    #[case("vllm/vllm-openai:v0.32.0", Some((0, 32)))]
    #[case("registry:5000/sglang:0.5.23-cu129@sha256:00", Some((0, 5)))]
    #[case("vllm/vllm-openai:v1.2", Some((1, 2)))]
    #[case("vllm/vllm-openai:latest", None)]
    #[case("registry:5000/vllm", None)]
    #[case("vllm", None)]
    fn reads_releases_of_images(#[case] image: &str, #[case] expect: Option<(u32, u32)>) {
        assert_eq!(release_of_image(image), expect);
    }

    #[rstest]
    #[case::models_maximum(json!({"image": "vllm/vllm-openai"}), json!({}), ContextLength::Tokens(131_072))]
    #[case::stated(json!({"image": "vllm", "args": ["--max-model-len=4096"]}), json!({}), ContextLength::Tokens(4096))]
    #[case::automatic(json!({"image": "vllm", "args": ["--max-model-len", "auto"]}), json!({}), ContextLength::Automatic)]
    #[case::sglang_limits_requests(json!({"image": "lmsysorg/sglang"}), json!({}), ContextLength::Automatic)]
    #[case::sglang_stated(json!({"image": "sglang", "args": ["--context-length=8192"]}), json!({}), ContextLength::Tokens(8192))]
    #[case::service_takes_precedence(
        json!({"image": "vllm", "args": ["--max-model-len=4096"]}), json!({"args": ["--max_model_len", "16k"]}), ContextLength::Tokens(16_000)
    )]
    #[case::variable(
        json!({"image": "vllm", "args": ["--max-model-len=$(LEN)"]}), json!({"env": [{"name": "LEN", "value": "1024"}]}), ContextLength::Tokens(1024)
    )]
    #[case::undefined_variable(json!({"image": "vllm", "args": ["--max-model-len=$(LEN)"]}), json!({}), ContextLength::Tokens(131_072))]
    #[case::script(json!({"command": ["sh", "-c", "exec vllm serve m --max-model-len 2048"]}), json!({}), ContextLength::Tokens(2048))]
    #[case::command_replaces(
        json!({"image": "vllm", "args": ["--max-model-len=4096"]}), json!({"command": ["vllm", "serve", "m"]}), ContextLength::Tokens(131_072)
    )]
    fn reads_context_length(#[case] runtime: Value, #[case] service: Value, #[case] expected: ContextLength) {
        let [runtime, service] = [runtime, service].map(|container| EngineSettings::of_container(&container));
        let settings = LayeredSettings::new(&runtime, [].iter(), &service);
        assert_eq!(settings.context(Some(131_072)), expected);
    }

    #[test]
    fn configuration_is_stronger_than_the_runtime() {
        let runtime = EngineSettings::of_container(
            &json!({"image": "vllm", "args": ["--max-model-len=4096", "--gpu-memory-utilization=0.8"]}),
        );
        let runner = json!({"args": ["--max-model-len=8192", "--kv-cache-dtype=fp8"]});
        let configuration =
            ClassConfiguration { runner: runner.as_object().unwrap().clone(), ..ClassConfiguration::default() };
        let (configurations, service) = ([configuration], EngineSettings::default());
        let settings = LayeredSettings::new(&runtime, configurations.iter(), &service);
        assert_eq!(settings.context(None), ContextLength::Tokens(8192));
        assert_eq!((settings.memory_fraction(), settings.kv_cache_element()), (Some(0.8), Some(1)));
    }
}

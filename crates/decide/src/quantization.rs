//! Derives the bits per parameter, the number format and the compute precision of a quantization from its name.

use std::fmt;

/// Returns the bits per parameter of a quantization, 16 by default. Reads names of model hubs and engines: `fp8`,
/// `fbgemm_fp8`, `w8a8`, `awq`, `gptq-int8`, `nf4`, `bnb-4bit`, `w4a16`, `mxfp4`, `q4_k_m`, `exl2-4.65bpw`.
pub(crate) fn bits_per_parameter(name: Option<&str>) -> u32 {
    let Some(name) = name.map(str::to_ascii_lowercase) else { return UNQUANTIZED_BITS };
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words()
        .find_map(gguf_bits)
        .or_else(|| average_bits(&name))
        .or_else(|| bits_in_name(words()))
        .or_else(|| words().find_map(method_bits))
        .unwrap_or(UNQUANTIZED_BITS)
}

/// Whether the name is a type of GGUF, which quantizes all tensors and whose bits per parameter include the scales.
pub(crate) fn is_gguf(name: Option<&str>) -> bool {
    let name = name.unwrap_or_default().to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| gguf_bits(word).is_some())
}

/// Returns the thousandths of a bit per parameter that scales and zero points add to weights: 16-bit scales and 4-bit zero points
/// of groups of weights, by default of 128. NVFP4 has an 8-bit scale for 16 weights, MXFP4 for 32.
pub(crate) fn scale_millibits(name: Option<&str>, group_size: Option<u32>) -> u32 {
    let lower_case = name.unwrap_or_default().to_ascii_lowercase();
    match bits_per_parameter(name) {
        5.. => 0,
        _ if lower_case.contains("mxfp4") => 250,
        _ if ["nvfp4", "modelopt_fp4"].iter().any(|kind| lower_case.contains(kind)) => 500,
        _ => 20_000 / group_size.filter(|size| *size > 0).unwrap_or(128),
    }
}

/// A number format for which accelerators need units, or which engines support on some accelerators only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// 16-bit floating point with the exponent of 32 bits, the format of unquantized numbers.
    Bfloat16,
    /// 8-bit floating point.
    Fp8,
    /// FP8 in blocks with a shared scale.
    Mxfp8,
    /// 4-bit floating point in blocks of 16.
    Nvfp4,
    /// 4-bit floating point in blocks of 32.
    Mxfp4,
    /// 4-bit integer weights.
    Awq,
    /// 4-bit integer weights, computed in FP8.
    Int4Fp8,
}

/// Returns the format of quantized numbers; `None` for those that all accelerators compute.
pub(crate) fn number_format(quantization: Option<&str>) -> Option<NumberFormat> {
    let name = quantization?.to_ascii_lowercase();
    let contains_any = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match bits_per_parameter(Some(&name)) {
        8 if contains_any(&["mxfp8"]) => Some(NumberFormat::Mxfp8),
        8 if precision(Some(&name)) == Precision::Fp8 => Some(NumberFormat::Fp8),
        4 if contains_any(&["w4afp8", "w4a8_fp8"]) => Some(NumberFormat::Int4Fp8),
        4 if contains_any(&["mxfp4"]) => Some(NumberFormat::Mxfp4),
        4 if contains_any(&["fp4"]) => Some(NumberFormat::Nvfp4),
        4 if contains_any(&["awq"]) => Some(NumberFormat::Awq),
        _ => None,
    }
}

impl fmt::Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bfloat16 => "bfloat16",
            Self::Fp8 => "fp8",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Awq => "awq",
            Self::Int4Fp8 => "w4afp8",
        })
    }
}

/// Precision of the arithmetic units that a model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// 16 bits.
    Half,
    /// 4-bit floating point.
    Fp4,
    /// 8-bit floating point.
    Fp8,
    /// 8-bit integers.
    Int8,
}

/// Returns the precision that a model with this quantization is computed in on accelerators with units for it. Quantizations other than
/// FP4, FP8 and INT8 are computed in 16 bits.
pub(crate) fn precision(name: Option<&str>) -> Precision {
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let contains_any = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match bits_per_parameter(Some(&name)) {
        8 if contains_any(&["int8", "w8a8"]) && !contains_any(&["fp8"]) => Precision::Int8,
        8 if contains_any(&["fp8", "float8", "e4m3", "e5m2"]) => Precision::Fp8,
        4 if contains_any(&["fp4"]) => Precision::Fp4,
        _ => Precision::Half,
    }
}

const UNQUANTIZED_BITS: u32 = 16;

/// Returns the bits of a GGUF type (`q4_k_m`, `iq3_xs`, `q8_0`, `tq1_0`): one more than in its name, because GGUF stores scales
/// with the weights. MLC appends the bits of activations (`q4f16_1`).
fn gguf_bits(word: &str) -> Option<u32> {
    let digits = ["iq", "tq", "q"].iter().find_map(|kind| word.strip_prefix(kind))?;
    let weights = digits.split_once('f').filter(|(_, activations)| number(activations).is_some());
    number(weights.map_or(digits, |(weights, _)| weights)).map(|bits| bits + 1)
}

/// Returns the average bits per parameter, rounded up: `4.65bpw`, `1.58bit`.
fn average_bits(name: &str) -> Option<u32> {
    let at = ["bpw", "bit"].iter().filter_map(|unit| name.find(unit)).min()?;
    let prefix = name[..at].trim_end_matches(['-', '_', ' ']);
    let start = prefix.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |last| last + 1);
    let digits = prefix.get(start..)?;
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let round_up = u32::from(fraction.bytes().any(|digit| digit != b'0'));
    number(integer).or((integer == "0").then_some(0)).map(|bits| bits + round_up).filter(|bits| *bits > 0)
}

/// Returns the bits after a numeric type (`int4`, `nvfp4`, `w4a16`, `fp32`) or before `bit` (`4bit`, `8-bit`).
fn bits_in_name<'a>(words: impl Iterator<Item = &'a str>) -> Option<u32> {
    let mut previous = None;
    for word in words {
        if let Some(bits) = word.strip_suffix("bit").or(word.strip_suffix("bits")) {
            return if bits.is_empty() { previous.and_then(number) } else { number(bits) };
        }
        let after_type = |kind: &&str| {
            let at = word.find(*kind)?;
            let digits = word.get(at + kind.len()..)?.split(|c: char| !c.is_ascii_digit()).next()?;
            Some((at, number(digits)?))
        };
        if ["e4m3", "e5m2"].iter().any(|layout| word.starts_with(layout)) {
            return Some(8);
        }
        // The bits of weights precede those of activations: `w4afp8`.
        if let Some((_, bits)) = NUMERIC_TYPES.iter().filter_map(after_type).min() {
            return Some(bits);
        }
        previous = Some(word);
    }
    None
}

/// Numeric types that precede a number of bits; `w` precedes the bits of weights (`w8a8`).
const NUMERIC_TYPES: [&str; 6] = ["int", "float", "fp", "nf", "bf", "w"];

/// Returns the default bits of a quantization method.
fn method_bits(word: &str) -> Option<u32> {
    let method = METHODS.iter().find(|(method, _)| word.contains(method));
    method.map(|(_, bits)| *bits)
}

const METHODS: [(&str, u32); 8] =
    [("awq", 4), ("gptq", 4), ("hqq", 4), ("autoround", 4), ("marlin", 4), ("qqq", 4), ("eetq", 8), ("bitnet", 2)];

fn number(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|bits| (1..=64).contains(bits))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // spec: ACC-80
    #[rstest]
    #[case::unquantized("", 16)]
    #[case("bf16", 16)]
    #[case("float16", 16)]
    #[case("fp32", 32)]
    #[case("fp8", 8)]
    #[case("FP8", 8)]
    #[case("fp8_e4m3", 8)]
    #[case("fbgemm_fp8", 8)]
    #[case("int8", 8)]
    #[case("w8a8", 8)]
    #[case("w8a8_int8", 8)]
    #[case("gptq-int8", 8)]
    #[case("bnb-8bit", 8)]
    #[case("int4", 4)]
    #[case("awq", 4)]
    #[case("gptq_marlin", 4)]
    #[case("nf4", 4)]
    #[case("bnb-4bit", 4)]
    #[case("bitsandbytes-4-bit", 4)]
    #[case("w4a16", 4)]
    #[case("w4afp8", 4)]
    #[case("mxfp4", 4)]
    #[case("nvfp4", 4)]
    #[case("modelopt_fp4", 4)]
    #[case("q4_k_m", 5)]
    #[case("Q8_0", 9)]
    #[case("iq3_xs", 4)]
    #[case("gguf-q5_k_s", 6)]
    #[case("tq1_0", 2)]
    #[case("q4f16_1", 5)]
    #[case("exl2-4.65bpw", 5)]
    #[case("exl2_6.0bpw", 6)]
    #[case("1.58bit", 2)]
    #[case("0.5bit", 1)]
    #[case("3.0 bpw", 3)]
    #[case("bitnet", 2)]
    #[case("bitsandbytes", 16)]
    #[case("float8_e4m3fn", 8)]
    #[case("e4m3", 8)]
    #[case("mxfp8", 8)]
    #[case("qqq", 4)]
    #[case("eetq", 8)]
    #[case::no_bits_in_name("compressed-tensors", 16)]
    #[case::non_ascii("四bit", 16)]
    #[case::too_large("int999999999999", 16)]
    fn reads_bits_from_names(#[case] name: &str, #[case] expect: u32) {
        assert_eq!(bits_per_parameter(Some(name).filter(|name| !name.is_empty())), expect);
    }

    #[rstest]
    #[case(None, None)]
    #[case(Some("bf16"), None)]
    #[case(Some("compressed-tensors-fp8"), Some(NumberFormat::Fp8))]
    #[case(Some("float8_e4m3fn"), Some(NumberFormat::Fp8))]
    #[case(Some("mxfp8"), Some(NumberFormat::Mxfp8))]
    #[case(Some("modelopt_fp4"), Some(NumberFormat::Nvfp4))]
    #[case(Some("gpt_oss_mxfp4"), Some(NumberFormat::Mxfp4))]
    #[case(Some("awq_marlin"), Some(NumberFormat::Awq))]
    #[case(Some("w4afp8"), Some(NumberFormat::Int4Fp8))]
    #[case(Some("gptq"), None)]
    #[case(Some("int8"), None)]
    fn reads_number_formats_from_names(#[case] name: Option<&str>, #[case] expect: Option<NumberFormat>) {
        assert_eq!(number_format(name), expect);
    }

    // spec: ACC-77
    #[rstest]
    #[case(None, Precision::Half)]
    #[case(Some("fp8"), Precision::Fp8)]
    #[case(Some("fbgemm_fp8"), Precision::Fp8)]
    #[case(Some("float8_e4m3fn"), Precision::Fp8)]
    #[case(Some("w8a8_fp8"), Precision::Fp8)]
    #[case(Some("mxfp8"), Precision::Fp8)]
    #[case(Some("int8"), Precision::Int8)]
    #[case(Some("w8a8"), Precision::Int8)]
    #[case::widened_to_16_bits(Some("awq"), Precision::Half)]
    #[case::quantized_weights_only(Some("w4afp8"), Precision::Half)]
    #[case(Some("nvfp4"), Precision::Fp4)]
    #[case(Some("mxfp4"), Precision::Fp4)]
    fn reads_precision_from_names(#[case] name: Option<&str>, #[case] expect: Precision) {
        assert_eq!(precision(name), expect);
    }
}

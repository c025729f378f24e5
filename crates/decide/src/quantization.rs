//! How many bits of memory one parameter takes, by the name that a model or a runtime gives its quantization.

/// Bits per parameter: 16 unless the name says something else. Names are those of model hubs and engines: `fp8`,
/// `fbgemm_fp8`, `w8a8`, `awq`, `gptq-int8`, `nf4`, `bnb-4bit`, `w4a16`, `mxfp4`, `q4_k_m`, `exl2-4.65bpw`.
#[must_use]
pub fn bits_per_parameter(name: Option<&str>) -> u32 {
    let Some(name) = name.map(str::to_ascii_lowercase) else { return FULL };
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words()
        .find_map(of_gguf)
        .or_else(|| on_average(&name))
        .or_else(|| stated(words()))
        .or_else(|| words().find_map(of_method))
        .unwrap_or(FULL)
}

/// A precision that devices have units for, by which a model's throughput is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Half,
    Fp8,
    Int8,
}

/// What a model with such weights is computed in, by what its name says: weights of four bits, and all others that no word
/// gives a number for, are widened to 16.
#[must_use]
pub fn precision(name: Option<&str>) -> Precision {
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match bits_per_parameter(Some(&name)) {
        8 if says(&["int8", "w8a8"]) && !says(&["fp8"]) => Precision::Int8,
        8 if says(&["fp8", "float8", "e4m3", "e5m2"]) => Precision::Fp8,
        _ => Precision::Half,
    }
}

const FULL: u32 = 16;

/// GGUF keeps scales beside the weights, so its types take up to a bit more than their name says (`q4_k_m`, `iq3_xs`, `q8_0`,
/// `tq1_0`); MLC writes the bits of activations behind (`q4f16_1`).
fn of_gguf(word: &str) -> Option<u32> {
    let digits = ["iq", "tq", "q"].iter().find_map(|kind| word.strip_prefix(kind))?;
    let weights = digits.split_once('f').filter(|(_, activations)| number(activations).is_some());
    number(weights.map_or(digits, |(weights, _)| weights)).map(|bits| bits + 1)
}

/// Bits per parameter with a point, on average over the layers: `4.65bpw`, `1.58bit`; a part of a bit counts as one.
fn on_average(name: &str) -> Option<u32> {
    let at = ["bpw", "bit"].iter().filter_map(|unit| name.find(unit)).min()?;
    let before = name[..at].trim_end_matches(['-', '_', ' ']);
    let start = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |last| last + 1);
    let digits = before.get(start..)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let more = u32::from(part.bytes().any(|digit| digit != b'0'));
    number(whole).or((whole == "0").then_some(0)).map(|bits| bits + more).filter(|bits| *bits > 0)
}

/// A number of bits behind a kind of number (`int4`, `nvfp4`, `w4a16`, `fp32`) or before the word bit (`4bit`, `8-bit`).
fn stated<'a>(words: impl Iterator<Item = &'a str>) -> Option<u32> {
    let mut before = None;
    for word in words {
        if let Some(bits) = word.strip_suffix("bit").or(word.strip_suffix("bits")) {
            return if bits.is_empty() { before.and_then(number) } else { number(bits) };
        }
        let of_kind = |kind: &&str| {
            let at = word.find(*kind)?;
            let digits = word.get(at + kind.len()..)?.split(|c: char| !c.is_ascii_digit()).next()?;
            Some((at, number(digits)?))
        };
        if ["e4m3", "e5m2"].iter().any(|layout| word.starts_with(layout)) {
            return Some(8);
        }
        // Weights are named before activations: `w4afp8`.
        if let Some((_, bits)) = KINDS.iter().filter_map(of_kind).min() {
            return Some(bits);
        }
        before = Some(word);
    }
    None
}

/// Kinds of numbers that names put before a number of bits; `w` is that of weights (`w8a8`).
const KINDS: [&str; 6] = ["int", "float", "fp", "nf", "bf", "w"];

/// Methods that mean so many bits where nothing else is said.
fn of_method(word: &str) -> Option<u32> {
    let named = METHODS.iter().find(|(method, _)| word.contains(method));
    named.map(|(_, bits)| *bits)
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
    #[case::no_number_that_means_bits("compressed-tensors", 16)]
    #[case::letters_of_another_script("四bit", 16)]
    #[case::absurd("int999999999999", 16)]
    fn names(#[case] name: &str, #[case] expect: u32) {
        assert_eq!(bits_per_parameter(Some(name).filter(|name| !name.is_empty())), expect);
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
    #[case::widened(Some("awq"), Precision::Half)]
    #[case::weights_only(Some("w4afp8"), Precision::Half)]
    #[case(Some("nvfp4"), Precision::Half)]
    fn throughput_is_looked_up_by(#[case] name: Option<&str>, #[case] expect: Precision) {
        assert_eq!(precision(name), expect);
    }
}

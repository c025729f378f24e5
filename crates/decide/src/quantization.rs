//! How many bits of memory one parameter takes, by the name that a model or a runtime gives its quantization.

/// Bits per parameter: 16 unless the name says something else. Names are those of model hubs and engines: `fp8`,
/// `fbgemm_fp8`, `w8a8`, `awq`, `gptq-int8`, `nf4`, `bnb-4bit`, `w4a16`, `mxfp4`, `q4_k_m`.
#[must_use]
pub fn bits(name: Option<&str>) -> u32 {
    let Some(name) = name.map(str::to_ascii_lowercase) else { return FULL };
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words().find_map(of_gguf).or_else(|| stated(words())).or_else(|| words().find_map(of_method)).unwrap_or(FULL)
}

const FULL: u32 = 16;

/// GGUF keeps scales beside the weights, so its types take up to a bit more than their name says (`q4_k_m`, `iq3_xs`, `q8_0`).
fn of_gguf(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("iq").or(word.strip_prefix('q'))?;
    number(digits).map(|bits| bits + 1)
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

/// Methods that mean four bits where nothing else is said.
fn of_method(word: &str) -> Option<u32> {
    ["awq", "gptq", "hqq", "autoround", "marlin"].iter().any(|method| word.contains(method)).then_some(4)
}

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
    #[case::no_number_that_means_bits("compressed-tensors", 16)]
    #[case::absurd("int999999999999", 16)]
    fn names(#[case] name: &str, #[case] expect: u32) {
        assert_eq!(bits(Some(name).filter(|name| !name.is_empty())), expect);
    }
}

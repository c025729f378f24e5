//! Hints in the names of runtimes: the model size (`qwen-14b`, `mixtral-8x7b`) and the model itself. Fields always take
//! precedence over names; names only break ties and exclude runtimes for other model sizes from automatic selection.

/// Maximum ratio between the model's size and the size in a runtime's name.
const MAX_SIZE_RATIO: f64 = 1.5;

/// Returns the size in a runtime's name if it contradicts `parameters` in every interpretation.
pub(crate) fn contradicting_size(name: &str, parameters: u64) -> Option<u64> {
    let ratio = |size: u64| (size as f64 / parameters as f64).max(parameters as f64 / size as f64);
    let sizes = sizes(name);
    let first = sizes.first().copied()?;
    sizes.into_iter().all(|size| ratio(size) > MAX_SIZE_RATIO).then_some(first)
}

/// Whether the runtime's name contains the model's name (`srt-gpt-oss-20b` and `gpt-oss-20b`).
pub(crate) fn is_namesake(runtime: &str, model: &str) -> bool {
    !model.is_empty() && runtime.contains(model)
}

/// Returns every model size that the name may indicate. A dash may replace a decimal point, so `llama-3-1-70b` means
/// 70B or 1.70B. A size followed by an expert count (`17b-16e`) is ignored, because it covers only the active experts.
fn sizes(name: &str) -> Vec<u64> {
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let mut sizes = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if words.get(index + 1).is_some_and(|next| number_before(next, 'e').is_some()) {
            continue;
        }
        let Some((size, digits, unit)) = size(word) else { continue };
        sizes.push(size);
        let integer = index.checked_sub(1).and_then(|before| words.get(before)).filter(|word| is_number(word));
        let decimal = integer.and_then(|integer| format!("{integer}.{digits}").parse::<f64>().ok());
        sizes.extend(decimal.map(|number| (number * unit) as u64).filter(|size| *size > 0));
    }
    sizes
}

/// Parses `70b`, `8x7b`, `7b1` or `360m`: returns the size, the digits before the unit, and the unit.
fn size(word: &str) -> Option<(u64, &str, f64)> {
    let (number, unit, rest) = [('b', 1e9), ('B', 1e9), ('m', 1e6), ('M', 1e6)]
        .into_iter()
        .find_map(|(letter, unit)| word.split_once(letter).map(|(number, rest)| (number, unit, rest)))?;
    let (experts, digits) = number.split_once('x').unwrap_or(("1", number));
    if !is_number(digits) || !is_number(experts) || !(rest.is_empty() || is_number(rest)) {
        return None;
    }
    let fraction = if rest.is_empty() { "0" } else { rest };
    let per_expert = format!("{digits}.{fraction}").parse::<f64>().ok()?;
    let size = per_expert * experts.parse::<f64>().ok()? * unit;
    (size >= 1.0).then_some((size as u64, digits, unit))
}

fn number_before(word: &str, unit: char) -> Option<&str> {
    word.strip_suffix(unit).filter(|number| is_number(number))
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.len() <= 6 && word.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::same_size("srt-deepseek-r1-distill-qwen-14b", 14_770_000_000, None)]
    #[case::five_times_larger("srt-deepseek-r1-distill-qwen-14b", 72_700_000_000, Some(14_000_000_000))]
    #[case::half_the_size("srt-deepseek-r1-distill-qwen-14b", 7_600_000_000, Some(14_000_000_000))]
    #[case::decimal("deepseek-r1-distill-qwen-1-5b", 1_780_000_000, None)]
    #[case::version_or_decimal("llama-3-1-70b-instruct", 70_600_000_000, None)]
    #[case::contradicts_both_readings("llama-3-1-70b-instruct", 8_030_000_000, Some(70_000_000_000))]
    #[case::experts("vllm-mixtral-8x7b-instruct", 46_700_000_000, None)]
    #[case::experts_of_another("mixtral-8x7b", 141_000_000_000, Some(56_000_000_000))]
    #[case::active_experts_only("srt-llama-4-scout-17b-16e-instruct", 108_600_000_000, None)]
    #[case::millions("smollm-360m", 362_000_000, None)]
    #[case::trailing_decimals("bloomz-7b1", 7_070_000_000, None)]
    #[case::ignores_memory("universal-a100-80gb", 7_000_000_000, None)]
    #[case::no_size("sglang-universal", 7_000_000_000, None)]
    #[case::zero("x-0b", 7_000_000_000, None)]
    fn detects_contradicting_sizes(#[case] name: &str, #[case] parameters: u64, #[case] expected: Option<u64>) {
        assert_eq!(contradicting_size(name, parameters), expected);
    }

    #[rstest]
    #[case("srt-gpt-oss-20b", "gpt-oss-20b", true)]
    #[case("srt-gpt-oss-120b-grpc", "gpt-oss-20b", false)]
    #[case("universal", "", false)]
    fn detects_namesakes(#[case] runtime: &str, #[case] model: &str, #[case] expected: bool) {
        assert_eq!(is_namesake(runtime, model), expected);
    }
}

//! Hints in names: the model size (`qwen-14b`, `mixtral-8x7b`) in names of runtimes and models, and the model in the name of a
//! runtime. Fields always take precedence over names, and the name of a runtime never rejects it.

/// Maximum ratio between the model's size and the size in a runtime's name.
const MAX_SIZE_RATIO: f64 = 1.5;

/// What the name of a runtime indicates about a model, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedSize {
    /// The name contains the model's size.
    Same,
    /// The name contains no size.
    Unstated,
    /// The name contains a size that is not the model's in any interpretation.
    Different {
        /// Difference in parameters.
        distance: u64,
        /// Number of parameters in the name.
        size: u64,
    },
}

/// Compares the size in a runtime's name with that of a model.
pub(crate) fn named_size(runtime: &str, parameters: u64) -> NamedSize {
    let ratio = |size: u64| (size as f64 / parameters as f64).max(parameters as f64 / size as f64);
    let sizes = sizes(runtime);
    match sizes.first() {
        None => NamedSize::Unstated,
        Some(_) if sizes.iter().any(|size| ratio(*size) <= MAX_SIZE_RATIO) => NamedSize::Same,
        Some(first) => NamedSize::Different { distance: first.abs_diff(parameters), size: *first },
    }
}

/// Returns the size in a model's name: the greatest that it may indicate, because a model that does not fit is the worse
/// outcome.
pub fn model_size(name: &str) -> Option<u64> {
    sizes(name).into_iter().max()
}

/// Whether the runtime's name contains the model's name (`srt-gpt-oss-20b` and `gpt-oss-20b`).
pub(crate) fn is_namesake(runtime: &str, model: &str) -> bool {
    !model.is_empty() && runtime.contains(model)
}

/// Returns how many of the first words of the model's name the runtime's name contains in the same order: three for
/// `srt-llama-3-1-405b-rt` and `llama-3-1-70b`.
pub(crate) fn common_words(runtime: &str, model: &str) -> usize {
    let words = |name| str::split(name, |c: char| !c.is_ascii_alphanumeric());
    let mut rest = words(runtime);
    let mut most = 0;
    loop {
        let common = rest.clone().zip(words(model)).take_while(|(a, b)| a == b).count();
        most = most.max(common);
        if rest.next().is_none() {
            return most;
        }
    }
}

/// Returns every model size that the name may indicate. A dash may replace a decimal point, so `llama-3-1-70b` means
/// 70B or 1.70B; a point is one. A size followed by an expert count (`17b-16e`) is ignored, because it covers only the active experts.
fn sizes(name: &str) -> Vec<u64> {
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let separators: Vec<char> = name.chars().filter(|c| !c.is_ascii_alphanumeric()).collect();
    let mut sizes = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if words.get(index + 1).is_some_and(|next| number_before(next, 'e').is_some()) {
            continue;
        }
        let Some((size, digits, unit)) = size(word) else { continue };
        let before = index.checked_sub(1);
        let integer = before.and_then(|before| words.get(before)).filter(|word| is_number(word));
        let decimal = integer.and_then(|integer| format!("{integer}.{digits}").parse::<f64>().ok());
        let decimal = decimal.map(|number| (number * unit) as u64).filter(|size| *size > 0);
        let has_point = before.and_then(|before| separators.get(before)) == Some(&'.');
        sizes.extend(Some(size).filter(|_| decimal.is_none() || !has_point));
        sizes.extend(decimal);
    }
    sizes
}

/// Parses `70b`, `8x7b`, `7b1` or `360m`: returns the size, the digits before the unit, and the unit.
fn size(word: &str) -> Option<(u64, &str, f64)> {
    let (number, unit, rest) = [('b', 1e9), ('B', 1e9), ('m', 1e6), ('M', 1e6)]
        .into_iter()
        .find_map(|(letter, unit)| word.split_once(letter).map(|(number, rest)| (number, unit, rest)))?;
    let (experts, digits) = number.split_once('x').unwrap_or(("1", number));
    // `7b1` is 7.1B; `8b200` is a number of B200.
    let is_fraction = rest.is_empty() || rest.len() == 1 && is_number(rest);
    if !is_number(digits) || !is_number(experts) || !is_fraction {
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
    #[case::same_size("srt-deepseek-r1-distill-qwen-14b", 14_770_000_000, NamedSize::Same)]
    #[case::five_times_larger(
        "srt-deepseek-r1-distill-qwen-14b",
        72_700_000_000,
        different(14_000_000_000, 72_700_000_000)
    )]
    #[case::half_the_size("srt-deepseek-r1-distill-qwen-14b", 7_600_000_000, different(14_000_000_000, 7_600_000_000))]
    #[case::decimal("deepseek-r1-distill-qwen-1-5b", 1_780_000_000, NamedSize::Same)]
    #[case::point("qwen-1.5b", 5_000_000_000, different(1_500_000_000, 5_000_000_000))]
    #[case::version_or_decimal("llama-3-1-70b-instruct", 70_600_000_000, NamedSize::Same)]
    #[case::contradicts_both_readings(
        "llama-3-1-70b-instruct",
        8_030_000_000,
        different(70_000_000_000, 8_030_000_000)
    )]
    #[case::experts("vllm-mixtral-8x7b-instruct", 46_700_000_000, NamedSize::Same)]
    #[case::experts_of_another("mixtral-8x7b", 141_000_000_000, different(56_000_000_000, 141_000_000_000))]
    #[case::active_experts_only("srt-llama-4-scout-17b-16e-instruct", 108_600_000_000, NamedSize::Unstated)]
    #[case::millions("smollm-360m", 362_000_000, NamedSize::Same)]
    #[case::trailing_decimals("bloomz-7b1", 7_070_000_000, NamedSize::Same)]
    #[case::ignores_memory("universal-a100-80gb", 7_000_000_000, NamedSize::Unstated)]
    #[case::ignores_counts("sglang-8b200", 70_000_000_000, NamedSize::Unstated)]
    #[case::no_size("sglang-universal", 7_000_000_000, NamedSize::Unstated)]
    #[case::zero("x-0b", 7_000_000_000, NamedSize::Unstated)]
    fn compares_the_size_in_the_name(#[case] runtime: &str, #[case] parameters: u64, #[case] expected: NamedSize) {
        assert_eq!(named_size(runtime, parameters), expected);
    }

    fn different(size: u64, parameters: u64) -> NamedSize {
        NamedSize::Different { distance: size.abs_diff(parameters), size }
    }

    #[rstest]
    #[case("llama-3-1-nemotron-ultra-253b-v1", Some(253_000_000_000))]
    #[case("qwen2.5-0.5b-instruct", Some(500_000_000))]
    #[case("qwen3-30b-a3b", Some(30_000_000_000))]
    #[case::the_greater_interpretation("deepseek-r1-distill-qwen-1-5b", Some(5_000_000_000))]
    #[case("deepseek-v3", None)]
    fn finds_the_size_of_a_model(#[case] name: &str, #[case] expected: Option<u64>) {
        assert_eq!(model_size(name), expected);
    }

    #[rstest]
    #[case("srt-llama-3-1-405b-rt", "llama-3-1-70b", 3)]
    #[case("llama-3-1-70b-instruct", "llama-3-1-70b-instruct", 5)]
    #[case("vllm-mistral-7b", "llama-3-1-70b", 0)]
    #[case("a-llama-llama-3", "llama-3", 2)]
    #[case("", "llama-3", 0)]
    fn counts_common_words(#[case] runtime: &str, #[case] model: &str, #[case] expected: usize) {
        assert_eq!(common_words(runtime, model), expected);
    }

    #[rstest]
    #[case("srt-gpt-oss-20b", "gpt-oss-20b", true)]
    #[case("srt-gpt-oss-120b-grpc", "gpt-oss-20b", false)]
    #[case("universal", "", false)]
    fn detects_namesakes(#[case] runtime: &str, #[case] model: &str, #[case] expected: bool) {
        assert_eq!(is_namesake(runtime, model), expected);
    }
}

//! What names say where fields say nothing: the size that a runtime was made for (`qwen-14b`, `mixtral-8x7b`), and that
//! it was made for one model. Field values always come first; names break ties and keep automatic selection from the absurd.

/// A model this many times smaller or larger than a name says is another model.
const FACTOR: f64 = 1.5;

/// The size that a runtime's name states, if no reading of it is near `parameters`.
#[must_use]
pub fn contradicting_size(name: &str, parameters: u64) -> Option<u64> {
    let ratio = |size: u64| (size as f64 / parameters as f64).max(parameters as f64 / size as f64);
    let sizes = sizes(name);
    let stated = sizes.first().copied()?;
    sizes.into_iter().all(|size| ratio(size) > FACTOR).then_some(stated)
}

/// Whether the runtime carries the model's name (`srt-gpt-oss-20b` and `gpt-oss-20b`).
#[must_use]
pub fn is_namesake(runtime: &str, model: &str) -> bool {
    !model.is_empty() && runtime.contains(model)
}

/// Every size that the name may mean. Dashes stand for points as well as for breaks, so `llama-3-1-70b` may mean 70B or
/// 1.70B. Nothing where it names the active part of a mixture only (`17b-16e`).
fn sizes(name: &str) -> Vec<u64> {
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let mut sizes = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if words.get(index + 1).is_some_and(|next| number_before(next, 'e').is_some()) {
            continue;
        }
        let Some((size, digits, unit)) = size(word) else { continue };
        sizes.push(size);
        let whole = index.checked_sub(1).and_then(|before| words.get(before)).filter(|word| is_number(word));
        let pointed = whole.and_then(|whole| format!("{whole}.{digits}").parse::<f64>().ok());
        sizes.extend(pointed.map(|number| (number * unit) as u64).filter(|size| *size > 0));
    }
    sizes
}

/// `70b`, `8x7b`, `7b1`, `360m`: the size, its digits before the unit, and the unit.
fn size(word: &str) -> Option<(u64, &str, f64)> {
    let (number, unit, rest) = [('b', 1e9), ('B', 1e9), ('m', 1e6), ('M', 1e6)]
        .into_iter()
        .find_map(|(letter, unit)| word.split_once(letter).map(|(number, rest)| (number, unit, rest)))?;
    let (experts, digits) = number.split_once('x').unwrap_or(("1", number));
    if !is_number(digits) || !is_number(experts) || !(rest.is_empty() || is_number(rest)) {
        return None;
    }
    let fraction = if rest.is_empty() { "0" } else { rest };
    let each = format!("{digits}.{fraction}").parse::<f64>().ok()?;
    let size = each * experts.parse::<f64>().ok()? * unit;
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
    #[case::same("srt-deepseek-r1-distill-qwen-14b", 14_770_000_000, None)]
    #[case::five_times("srt-deepseek-r1-distill-qwen-14b", 72_700_000_000, Some(14_000_000_000))]
    #[case::half("srt-deepseek-r1-distill-qwen-14b", 7_600_000_000, Some(14_000_000_000))]
    #[case::decimal("deepseek-r1-distill-qwen-1-5b", 1_780_000_000, None)]
    #[case::version_or_decimal("llama-3-1-70b-instruct", 70_600_000_000, None)]
    #[case::neither("llama-3-1-70b-instruct", 8_030_000_000, Some(70_000_000_000))]
    #[case::experts("vllm-mixtral-8x7b-instruct", 46_700_000_000, None)]
    #[case::experts_of_another("mixtral-8x7b", 141_000_000_000, Some(56_000_000_000))]
    #[case::active_part_only("srt-llama-4-scout-17b-16e-instruct", 108_600_000_000, None)]
    #[case::millions("smollm-360m", 362_000_000, None)]
    #[case::trailing("bloomz-7b1", 7_070_000_000, None)]
    #[case::memory_is_no_size("universal-a100-80gb", 7_000_000_000, None)]
    #[case::no_size("sglang-universal", 7_000_000_000, None)]
    #[case::zero("x-0b", 7_000_000_000, None)]
    fn names(#[case] name: &str, #[case] parameters: u64, #[case] expected: Option<u64>) {
        assert_eq!(contradicting_size(name, parameters), expected);
    }

    #[rstest]
    #[case("srt-gpt-oss-20b", "gpt-oss-20b", true)]
    #[case("srt-gpt-oss-120b-grpc", "gpt-oss-20b", false)]
    #[case("universal", "", false)]
    fn namesakes(#[case] runtime: &str, #[case] model: &str, #[case] expected: bool) {
        assert_eq!(is_namesake(runtime, model), expected);
    }
}

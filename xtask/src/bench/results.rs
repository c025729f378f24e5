//! Results of benchmarks: parsing, median and output.

/// Parses lines of the form `name value`.
pub(super) fn parse_results(output: &[u8]) -> Vec<(String, f64)> {
    let text = String::from_utf8_lossy(output).into_owned();
    let parse_line = |line: &str| Some((line.split_once(' ')?.0.to_owned(), line.split_once(' ')?.1.parse().ok()?));
    text.lines().filter_map(parse_line).collect()
}

/// Prints a result with its target: `first token, median   240.00 ms = 0.12 × target (2000 ms)`.
pub(super) fn print_result(name: &str, value: f64, unit: &str, target: f64) {
    println!("{name:<28} {value:.2} {unit} = {:.2} × target ({target} {unit})", value / target);
}

/// Returns the median, or NaN without values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

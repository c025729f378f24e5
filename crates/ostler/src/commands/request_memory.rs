//! `--request-memory`: how much memory the requests of a server may occupy.

use apimachinery::Quantity;

/// Parses the memory of a gateway, in bytes.
pub(super) fn of_gateway(text: &str) -> Result<usize, String> {
    parse(text, picker::MIN_GATEWAY_MEMORY)
}

/// Parses the memory of an endpoint picker, in bytes.
pub(super) fn of_picker(text: &str) -> Result<usize, String> {
    parse(text, picker::MIN_PICKER_MEMORY)
}

/// Parses a quantity of at least `min` bytes. With less, the server would reject the largest requests after it has waited for
/// memory.
fn parse(text: &str, min: usize) -> Result<usize, String> {
    let quantity: Quantity = text.parse().map_err(|_| "expected a quantity such as 256Mi or 1Gi".to_owned())?;
    let bytes = usize::try_from(quantity.value()).unwrap_or(0);
    if bytes < min {
        return Err(format!("one request may need {min}Mi; set at least {min}Mi", min = min >> 20));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("256Mi", Ok(picker::DEFAULT_REQUEST_MEMORY))]
    #[case("32Mi", Ok(32 << 20))]
    #[case("1Gi", Ok(1 << 30))]
    #[case("40000000", Ok(40_000_000))]
    #[case::smaller_than_a_body("33554431", Err("one request may need 32Mi; set at least 32Mi"))]
    #[case::negative("-1Gi", Err("one request may need 32Mi; set at least 32Mi"))]
    #[case::bytes_of_a_fraction("256m", Err("one request may need 32Mi; set at least 32Mi"))]
    #[case::other_unit("256MB", Err("expected a quantity such as 256Mi or 1Gi"))]
    #[case::empty("", Err("expected a quantity such as 256Mi or 1Gi"))]
    fn parses_the_memory_of_a_gateway(#[case] text: &str, #[case] expected: Result<usize, &str>) {
        assert_eq!(of_gateway(text), expected.map_err(str::to_owned));
    }

    #[test]
    fn picker_needs_memory_for_the_messages_of_a_request() {
        assert_eq!(of_picker("64Mi"), Ok(64 << 20));
        assert_eq!(of_picker("32Mi"), Err("one request may need 64Mi; set at least 64Mi".to_owned()));
    }
}

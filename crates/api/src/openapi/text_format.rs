//! Text formats that schemas require, with their error messages and hints.

use schemars::{Schema, json_schema};

/// A text format. Values that may be numbers or strings are validated by a pattern. Values that must be strings are
/// validated by a CEL rule, which has an error message.
pub(crate) struct TextFormat {
    /// Regular expression, short enough for the cost limits of CEL.
    pub pattern: &'static str,
    /// Name of the format, such as `a model size`.
    pub description: &'static str,
    /// How to fix an invalid value.
    pub hint: &'static str,
}

/// Number of parameters of a model.
pub(crate) const MODEL_SIZE: TextFormat = TextFormat {
    pattern: r"^ *([0-9]+|([0-9]+|[0-9]*[.][0-9]+) *[KkMmBbTt]) *$",
    description: "a model size",
    hint: "write a number with K, M, B or T, such as `7B`",
};
/// Memory of an accelerator.
pub(crate) const MEMORY: TextFormat = TextFormat {
    pattern: r"^ *[0-9]+([.][0-9]*)? *([GgMmTt][Ii]?[Bb]?)? *$",
    description: "an amount of memory",
    hint: "write it in GiB, such as `80Gi` or `80`",
};
/// Version of a format or framework.
pub(crate) const VERSION: TextFormat = TextFormat {
    pattern: r"^ *[vV]?[0-9]+([.][0-9]+){0,2}(-[0-9A-Za-z.-]+|[.][A-Za-z][0-9A-Za-z.]+|(rc|a|b)[0-9]+([.][0-9A-Za-z.]+)?)?([+][0-9A-Za-z.-]+)? *$",
    description: "a version",
    hint: "write major[.minor[.patch]], such as `4.36.2`",
};
/// Compute capability.
pub(crate) const COMPUTE_CAPABILITY: TextFormat = TextFormat {
    pattern: r"^ *[0-9]+([.][0-9]+)* *$",
    description: "a compute capability",
    hint: "write a dotted number, such as `9.0`",
};
/// Quantity of a container resource, or a template expression that is expanded later.
pub(crate) const QUANTITY: TextFormat = TextFormat {
    pattern: r"^([+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?|.*[{][{].*)$",
    description: "a quantity",
    hint: "write a quantity such as `4Gi`, `500m` or `8`",
};
/// Price or bandwidth.
pub(crate) const NUMBER: TextFormat = TextFormat {
    pattern: r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    description: "a number of zero or more",
    hint: "write a number such as `2.21`",
};
/// Number of units of an extended resource.
pub(crate) const COUNT: TextFormat = TextFormat {
    pattern: "^[1-9][0-9]{0,8}$",
    description: "a count of one or more",
    hint: "write a whole number such as `1`",
};
/// Comparison in a condition of a preference.
pub(crate) const COMPARISON: TextFormat = TextFormat {
    pattern: r"^ *(<=|>=|==|<|>|=) *([0-9]+|([0-9]+|[0-9]*[.][0-9]+) *[KkMmBbTt]) *$",
    description: "a comparison",
    hint: "write a comparison such as `<30B` or `>=2048`",
};
/// Duration in Go syntax.
pub(crate) const DURATION: TextFormat = TextFormat {
    pattern: r"^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$",
    description: "a duration",
    hint: "write a number with a unit, such as `60ms` or `1m30s`",
};

/// The formats that are validated by pattern.
const PATTERN_FORMATS: [&TextFormat; 6] = [&MODEL_SIZE, &MEMORY, &QUANTITY, &NUMBER, &COUNT, &DURATION];

impl TextFormat {
    /// Returns the format with this pattern.
    pub(crate) fn by_pattern(pattern: &str) -> Option<&'static TextFormat> {
        PATTERN_FORMATS.into_iter().find(|format| format.pattern == pattern)
    }

    /// Returns the schema of a string of this format. `max_length` bounds the cost of the CEL rule.
    pub(super) fn schema(&self, max_length: u64) -> Schema {
        let Self { pattern, description, hint } = self;
        json_schema!({
            "type": "string",
            "maxLength": max_length,
            "x-kubernetes-validations": [{
                "rule": format!("self.matches('{pattern}')"),
                "message": format!("not {description}; {hint}"),
                "messageExpression": format!("'`' + self + '` is not {description}; {hint}'"),
            }],
        })
    }
}

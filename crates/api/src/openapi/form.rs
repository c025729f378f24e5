//! Forms of text that a schema demands, and how a person says them.

use schemars::{Schema, json_schema};

/// One form. Numbers with units are numbers or text in a manifest, so they are checked by pattern; text alone is
/// checked by a CEL rule, which can say what is wrong.
pub(crate) struct Form {
    /// Regular expression, short enough for the cost limits of CEL.
    pub pattern: &'static str,
    /// Such as `a model size`.
    pub what: &'static str,
    /// What to write instead.
    pub remedy: &'static str,
}

/// Parameters of a model.
pub(crate) const SIZE: Form = Form {
    pattern: r"^ *([0-9]+|([0-9]+|[0-9]*[.][0-9]+) *[KkMmBbTt]) *$",
    what: "a model size",
    remedy: "write a number with K, M, B or T, such as `7B`",
};
/// Memory of an accelerator.
pub(crate) const MEMORY: Form = Form {
    pattern: r"^ *[0-9]+([.][0-9]*)? *([GgMmTt][Ii]?[Bb]?)? *$",
    what: "an amount of memory",
    remedy: "write it in GiB, such as `80Gi` or `80`",
};
/// Version of a format or framework.
pub(crate) const VERSION: Form = Form {
    pattern: r"^ *[vV]?[0-9]+([.][0-9]+){0,2}(-[0-9A-Za-z.-]+|[.][A-Za-z][0-9A-Za-z.]+|(rc|a|b)[0-9]+([.][0-9A-Za-z.]+)?)?([+][0-9A-Za-z.-]+)? *$",
    what: "a version",
    remedy: "write major[.minor[.patch]], such as `4.36.2`",
};
/// Dotted number.
pub(crate) const CAPABILITY: Form = Form {
    pattern: r"^ *[0-9]+([.][0-9]+)* *$",
    what: "a compute capability",
    remedy: "write a dotted number, such as `9.0`",
};
/// Amount of a container resource; a template's expression is filled in later.
pub(crate) const AMOUNT: Form = Form {
    pattern: r"^([+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?|.*[{][{].*)$",
    what: "a quantity",
    remedy: "write an amount such as `4Gi`, `500m` or `8`",
};
/// Price, bandwidth.
pub(crate) const NUMBER: Form = Form {
    pattern: r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    what: "a number of zero or more",
    remedy: "write a number such as `2.21`",
};
/// Units of an extended resource.
pub(crate) const COUNT: Form =
    Form { pattern: "^[1-9][0-9]{0,8}$", what: "a count of one or more", remedy: "write a whole number such as `1`" };
/// Comparison of a preference's condition.
pub(crate) const COMPARISON: Form = Form {
    pattern: r"^ *(<=|>=|==|<|>|=) *([0-9]+|([0-9]+|[0-9]*[.][0-9]+) *[KkMmBbTt]) *$",
    what: "a comparison",
    remedy: "write one such as `<30B` or `>=2048`",
};
/// Length of time as Go writes it.
pub(crate) const DURATION: Form = Form {
    pattern: r"^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$",
    what: "a duration",
    remedy: "write a number with a unit, such as `60ms` or `1m30s`",
};

const BY_PATTERN: [&Form; 6] = [&SIZE, &MEMORY, &AMOUNT, &NUMBER, &COUNT, &DURATION];

impl Form {
    /// The form that `pattern` checks.
    pub(crate) fn of(pattern: &str) -> Option<&'static Form> {
        BY_PATTERN.into_iter().find(|form| form.pattern == pattern)
    }

    /// Text of this form, of at most so many characters: CEL's cost grows with the longest text.
    pub(super) fn schema(&self, longest: u64) -> Schema {
        let Self { pattern, what, remedy } = self;
        json_schema!({
            "type": "string",
            "maxLength": longest,
            "x-kubernetes-validations": [{
                "rule": format!("self.matches('{pattern}')"),
                "message": format!("not {what}; {remedy}"),
                "messageExpression": format!("'`' + self + '` is not {what}; {remedy}'"),
            }],
        })
    }
}

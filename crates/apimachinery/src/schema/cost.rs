//! Upper bounds of the cost of evaluating a rule, so that expensive rules are rejected before evaluation.
//!
//! The bound depends on the expression and on the size of the values it may read. It is coarse and more lenient than
//! kube-apiserver's budget of one million per rule: kube-apiserver rejects every rule that is rejected here.

use std::collections::BTreeMap;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue};
use serde_json::Value;

/// Cost budget of all rules of one object, in evaluation steps.
pub(super) const COST_BUDGET: u64 = 20_000_000;

/// Upper bound of the size of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ValueSize {
    /// Elements of the longest list or map in the value.
    pub max_length: u64,
    /// Total number of bytes and elements.
    pub total: u64,
}

/// Upper bounds of the cost of an expression and the size of its result.
#[derive(Debug, Clone, Copy)]
struct CostEstimate {
    cost: u64,
    size: ValueSize,
}

/// Estimates the cost of one expression.
struct CostEstimator {
    size: ValueSize,
    variables: BTreeMap<String, ValueSize>,
}

/// Returns the maximum cost of evaluating `expression` if `self` and `oldSelf` together have at most this size.
pub(super) fn max_cost(expression: &Expr, size: ValueSize) -> u64 {
    CostEstimator { size, variables: BTreeMap::new() }.estimate(expression).cost
}

/// Returns the number of nested levels of an expression; evaluation recurses once per level.
pub(super) fn depth(expression: &Expr) -> usize {
    1 + children(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// Reports whether the expression constructs a protobuf message, which rules of custom resources must not do.
pub(super) fn constructs_message(expression: &Expr) -> bool {
    matches!(expression, Expr::Struct(_)) || children(expression).into_iter().any(constructs_message)
}

/// Returns the direct subexpressions of an expression.
pub(super) fn children(expression: &Expr) -> Vec<&Expr> {
    match expression {
        Expr::Call(call) => {
            call.target.iter().map(|target| &target.expr).chain(call.args.iter().map(|arg| &arg.expr)).collect()
        }
        Expr::Comprehension(comprehension) => [
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ]
        .map(|operand| &operand.expr)
        .into(),
        Expr::List(list) => list.elements.iter().map(|element| &element.expr).collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_expressions(&entry.expr)).collect(),
        Expr::Struct(message) => message.entries.iter().flat_map(|entry| entry_expressions(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand.expr],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

// === impl ValueSize ===

impl ValueSize {
    /// Measures `value`.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::container(items.len(), items.iter().map(Self::of)),
            Value::Object(fields) => {
                let names: usize = fields.keys().map(String::len).sum();
                let size = Self::container(fields.len(), fields.values().map(Self::of));
                Self { total: size.total + names as u64, ..size }
            }
            Value::String(text) => Self { max_length: 1, total: 1 + text.len() as u64 },
            _ => Self { max_length: 1, total: 1 },
        }
    }

    fn container(count: usize, elements: impl Iterator<Item = Self>) -> Self {
        let empty = Self { max_length: count as u64, total: 1 };
        elements.fold(empty, |sum, element| Self {
            max_length: sum.max_length.max(element.max_length),
            total: sum.total + element.total,
        })
    }

    /// Returns the combined size of two values.
    pub(super) fn combine(self, other: Self) -> Self {
        Self { max_length: self.max_length.max(other.max_length), total: self.total.saturating_add(other.total) }
    }

    fn max(self, other: Self) -> Self {
        Self { max_length: self.max_length.max(other.max_length), total: self.total.max(other.total) }
    }

    const UNBOUNDED: Self = Self { max_length: u64::MAX, total: u64::MAX };
    const ONE: Self = Self { max_length: 1, total: 1 };
}

// === impl CostEstimator ===

impl CostEstimator {
    fn estimate(&mut self, expression: &Expr) -> CostEstimate {
        match expression {
            Expr::Ident(name) => CostEstimate { cost: 1, size: self.variables.get(name).copied().unwrap_or(self.size) },
            Expr::Literal(literal) => CostEstimate { cost: 1, size: literal_size(literal) },
            Expr::Select(select) => {
                let operand = self.estimate(&select.operand.expr);
                CostEstimate { cost: operand.cost.saturating_add(1), size: operand.size }
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
            Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => {
                let elements = children(expression);
                let count = elements.len() as u64;
                let total = sequence(&self.estimate_all(&elements));
                CostEstimate {
                    size: ValueSize { max_length: total.size.max_length.max(count), total: total.size.total + count },
                    ..total
                }
            }
            Expr::Unspecified => CostEstimate { cost: 1, size: ValueSize::ONE },
        }
    }

    fn estimate_all(&mut self, expressions: &[&Expr]) -> Vec<CostEstimate> {
        expressions.iter().map(|expression| self.estimate(expression)).collect()
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> CostEstimate {
        let range = self.estimate(&comprehension.iter_range.expr);
        let initial = self.estimate(&comprehension.accu_init.expr);
        let outer_variables = self.variables.clone();
        for name in [Some(&comprehension.iter_var), comprehension.iter_var2.as_ref()].into_iter().flatten() {
            // Together, the elements of all iterations have the size of the range.
            let total = range.size.total / range.size.max_length.max(1) + 1;
            self.variables.insert(name.clone(), ValueSize { max_length: range.size.max_length, total });
        }
        // The accumulator is at least as long as the range.
        self.variables.insert(
            comprehension.accu_var.clone(),
            ValueSize { max_length: range.size.max_length, total: range.size.max_length },
        );
        let step = self.estimate(&comprehension.loop_step.expr);
        let iteration_cost = self.estimate(&comprehension.loop_cond.expr).cost.saturating_add(step.cost);
        let step = step.size;
        let accumulated = ValueSize {
            max_length: range.size.max_length.max(step.max_length),
            total: step.total.saturating_mul(range.size.max_length.max(1)).saturating_add(initial.size.total),
        };
        self.variables.insert(comprehension.accu_var.clone(), accumulated);
        let result = self.estimate(&comprehension.result.expr);
        self.variables = outer_variables;
        let iterations_cost = range.size.max_length.saturating_mul(iteration_cost.saturating_add(1));
        let cost = range.cost.saturating_add(initial.cost).saturating_add(iterations_cost).saturating_add(result.cost);
        CostEstimate { cost, size: result.size.max(accumulated) }
    }

    fn call(&mut self, call: &CallExpr) -> CostEstimate {
        let operands: Vec<&Expr> =
            call.target.iter().map(|target| &target.expr).chain(call.args.iter().map(|arg| &arg.expr)).collect();
        let estimates = self.estimate_all(&operands);
        let total = sequence(&estimates);
        let sizes: Vec<ValueSize> = estimates.iter().map(|estimate| estimate.size).collect();
        let operand_size = |index: usize| sizes.get(index).map_or(1, |size| size.total);
        let smallest = sizes.iter().map(|size| size.total).min().unwrap_or(1);
        // Cost of traversing the operands; ten bytes of text cost one step.
        let library = match call.target.as_ref().map(|target| &target.expr) {
            Some(Expr::Ident(name)) if name == "lists" || name == "sets" => name.as_str(),
            _ => "",
        };
        let (traversal_cost, size) = match (library, call.func_name.as_str()) {
            (_, "_&&_" | "_||_" | "!_" | "_?_:_" | "_[_]" | "size" | "@not_strictly_false") => (1, total.size),
            (_, "_==_" | "_!=_" | "_<_" | "_>_" | "_<=_" | "_>=_") => (smallest / 10, ValueSize::ONE),
            ("lists", "range") => match operands.get(1) {
                Some(Expr::Literal(LiteralValue::Int(count))) => {
                    let count = u64::try_from(*count.inner()).unwrap_or_default();
                    (count, ValueSize { max_length: count, total: count })
                }
                _ => (u64::MAX, ValueSize::UNBOUNDED),
            },
            (_, "replace") => {
                let replaced = operand_size(0).saturating_mul(operand_size(2).max(1));
                (replaced / 10, ValueSize { max_length: 1, total: replaced })
            }
            (_, "join") => {
                let joined = operand_size(0).saturating_mul(operand_size(1).max(1));
                (joined / 10, ValueSize { max_length: 1, total: joined })
            }
            (_, "split" | "findAll") => {
                (operand_size(0) / 10, ValueSize { max_length: operand_size(0), total: operand_size(0) })
            }
            ("sets", _) | (_, "flatten" | "sort" | "distinct") => {
                let pairs = total.size.max_length.saturating_mul(total.size.max_length);
                (pairs, ValueSize { max_length: total.size.total, total: total.size.total })
            }
            _ => (total.size.total / 10, combined_size(total.size, &sizes)),
        };
        CostEstimate { cost: total.cost.saturating_add(traversal_cost), size }
    }
}

fn entry_expressions(entry: &EntryExpr) -> Vec<&Expr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key.expr, &entry.value.expr],
        EntryExpr::StructField(field) => vec![&field.value.expr],
    }
}

/// Estimates evaluating all expressions one after the other.
fn sequence(estimates: &[CostEstimate]) -> CostEstimate {
    estimates.iter().fold(CostEstimate { cost: 1, size: ValueSize::ONE }, |sum, estimate| CostEstimate {
        cost: sum.cost.saturating_add(estimate.cost),
        size: sum.size.combine(estimate.size),
    })
}

/// Returns the size of a value that contains all operands, such as the result of `+`.
fn combined_size(total: ValueSize, sizes: &[ValueSize]) -> ValueSize {
    ValueSize {
        max_length: sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.max_length)),
        total: total.total,
    }
}

fn literal_size(literal: &LiteralValue) -> ValueSize {
    match literal {
        LiteralValue::String(text) => ValueSize { max_length: 1, total: 1 + text.inner().len() as u64 },
        LiteralValue::Bytes(bytes) => ValueSize { max_length: 1, total: 1 + bytes.inner().len() as u64 },
        _ => ValueSize::ONE,
    }
}

#[cfg(test)]
mod tests {
    use kube_cel::cel::Program;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn cost(rule: &str, length: u64) -> u64 {
        let program = Program::compile(rule).unwrap();
        max_cost(&program.expression().expr, ValueSize { max_length: length, total: 10 * length })
    }

    #[rstest]
    #[case::comparison("self.size >= oldSelf.size", 1000)]
    #[case::single_loop("self.items.all(item, item.name != 'root')", 10_000)]
    #[case::nested_loops("self.items.all(a, self.items.exists_one(b, a.name == b.name))", 300)]
    #[case::mapped("self.items.map(item, item.name).size() < 9", 1000)]
    #[case::prefix("!has(self.name) || self.name.startsWith('a')", 1_000_000)]
    fn typical_rules_are_within_budget(#[case] rule: &str, #[case] length: u64) {
        assert!(cost(rule, length) < COST_BUDGET, "{}", cost(rule, length));
    }

    #[rstest]
    #[case::three_loops("self.all(a, self.all(b, self.all(c, a + b != c)))", 1000)]
    #[case::huge_range("lists.range(1000000000).size() > 0", 1)]
    #[case::computed_range("lists.range(self.n * self.n).size() > 0", 1)]
    #[case::repeated_replace("self.s.replace('', self.s).replace('', self.s).size() > 0", 1000)]
    #[case::literal_lists(
        "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, self.all(c, self.all(d, a != d))))",
        1000
    )]
    fn expensive_rules_exceed_the_budget(#[case] rule: &str, #[case] length: u64) {
        assert!(cost(rule, length) > COST_BUDGET, "{}", cost(rule, length));
    }

    #[test]
    fn size_includes_nested_values() {
        let size = ValueSize::of(&json!({"a": [1, 2, 3], "bc": "text"}));
        assert_eq!(size, ValueSize { max_length: 3, total: 13 });
    }
}

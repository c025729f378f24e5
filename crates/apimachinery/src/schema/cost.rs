//! What evaluating a rule may cost at most, so that a hostile one is refused and not waited for.
//!
//! The bound follows from the expression and from how large the values are that it may look at. It is coarse, and
//! lenient beside kube-apiserver's budget of a million per rule: a rule that is refused here is refused there.

use std::collections::BTreeMap;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue};
use serde_json::Value;

/// Steps that one object may cost.
pub(super) const BUDGET: u64 = 20_000_000;

/// How large a value may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Elements of the longest list or map in it.
    pub length: u64,
    /// Letters and elements in all.
    pub weight: u64,
}

/// What an expression may cost, and how large its value may be.
#[derive(Debug, Clone, Copy)]
struct Bound {
    cost: u64,
    size: Size,
}

/// Most steps of evaluating `expression` where `self` and `oldSelf` have at most this size.
pub(super) fn most(expression: &Expr, size: Size) -> u64 {
    Estimate { size, variables: BTreeMap::new() }.bound(expression).cost
}

/// Levels of an expression; evaluating recurses once for each.
pub(super) fn depth(expression: &Expr) -> usize {
    1 + children(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// Whether it makes a message of protobuf, which no rule of a custom resource can.
pub(super) fn makes_messages(expression: &Expr) -> bool {
    matches!(expression, Expr::Struct(_)) || children(expression).into_iter().any(makes_messages)
}

pub(super) fn children(expression: &Expr) -> Vec<&Expr> {
    match expression {
        Expr::Call(call) => {
            call.target.iter().map(|target| &target.expr).chain(call.args.iter().map(|arg| &arg.expr)).collect()
        }
        Expr::Comprehension(it) => {
            [&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result].map(|part| &part.expr).into()
        }
        Expr::List(list) => list.elements.iter().map(|element| &element.expr).collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(it) => it.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand.expr],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn parts(entry: &EntryExpr) -> Vec<&Expr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key.expr, &entry.value.expr],
        EntryExpr::StructField(field) => vec![&field.value.expr],
    }
}

// === impl Size ===

impl Size {
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::around(items.len(), items.iter().map(Self::of)),
            Value::Object(members) => {
                let names: usize = members.keys().map(String::len).sum();
                let around = Self::around(members.len(), members.values().map(Self::of));
                Self { weight: around.weight + names as u64, ..around }
            }
            Value::String(text) => Self { length: 1, weight: 1 + text.len() as u64 },
            _ => Self { length: 1, weight: 1 },
        }
    }

    fn around(count: usize, inner: impl Iterator<Item = Self>) -> Self {
        let start = Self { length: count as u64, weight: 1 };
        inner.fold(start, |all, one| Self { length: all.length.max(one.length), weight: all.weight + one.weight })
    }

    /// Of two values together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { length: self.length.max(other.length), weight: self.weight.saturating_add(other.weight) }
    }

    fn larger(self, other: Self) -> Self {
        Self { length: self.length.max(other.length), weight: self.weight.max(other.weight) }
    }

    const UNBOUNDED: Self = Self { length: u64::MAX, weight: u64::MAX };
    const ONE: Self = Self { length: 1, weight: 1 };
}

/// Estimates one expression.
struct Estimate {
    size: Size,
    variables: BTreeMap<String, Size>,
}

// === impl Estimate ===

impl Estimate {
    fn bound(&mut self, expression: &Expr) -> Bound {
        match expression {
            Expr::Ident(name) => Bound { cost: 1, size: self.variables.get(name).copied().unwrap_or(self.size) },
            Expr::Literal(literal) => Bound { cost: 1, size: literal_size(literal) },
            Expr::Select(select) => {
                let operand = self.bound(&select.operand.expr);
                Bound { cost: operand.cost.saturating_add(1), size: operand.size }
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
            Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => {
                let parts = children(expression);
                let count = parts.len() as u64;
                let whole = together(&self.each(&parts));
                Bound {
                    size: Size { length: whole.size.length.max(count), weight: whole.size.weight + count },
                    ..whole
                }
            }
            Expr::Unspecified => Bound { cost: 1, size: Size::ONE },
        }
    }

    fn each(&mut self, expressions: &[&Expr]) -> Vec<Bound> {
        expressions.iter().map(|expression| self.bound(expression)).collect()
    }

    fn comprehension(&mut self, it: &ComprehensionExpr) -> Bound {
        let range = self.bound(&it.iter_range.expr);
        let start = self.bound(&it.accu_init.expr);
        let outer = self.variables.clone();
        for name in [Some(&it.iter_var), it.iter_var2.as_ref()].into_iter().flatten() {
            // Over all rounds together, the elements weigh what the range weighs.
            let weight = range.size.weight / range.size.length.max(1) + 1;
            self.variables.insert(name.clone(), Size { length: range.size.length, weight });
        }
        // What gathers is at least as long as what was walked over.
        self.variables.insert(it.accu_var.clone(), Size { length: range.size.length, weight: range.size.length });
        let step = self.bound(&it.loop_step.expr);
        let round = self.bound(&it.loop_cond.expr).cost.saturating_add(step.cost);
        let step = step.size;
        let gathered = Size {
            length: range.size.length.max(step.length),
            weight: step.weight.saturating_mul(range.size.length.max(1)).saturating_add(start.size.weight),
        };
        self.variables.insert(it.accu_var.clone(), gathered);
        let result = self.bound(&it.result.expr);
        self.variables = outer;
        let rounds = range.size.length.saturating_mul(round.saturating_add(1));
        let cost = range.cost.saturating_add(start.cost).saturating_add(rounds).saturating_add(result.cost);
        Bound { cost, size: result.size.larger(gathered) }
    }

    fn call(&mut self, call: &CallExpr) -> Bound {
        let operands: Vec<&Expr> =
            call.target.iter().map(|target| &target.expr).chain(call.args.iter().map(|arg| &arg.expr)).collect();
        let bounds = self.each(&operands);
        let whole = together(&bounds);
        let sizes: Vec<Size> = bounds.iter().map(|bound| bound.size).collect();
        let weight = |index: usize| sizes.get(index).map_or(1, |size| size.weight);
        let least = sizes.iter().map(|size| size.weight).min().unwrap_or(1);
        // How much is looked at: letters go by tens.
        let library = match call.target.as_ref().map(|target| &target.expr) {
            Some(Expr::Ident(name)) if name == "lists" || name == "sets" => name.as_str(),
            _ => "",
        };
        let (looked_at, size) = match (library, call.func_name.as_str()) {
            (_, "_&&_" | "_||_" | "!_" | "_?_:_" | "_[_]" | "size" | "@not_strictly_false") => (1, whole.size),
            (_, "_==_" | "_!=_" | "_<_" | "_>_" | "_<=_" | "_>=_") => (least / 10, Size::ONE),
            ("lists", "range") => match operands.get(1) {
                Some(Expr::Literal(LiteralValue::Int(count))) => {
                    let count = u64::try_from(*count.inner()).unwrap_or_default();
                    (count, Size { length: count, weight: count })
                }
                _ => (u64::MAX, Size::UNBOUNDED),
            },
            (_, "replace") => {
                let grown = weight(0).saturating_mul(weight(2).max(1));
                (grown / 10, Size { length: 1, weight: grown })
            }
            (_, "join") => {
                let joined = weight(0).saturating_mul(weight(1).max(1));
                (joined / 10, Size { length: 1, weight: joined })
            }
            (_, "split" | "findAll") => (weight(0) / 10, Size { length: weight(0), weight: weight(0) }),
            ("sets", _) | (_, "flatten" | "sort" | "distinct") => {
                let pairs = whole.size.length.saturating_mul(whole.size.length);
                (pairs, Size { length: whole.size.weight, weight: whole.size.weight })
            }
            _ => (whole.size.weight / 10, grown(whole.size, &sizes)),
        };
        Bound { cost: whole.cost.saturating_add(looked_at), size }
    }
}

/// Each after the other.
fn together(bounds: &[Bound]) -> Bound {
    bounds.iter().fold(Bound { cost: 1, size: Size::ONE }, |all, one| Bound {
        cost: all.cost.saturating_add(one.cost),
        size: all.size.and(one.size),
    })
}

/// Of a value made from all operands, as `+` does: its length is that of all.
fn grown(whole: Size, sizes: &[Size]) -> Size {
    Size { length: sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.length)), weight: whole.weight }
}

fn literal_size(literal: &LiteralValue) -> Size {
    match literal {
        LiteralValue::String(text) => Size { length: 1, weight: 1 + text.inner().len() as u64 },
        LiteralValue::Bytes(bytes) => Size { length: 1, weight: 1 + bytes.inner().len() as u64 },
        _ => Size::ONE,
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
        most(&program.expression().expr, Size { length, weight: 10 * length })
    }

    #[rstest]
    #[case::comparison("self.size >= oldSelf.size", 1000)]
    #[case::one_walk("self.items.all(item, item.name != 'root')", 10_000)]
    #[case::pairs("self.items.all(a, self.items.exists_one(b, a.name == b.name))", 300)]
    #[case::mapped("self.items.map(item, item.name).size() < 9", 1000)]
    #[case::prefix("!has(self.name) || self.name.startsWith('a')", 1_000_000)]
    fn what_people_write_is_cheap(#[case] rule: &str, #[case] length: u64) {
        assert!(cost(rule, length) < BUDGET, "{}", cost(rule, length));
    }

    #[rstest]
    #[case::triples("self.all(a, self.all(b, self.all(c, a + b != c)))", 1000)]
    #[case::invented("lists.range(1000000000).size() > 0", 1)]
    #[case::computed("lists.range(self.n * self.n).size() > 0", 1)]
    #[case::swollen("self.s.replace('', self.s).replace('', self.s).size() > 0", 1000)]
    #[case::listed(
        "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, self.all(c, self.all(d, a != d))))",
        1000
    )]
    fn what_would_never_end_is_dear(#[case] rule: &str, #[case] length: u64) {
        assert!(cost(rule, length) > BUDGET, "{}", cost(rule, length));
    }

    #[test]
    fn a_size_counts_what_is_inside() {
        let size = Size::of(&json!({"a": [1, 2, 3], "bc": "text"}));
        assert_eq!(size, Size { length: 3, weight: 13 });
    }
}

//! Running a selector's program.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::{Arithmetic, Comparison, Field, Fields, Literal, Op, Truth};

/// Operands that need no allocation.
const STACK_INLINE: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A literal: a text and nothing else.
    Text(&'a str),
    /// A header's text: what it means depends on what it is compared with.
    Header(&'a str),
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Int(i64),
    Float(f64),
}

type Stack<'a> = SmallVec<[Value<'a>; STACK_INLINE]>;

/// The program's result. Parsing has seen to it that every step finds its operands.
pub(super) fn truth(program: &[Op], fields: &impl Fields) -> Truth {
    let mut stack = Stack::new();
    for op in program {
        let value = step(op, &mut stack, fields);
        stack.push(value);
    }
    condition(pop(&mut stack))
}

fn pop<'a>(stack: &mut Stack<'a>) -> Value<'a> {
    stack.pop().unwrap_or(Value::Null)
}

fn step<'a>(op: &'a Op, stack: &mut Stack<'a>, fields: &'a impl Fields) -> Value<'a> {
    match op {
        Op::Text(text) => Value::Text(text),
        Op::Int(number) => Value::Int(*number),
        Op::Float(number) => Value::Float(*number),
        Op::Bool(value) => Value::Bool(*value),
        Op::Field(name) => match fields.field(name) {
            None => Value::Null,
            Some(Field::Text(text)) => Value::Header(text),
            Some(Field::Number(number)) => Value::Int(number),
            Some(Field::Bool(value)) => Value::Bool(value),
        },
        Op::Plus => calculate(Arithmetic::Add, Value::Int(0), pop(stack)),
        Op::Negate => calculate(Arithmetic::Subtract, Value::Int(0), pop(stack)),
        Op::Arithmetic(operator) => {
            let right = pop(stack);
            calculate(*operator, pop(stack), right)
        }
        Op::Compare(comparison) => {
            let right = pop(stack);
            from_truth(compare(*comparison, pop(stack), right))
        }
        Op::Between { negated } => {
            let (high, low, value) = (pop(stack), pop(stack), pop(stack));
            let inside = and(
                compare(Comparison::GreaterOrEqual, value, low),
                compare(Comparison::LessOrEqual, value, high),
            );
            from_truth(negate_if(*negated, inside))
        }
        Op::In { negated, list } => from_truth(negate_if(*negated, is_in(pop(stack), list))),
        Op::Like { negated, pattern } => {
            let like = match pop(stack) {
                Value::Null => None,
                Value::Text(text) | Value::Header(text) => Some(pattern.matches(text)),
                _ => Some(false),
            };
            from_truth(negate_if(*negated, like))
        }
        Op::IsNull { negated } => Value::Bool(matches!(pop(stack), Value::Null) != *negated),
        Op::Not => from_truth(condition(pop(stack)).map(|value| !value)),
        Op::And => from_truth(and(condition(pop(stack)), condition(pop(stack)))),
        Op::Or => from_truth(or(condition(pop(stack)), condition(pop(stack)))),
    }
}

fn from_truth<'a>(truth: Truth) -> Value<'a> {
    truth.map_or(Value::Null, Value::Bool)
}

fn condition(value: Value<'_>) -> Truth {
    match value {
        Value::Bool(value) => Some(value),
        Value::Header(text) => truth_named(text),
        _ => None,
    }
}

fn truth_named(text: &str) -> Truth {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

fn and(a: Truth, b: Truth) -> Truth {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Truth, b: Truth) -> Truth {
    and(a.map(|a| !a), b.map(|b| !b)).map(|neither| !neither)
}

fn negate_if(negated: bool, truth: Truth) -> Truth {
    truth.map(|value| value != negated)
}

fn is_in(value: Value<'_>, list: &[Literal]) -> Truth {
    if matches!(value, Value::Null) {
        return None;
    }
    let equals = |literal: &Literal| {
        let literal = match literal {
            Literal::Text(text) => Value::Text(text),
            Literal::Int(number) => Value::Int(*number),
            Literal::Float(number) => Value::Float(*number),
            Literal::Bool(value) => Value::Bool(*value),
        };
        compare(Comparison::Equal, value, literal) == Some(true)
    };
    Some(list.iter().any(equals))
}

/// The number that a text looks like: digits, perhaps with a sign, a fraction and an exponent.
fn number_named(text: &str) -> Option<Number> {
    let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    if text.is_empty() || !text.bytes().all(plain) {
        return None;
    }
    match text.parse() {
        Ok(whole) => Some(Number::Int(whole)),
        Err(_) => text.parse().ok().map(Number::Float),
    }
}

fn number(value: Value<'_>) -> Option<Number> {
    match value {
        Value::Int(number) => Some(Number::Int(number)),
        Value::Float(number) => Some(Number::Float(number)),
        Value::Header(text) => number_named(text),
        _ => None,
    }
}

impl Number {
    #[expect(clippy::cast_precision_loss, reason = "a whole number beside a fraction is one")]
    fn float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }
}

fn calculate<'a>(operator: Arithmetic, left: Value<'a>, right: Value<'a>) -> Value<'a> {
    let (Some(left), Some(right)) = (number(left), number(right)) else { return Value::Null };
    if let (Number::Int(a), Number::Int(b)) = (left, right) {
        let whole = match operator {
            Arithmetic::Add => a.checked_add(b),
            Arithmetic::Subtract => a.checked_sub(b),
            Arithmetic::Multiply => a.checked_mul(b),
            Arithmetic::Divide if b == 0 => return Value::Null,
            Arithmetic::Divide => a.checked_div(b),
        };
        if let Some(whole) = whole {
            return Value::Int(whole);
        }
    }
    let (a, b) = (left.float(), right.float());
    match operator {
        Arithmetic::Add => Value::Float(a + b),
        Arithmetic::Subtract => Value::Float(a - b),
        Arithmetic::Multiply => Value::Float(a * b),
        Arithmetic::Divide if b == 0.0 => Value::Null,
        Arithmetic::Divide => Value::Float(a / b),
    }
}

/// How two values are compared, and how they stand to each other.
enum Relation {
    Ordered(Ordering),
    /// Truth values are equal or not.
    Equal(bool),
    /// They are of different kinds.
    Alien,
}

fn compare(comparison: Comparison, left: Value<'_>, right: Value<'_>) -> Truth {
    if matches!(left, Value::Null) || matches!(right, Value::Null) {
        return None;
    }
    Some(match (relate(left, right), comparison) {
        (Relation::Equal(equal), Comparison::Equal) => equal,
        (Relation::Equal(equal), Comparison::Unequal) => !equal,
        (Relation::Equal(_) | Relation::Alien, _) => false,
        (Relation::Ordered(order), Comparison::Equal) => order.is_eq(),
        (Relation::Ordered(order), Comparison::Unequal) => order.is_ne(),
        (Relation::Ordered(order), Comparison::Less) => order.is_lt(),
        (Relation::Ordered(order), Comparison::LessOrEqual) => order.is_le(),
        (Relation::Ordered(order), Comparison::Greater) => order.is_gt(),
        (Relation::Ordered(order), Comparison::GreaterOrEqual) => order.is_ge(),
    })
}

fn relate(left: Value<'_>, right: Value<'_>) -> Relation {
    if let (Some(a), Some(b)) = (number(left), number(right)) {
        let order = match (a, b) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (Number::Int(a), Number::Float(b)) => compare_exactly(a, b),
            (Number::Float(a), Number::Int(b)) => compare_exactly(b, a).map(Ordering::reverse),
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
        };
        return order.map_or(Relation::Alien, Relation::Ordered);
    }
    if let (Some(a), Some(b)) = (text(left), text(right)) {
        return Relation::Ordered(a.cmp(b));
    }
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Relation::Equal(a == b),
        (Value::Bool(a), Value::Header(b)) | (Value::Header(b), Value::Bool(a)) => {
            truth_named(b).map_or(Relation::Alien, |b| Relation::Equal(a == b))
        }
        _ => Relation::Alien,
    }
}

/// A whole number beside a fraction: large ones do not fit into a fraction as they are.
#[expect(clippy::cast_possible_truncation, reason = "what does not fit was answered before")]
fn compare_exactly(whole: i64, other: f64) -> Option<Ordering> {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    match other {
        _ if other.is_nan() => None,
        _ if other >= BEYOND => Some(Ordering::Less),
        _ if other < -BEYOND => Some(Ordering::Greater),
        _ => {
            let floor = other.floor();
            let order = whole.cmp(&(floor as i64));
            Some(if order.is_eq() && other > floor { Ordering::Less } else { order })
        }
    }
}

fn text(value: Value<'_>) -> Option<&str> {
    match value {
        Value::Text(text) | Value::Header(text) => Some(text),
        _ => None,
    }
}

//! From a text to a program: operators wait on a stack until one that binds less strongly comes (no recursion).

use super::lexer::{Kind, Lexer, Sign, Token, Word};
use super::like::Pattern;
use super::{Arithmetic, Comparison, Literal, Op};

/// What is wrong, and at which byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// What a part of the expression can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// True, false or unknown.
    Condition,
    /// TRUE or FALSE: a condition and a value.
    Bool,
    Number,
    Text,
    /// A header: anything.
    Any,
}

#[derive(Clone, Copy, Debug)]
struct Operand {
    sort: Sort,
    at: usize,
}

/// An operator whose right operand is not complete.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pending {
    Open,
    Or,
    And,
    Not,
    Compare(Comparison),
    /// Its AND has not come.
    BetweenLow {
        negated: bool,
    },
    BetweenHigh {
        negated: bool,
    },
    Arithmetic(Arithmetic),
    Negate,
    Plus,
}

impl Pending {
    /// How strongly it binds.
    fn strength(self) -> u8 {
        match self {
            Pending::Open => 0,
            Pending::Or => 1,
            Pending::And => 2,
            Pending::Not => 3,
            Pending::Compare(_) | Pending::BetweenLow { .. } | Pending::BetweenHigh { .. } => COMPARISON,
            Pending::Arithmetic(Arithmetic::Add | Arithmetic::Subtract) => 5,
            Pending::Arithmetic(_) => 6,
            Pending::Negate | Pending::Plus => 7,
        }
    }
}

/// Strength of comparisons and of what stands in their place.
const COMPARISON: u8 = 4;

const NOT_A_CONDITION: &str = "a condition is expected, and this is none";
const NOT_A_VALUE: &str = "a value is expected, and this is a condition";
const NOT_A_NUMBER: &str = "a number or a header is expected";

pub(super) fn parse(text: &str) -> Result<Box<[Op]>, Fault> {
    let mut parser = Parser { lexer: Lexer::new(text), ..Parser::default() };
    loop {
        parser.operand()?;
        if !parser.operator()? {
            break;
        }
    }
    Ok(parser.program.into())
}

#[derive(Debug)]
struct Parser<'a> {
    lexer: Lexer<'a>,
    program: Vec<Op>,
    /// What the program leaves on its stack so far.
    operands: Vec<Operand>,
    /// Operators that wait, and where they stand.
    pending: Vec<(Pending, usize)>,
}

impl Default for Parser<'_> {
    fn default() -> Self {
        Self { lexer: Lexer::new(""), program: vec![], operands: vec![], pending: vec![] }
    }
}

impl Parser<'_> {
    /// Takes signs, NOT and parentheses before an operand, and the operand.
    fn operand(&mut self) -> Result<(), Fault> {
        loop {
            let Token { at, kind } = self.lexer.next()?;
            let (op, sort) = match kind {
                Kind::Word(Word::Not) => {
                    self.pending.push((Pending::Not, at));
                    continue;
                }
                Kind::Sign(Sign::Minus) => {
                    self.pending.push((Pending::Negate, at));
                    continue;
                }
                Kind::Sign(Sign::Plus) => {
                    self.pending.push((Pending::Plus, at));
                    continue;
                }
                Kind::Sign(Sign::Open) => {
                    self.pending.push((Pending::Open, at));
                    continue;
                }
                Kind::Name(name) => (Op::Field(name), Sort::Any),
                Kind::Text(text) => (Op::Text(text), Sort::Text),
                Kind::Int(number) => (Op::Int(number), Sort::Number),
                Kind::Float(number) => (Op::Float(number), Sort::Number),
                Kind::Word(Word::True) => (Op::Bool(true), Sort::Bool),
                Kind::Word(Word::False) => (Op::Bool(false), Sort::Bool),
                Kind::Word(Word::Null) => return Err(Fault { at, what: "NULL is asked for with IS NULL" }),
                Kind::End if self.program.is_empty() && self.pending.is_empty() => {
                    return Err(Fault { at, what: "the selector is empty" });
                }
                Kind::End => return Err(Fault { at, what: "the selector ends where a value is expected" }),
                Kind::Word(_) | Kind::Sign(_) => {
                    return Err(Fault { at, what: "a value is expected here" });
                }
            };
            self.program.push(op);
            self.operands.push(Operand { sort, at });
            return Ok(());
        }
    }

    /// Takes what stands behind an operand up to an operator that wants another one; `false` at the end.
    fn operator(&mut self) -> Result<bool, Fault> {
        loop {
            let Token { at, kind } = self.lexer.next()?;
            match kind {
                Kind::End => {
                    self.finish()?;
                    return Ok(false);
                }
                Kind::Sign(Sign::Close) => self.close(at)?,
                Kind::Sign(sign) => {
                    let operator = binary(sign).ok_or(Fault { at, what: "an operator is expected here" })?;
                    self.push(operator, at)?;
                    return Ok(true);
                }
                Kind::Word(Word::Or) => {
                    self.push(Pending::Or, at)?;
                    return Ok(true);
                }
                Kind::Word(Word::And) => {
                    self.and(at)?;
                    return Ok(true);
                }
                Kind::Word(Word::Between) => {
                    self.push(Pending::BetweenLow { negated: false }, at)?;
                    return Ok(true);
                }
                Kind::Word(Word::Not) => {
                    if self.negated_predicate()? {
                        return Ok(true);
                    }
                }
                Kind::Word(Word::In) => self.in_list(false, at)?,
                Kind::Word(Word::Like) => self.like(false, at)?,
                Kind::Word(Word::Is) => self.is_null(at)?,
                _ => return Err(Fault { at, what: "an operator is expected here" }),
            }
        }
    }

    /// `NOT BETWEEN`, `NOT IN`, `NOT LIKE`; `true`: another operand follows.
    fn negated_predicate(&mut self) -> Result<bool, Fault> {
        let Token { at, kind } = self.lexer.next()?;
        match kind {
            Kind::Word(Word::Between) => {
                self.push(Pending::BetweenLow { negated: true }, at)?;
                Ok(true)
            }
            Kind::Word(Word::In) => self.in_list(true, at).map(|()| false),
            Kind::Word(Word::Like) => self.like(true, at).map(|()| false),
            _ => Err(Fault { at, what: "BETWEEN, IN or LIKE is expected after NOT" }),
        }
    }

    /// Carries out the operators that bind at least as strongly as `strength`.
    fn reduce(&mut self, strength: u8) -> Result<(), Fault> {
        while let Some((pending, at)) = self.pending.pop_if(|(top, _)| top.strength() >= strength.max(1)) {
            self.apply(pending, at)?;
        }
        Ok(())
    }

    fn push(&mut self, operator: Pending, at: usize) -> Result<(), Fault> {
        self.reduce(operator.strength())?;
        self.pending.push((operator, at));
        Ok(())
    }

    /// The AND of a BETWEEN, or one between conditions.
    fn and(&mut self, at: usize) -> Result<(), Fault> {
        self.reduce(COMPARISON + 1)?;
        if let Some((top, _)) = self.pending.last_mut()
            && let Pending::BetweenLow { negated } = *top
        {
            *top = Pending::BetweenHigh { negated };
            return Ok(());
        }
        self.push(Pending::And, at)
    }

    fn close(&mut self, at: usize) -> Result<(), Fault> {
        self.reduce(1)?;
        match self.pending.pop() {
            Some((Pending::Open, _)) => Ok(()),
            _ => Err(Fault { at, what: "there is no ( to this )" }),
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.reduce(1)?;
        if let Some((_, at)) = self.pending.pop() {
            return Err(Fault { at, what: "there is no ) to this (" });
        }
        let whole = self.pop_operand();
        condition(whole)
    }

    fn pop_operand(&mut self) -> Operand {
        self.operands.pop().expect("operands and operators alternate")
    }

    /// The operator has its operands: its step joins the program.
    fn apply(&mut self, pending: Pending, at: usize) -> Result<(), Fault> {
        let right = self.pop_operand();
        let (op, sort) = match pending {
            Pending::Open => return Err(Fault { at, what: "there is no ) to this (" }),
            Pending::BetweenLow { .. } => return Err(Fault { at, what: "BETWEEN needs an AND" }),
            Pending::Not => {
                condition(right)?;
                (Op::Not, Sort::Condition)
            }
            Pending::Or | Pending::And => {
                condition(self.pop_operand())?;
                condition(right)?;
                (if pending == Pending::Or { Op::Or } else { Op::And }, Sort::Condition)
            }
            Pending::Negate | Pending::Plus => {
                numeric(right)?;
                (if pending == Pending::Negate { Op::Negate } else { Op::Plus }, Sort::Number)
            }
            Pending::Arithmetic(operator) => {
                numeric(self.pop_operand())?;
                numeric(right)?;
                (Op::Arithmetic(operator), Sort::Number)
            }
            Pending::Compare(comparison) => {
                let left = self.pop_operand();
                comparable(comparison, left)?;
                comparable(comparison, right)?;
                (Op::Compare(comparison), Sort::Condition)
            }
            Pending::BetweenHigh { negated } => {
                let (low, value) = (self.pop_operand(), self.pop_operand());
                for operand in [value, low, right] {
                    comparable(Comparison::Less, operand)?;
                }
                (Op::Between { negated }, Sort::Condition)
            }
        };
        let at =
            if matches!(pending, Pending::Not | Pending::Negate | Pending::Plus) { at } else { right.at };
        self.program.push(op);
        self.operands.push(Operand { sort, at });
        Ok(())
    }

    /// The value before a predicate of words is complete.
    fn predicate_of(&mut self) -> Result<Operand, Fault> {
        self.reduce(COMPARISON)?;
        let operand = self.pop_operand();
        value(operand)?;
        Ok(operand)
    }

    fn predicate(&mut self, op: Op, at: usize) {
        self.program.push(op);
        self.operands.push(Operand { sort: Sort::Condition, at });
    }

    fn is_null(&mut self, at: usize) -> Result<(), Fault> {
        self.predicate_of()?;
        let mut token = self.lexer.next()?;
        let negated = token.kind == Kind::Word(Word::Not);
        if negated {
            token = self.lexer.next()?;
        }
        if token.kind != Kind::Word(Word::Null) {
            return Err(Fault { at: token.at, what: "NULL is expected after IS" });
        }
        self.predicate(Op::IsNull { negated }, at);
        Ok(())
    }

    fn like(&mut self, negated: bool, at: usize) -> Result<(), Fault> {
        let operand = self.predicate_of()?;
        if !matches!(operand.sort, Sort::Any | Sort::Text) {
            return Err(Fault { at: operand.at, what: "LIKE is asked of a text or a header" });
        }
        let Token { at: pattern_at, kind: Kind::Text(text) } = self.lexer.next()? else {
            return Err(Fault { at, what: "LIKE needs a pattern in '...'" });
        };
        let escape = match self.lexer.take_word(Word::Escape)? {
            Some(at) => Some(self.escape(at)?),
            None => None,
        };
        let pattern = Pattern::parse(&text, escape).map_err(|what| Fault { at: pattern_at, what })?;
        self.predicate(Op::Like { negated, pattern }, at);
        Ok(())
    }

    fn escape(&mut self, at: usize) -> Result<char, Fault> {
        let fault = Fault { at, what: "ESCAPE needs one character in '...'" };
        let Token { kind: Kind::Text(text), .. } = self.lexer.next()? else { return Err(fault) };
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(c),
            _ => Err(fault),
        }
    }

    fn in_list(&mut self, negated: bool, at: usize) -> Result<(), Fault> {
        self.predicate_of()?;
        let open = self.lexer.next()?;
        if open.kind != Kind::Sign(Sign::Open) {
            return Err(Fault { at: open.at, what: "IN needs a list in parentheses" });
        }
        let mut list = Vec::new();
        loop {
            list.push(self.literal()?);
            let Token { at, kind } = self.lexer.next()?;
            match kind {
                Kind::Sign(Sign::Comma) => {}
                Kind::Sign(Sign::Close) => break,
                _ => return Err(Fault { at, what: ", or ) is expected in a list" }),
            }
        }
        self.predicate(Op::In { negated, list: list.into() }, at);
        Ok(())
    }

    fn literal(&mut self) -> Result<Literal, Fault> {
        let mut token = self.lexer.next()?;
        let negative = token.kind == Kind::Sign(Sign::Minus);
        if negative || token.kind == Kind::Sign(Sign::Plus) {
            token = self.lexer.next()?;
            return match token.kind {
                Kind::Int(number) => Ok(Literal::Int(if negative { -number } else { number })),
                Kind::Float(number) => Ok(Literal::Float(if negative { -number } else { number })),
                _ => Err(Fault { at: token.at, what: "a number is expected after a sign" }),
            };
        }
        match token.kind {
            Kind::Text(text) => Ok(Literal::Text(text)),
            Kind::Int(number) => Ok(Literal::Int(number)),
            Kind::Float(number) => Ok(Literal::Float(number)),
            Kind::Word(Word::True) => Ok(Literal::Bool(true)),
            Kind::Word(Word::False) => Ok(Literal::Bool(false)),
            _ => Err(Fault { at: token.at, what: "a list holds texts, numbers, TRUE and FALSE" }),
        }
    }
}

fn binary(sign: Sign) -> Option<Pending> {
    Some(match sign {
        Sign::Equal => Pending::Compare(Comparison::Equal),
        Sign::Unequal => Pending::Compare(Comparison::Unequal),
        Sign::Less => Pending::Compare(Comparison::Less),
        Sign::LessOrEqual => Pending::Compare(Comparison::LessOrEqual),
        Sign::Greater => Pending::Compare(Comparison::Greater),
        Sign::GreaterOrEqual => Pending::Compare(Comparison::GreaterOrEqual),
        Sign::Plus => Pending::Arithmetic(Arithmetic::Add),
        Sign::Minus => Pending::Arithmetic(Arithmetic::Subtract),
        Sign::Times => Pending::Arithmetic(Arithmetic::Multiply),
        Sign::Over => Pending::Arithmetic(Arithmetic::Divide),
        Sign::Open | Sign::Close | Sign::Comma => return None,
    })
}

fn condition(operand: Operand) -> Result<(), Fault> {
    match operand.sort {
        Sort::Condition | Sort::Bool | Sort::Any => Ok(()),
        Sort::Number | Sort::Text => Err(Fault { at: operand.at, what: NOT_A_CONDITION }),
    }
}

fn value(operand: Operand) -> Result<(), Fault> {
    match operand.sort {
        Sort::Condition => Err(Fault { at: operand.at, what: NOT_A_VALUE }),
        _ => Ok(()),
    }
}

fn numeric(operand: Operand) -> Result<(), Fault> {
    match operand.sort {
        Sort::Number | Sort::Any => Ok(()),
        _ => Err(Fault { at: operand.at, what: NOT_A_NUMBER }),
    }
}

fn comparable(comparison: Comparison, operand: Operand) -> Result<(), Fault> {
    value(operand)?;
    let ordering = !matches!(comparison, Comparison::Equal | Comparison::Unequal);
    if ordering && operand.sort == Sort::Bool {
        return Err(Fault { at: operand.at, what: "TRUE and FALSE have no order" });
    }
    Ok(())
}

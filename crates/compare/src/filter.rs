//! Expressions that pick measurements: `/format:json -goos:plan9
//! .unit:(ns/op OR B/op) name:/^Sort/`.
//!
//! The language is that of Go's tools
//! (`golang.org/x/perf/benchproc/syntax`): `key:value`, `key:"quoted"`,
//! `key:/regular expression/`, `key:(a OR b)`, `*`, `-x`, `x AND y`, `x y`,
//! `x OR y`, parentheses.

use regex_lite::Regex;

/// A filter that can be asked about labels.
#[derive(Debug, Clone)]
pub struct Filter {
    root: Expression,
}

#[derive(Debug, Clone)]
enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Match { key: String, value: Pattern },
}

#[derive(Debug, Clone)]
enum Pattern {
    Text(String),
    Regex(Regex),
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Text(wanted) => wanted == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

/// Error type for [`Filter::parse`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Filter {text:?}, at {at}: {message}")]
pub struct FilterError {
    text: String,
    /// Characters before the place, from 1.
    at: usize,
    message: String,
}

/// A value of a key that a measurement has; one key may have several names for
/// it (a unit as it was written and as it is shown).
pub(crate) type Lookup<'a> = dyn Fn(&str, &mut dyn FnMut(&str) -> bool) -> bool + 'a;

impl Filter {
    /// Reads a filter expression.
    ///
    /// # Errors
    /// [`FilterError`] names the place and what is expected there.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut parser = FilterParser { text, at: 0 };
        let root = parser.any()?;
        match parser.token(false)? {
            FilterToken::End => Ok(Self { root }),
            other => Err(parser.error(format!("unexpected {}", other.show()))),
        }
    }

    /// `lookup` calls its closure with each value of a key (with an empty one
    /// if there is none) and returns whether one of the calls did.
    pub(crate) fn matches(&self, lookup: &Lookup<'_>) -> bool {
        self.root.matches(lookup)
    }
}

impl Expression {
    fn matches(&self, lookup: &Lookup<'_>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(lookup)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(lookup)),
            Self::Not(part) => !part.matches(lookup),
            Self::Match { key, value } => lookup(key, &mut |text| value.matches(text)),
        }
    }
}

#[derive(Debug, Clone)]
enum FilterToken {
    Operator(char),
    Word(String),
    Regex(Regex),
    And,
    Or,
    End,
}

impl FilterToken {
    fn show(&self) -> String {
        match self {
            Self::Operator(operator) => format!("{operator:?}"),
            Self::Word(word) => format!("{word:?}"),
            Self::Regex(regex) => format!("/{}/", regex.as_str()),
            Self::And => "AND".to_owned(),
            Self::Or => "OR".to_owned(),
            Self::End => "end".to_owned(),
        }
    }
}

struct FilterParser<'a> {
    text: &'a str,
    at: usize,
}

impl FilterParser<'_> {
    fn error(&self, message: impl Into<String>) -> FilterError {
        FilterError {
            text: self.text.to_owned(),
            at: self.text[..self.at].chars().count() + 1,
            message: message.into(),
        }
    }

    fn peek(&mut self, value: bool) -> Result<FilterToken, FilterError> {
        let at = self.at;
        let token = self.token(value);
        self.at = at;
        token
    }

    /// The next token; `value` says that a `/` begins a regular expression.
    fn token(&mut self, value: bool) -> Result<FilterToken, FilterError> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        let Some(first) = rest.chars().next() else { return Ok(FilterToken::End) };
        match first {
            '(' | ')' | ':' | '@' | ',' | '-' | '*' => {
                self.at += 1;
                Ok(FilterToken::Operator(first))
            }
            '"' => self.quoted(),
            '/' if value => self.regex(),
            _ => {
                let ends = |c: char| c.is_whitespace() || "():@,".contains(c);
                let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
                self.at += word.len();
                Ok(match word {
                    "AND" => FilterToken::And,
                    "OR" => FilterToken::Or,
                    word => FilterToken::Word(word.to_owned()),
                })
            }
        }
    }

    /// A quoted word; JSON's escapes are those of Go that people use.
    fn quoted(&mut self) -> Result<FilterToken, FilterError> {
        let rest = &self.text[self.at..];
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return Err(self.error("missing end quote")) };
        let word =
            serde_json::from_str(&rest[..=end]).map_err(|_| self.error("bad escape sequence"))?;
        self.at += end + 1;
        Ok(FilterToken::Word(word))
    }

    fn regex(&mut self) -> Result<FilterToken, FilterError> {
        let rest = &self.text[self.at + 1..];
        let (mut escaped, mut class, mut depth) = (false, false, 0);
        let end = rest.char_indices().find(|(_, c)| {
            if std::mem::take(&mut escaped) {
                return false;
            }
            match c {
                '\\' => escaped = true,
                '[' => class = true,
                ']' => class = false,
                '(' if !class => depth += 1,
                ')' if !class => depth -= 1,
                '/' => return !class && depth == 0,
                _ => {}
            }
            false
        });
        let Some((end, _)) = end else { return Err(self.error("missing close \"/\"")) };
        let regex = Regex::new(&rest[..end]).map_err(|error| self.error(error.to_string()))?;
        self.at += end + 2;
        let next = self.text[self.at..].chars().next();
        if next.is_some_and(|c| !c.is_whitespace() && !"():@,-*".contains(c)) {
            let message =
                "a regular expression must be followed by space or an operator (unescaped \"/\"?)";
            return Err(self.error(message));
        }
        Ok(FilterToken::Regex(regex))
    }

    fn any(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.all()?];
        while matches!(self.peek(false)?, FilterToken::Or) {
            self.token(false)?;
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.one()?];
        loop {
            match self.peek(false)? {
                FilterToken::And => drop(self.token(false)?),
                FilterToken::Operator('(' | '-' | '*') | FilterToken::Word(_) => {
                    parts.push(self.one()?)
                }
                FilterToken::Operator(')') | FilterToken::Or | FilterToken::End => break,
                other => return Err(self.error(format!("unexpected {}", other.show()))),
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn one(&mut self) -> Result<Expression, FilterError> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.len() - rest.trim_start().len();
        match self.token(false)? {
            FilterToken::Operator('(') => {
                let inner = self.any()?;
                match self.token(false)? {
                    FilterToken::Operator(')') => Ok(inner),
                    _ => Err(self.error("missing \")\"")),
                }
            }
            FilterToken::Operator('-') => Ok(Expression::Not(Box::new(self.one()?))),
            FilterToken::Operator('*') => Ok(Expression::All(Vec::new())),
            FilterToken::Word(key) => {
                if !matches!(self.token(false)?, FilterToken::Operator(':')) {
                    self.at = start;
                    return Err(self.error("expected key:value"));
                }
                if key == ".config" {
                    self.at = start;
                    return Err(self.error(".config is no single key: name one"));
                }
                self.values(key)
            }
            _ => {
                self.at = start;
                Err(self.error("expected key:value or a subexpression"))
            }
        }
    }

    fn values(&mut self, key: String) -> Result<Expression, FilterError> {
        let one = |value: FilterToken, key: &str| match value {
            FilterToken::Word(word) => {
                Some(Expression::Match { key: key.to_owned(), value: Pattern::Text(word) })
            }
            FilterToken::Regex(regex) => {
                Some(Expression::Match { key: key.to_owned(), value: Pattern::Regex(regex) })
            }
            _ => None,
        };
        let value = self.token(true)?;
        if !matches!(value, FilterToken::Operator('(')) {
            return one(value, &key).ok_or_else(|| self.error("expected key:value"));
        }
        let mut parts = Vec::new();
        loop {
            let value = self.token(true)?;
            parts.push(one(value, &key).ok_or_else(|| self.error("expected a value"))?);
            match self.token(true)? {
                FilterToken::Operator(')') => return Ok(Expression::Any(parts)),
                FilterToken::Or => {}
                _ => return Err(self.error("values in a list are separated by OR")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str) -> bool {
        let labels = [("a", "1"), ("b", "x y"), (".unit", "ns/op"), (".unit", "sec/op")];
        let lookup = |key: &str, check: &mut dyn FnMut(&str) -> bool| {
            let mut found = labels.iter().filter(|(known, _)| *known == key).peekable();
            if found.peek().is_none() {
                return check("");
            }
            found.any(|(_, value)| check(value))
        };
        Filter::parse(filter).unwrap().matches(&lookup)
    }

    #[test]
    fn expressions_mean_what_go_s_tools_mean() {
        for yes in [
            "*",
            "a:1",
            "a:1 b:\"x y\"",
            "a:1 AND b:/^x/",
            "a:2 OR b:/y$/",
            "-a:2",
            "a:(2 OR 1)",
            "(a:2 OR a:1) -b:z",
            ".unit:ns/op",
            ".unit:sec/op",
            "c:\"\"",
            "b:/x [a-z\\/]/",
        ] {
            assert!(matches(yes), "{yes}");
        }
        for no in ["a:2", "-*", "a:1 b:x", "-(a:1 OR a:2)", "a:/[/]/", "c:/./"] {
            assert!(!matches(no), "{no}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let check = |text: &str, at: usize, message: &str| {
            let error = Filter::parse(text).unwrap_err();
            assert_eq!((error.at, error.message.as_str()), (at, message), "{text}");
        };
        check("", 1, "expected key:value or a subexpression");
        check("a", 1, "expected key:value");
        check("a:1 b", 5, "expected key:value");
        check("(a:1", 5, "missing \")\"");
        check("a:\"x", 3, "missing end quote");
        check("a:/x", 3, "missing close \"/\"");
        check("a:(1 2)", 7, "values in a list are separated by OR");
        check("a:1 ) b:2", 6, "unexpected ')'");
    }
}

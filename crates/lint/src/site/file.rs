//! Rules files: TOML in, rules and levels out, or all that is wrong with it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::condition::{Condition, MAX_BYTES};
use super::glob;
use super::types::{self, Type};
use super::view::VERSION;
use crate::finding::Severity;
use crate::{RULES, find};
use topology::bounded;
use vmconfig::source::SourceText;

/// Bytes of a rules file.
const MAX_FILE_BYTES: usize = 4 << 20;

/// One thing that is wrong with a rules file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct BadRules {
    /// Its name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// A rules file that can be applied.
#[derive(Debug)]
pub struct SiteRules {
    /// Its name.
    pub file: String,
    /// Its own rules.
    pub rules: Vec<SiteRule>,
    pub(crate) levels: Vec<LevelChange>,
    /// The regular expressions of all conditions.
    pub(crate) patterns: Arc<HashMap<String, Regex>>,
}

/// A rule of a site's own.
#[derive(Debug)]
pub struct SiteRule {
    /// Its id, which no built-in rule has.
    pub id: String,
    /// How bad its findings are.
    pub severity: Severity,
    /// What is wrong, in one line.
    pub text: String,
    /// Why that matters; empty if it doesn't say.
    pub why: String,
    /// What to do.
    pub help: String,
    /// Where it stands.
    pub file: String,
    /// Its line there, from 1.
    pub line: usize,
    pub(crate) each: Option<String>,
    pub(crate) when: String,
    pub(crate) condition: Condition,
    pub(crate) examples: Vec<SiteExample>,
}

/// A configuration that shows a site's rule.
#[derive(Debug)]
pub(crate) struct SiteExample {
    pub(crate) bad: bool,
    pub(crate) text: String,
    /// The line where it begins, from 1.
    pub(crate) line: usize,
}

/// What becomes of a rule's findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RuleLevel {
    /// They are suppressed.
    Allow,
    /// They are warnings.
    Warn,
    /// They are errors.
    Deny,
}

/// Another level for some findings.
#[derive(Debug)]
pub(crate) struct LevelChange {
    pub(crate) rule: String,
    pub(crate) level: RuleLevel,
    pub(crate) files: Vec<String>,
    pub(crate) vms: Vec<String>,
    pub(crate) reason: String,
}

/// A rules file as TOML says it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RulesDocument {
    #[schemars(with = "u32")]
    vmlab: Spanned<u32>,
    #[serde(default)]
    rule: Vec<RuleText>,
    #[serde(default)]
    level: Vec<LevelText>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[schemars(with = "String")]
    id: Spanned<String>,
    severity: Severity,
    #[schemars(with = "String")]
    text: Spanned<String>,
    why: Option<String>,
    #[schemars(with = "String")]
    help: Spanned<String>,
    #[schemars(with = "Option<String>")]
    each: Option<Spanned<String>>,
    #[schemars(with = "String")]
    when: Spanned<String>,
    #[serde(default)]
    example: Vec<ExampleText>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExampleText {
    #[schemars(with = "Option<String>")]
    bad: Option<Spanned<String>>,
    #[schemars(with = "Option<String>")]
    good: Option<Spanned<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LevelText {
    #[schemars(with = "String")]
    rule: Spanned<String>,
    #[schemars(with = "RuleLevel")]
    level: Spanned<RuleLevel>,
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    files: Vec<Spanned<String>>,
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    vms: Vec<Spanned<String>>,
    #[schemars(with = "Option<String>")]
    reason: Option<Spanned<String>>,
}

impl SiteRules {
    /// Reads a rules file; `file` names it in errors, `others` are those that hold
    /// beside it.
    ///
    /// # Errors
    /// All that is wrong with it, by line: nothing is linted by half a file.
    pub fn read(file: &str, text: &str, others: &[&SiteRules]) -> Result<Self, Vec<BadRules>> {
        let bad = |line: usize, what: String| BadRules { file: file.to_owned(), line, what };
        if text.len() > MAX_FILE_BYTES {
            return Err(vec![bad(1, format!("The text is longer than {MAX_FILE_BYTES} bytes"))]);
        }
        let source = SourceText::new(text);
        let line_of = |span: Range<usize>| source.place(span.into()).line;
        let document: RulesDocument = bounded::toml(file, text).map_err(|found| {
            let each = found.problems.into_iter();
            each.map(|problem| bad(problem.line, problem.message)).collect::<Vec<_>>()
        })?;
        let mut reader = SiteFileReader { file, source: &source, bad: Vec::new() };
        if *document.vmlab.get_ref() != VERSION {
            let version = document.vmlab.get_ref();
            let what =
                format!("vmlab = {version}: this vmlab reads version {VERSION}: use a newer vmlab");
            reader.wrong(document.vmlab.span(), what);
        }
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
        for rule in others.iter().flat_map(|other| &other.rules) {
            ids.insert(rule.id.clone(), format!("{}:{}", rule.file, rule.line));
        }
        let mut rules = Vec::new();
        for rule in document.rule {
            let (id, span) = (rule.id.get_ref().clone(), rule.id.span());
            if let Some(there) = ids.get(&id) {
                reader.wrong(span, format!("rule {id:?} is there already: {there}"));
                continue;
            }
            ids.insert(id, format!("{file}:{}", line_of(span)));
            rules.extend(reader.rule(rule));
        }
        let known: Vec<&str> = ids.keys().map(String::as_str).collect();
        let levels = document.level.into_iter();
        let levels = levels.filter_map(|level| reader.level(level, &known)).collect();
        match reader.bad.is_empty() {
            true => {
                let patterns = rules
                    .iter_mut()
                    .flat_map(|rule: &mut SiteRule| std::mem::take(&mut rule.condition.patterns))
                    .collect();
                Ok(Self { file: file.to_owned(), rules, levels, patterns: Arc::new(patterns) })
            }
            false => {
                reader.bad.sort_by_key(|bad| bad.line);
                Err(reader.bad)
            }
        }
    }
}

struct SiteFileReader<'a> {
    file: &'a str,
    source: &'a SourceText<'a>,
    bad: Vec<BadRules>,
}

impl SiteFileReader<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        self.source.place(span.into()).line
    }

    fn wrong(&mut self, span: Range<usize>, what: String) {
        let line = self.line(span);
        self.bad.push(BadRules { file: self.file.to_owned(), line, what });
    }

    /// The line where the text of a value begins: that of `'''` holds none of it.
    fn text_line(&self, span: Range<usize>) -> usize {
        let line = self.line(span.clone());
        let written = self.source.text.get(span).unwrap_or_default();
        let lead = ["'''\n", "\"\"\"\n", "'''\r\n", "\"\"\"\r\n"];
        line + usize::from(lead.iter().any(|lead| written.starts_with(lead)))
    }

    fn rule(&mut self, rule: RuleText) -> Option<SiteRule> {
        let before = self.bad.len();
        let id = rule.id.get_ref();
        let letter =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if id.is_empty() || id.len() > 64 || !id.chars().all(letter) {
            let what = format!("id {id:?}: write small letters, digits and `-`, up to 64");
            self.wrong(rule.id.span(), what);
        } else if RULES.iter().any(|built_in| built_in.id == id) {
            let what =
                format!("id {id:?} is that of a built-in rule: change its [[level]] instead");
            self.wrong(rule.id.span(), what);
        }
        for (name, text) in [("text", &rule.text), ("help", &rule.help)] {
            if text.get_ref().trim().is_empty() {
                self.wrong(text.span(), format!("rule {id:?}: {name} is empty"));
            }
        }
        if let Some(each) = &rule.each {
            let looped = matches!(
                types::of_path(each.get_ref()),
                Some(Type::Any | Type::List(_) | Type::Map(_))
            );
            if !looped {
                let what = format!(
                    "rule {id:?}: each {:?} is no list or map of the view: `vm.disks`, `vm.nics`...",
                    each.get_ref()
                );
                self.wrong(each.span(), what);
            }
        }
        let each = rule.each.as_ref().map(|each| each.get_ref().as_str());
        let condition = match Condition::read(rule.when.get_ref(), each) {
            Ok(condition) => Some(condition),
            Err(wrong) => {
                let line = self.text_line(rule.when.span()) + wrong.line - 1;
                let what = match wrong.line {
                    0 | 1 => format!("rule {id:?}: when, column {}: {}", wrong.column, wrong.what),
                    line => format!(
                        "rule {id:?}: when, line {line}, column {}: {}",
                        wrong.column, wrong.what
                    ),
                };
                // A text with escapes has fewer lines than its value.
                let line = line.min(self.line(rule.when.span().end..rule.when.span().end));
                self.bad.push(BadRules { file: self.file.to_owned(), line, what });
                None
            }
        };
        let mut examples = Vec::new();
        for example in rule.example {
            let said = match (example.bad, example.good) {
                (Some(bad), None) => (true, bad),
                (None, Some(good)) => (false, good),
                _ => {
                    let what = format!("rule {id:?}: an example has either `bad` or `good`");
                    self.wrong(rule.id.span(), what);
                    continue;
                }
            };
            let line = self.text_line(said.1.span());
            examples.push(SiteExample { bad: said.0, line, text: said.1.into_inner() });
        }
        let line = self.line(rule.id.span());
        (self.bad.len() == before).then_some(())?;
        Some(SiteRule {
            id: rule.id.into_inner(),
            severity: rule.severity,
            text: rule.text.into_inner().trim().to_owned(),
            why: rule.why.unwrap_or_default().trim().to_owned(),
            help: rule.help.into_inner().trim().to_owned(),
            file: self.file.to_owned(),
            line,
            each: rule.each.map(Spanned::into_inner),
            when: rule.when.into_inner(),
            condition: condition?,
            examples,
        })
    }

    fn level(&mut self, level: LevelText, known: &[&str]) -> Option<LevelChange> {
        let id = level.rule.get_ref();
        if id != "*"
            && !known.contains(&id.as_str())
            && let Err(unknown) = find(id)
        {
            self.wrong(level.rule.span(), unknown.to_string());
            return None;
        }
        let reason = level.reason.map(Spanned::into_inner).unwrap_or_default().trim().to_owned();
        if *level.level.get_ref() == RuleLevel::Allow && reason.is_empty() {
            self.wrong(level.level.span(), format!("allowing {id:?} needs a reason"));
            return None;
        }
        for pattern in level.files.iter().chain(&level.vms) {
            if let Err(what) = glob::check(pattern.get_ref()) {
                self.wrong(pattern.span(), format!("{:?}: {what}", pattern.get_ref()));
            }
        }
        let texts = |all: Vec<Spanned<String>>| all.into_iter().map(Spanned::into_inner).collect();
        Some(LevelChange {
            rule: level.rule.into_inner(),
            level: level.level.into_inner(),
            files: texts(level.files),
            vms: texts(level.vms),
            reason,
        })
    }
}

// The text of a condition fits into a file.
const _: () = assert!(MAX_BYTES < MAX_FILE_BYTES);

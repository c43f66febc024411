//! The rules files of `vmlab lint`: those that are named, and the `.vmlab-lint.toml`
//! next above each file.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context as _, bail};
use lint::output::RulesFileUse;
use lint::site::{self, SiteRule, SiteRules, SuppressedFinding};
use lint::{Context, Finding};

use crate::input;

/// Looked for in the folder of each linted file and those above it.
const NAME: &str = ".vmlab-lint.toml";
/// What marks the top folder of a repository.
const REPOSITORY: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// A rules file in its folder.
struct LoadedRules {
    rules: SiteRules,
    /// Absolute.
    path: PathBuf,
}

impl LoadedRules {
    /// Patterns of files are below it.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// All rules files that hold for what is linted.
#[derive(Default)]
pub(crate) struct OwnRules {
    /// Those found first: what `--rules` names has the last word.
    all: Vec<LoadedRules>,
    /// By the name of an input which of them hold for it, and its path below the
    /// folder of each.
    of_input: HashMap<String, Vec<(usize, String)>>,
}

impl OwnRules {
    /// Reads the files of `--rules`, and above each input the nearest
    /// `.vmlab-lint.toml`, if those are wanted.
    ///
    /// # Errors
    /// A file that can't be read or is wrong, with all its lines.
    pub(crate) fn load<'a>(
        named: &[PathBuf],
        look_above: bool,
        inputs: impl Iterator<Item = (&'a str, Option<&'a Path>)>,
    ) -> anyhow::Result<Self> {
        let mut own = Self::default();
        for path in named {
            own.add(path)?;
        }
        let numbers: Vec<usize> = (0..own.all.len()).collect();
        let mut nearest: HashMap<PathBuf, Option<usize>> = HashMap::new();
        for (name, path) in inputs {
            let path = match path {
                Some(path) => absolute(path).with_context(|| format!("Cannot find {name}"))?,
                None => std::env::current_dir()?.join(name),
            };
            let above = match path.parent().filter(|_| look_above) {
                Some(folder) => own.above(folder, &mut nearest, numbers.len())?,
                None => None,
            };
            let hold = above.into_iter().chain(numbers.iter().copied());
            let sets =
                hold.map(|number| (number, below(own.all[number].folder(), &path))).collect();
            own.of_input.insert(name.to_owned(), sets);
        }
        Ok(own)
    }

    /// The rules file that holds for a folder: its own, or that of the next above.
    fn above(
        &mut self,
        folder: &Path,
        nearest: &mut HashMap<PathBuf, Option<usize>>,
        named: usize,
    ) -> anyhow::Result<Option<usize>> {
        let mut passed = Vec::new();
        let mut found = None;
        for folder in folder.ancestors() {
            if let Some(known) = nearest.get(folder) {
                found = *known;
                break;
            }
            passed.push(folder.to_owned());
            let file = folder.join(NAME);
            if file.is_file() {
                // It may be one that --rules names.
                let is_named = self.all[..named].iter().any(|one| one.path == file);
                found = if is_named { None } else { Some(self.add_beside(&file, named)?) };
                break;
            }
            if REPOSITORY.iter().any(|mark| folder.join(mark).exists()) {
                break;
            }
        }
        nearest.extend(passed.into_iter().map(|folder| (folder, found)));
        Ok(found)
    }

    fn add(&mut self, path: &Path) -> anyhow::Result<usize> {
        let others = self.all.len();
        self.add_beside(path, others)
    }

    /// Adds a file whose ids must differ from those of the first so many.
    fn add_beside(&mut self, path: &Path, others: usize) -> anyhow::Result<usize> {
        let name = shortest(path);
        let text = input::text(path).with_context(|| format!("Cannot read the rules in {name}"))?;
        let beside: Vec<&SiteRules> = self.all[..others].iter().map(|one| &one.rules).collect();
        let rules = match SiteRules::read(&name, &text, &beside) {
            Ok(rules) => rules,
            Err(bad) => {
                let lines: Vec<String> = bad.iter().map(ToString::to_string).collect();
                bail!("{} (nothing was linted)", lines.join("\n"));
            }
        };
        let path = absolute(path)?;
        self.all.push(LoadedRules { rules, path });
        Ok(self.all.len() - 1)
    }

    /// For what is not a file, a VM that runs, what holds for standard input does.
    fn held(&self, input: &str) -> &[(usize, String)] {
        let held = self.of_input.get(input).or_else(|| self.of_input.get("-"));
        held.map_or(&[], Vec::as_slice)
    }

    /// What holds for an input.
    pub(crate) fn of(&self, input: &str) -> Vec<&SiteRules> {
        self.held(input).iter().map(|(number, _)| &self.all[*number].rules).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<&SiteRules> {
        self.all.iter().map(|one| &one.rules).collect()
    }

    /// Findings at the levels that the files give them, and those that they suppress.
    pub(crate) fn settle(&self, findings: Vec<Finding>) -> (Vec<Finding>, Vec<SuppressedFinding>) {
        let (mut kept, mut suppressed) = (Vec::new(), Vec::new());
        for finding in findings {
            let sets: Vec<(&SiteRules, &str)> = self
                .held(&finding.file)
                .iter()
                .map(|(number, path)| (&self.all[*number].rules, path.as_str()))
                .collect();
            match site::settle(finding, &sets) {
                Ok(finding) => kept.push(finding),
                Err(one) => suppressed.push(*one),
            }
        }
        (kept, suppressed)
    }

    /// Each file with the number of inputs that it held for.
    pub(crate) fn used(&self) -> Vec<RulesFileUse<'_>> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, _) in self.of_input.values().flatten() {
            *counts.entry(*number).or_default() += 1;
        }
        let files = |number: usize| counts.get(&number).copied().unwrap_or(0);
        let all = self.all.iter().enumerate();
        all.map(|(number, one)| RulesFileUse {
            file: &one.rules.file,
            files: files(number),
            rules: &one.rules,
        })
        .collect()
    }

    /// The rule with this id.
    pub(crate) fn find(&self, id: &str) -> Option<&SiteRule> {
        self.all.iter().flat_map(|one| &one.rules.rules).find(|rule| rule.id == id)
    }

    /// Holds the rules to their examples: what is to be said, and whether all is well.
    pub(crate) fn check(&self, context: &Context) -> (String, bool) {
        let mut said = String::new();
        let mut well = true;
        for one in &self.all {
            let tried = site::try_examples(&one.rules, context);
            for example in &tried {
                if let Some(wrong) = &example.wrong {
                    well = false;
                    let (file, line, rule) = (&example.file, example.line, &example.rule);
                    let _ = writeln!(said, "{file}:{line}: {rule}: the example {wrong}");
                }
            }
            let right = tried.iter().filter(|example| example.wrong.is_none()).count();
            let bare = one
                .rules
                .rules
                .iter()
                .filter(|rule| !tried.iter().any(|example| example.rule == rule.id));
            let bare: Vec<&str> = bare.map(|rule| rule.id.as_str()).collect();
            let _ = writeln!(
                said,
                "{}: {}, {right} of {}{}",
                one.rules.file,
                match one.rules.rules.len() {
                    1 => "1 rule".to_owned(),
                    rules => format!("{rules} rules"),
                },
                match tried.len() {
                    1 => "1 example does what it says".to_owned(),
                    examples => format!("{examples} examples do what they say"),
                },
                match bare.as_slice() {
                    [] => String::new(),
                    bare => format!("; none for {}", bare.join(", ")),
                }
            );
        }
        (said, well)
    }
}

/// A path as people would write it: from here, if it is below.
fn shortest(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let short = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    short.as_deref().unwrap_or(path).display().to_string()
}

/// The path of a file below a folder; the whole path if it lies elsewhere.
fn below(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

//! `vmlab image render`: Containerfiles and manifests from one file of names, versions and
//! a tag.
//!
//! Only `${NAME}` is replaced: `$NAME` and `$(...)` are the shell's, in Containerfiles and
//! in what pods run. `$${NAME}` is `${NAME}` afterwards. Lines behind # are filled as well, but
//! what only they name is not used.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use vmconfig::{ImageReference, ImageReferenceError, check_image_tag};

use crate::{input, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab image render --env packaging/images/images.env --set TAG=1.2-0abc \\
      packaging/images/*.yaml --out manifests
  packaging/render manifests          the same of all that packaging/images has, with the
                                      commit's tag; it names the scripts that source the file

The file of names holds lines NAME=VALUE, in which ${NAME} stands for one from further up,
and comments behind #. Each name must be used somewhere, and each ${NAME} must be known:
a tag that is written into one file and forgotten in the next is what this is against.
TAG and ..._TAG must be tags, IMAGE and ..._IMAGE, and what stands behind `image:` and FROM,
names of images as registries take them.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RenderArgs {
    /// The templates: Containerfiles, manifests, any text with ${NAME}.
    #[arg(required = true, value_name = "TEMPLATE")]
    templates: Vec<PathBuf>,
    /// The file with the names.
    #[arg(long, value_name = "FILE")]
    env: PathBuf,
    /// A script that sources the file of names: the names that it uses need no template.
    #[arg(long, value_name = "SCRIPT")]
    used_by: Vec<PathBuf>,
    /// A name's value, instead of the file's or beside it.
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// The folder that gets a file for each template, made if it is not there; without it
    /// the text of one template is printed.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if !is_name(name) {
        return Err(format!("{name:?} is no name: capital letters, digits and _"));
    }
    if value.contains(['\n', '\r']) {
        return Err(format!("{name} has several lines"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

pub(super) fn run(args: &RenderArgs) -> anyhow::Result<ExitCode> {
    let mut names = RenderNames::read(&shown(&args.env), &text(&args.env)?, &args.set)?;
    let mut rendered: BTreeMap<String, String> = BTreeMap::new();
    for template in &args.templates {
        let name = template.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = names.fill(&shown(template), &text(template)?)?;
        if rendered.insert(name.clone(), text).is_some() {
            bail!("Two templates are called {name}: one would be written over the other");
        }
    }
    for script in &args.used_by {
        names.used_by(&text(script)?);
    }
    names.check_all_used()?;
    let Some(out) = &args.out else {
        if rendered.len() > 1 {
            bail!("{} templates need a folder: --out FOLDER", rendered.len());
        }
        rendered.values().try_for_each(|text| terminal::print(text))?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(out).with_context(|| format!("Cannot make {}", out.display()))?;
    for (name, text) in &rendered {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))?;
        terminal::print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn text(path: &Path) -> anyhow::Result<String> {
    input::text(path).with_context(|| format!("Cannot read {}", path.display()))
}

/// A name's value, and where it comes from.
#[derive(Debug)]
struct SourcedValue {
    text: String,
    place: ValueSource,
}

/// Where a value was given.
#[derive(Debug)]
enum ValueSource {
    /// `--set`, which a file does not change.
    Set,
    /// `FILE:LINE`.
    Line(String),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set => f.write_str("--set"),
            Self::Line(line) => f.write_str(line),
        }
    }
}

/// The names of one file, and which of them were used.
#[derive(Debug, Default)]
struct RenderNames {
    values: BTreeMap<String, SourcedValue>,
    used: RefCell<BTreeSet<String>>,
}

impl RenderNames {
    /// Reads lines `NAME=VALUE`; those of `set` come first and are not read again.
    fn read(file: &str, text: &str, set: &[(String, String)]) -> anyhow::Result<Self> {
        let mut names = Self::default();
        for (name, value) in set {
            check_value(name, value).with_context(|| format!("--set {name}"))?;
            let value = SourcedValue { text: value.clone(), place: ValueSource::Set };
            if names.values.insert(name.clone(), value).is_some() {
                bail!("--set {name} is given twice");
            }
        }
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{file}:{number}");
            let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_name(name)) else {
                bail!("{place}: {line:?} is no NAME=VALUE; comments begin with #");
            };
            let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
            let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
            match names.values.get(name).map(|known| &known.place) {
                Some(ValueSource::Set) => continue,
                Some(ValueSource::Line(line)) => bail!("{place}: {name} stands in {line} already"),
                None => {}
            }
            let text = names.filled(&place, value, |_| true)?;
            check_value(name, &text).with_context(|| format!("{place}: {name}"))?;
            names
                .values
                .insert(name.to_owned(), SourcedValue { text, place: ValueSource::Line(place) });
        }
        Ok(names)
    }

    /// A template with each `${NAME}` replaced.
    fn fill(&self, file: &str, template: &str) -> anyhow::Result<String> {
        let filled = self.filled(file, template, |line| !line.trim_start().starts_with('#'))?;
        // No value has a line of its own.
        for (number, (before, after)) in (1..).zip(template.lines().zip(filled.lines())) {
            let Some(image) = image_of_line(after).filter(|_| before.contains("${")) else {
                continue;
            };
            image.parse::<ImageReference>().with_context(|| format!("{file}:{number}"))?;
        }
        Ok(filled)
    }

    /// Takes a script's names for used.
    fn used_by(&mut self, script: &str) {
        let names: Vec<String> = script
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .flat_map(|line| line.split('$').skip(1))
            .map(|behind| {
                let behind = behind.strip_prefix('{').unwrap_or(behind);
                let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                behind[..behind.find(ends).unwrap_or(behind.len())].to_owned()
            })
            .collect();
        self.used.get_mut().extend(names);
    }

    /// `text` with each `${NAME}` replaced; those in lines that count are used.
    fn filled(
        &self,
        file: &str,
        text: &str,
        counts: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, behind) = rest.split_at(at);
            // Of a place that is one already no line is told.
            let place = || match text.contains('\n') {
                true => {
                    let read = text.len() - behind.len();
                    format!("{file}:{}", text[..read].matches('\n').count() + 1)
                }
                false => file.to_owned(),
            };
            let Some((name, after)) = behind[2..].split_once('}') else {
                bail!("{}: \"${{\" has no end", place());
            };
            if let Some(before) = before.strip_suffix('$') {
                filled.extend([before, "${", name, "}"]);
            } else {
                let Some(value) = self.values.get(name) else {
                    let known = self.values.keys().map(String::as_str).collect::<Vec<_>>();
                    let known = match known.is_empty() {
                        true => "no name is".to_owned(),
                        false => format!("there are {}", known.join(", ")),
                    };
                    bail!("{}: ${{{name}}} is not set; {known}", place());
                };
                let read = text.len() - behind.len();
                let line = &text[text[..read].rfind('\n').map_or(0, |at| at + 1)..];
                if counts(line.split('\n').next().unwrap_or_default()) {
                    self.used.borrow_mut().insert(name.to_owned());
                }
                filled.extend([before, &value.text]);
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn check_all_used(&mut self) -> anyhow::Result<()> {
        let used = self.used.get_mut();
        let unused = self.values.iter().filter(|(name, _)| !used.contains(*name));
        let unused: Vec<String> =
            unused.map(|(name, value)| format!("{name} ({})", value.place)).collect();
        if unused.is_empty() {
            return Ok(());
        }
        bail!("No template uses {}: use it, or take it out", unused.join(", "))
    }
}

/// What a name says of its value.
fn check_value(name: &str, value: &str) -> Result<(), ImageReferenceError> {
    let is = |kind: &str| name.rsplit('_').next() == Some(kind);
    if is("TAG") {
        check_image_tag(value)
    } else if is("IMAGE") {
        value.parse::<ImageReference>().map(drop)
    } else {
        Ok(())
    }
}

/// The image that a line of a manifest or a Containerfile names.
fn image_of_line(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(value) = line.strip_prefix("- ").unwrap_or(line).strip_prefix("image:") {
        return Some(value.trim().trim_matches(['"', '\'']));
    }
    let mut from = line.strip_prefix("FROM ")?.trim_start();
    // FROM [--platform=PLATFORM] IMAGE [AS NAME]
    while from.starts_with("--") {
        from = from.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
    }
    let upper = from.to_ascii_uppercase();
    Some(upper.find(" AS ").map_or(from, |at| &from[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENV: &str =
        "# names\nREGISTRY=registry.example/lab\nIMAGE=\"${REGISTRY}/vmlab\"\n\nTAG=x\n";

    fn names(set: &[(&str, &str)]) -> anyhow::Result<RenderNames> {
        let set: Vec<(String, String)> =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RenderNames::read("images.env", ENV, &set)
    }

    #[test]
    fn names_become_values_and_the_shells_words_stay() {
        let mut names = names(&[("TAG", "1-0abc")]).unwrap();
        let template = "FROM ${IMAGE}:${TAG}\nRUN echo $HOME $(id) $${TAG}\n";
        let filled = names.fill("Containerfile", template).unwrap();
        assert_eq!(filled, "FROM registry.example/lab/vmlab:1-0abc\nRUN echo $HOME $(id) ${TAG}\n");
        names.check_all_used().unwrap();
    }

    #[test]
    fn what_is_not_set_or_not_used_is_said_with_its_place() {
        let mut unused = names(&[("EXTRA", "1")]).unwrap();
        unused.fill("a", "${IMAGE}").unwrap();
        let said = unused.check_all_used().unwrap_err().to_string();
        assert!(said.contains("EXTRA (--set)") && said.contains("TAG (images.env:5)"), "{said}");
        assert!(!said.contains("REGISTRY"), "another name's value uses it: {said}");
        let known = names(&[]).unwrap();
        for (template, says) in [
            ("a\n${NONE}\n", "a.yaml:2: ${NONE} is not set; there are IMAGE, REGISTRY, TAG"),
            ("a\nb ${TAG\n", "a.yaml:2: \"${\" has no end"),
            ("${tag}\n", "a.yaml:1: ${tag} is not set"),
        ] {
            let said = known.fill("a.yaml", template).unwrap_err().to_string();
            assert!(said.starts_with(says), "{said}");
        }
        for (env, says) in [
            ("A=1\nA=2\n", "e:2: A stands in e:1 already"),
            ("A=1\nwords\n", "e:2: \"words\" is no NAME=VALUE"),
            ("a=1\n", "e:1: \"a=1\" is no NAME=VALUE"),
            ("A=${B}\nB=1\n", "e:1: ${B} is not set"),
        ] {
            let said = RenderNames::read("e", env, &[]).unwrap_err().to_string();
            assert!(said.starts_with(says), "{said}");
        }
        assert!(assignment("tag=1").is_err() && assignment("TAG").is_err());
    }

    #[test]
    fn no_comment_uses_a_name_and_scripts_do() {
        let mut commented = names(&[]).unwrap();
        let filled = commented.fill("a", "# podman build -t ${IMAGE}\nFROM x:${TAG}\n").unwrap();
        assert!(filled.starts_with("# podman build -t registry.example/lab/vmlab\n"), "{filled}");
        let said = commented.check_all_used().unwrap_err().to_string();
        assert!(said.contains("IMAGE (images.env:3)") && !said.contains("TAG"), "{said}");
        commented.used_by("# not $TAG\npodman build -t \"$IMAGE\"\n");
        commented.check_all_used().unwrap();
        let mut braced = names(&[]).unwrap();
        braced.used_by("echo ${IMAGE}:${TAG}\n# ${NOTHING}\n");
        braced.check_all_used().unwrap();
    }

    #[test]
    fn what_no_registry_takes_is_refused_with_its_place() {
        for (name, value) in
            [("TAG", ""), ("TAG", "a b:c"), ("VMLAB_TAG", "-x"), ("IMAGE", "A/B c")]
        {
            let said = format!("{:#}", names(&[(name, value)]).unwrap_err());
            assert!(said.starts_with(&format!("--set {name}: ")), "{said}");
        }
        // Another name is text, and may be nothing.
        names(&[("NOTES", ""), ("IMAGES", "a b")]).unwrap();
        let said = format!("{:#}", RenderNames::read("e", "A=1\nTAG=${A} 2\n", &[]).unwrap_err());
        assert!(said.starts_with("e:2: TAG: \"1 2\" is no tag"), "{said}");

        let empty = RenderNames::default().fill("a", "${TAG}").unwrap_err().to_string();
        assert_eq!(empty, "a: ${TAG} is not set; no name is");
        let odd = names(&[("VERSION", "12 beta")]).unwrap();
        for template in [
            "FROM scratch\nFROM --platform=linux/amd64 docker.io/debian:${VERSION} AS build\n",
            "a:\n- image: \"debian:${VERSION}\"\n",
        ] {
            let said = format!("{:#}", odd.fill("a.yaml", template).unwrap_err());
            assert!(said.starts_with("a.yaml:2: \"12 beta\" is no tag"), "{said}");
        }
        names(&[]).unwrap().fill("a", "FROM debian:${TAG} as base\nimage: ${IMAGE}\n").unwrap();
    }

    proptest::proptest! {
        #[test]
        fn text_without_names_stays_as_it_is(text in "[^{]*") {
            let filled = names(&[]).unwrap().fill("a", &text).unwrap();
            proptest::prop_assert_eq!(filled, text);
        }

        #[test]
        fn any_text_is_filled_or_refused(text in "([$]|[{]|[}]|TAG|\n|é){0,40}") {
            let _ = names(&[]).unwrap().fill("a", &text);
        }
    }
}

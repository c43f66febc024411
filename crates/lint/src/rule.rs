//! The shape of a rule: one row of the table.

use placement::predict::{Ability, KubevirtRange, KubevirtVersion};

use crate::context::{Context, ExampleHost};
use crate::finding::{Drafts, Severity};
use crate::fleet::{FleetDrafts, SharedHostVm};
pub use crate::format::ConfigFormat;
use crate::object::KubeObject;
use crate::version::ReleaseVersion;
use crate::vm::Vm;

/// Versions in which a rule holds: from `since`, before `until`; all where a bound is
/// missing.
#[derive(Debug, Clone, Copy)]
pub enum AffectedVersions {
    /// Of KubeVirt.
    Kubevirt {
        /// First version that has the fault.
        since: Option<KubevirtVersion>,
        /// First version without it.
        until: Option<KubevirtVersion>,
    },
    /// Of Kubernetes, whose kubelet hands out pCPUs.
    Kubernetes {
        /// First version without it.
        until: Option<ReleaseVersion>,
    },
}

impl AffectedVersions {
    /// KubeVirt's versions from one, before another, as they are written.
    pub(crate) const fn kubevirt(since: Option<&'static str>, until: Option<&'static str>) -> Self {
        const fn version(text: Option<&str>) -> Option<KubevirtVersion> {
            match text {
                Some(text) => {
                    let [major, minor, patch] = numbers(text);
                    Some(KubevirtVersion::new(major, minor, patch))
                }
                None => None,
            }
        }
        Self::Kubevirt { since: version(since), until: version(until) }
    }

    pub(crate) const fn kubernetes(until: Option<&'static str>) -> Self {
        let until = match until {
            Some(text) => {
                let [major, minor, patch] = numbers(text);
                Some(ReleaseVersion(major, minor, patch))
            }
            None => None,
        };
        Self::Kubernetes { until }
    }

    /// The versions of KubeVirt in which it does something, as the predictor knows them.
    pub(crate) const fn with(ability: Ability) -> Self {
        let KubevirtRange { from, until } = ability.range(0);
        Self::Kubevirt { since: Some(from), until }
    }

    /// Those before it did something for the first time.
    pub(crate) const fn before(ability: Ability) -> Self {
        Self::Kubevirt { since: None, until: Some(ability.first()) }
    }

    /// Those between two abilities.
    pub(crate) const fn between(there: Ability, not_yet: Ability) -> Self {
        Self::Kubevirt { since: Some(there.first()), until: Some(not_yet.first()) }
    }

    /// Those that lost an ability that was back-ported, until it was there again.
    pub(crate) const fn without_again(ability: Ability) -> Self {
        Self::Kubevirt { since: ability.range(0).until, until: Some(ability.range(1).from) }
    }

    pub(crate) fn holds(&self, context: &Context) -> bool {
        fn within<V: PartialOrd>(version: &V, since: Option<&V>, until: Option<&V>) -> bool {
            since.is_none_or(|since| version >= since) && until.is_none_or(|until| version < until)
        }
        match self {
            Self::Kubevirt { since, until } => {
                within(&context.kubevirt, since.as_ref(), until.as_ref())
            }
            Self::Kubernetes { until } => within(&context.kubernetes, None, until.as_ref()),
        }
    }

    /// "KubeVirt from 1.5.0, before 1.7.5".
    #[must_use]
    pub fn text(&self) -> String {
        let text = |bound: &dyn ToString| bound.to_string();
        let (name, since, until) = match self {
            Self::Kubevirt { since, until } => {
                let [since, until] = [since, until].map(|bound| bound.as_ref().map(|v| text(v)));
                ("KubeVirt", since, until)
            }
            Self::Kubernetes { until } => ("Kubernetes", None, until.as_ref().map(|v| text(v))),
        };
        match (since, until) {
            (None, None) => format!("{name}, all versions"),
            (Some(since), None) => format!("{name} since {since}"),
            (None, Some(until)) => format!("{name} before {until}"),
            (Some(since), Some(until)) => format!("{name} from {since}, before {until}"),
        }
    }
}

/// The three numbers of a version.
const fn numbers(text: &str) -> [u32; 3] {
    let text = text.as_bytes();
    let (mut numbers, mut number, mut at) = ([0; 3], 0, 0);
    while at < text.len() {
        match text[at] {
            b'.' => number += 1,
            digit => {
                assert!(digit.is_ascii_digit(), "A version is three numbers");
                numbers[number] = numbers[number] * 10 + (digit - b'0') as u32;
            }
        }
        at += 1;
    }
    assert!(number == 2, "A version is three numbers");
    numbers
}

/// How a rule looks at one VM.
pub(crate) type CheckVm = fn(&Vm, &Context, &mut Drafts);

/// How a rule looks at an object that is not a VM.
pub(crate) type CheckObject = fn(&KubeObject, &Context, &mut Drafts);

/// What a rule looks at.
#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// One VM.
    Vm(CheckVm),
    /// One object of KubeVirt that is not a VM and makes none.
    Object(CheckObject),
    /// Both.
    VmOrObject(CheckVm, CheckObject),
    /// All VMs of all files together.
    Fleet(fn(&[SharedHostVm], &Context, &mut FleetDrafts<'_>)),
}

/// A configuration that shows a rule.
#[derive(Clone, Copy)]
pub struct RuleExample {
    /// Its format.
    pub format: ConfigFormat,
    /// The host and the versions that it is for.
    pub world: ExampleHost,
    written: &'static str,
    /// What of it is replaced by what, one after the other, each where it first stands.
    edits: Edits,
    /// What is to be replaced so that the rule is quiet; nothing where that is another example.
    mending: Edits,
}

type Edits = &'static [(&'static str, &'static str)];

impl RuleExample {
    const fn new(format: ConfigFormat, world: ExampleHost, written: &'static str) -> Self {
        Self { format, world, written, edits: &[], mending: &[] }
    }

    /// With the texts that make of it an example in which the rule is quiet.
    pub(crate) const fn mended(self, mending: Edits) -> Self {
        Self { mending, ..self }
    }

    pub(crate) fn mended_example(&self) -> Option<Self> {
        let Self { mending, .. } = *self;
        (!mending.is_empty()).then_some(Self { edits: mending, mending: &[], ..*self })
    }

    /// The part that matters; [`RuleExample::document`] has the rest.
    #[must_use]
    pub fn text(&self) -> String {
        self.edits.iter().fold(self.written.to_owned(), |text, (from, to)| {
            debug_assert!(text.contains(from), "{from:?} is not in\n{text}");
            text.replacen(from, to, 1)
        })
    }

    /// The whole document.
    #[must_use]
    pub fn document(&self) -> String {
        let text = self.text();
        match self.format {
            ConfigFormat::Libvirt if text.trim_start().starts_with("<domain") => text,
            ConfigFormat::Libvirt => {
                format!("<domain type='kvm'>\n<name>example</name>\n{text}</domain>\n")
            }
            ConfigFormat::Qemu => text,
            ConfigFormat::Proxmox if text.contains("memory:") => text,
            ConfigFormat::Proxmox => format!("memory: 4096\nostype: l26\n{text}"),
            ConfigFormat::Running if text.starts_with('#') => text,
            ConfigFormat::Running => format!("# vmlab: running 4711\n{text}"),
            ConfigFormat::Kubevirt if text.contains("apiVersion:") => text,
            ConfigFormat::Kubevirt => {
                let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
                format!(
                    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata:\n  name: \
                     example\nspec:\n{indented}"
                )
            }
        }
    }
}

/// One row of the table.
pub struct Rule {
    /// Short name in kebab case, never reused.
    pub id: &'static str,
    /// How bad its findings are.
    pub severity: Severity,
    /// One line without a full stop.
    pub summary: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// How to mend it.
    pub mend: &'static str,
    /// Where this is known from.
    pub sources: &'static [&'static str],
    /// Versions in which it holds; empty: all.
    pub affected: &'static [AffectedVersions],
    pub(crate) check: Check,
    /// Configurations in which it fires: one for each format it applies to.
    pub fires: &'static [RuleExample],
    /// Configurations in which it does not, beside those of `fires` that are mended.
    pub(crate) quiet: &'static [RuleExample],
}

impl Rule {
    /// The formats that it applies to.
    #[must_use]
    pub fn formats(&self) -> Vec<ConfigFormat> {
        let mut formats: Vec<ConfigFormat> =
            self.fires.iter().map(|example| example.format).collect();
        formats.sort();
        formats.dedup();
        formats
    }

    /// Configurations in which it does not fire, in the formats of those in which it does.
    pub fn quiet(&self) -> impl Iterator<Item = RuleExample> {
        let mended = self.fires.iter().filter_map(RuleExample::mended_example);
        self.quiet.iter().copied().chain(mended)
    }

    /// How it looks at one VM, if it does.
    pub(crate) fn check_vm(&self) -> Option<CheckVm> {
        match self.check {
            Check::Vm(check) | Check::VmOrObject(check, _) => Some(check),
            Check::Object(_) | Check::Fleet(_) => None,
        }
    }

    /// The same of an object that is not a VM.
    pub(crate) fn check_object(&self) -> Option<CheckObject> {
        match self.check {
            Check::Object(check) | Check::VmOrObject(_, check) => Some(check),
            Check::Vm(_) | Check::Fleet(_) => None,
        }
    }

    pub(crate) fn is_about_fleets(&self) -> bool {
        matches!(self.check, Check::Fleet(_))
    }

    pub(crate) fn holds(&self, context: &Context) -> bool {
        self.affected.is_empty() || self.affected.iter().any(|affected| affected.holds(context))
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("id", &self.id).finish_non_exhaustive()
    }
}

pub(crate) const fn xml(world: ExampleHost, text: &'static str) -> RuleExample {
    RuleExample::new(ConfigFormat::Libvirt, world, text)
}

pub(crate) const fn qemu(world: ExampleHost, text: &'static str) -> RuleExample {
    RuleExample::new(ConfigFormat::Qemu, world, text)
}

pub(crate) const fn yaml(world: ExampleHost, text: &'static str) -> RuleExample {
    RuleExample::new(ConfigFormat::Kubevirt, world, text)
}

pub(crate) const fn running(world: ExampleHost, text: &'static str) -> RuleExample {
    RuleExample::new(ConfigFormat::Running, world, text)
}

pub(crate) const fn conf(world: ExampleHost, text: &'static str) -> RuleExample {
    RuleExample::new(ConfigFormat::Proxmox, world, text)
}

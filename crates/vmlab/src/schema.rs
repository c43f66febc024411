//! `vmlab schema`: JSON Schemas of what vmlab reads and prints, made from the types.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab schema                        what there are schemas of
  vmlab schema report | jq '.properties | keys'
  vmlab schema study > study.json     for an editor: docs/schemas.md
  vmlab schema --out docs/schemas     all, a file each";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SchemaArgs {
    /// Which one; none lists them.
    #[arg(value_parser = names(), hide_possible_values = true)]
    name: Option<String>,
    /// Write all into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    out: Option<PathBuf>,
}

fn names() -> PossibleValuesParser {
    let names = DOCUMENTS.iter().map(|one| PossibleValue::new(one.name).help(one.about));
    names.collect::<Vec<_>>().into()
}

/// Something that vmlab reads or prints.
pub(crate) struct DocumentedFormat {
    /// How it is asked for, and the name of its file.
    pub(crate) name: &'static str,
    /// What it is, without a full stop.
    about: &'static str,
    /// The commands that print it, with the option that makes them: `host --json`.
    pub(crate) printed_by: &'static [&'static str],
    make: fn() -> Schema,
}

/// Of what vmlab prints: what is always there is required.
fn printed<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Of what people write: what may be left out is not required. Draft 7, which all
/// editors know.
fn written<T: JsonSchema>() -> Schema {
    SchemaSettings::draft07().for_deserialize().into_generator().into_root_schema_for::<T>()
}

/// All of them.
pub(crate) const DOCUMENTS: &[DocumentedFormat] = &[
    DocumentedFormat {
        name: "study",
        about: "A study, as TOML",
        printed_by: &[],
        make: written::<runner::study::StudyFile>,
    },
    DocumentedFormat {
        name: "wishes",
        about: "VMs that want a place, as TOML or JSON (`vmlab plan --list`)",
        printed_by: &[],
        make: written::<placement::plan::WishList>,
    },
    DocumentedFormat {
        name: "site-rules",
        about: "Rules of a site's own, as TOML (`vmlab lint --rules`)",
        printed_by: &[],
        make: written::<lint::site::RulesDocument>,
    },
    DocumentedFormat {
        name: "switch-file",
        about: "A switch with its ports, as TOML (`vmlab switch --config`)",
        printed_by: &[],
        make: written::<crate::switch::SwitchFile>,
    },
    DocumentedFormat {
        name: "decide-message",
        about: "A line that `vmlab decide` reads",
        printed_by: &[],
        make: written::<crate::decide::DecideMessage>,
    },
    DocumentedFormat {
        name: "decide-reply",
        about: "A line that `vmlab decide` answers",
        printed_by: &["decide"],
        make: printed::<crate::decide::Reply>,
    },
    DocumentedFormat {
        name: "plan",
        about: "A study with every choice made: `plan.json` of a results folder",
        printed_by: &["check --json", "run --dry-run --json"],
        make: printed::<runner::plan::StudyPlan>,
    },
    DocumentedFormat {
        name: "journal",
        about: "What stands in a line of `journal.jsonl`, before its number and checksum",
        printed_by: &[],
        make: printed::<record::journal::JournalEvent>,
    },
    DocumentedFormat {
        name: "kubelet-experiments",
        about: "What kubelets gave pods, as JSON (`vmlab predict --verify=FILE`)",
        printed_by: &[],
        make: written::<placement::predict::verify::ExperimentRecord>,
    },
    #[cfg(feature = "kubernetes")]
    DocumentedFormat {
        name: "cluster-forecast",
        about: "What will become of the VMs of a cluster",
        printed_by: &["plan --cluster --json"],
        make: printed::<crate::plan::ClusterForecast>,
    },
    DocumentedFormat {
        name: "host",
        about: "A host: `host.json` of a results folder",
        printed_by: &["host --json"],
        make: printed::<topology::Host>,
    },
    DocumentedFormat {
        name: "host-diff",
        about: "What differs between two hosts",
        printed_by: &["host --diff --json"],
        make: printed::<Vec<crate::host::Drift>>,
    },
    DocumentedFormat {
        name: "settings",
        about: "All host settings",
        printed_by: &["settings list --json", "host --settings --json"],
        make: printed::<Vec<crate::settings::SettingFacts<'static>>>,
    },
    DocumentedFormat {
        name: "audit",
        about: "VMs that run here",
        printed_by: &["audit --json"],
        make: printed::<crate::audit::AuditOutput<'static>>,
    },
    DocumentedFormat {
        name: "facts",
        about: "What was found of VMs, by host",
        printed_by: &["facts --json"],
        make: printed::<Vec<crate::facts::HostFactRow>>,
    },
    DocumentedFormat {
        name: "placement",
        about: "Where VMs go on one host",
        printed_by: &["plan --json"],
        make: printed::<placement::plan::HostPlan>,
    },
    DocumentedFormat {
        name: "placement-of-hosts",
        about: "Where VMs go on several hosts",
        printed_by: &["plan --host A --host B --json"],
        make: printed::<crate::plan::FleetJson<'static>>,
    },
    DocumentedFormat {
        name: "findings",
        about: "What is wrong with configurations",
        printed_by: &["lint --json", "lint --format json"],
        make: printed::<lint::output::JsonReport<'static>>,
    },
    DocumentedFormat {
        name: "vm",
        about: "A VM in full",
        printed_by: &["convert --to json", "emit --to json"],
        make: printed::<vmconfig::VmSettings>,
    },
    DocumentedFormat {
        name: "report",
        about: "A study's answer: `report.json` of a results folder",
        printed_by: &["report --format json", "run --json"],
        make: printed::<report::Report>,
    },
    DocumentedFormat {
        name: "across",
        about: "A study's answer on many nodes",
        printed_by: &["report --format json", "compare --format json", "run --json"],
        make: printed::<report::AcrossReport>,
    },
    DocumentedFormat {
        name: "nodes",
        about: "A study on many nodes, and what became of each: `nodes.json`",
        printed_by: &[],
        make: printed::<runner::node_set::NodeSet>,
    },
    DocumentedFormat {
        name: "samples",
        about: "All samples: `samples.json` of a results folder",
        printed_by: &["report --format samples-json", "sim --records"],
        make: printed::<report::SampleRows<'static>>,
    },
    DocumentedFormat {
        name: "sample",
        about: "One sample",
        printed_by: &["export --to jsonl"],
        make: printed::<record::SampleRow>,
    },
    DocumentedFormat {
        name: "verification",
        about: "Whether a results folder is what was written",
        printed_by: &["report --verify --format json"],
        make: printed::<runner::verify::Verification>,
    },
    DocumentedFormat {
        name: "comparison",
        about: "What differs between numbers of any origin",
        printed_by: &["compare --format json", "calibrate --compare --format json"],
        make: printed::<compare::analyse::ComparedData>,
    },
    DocumentedFormat {
        name: "trend",
        about: "A study over time",
        printed_by: &["trend --json"],
        make: printed::<report::trend::Trend>,
    },
    DocumentedFormat {
        name: "watched",
        about: "What the store of a watched host holds",
        printed_by: &["watch show --json"],
        make: printed::<fleet::stored::StoredReadings>,
    },
    DocumentedFormat {
        name: "rollout-plan",
        about: "A roll-out, as TOML",
        printed_by: &[],
        make: written::<fleet::plan::RolloutFile>,
    },
    DocumentedFormat {
        name: "rollout",
        about: "What a roll-out says",
        printed_by: &["rollout --json"],
        make: printed::<fleet::rollout::RolloutAnswer>,
    },
    DocumentedFormat {
        name: "imported",
        about: "A value, a failed run or an unread line of a tool's log",
        printed_by: &["import --json"],
        make: printed::<crate::import::ImportLine>,
    },
    DocumentedFormat {
        name: "calibration",
        about: "The price list of a host",
        printed_by: &["calibrate --json", "calibrate --out"],
        make: printed::<runner::calibration::Calibration>,
    },
    DocumentedFormat {
        name: "calibration-changes",
        about: "What differs between two price lists of counted instructions",
        printed_by: &["calibrate --compare --json"],
        make: printed::<Vec<crate::calibrate::Change>>,
    },
    DocumentedFormat {
        name: "images",
        about: "The guest images in the cache",
        printed_by: &["image list --json"],
        make: printed::<Vec<crate::image::ListedImage<'static>>>,
    },
    DocumentedFormat {
        name: "image",
        about: "What a guest image holds",
        printed_by: &["image show --json"],
        make: printed::<crate::image::ImageDescription<'static>>,
    },
    DocumentedFormat {
        name: "replicas",
        about: "The replicas that there are",
        printed_by: &["replica list --json"],
        make: printed::<Vec<crate::replica::ReplicaFacts<'static>>>,
    },
    DocumentedFormat {
        name: "replica",
        about: "A replica that was started",
        printed_by: &["replica up --json"],
        make: printed::<crate::replica::ReplicaFacts<'static>>,
    },
    DocumentedFormat {
        name: "replica-preview",
        about: "How a replica would be started",
        printed_by: &["replica up --dry-run --json"],
        make: printed::<crate::replica::ReplicaPreview<'static>>,
    },
    #[cfg(feature = "kubernetes")]
    DocumentedFormat {
        name: "clusters",
        about: "The clusters on this machine, and how they are",
        printed_by: &["cluster status --json"],
        make: printed::<Vec<localcluster::ClusterStatus>>,
    },
    #[cfg(feature = "kubernetes")]
    DocumentedFormat {
        name: "local-cluster",
        about: "A cluster on this machine that was started",
        printed_by: &["cluster up --json"],
        make: printed::<localcluster::ClusterStatus>,
    },
    DocumentedFormat {
        name: "simulation",
        about: "What a simulated host does",
        printed_by: &["sim --json"],
        make: printed::<crate::sim::AnswerJson<'static>>,
    },
    DocumentedFormat {
        name: "scoreboard",
        about: "Published results beside simulated ones",
        printed_by: &["sim --validate --json"],
        make: printed::<crate::sim::ScoresJson>,
    },
    DocumentedFormat {
        name: "capture",
        about: "What was captured of a VM: `capture.json` of its folder",
        printed_by: &["capture --json"],
        make: printed::<crate::capture::CaptureFacts>,
    },
    DocumentedFormat {
        name: "state",
        about: "The state of a VM: every device, every field",
        printed_by: &["state show --json"],
        make: printed::<vmstate::StateFacts>,
    },
    DocumentedFormat {
        name: "state-diff",
        about: "What differs between two states of a VM",
        printed_by: &["state diff --json"],
        make: printed::<vmstate::StateDiff>,
    },
    DocumentedFormat {
        name: "switch",
        about: "A running switch",
        printed_by: &["switch ctl status --json"],
        make: printed::<vswitch::SwitchStatus>,
    },
    DocumentedFormat {
        name: "stations",
        about: "Who is behind which port of a switch",
        printed_by: &["switch ctl mac --json"],
        make: printed::<Vec<vswitch::StationStatus>>,
    },
    DocumentedFormat {
        name: "traffic",
        about: "What became of frames that were sent through a switch",
        printed_by: &["switch traffic --json"],
        make: printed::<crate::switch::TrafficResult>,
    },
];

impl DocumentedFormat {
    /// Its schema with what it is of, and a final newline.
    pub(crate) fn text(&self) -> String {
        let mut schema = (self.make)();
        schema.insert("title".to_owned(), self.name.into());
        schema.insert("description".to_owned(), format!("{}.", self.about).into());
        let text = serde_json::to_string_pretty(&schema).expect("a schema's keys are strings");
        text + "\n"
    }
}

pub(crate) fn run(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    match (&args.out, &args.name) {
        (Some(folder), _) => write_all(folder)?,
        (None, Some(name)) => {
            // clap takes no other name.
            for document in DOCUMENTS.iter().filter(|document| document.name == name) {
                terminal::print(&document.text())?;
            }
        }
        (None, None) => terminal::print(&list())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let widest = DOCUMENTS.iter().map(|document| document.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for DocumentedFormat { name, about, printed_by, .. } in DOCUMENTS {
        let by = printed_by.iter().map(|command| format!("`vmlab {command}`"));
        let by = by.collect::<Vec<_>>().join(", ");
        let by = if by.is_empty() { by } else { format!(" ({by})") };
        let _ = writeln!(text, "{name:widest$}  {about}{by}");
    }
    text
}

fn write_all(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    for document in DOCUMENTS {
        let path = folder.join(format!("{}.json", document.name));
        fs::write(&path, document.text())
            .with_context(|| format!("Cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Command;

    use super::*;

    /// The commands at `command` and below with a way to print JSON: `image list`.
    fn with_json(command: &Command, path: &str, found: &mut BTreeSet<String>) {
        for argument in command.get_arguments() {
            let values = argument.get_possible_values();
            let has = |word: &str| values.iter().any(|value| value.get_name() == word);
            if argument.get_id() == "json" || has("json") || has("jsonl") {
                found.insert(path.to_owned());
            }
        }
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            with_json(below, format!("{path} {}", below.get_name()).trim(), found);
        }
    }

    #[test]
    fn everything_that_prints_json_has_a_schema() {
        let mut commands = BTreeSet::new();
        with_json(&crate::command(), "", &mut commands);
        assert!(commands.len() > 15, "{commands:?}");
        for command in commands {
            let named = |one: &&str| {
                one.strip_prefix(&*command).is_some_and(|rest| rest.starts_with([' ', '-']))
            };
            let known = DOCUMENTS.iter().flat_map(|document| document.printed_by).any(named);
            assert!(known, "DOCUMENTS has nothing that `vmlab {command}` prints as JSON");
        }
    }

    #[test]
    fn commands_that_documents_name_exist() {
        let mut root = crate::command();
        // Options of a command hold for those below it.
        root.build();
        for line in DOCUMENTS.iter().flat_map(|document| document.printed_by) {
            let mut command = &root;
            for word in line.split(' ').filter(|word| word.chars().all(char::is_lowercase)) {
                match command.find_subcommand(word) {
                    Some(below) => command = below,
                    // A value of an option.
                    None => assert!(!command.has_subcommands(), "{line}: {word}"),
                }
            }
            for option in line.split(' ').filter_map(|word| word.strip_prefix("--")) {
                let is_it = |argument: &clap::Arg| argument.get_long() == Some(option);
                assert!(command.get_arguments().any(is_it), "{line}: {option}");
            }
        }
    }
}

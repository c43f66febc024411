//! Fills the report from a results folder: estimates, judgements, the
//! counters that moved, failures, warnings.

mod account;
mod beside;
mod counts;
mod distributions;
mod overall;
mod profile;
mod published;
mod why;

use std::collections::BTreeMap;
use std::path::Path;

use record::journal::{JournalEvent, TrialResult};
use record::{Environment, FailureKind, Metric, MetricKind, Outcome, UnsteadyCause};
use report::{
    CellResults, FurtherVm, LabelledText, Method, Report, ReportFact, ReportVariant, ShownEstimate,
    ShownInterval, TrialFailure, VariantJudgement, VariantRole,
};
use stats::{Interval, Invalidity};
use topology::Host;
use vmconfig::{NumberSet, VmSpec, qemu};

use crate::agenda::Agenda;
use crate::pilot;
use crate::plan::{PlanVariant, StudyPlan};
use crate::results::{self, ALPHA, BootValue, JournalTrial, MetricGroup};
use crate::shown::placeholder_channels;
use crate::state::JournalState;
use crate::store::{self, Contents, blob_path};
use crate::study::{EndCondition, RunsOn};
use crate::thin::is_thin;

/// vCPUs that wait this part of their time for a pCPU share it with others.
const CONTENDED_PART: f64 = 0.05;

/// Everything that the report of the results in `dir` shows.
#[must_use]
pub fn report(dir: &Path, contents: &Contents) -> Report {
    let Contents { plan, host, events, damage, prices, unknown: _ } = contents;
    let state = JournalState::from_events(events);
    let trials = results::trials(events, &state);
    let groups = results::groups(plan, &trials);
    let mut warnings: Vec<String> = store::damage_lines(dir, damage).collect();
    let host_beside = beside::host_beside(plan, &trials);
    warnings.extend(report::busy(&host_beside));
    warnings.extend(run_warnings(plan, events, &state, &trials, &groups));
    let mut shown: Vec<_> =
        groups.iter().map(|group| show_group(dir, plan, &state, group, &trials)).collect();
    shown.extend(published::later_groups(plan));
    adjust_for_many(plan, &mut shown);
    Report {
        version: report::REPORT_VERSION,
        study: plan.study.clone(),
        title: plan.title.clone(),
        question: (!plan.question.is_empty()).then(|| plan.question.clone()),
        scale: plan.scale.clone(),
        environment: plan.environment(),
        place: plan.place(),
        environment_why: plan.environment_why.clone(),
        about: about(plan, host),
        host: Some(host.clone()),
        method: method(plan, events, &state),
        variants: plan
            .variants
            .iter()
            .map(|variant| show_variant(plan, variant, &trials))
            .collect(),
        loads: plan.loads.iter().map(|load| named(&load.name, load.describe())).collect(),
        workloads: workloads(plan),
        suites: overall::suites(plan, results::engine(plan, &state).as_ref(), &groups),
        groups: shown,
        distributions: distributions::distributions(plan, &trials),
        host_beside,
        accounting: account::accounting(plan, host, prices.as_ref(), &groups, &trials),
        profiles: profile::comparisons(dir, plan, &groups, &trials),
        profile_overheads: profile::overheads(plan, &groups, &trials),
        failures: trials.iter().filter_map(|trial| failure(dir, trial.result)).collect(),
        damage: damage.clone(),
        warnings,
        reproduce: reproduce(plan),
        files: files(dir),
    }
}

fn named(name: &str, summary: String) -> LabelledText {
    LabelledText { name: name.to_owned(), summary }
}

fn about(plan: &StudyPlan, host: &Host) -> Vec<ReportFact> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| {
        facts.push(ReportFact { name: name.to_owned(), value });
    };
    fact("environment", plan.environment().to_string());
    if let Some(model) = &host.cpu_model {
        fact("processor", format!("{model}, {} pCPU(s) online", host.online().len()));
    }
    if let Some(kernel) = &host.kernel {
        fact("host kernel", kernel.clone());
    }
    fact("QEMU", plan.qemu.version.clone());
    if let Some(libvirt) = &plan.libvirt {
        fact("libvirt", libvirt.to_string());
    }
    for (name, image) in &plan.images {
        let kernel = image.kernel.as_ref().map(|kernel| format!(", kernel {kernel}"));
        fact("guest image", format!("{name} ({}{})", image.identity, kernel.unwrap_or_default()));
    }
    for (id, value) in &plan.host_settings {
        fact("host setting", format!("{id} = {value} for the time of the study"));
    }
    fact("vmlab", plan.vmlab_version.clone());
    fact("started", utc(plan.created_unix_s));
    facts
}

/// ISO 8601 in UTC, to the second.
fn utc(unix_s: f64) -> String {
    // Seconds since 1970 fit; what does not is no date.
    jiff::Timestamp::from_second(unix_s as i64)
        .map_or_else(|_| format!("{unix_s} s since 1970"), |time| time.to_string())
}

fn method(plan: &StudyPlan, events: &[JournalEvent], state: &JournalState) -> Method {
    let levels = u32::try_from(plan.loads.len()).unwrap_or(1).max(1);
    let done = u32::try_from(state.complete.len()).unwrap_or(u32::MAX);
    Method {
        seed: plan.seed,
        blocks_planned: plan.budget.blocks,
        blocks_done: done / levels,
        test: test(plan, state).to_owned(),
        level: 1.0 - ALPHA,
        ended: end_reason(events, state),
        wall_s: (state.blocks_wall_s > 0.0).then_some(state.blocks_wall_s),
    }
}

/// The test behind the verdicts, in plain words.
fn test(plan: &StudyPlan, state: &JournalState) -> &'static str {
    match (plan.budget.until, plan.budget.blocks, state.extended_to) {
        (EndCondition::Budget, _, None) => {
            "Student's t on the logarithms of the ratios inside the blocks, one number a boot, \
             after a number of blocks that was fixed before."
        }
        (_, Some(_), None) => {
            "Student's t on the logarithms of the ratios inside the blocks, one number a boot, \
             against a group-sequential boundary: the intervals hold although every block was \
             looked at."
        }
        _ => {
            "Student's t on the logarithms of the ratios inside the blocks, one number a boot, \
             against an anytime-valid bound: the intervals hold whenever one stops."
        }
    }
}

/// Why the study ended, if it did.
fn end_reason(events: &[JournalEvent], state: &JournalState) -> Option<String> {
    let reason = |event: &JournalEvent| match event {
        JournalEvent::StudyEnded { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    events.iter().rev().find_map(reason).filter(|_| state.ended)
}

/// A word about a study that ended before its planned number of blocks.
fn ended_early(plan: &StudyPlan, events: &[JournalEvent], state: &JournalState) -> Option<String> {
    let reason = end_reason(events, state)?;
    if Agenda::of(plan, state, events).is_done() {
        return None;
    }
    let planned = plan.total_blocks()?;
    let done = state.complete.len();
    (done < planned as usize)
        .then(|| format!("The study ended after {done} of {planned} blocks: {reason}."))
}

fn show_variant(
    plan: &StudyPlan,
    variant: &PlanVariant,
    trials: &[JournalTrial<'_>],
) -> ReportVariant {
    let (qemu_lines, losses) = match variant.on {
        RunsOn::Vm => command_line(plan, &variant.spec, &variant.image),
        RunsOn::Host => Default::default(),
    };
    ReportVariant {
        on_host: variant.on == RunsOn::Host,
        name: variant.name.clone(),
        summary: if variant.about.is_empty() {
            variant.summary.clone()
        } else {
            format!("{} ({})", variant.summary, variant.about)
        },
        role: if variant.aa_of.is_some() {
            VariantRole::AaArm
        } else if variant.name == plan.baseline {
            VariantRole::Baseline
        } else {
            VariantRole::Candidate
        },
        qemu_lines,
        losses,
        found: {
            let mut found = why::found(&variant.name, trials);
            found.extend(why::ground(&variant.name, trials));
            found
        },
        further: further_vms(plan, variant),
    }
}

/// What sets the VMs that are measured together with a variant's first one apart from it.
#[must_use]
pub fn further_vms(plan: &StudyPlan, variant: &PlanVariant) -> Vec<FurtherVm> {
    let (first_lines, first_losses) = command_line(plan, &variant.spec, &variant.image);
    let further = variant.further.iter().map(|spec| {
        let (mut qemu_lines, mut losses) = command_line(plan, spec, &variant.image);
        qemu_lines.retain(|line| !first_lines.contains(line));
        losses.retain(|loss| !first_losses.contains(loss));
        FurtherVm { name: spec.name.clone(), qemu_lines, losses }
    });
    further.collect()
}

/// QEMU's command line for `spec`, which boots `image`, one option a line, or the domain
/// or the instance where libvirt or KubeVirt
/// makes that; and what it can't say. The sockets of a running VM have other paths.
#[must_use]
pub fn command_line(plan: &StudyPlan, spec: &VmSpec, image: &str) -> (Vec<String>, Vec<String>) {
    let channels = placeholder_channels();
    // A thin guest has no rings.
    let ordered = spec.with_ordered_rings().filter(|_| !is_thin(spec));
    let spec = ordered.as_ref().unwrap_or(spec);
    if plan.kubevirt.is_some() {
        let shown = crate::instances::shown(plan, spec, image);
        let losses = shown.losses.iter().map(|loss| format!("{}: {}", loss.what, loss.why));
        return (shown.text.lines().map(str::to_owned).collect(), losses.collect());
    }
    if let Some(libvirt) = &plan.libvirt {
        let text = crate::domains::domain(plan, libvirt, spec, "vm", &channels, "").text;
        let losses = crate::domains::losses(spec);
        let losses = losses.iter().map(|loss| format!("{}: {}", loss.what, loss.why)).collect();
        return (text.lines().map(str::to_owned).collect(), losses);
    }
    let capabilities = match plan.qemu.capabilities() {
        Ok(capabilities) => capabilities,
        Err(error) => return (vec![error.to_string()], Vec::new()),
    };
    let emitted = if is_thin(spec) {
        let serial_socket = channels.console_socket;
        let channels = qemu::SerialChannels { qmp_socket: channels.qmp_socket, serial_socket };
        qemu::emit_serial(spec, &channels, &capabilities)
    } else {
        qemu::emit(spec, &channels, &capabilities)
    };
    let mut lines = vec![plan.qemu.path.clone()];
    lines.extend(emitted.option_lines());
    let losses = emitted.losses.iter().map(|loss| format!("{}: {}", loss.what, loss.why));
    (lines, losses.collect())
}

/// What is said of a workload's metrics where variants measure several VMs.
const OVER_VMS: &str = ". In all VMs of a variant at once: .sum is their values added up, .mean \
                        the arithmetic mean, .worst that of the VM worst off, .spread the largest \
                        divided by the smallest, .sd the standard deviation between VMs.";

fn workloads(plan: &StudyPlan) -> Vec<LabelledText> {
    let vcpus = plan.variants.first().map_or(1, |variant| variant.spec.vcpus());
    let run = plan.workloads.iter().map(|workload| {
        let emulated = plan.environment().is_emulated_time();
        let summary = match workload.resolve() {
            Ok((entry, params)) => {
                let facts = workload::GuestFacts::alone(vcpus, emulated);
                let command = workload::shell_line(&entry.command(&params, &facts));
                let several = if workload.of_several_vms.is_empty() { "" } else { OVER_VMS };
                format!("{}: {command}{several}", entry.summary)
            }
            Err(error) => error.to_string(),
        };
        named(&workload.label, summary)
    });
    let later = plan.later.iter().map(|(label, reason)| named(label, format!("not run: {reason}")));
    run.chain(later).collect()
}

/// Says of each comparison of a primary metric whether it is still a finding
/// as one of all (Benjamini and Hochberg, 1995).
fn adjust_for_many(plan: &StudyPlan, groups: &mut [report::ResultGroup]) {
    let candidate = |name: &str| plan.comparisons().any(|(_, variant)| variant.name == name);
    let primary =
        groups.iter_mut().filter(|group| group.primary).flat_map(|group| &mut group.cells);
    let mut all: Vec<(f64, &mut VariantJudgement)> = primary
        .filter(|cell| candidate(&cell.variant))
        .filter_map(|cell| cell.judgement.as_mut())
        .filter_map(|judgement| Some((judgement.p?, judgement)))
        .collect();
    if all.len() < 2 {
        return;
    }
    let p: Vec<f64> = all.iter().map(|(p, _)| *p).collect();
    let of = p.len();
    for ((_, judgement), q) in all.iter_mut().zip(stats::benjamini_hochberg(&p)) {
        judgement.q = Some(q);
        let claims = matches!(
            judgement.verdict,
            report::ShownVerdict::Better
                | report::ShownVerdict::Worse
                | report::ShownVerdict::SlightlyBetter
                | report::ShownVerdict::SlightlyWorse
        );
        if claims && q > ALPHA {
            judgement.notes.push(format!(
                "As one of {of} comparisons it is no finding: of those as clear as this, {:.0} % may be chance.",
                q * 100.0
            ));
        }
    }
}

/// A metric as it is told: where the clock counts instructions, nothing is faster.
fn told_metric(plan: &StudyPlan, metric: &Metric) -> Metric {
    let kind = match metric.kind {
        MetricKind::Time | MetricKind::Rate if plan.environment().is_deterministic() => {
            MetricKind::Count
        }
        kind => kind,
    };
    Metric { kind, ..metric.clone() }
}

fn show_group(
    dir: &Path,
    plan: &StudyPlan,
    state: &JournalState,
    group: &MetricGroup<'_>,
    trials: &[JournalTrial<'_>],
) -> report::ResultGroup {
    let engine = results::engine(plan, state);
    let baseline = results::baseline_index(plan);
    let kind = report::sample_kind(group.metric.kind, &group.metric.unit.0);
    let steady = pilot::repeats(plan, trials, group.workload).is_steady;
    let cell = |(index, variant): (usize, &PlanVariant)| {
        let boots = &group.boots[index];
        let counted: Vec<_> =
            boots.iter().filter(|boot| boot.counted).map(|boot| boot.statistic).collect();
        let estimate = stats::describe(kind, &counted, 1.0 - ALPHA).map(|estimate| ShownEstimate {
            centre: estimate.centre,
            interval: estimate.interval.map(span),
        });
        let judgement = baseline.filter(|baseline| *baseline != index).map(|baseline| {
            let comparison = group.comparison(plan, baseline, index);
            let mut judged = VariantJudgement::of(engine.as_ref(), &comparison);
            if let Some(controlled) = group.controlled(plan, baseline, index) {
                judged.notes.push(format!(
                    "What {} shows beside each trial explains {:.0} % of the noise, which was taken out.",
                    controlled.sign,
                    controlled.correlation.powi(2) * 100.0
                ));
            }
            if !steady {
                judged.invalidate(Invalidity::WarmingUp);
            }
            judged
        });
        CellResults {
            variant: variant.name.clone(),
            boots: boots.iter().map(show_boot).collect(),
            estimate,
            judgement,
        }
    };
    let primary = group.is_primary();
    let margin = group.workload.margin_percent.get(&group.metric.name);
    let mut shown = report::ResultGroup {
        load: group.load.name.clone(),
        workload: group.workload.label.clone(),
        metric: told_metric(plan, group.metric),
        primary,
        margin: margin.map(|percent| percent / 100.0),
        cells: plan.variants.iter().enumerate().map(cell).collect(),
        movers: if primary { why::movers(plan, group, trials) } else { Vec::new() },
        counts: if primary { counts::counts(plan, group, trials) } else { Vec::new() },
        steadiness: overall::steadiness(plan, engine.as_ref(), group),
        published: published::values(
            plan,
            &group.load.name,
            &group.workload.label,
            &group.metric.name,
        ),
        claims: published::claims(dir, plan, engine.as_ref(), group, trials, steady),
    };
    shown.judge_published(&plan.baseline, 1.0 - ALPHA);
    shown
}

fn span(interval: Interval) -> ShownInterval {
    ShownInterval { lo: interval.lo, hi: interval.hi }
}

fn show_boot(boot: &BootValue) -> report::BootPoint {
    report::BootPoint {
        block: boot.block,
        order: boot.order,
        value: boot.statistic.value,
        samples: boot.samples.clone(),
        counted: boot.counted,
    }
}

fn failure(dir: &Path, result: &TrialResult) -> Option<TrialFailure> {
    let Outcome::Failed(failure) = &result.outcome else { return None };
    // Whoever interrupted the study knows; the block is done again, and a
    // warning tells it.
    if failure.kind == FailureKind::Aborted {
        return None;
    }
    let (console_file, state_file) = (result.console.as_ref(), result.device_state.as_ref());
    Some(TrialFailure {
        trial: result.trial.clone(),
        failure: failure.clone(),
        console_tail: result.console_tail.clone(),
        console_file: console_file.map(|hash| blob_path(dir, hash).display().to_string()),
        state_file: state_file.map(|hash| blob_path(dir, hash).display().to_string()),
    })
}

fn run_warnings(
    plan: &StudyPlan,
    events: &[JournalEvent],
    state: &JournalState,
    trials: &[JournalTrial<'_>],
    groups: &[MetricGroup<'_>],
) -> Vec<String> {
    let mut warnings = Vec::new();
    if !state.ended {
        warnings.push("The study is not complete: go on with `vmlab run --resume`.".to_owned());
    }
    warnings.extend(ended_early(plan, events, state));
    warnings.extend(several_versions(events));
    let left_out = plan.variants_left_out.iter();
    warnings.extend(left_out.map(|(name, why)| format!("{name} is left out: {why}.")));
    let environments: std::collections::BTreeSet<Environment> =
        plan.variants.iter().map(|variant| variant.environment).collect();
    if let Some(host) = plan.variants.iter().find(|variant| variant.on == RunsOn::Host) {
        warnings.push(format!(
            "{} ran on the host itself: each of its trials begins with fresh processes and empty folders, all on one boot of one kernel, so the spread between its trials lacks what a fresh kernel adds. Memory and page cache are the host's, whatever the VM has; the programs are the host's own.",
            host.name
        ));
    }
    if environments.len() > 1 && !compares_host_and_kvm(&environments) {
        let list: Vec<_> = plan
            .variants
            .iter()
            .map(|variant| format!("{} {}", variant.name, variant.environment))
            .collect();
        warnings.push(format!(
            "The variants ran in different environments ({}): their ratio is not a speed-up.",
            list.join(", ")
        ));
    }
    let again: u32 = state.complete.values().sum();
    let redone = (again as usize).saturating_sub(state.rejected.len());
    if redone > 0 {
        warnings.push(format!(
            "{redone} attempt(s) at a block were interrupted; they are kept and not counted."
        ));
    }
    let again = state.rejected.iter().map(|(block, _, reasons)| (*block, told(reasons)));
    warnings.extend(of_blocks(&again.collect::<Vec<_>>(), ["was done again:", "were done again:"]));
    let counted = state.unsteady.iter().map(|(block, reasons)| (*block, told(reasons)));
    warnings.extend(of_blocks(&counted.collect::<Vec<_>>(), ["counts although", "count although"]));
    for (block, not_restored) in &state.not_restored {
        warnings.push(format!("After block {block}: {}.", not_restored.join("; ")));
    }
    for workload in &plan.workloads {
        let repeats = pilot::repeats(plan, trials, workload);
        if !repeats.is_steady {
            warnings.push(format!(
                "No steady state: {} was still warming up at the last of its {} invocations; name more `invocations`.",
                workload.label, workload.invocations
            ));
        } else if repeats.discarded > 0 {
            warnings.push(format!(
                "The first {} invocation(s) of {} in each boot warm up and are not counted, in all variants alike.",
                repeats.discarded, workload.label
            ));
        }
    }
    for load in &plan.loads {
        for workload in &plan.workloads {
            for variant in &plan.variants {
                if state.is_hopeless(&load.name, &workload.label, &variant.name) {
                    warnings.push(format!(
                        "{} failed at {} ({}) from the start and was left out of any later blocks.",
                        variant.name, workload.label, load.name
                    ));
                }
            }
        }
    }
    for group in groups {
        if let Some((variant, block, reason)) = group.unusable.first() {
            warnings.push(format!(
                "{} of {} ({}): {reason}, in block {block} of {variant}; {} boot(s) in all have no value.",
                group.metric.name,
                group.workload.label,
                group.load.name,
                group.unusable.len()
            ));
        }
    }
    warnings.extend(contended(plan, trials));
    let mut said: Vec<(String, u32)> = Vec::new();
    // Each run of a trial says it again.
    let once = trials
        .iter()
        .flat_map(|trial| trial.result.warnings.iter().collect::<std::collections::BTreeSet<_>>());
    for warning in once {
        match said.iter_mut().find(|(text, _)| text == warning) {
            Some((_, times)) => *times += 1,
            None => said.push((warning.clone(), 1)),
        }
    }
    warnings.extend(said.into_iter().map(|(text, times)| match times {
        1 => text,
        times => format!("{text} ({times} trials)"),
    }));
    warnings
}

/// A word about blocks that vmlabs of several versions made.
fn several_versions(events: &[JournalEvent]) -> Option<String> {
    let (mut version, mut made_by) = ("an unknown version", BTreeMap::new());
    for event in events {
        match event {
            JournalEvent::SessionStarted { vmlab_version, .. } => version = vmlab_version,
            JournalEvent::BlockEnded { block, .. } => {
                made_by.insert(*block, version);
            }
            _ => {}
        }
    }
    let mut blocks: BTreeMap<&str, NumberSet> = BTreeMap::new();
    for (block, version) in made_by {
        blocks.entry(version).or_default().insert(block);
    }
    let by = |(version, blocks): (&&str, &NumberSet)| format!("{blocks} by vmlab {version}");
    let list: Vec<String> = blocks.iter().map(by).collect();
    (list.len() > 1).then(|| {
        let list = list.join(", ");
        format!("Versions of vmlab that measure the same made the blocks: {list}.")
    })
}

/// One sentence for all blocks of which the same is to be said, each with its reason.
fn of_blocks(blocks: &[(u32, String)], [one, several]: [&str; 2]) -> Option<String> {
    match blocks {
        [] => None,
        [(block, why)] => Some(format!("Block {block} {one} {why}.")),
        [.., (last, _)] => {
            let names = |(block, _): &(u32, String)| block.to_string();
            let first: Vec<_> = blocks[..blocks.len() - 1].iter().map(names).collect();
            let why: Vec<_> =
                blocks.iter().map(|(block, why)| format!("{why} (block {block})")).collect();
            Some(format!("Blocks {} and {last} {several} {}.", first.join(", "), why.join("; ")))
        }
    }
}

fn told(reasons: &[UnsteadyCause]) -> String {
    reasons.iter().map(report::unsteady).collect::<Vec<_>>().join("; ")
}

/// True if the variants ran on the host and under its KVM: their ratio is the
/// question, not a mistake.
fn compares_host_and_kvm(environments: &std::collections::BTreeSet<Environment>) -> bool {
    environments.iter().copied().eq([Environment::Host, Environment::Kvm])
        || environments.iter().copied().eq([Environment::EmulatedHost, Environment::NestedKvm])
}

/// A word about vCPUs that had to wait for their pCPUs although the load level
/// leaves the host alone.
fn contended(plan: &StudyPlan, trials: &[JournalTrial<'_>]) -> Option<String> {
    if plan.environment().is_deterministic() {
        // It waits for what is the same in every run.
        return None;
    }
    let quiet = |name: &str| {
        plan.loads
            .iter()
            .any(|load| load.name == name && load.stress.is_none() && load.vms.is_none())
    };
    let waited = |trial: &&JournalTrial<'_>| {
        let sum = |name: &str| {
            trial.result.runs.iter().filter_map(|run| run.counters.get(name)).sum::<f64>()
        };
        let (run_s, wait_s) = (sum("vcpu.run_s"), sum("vcpu.wait_s"));
        wait_s > CONTENDED_PART * (run_s + wait_s)
    };
    let quiet_trials: Vec<_> =
        trials.iter().filter(|trial| trial.counted && quiet(&trial.result.trial.load)).collect();
    let count = quiet_trials.iter().filter(|trial| waited(trial)).count();
    (count > 0).then(|| {
        format!(
            "The host was not idle: in {count} of {} trials without host load the vCPUs waited for a pCPU for more than {:.0} % of their time.",
            quiet_trials.len(),
            CONTENDED_PART * 100.0
        )
    })
}

fn reproduce(plan: &StudyPlan) -> Vec<String> {
    let mut command = format!("vmlab run {} --seed {}", plan.study_file, plan.seed);
    // What the command line changed of the study's budget.
    if let Some(blocks) = plan.budget.blocks {
        command = format!("{command} --blocks {blocks}");
    }
    if let Some(minutes) = plan.budget.minutes {
        command = format!("{command} --minutes {minutes}");
    }
    vec![command]
}

fn files(dir: &Path) -> Vec<ReportFact> {
    let file = |name: &str, file: &str| ReportFact {
        name: name.to_owned(),
        value: dir.join(file).display().to_string(),
    };
    vec![
        file("report", "report.html"),
        file("samples", "samples.csv"),
        file("samples as JSON", "samples.json"),
        file("report as JSON", "report.json"),
        file("plan", "plan.json"),
        file("journal", "journal.jsonl"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_which_the_same_is_said_share_a_sentence() {
        let blocks: Vec<_> = [(3, "a"), (5, "b"), (9, "c")].map(|(n, why)| (n, why.into())).into();
        let said =
            |count: usize| of_blocks(&blocks[..count], ["counts although", "count although"]);
        assert_eq!(said(0), None);
        assert_eq!(said(1).unwrap(), "Block 3 counts although a.");
        assert_eq!(said(2).unwrap(), "Blocks 3 and 5 count although a (block 3); b (block 5).");
        let three = "Blocks 3, 5 and 9 count although a (block 3); b (block 5); c (block 9).";
        assert_eq!(said(3).unwrap(), three);
    }
}

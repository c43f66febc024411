//! A plan as text, for `vmlab check` and `vmlab run --dry-run`.

use std::fmt::Write;

use record::Environment;
use runner::host_settings::describe;
use runner::plan::StudyPlan;
use runner::study::{EndCondition, RunsOn};
use runner::summary::{command_line, further_vms};

/// Boots take about this long when nothing was measured yet, s.
const BOOT_S: f64 = 1.5;
/// The same for an emulated guest, s.
const EMULATED_BOOT_S: f64 = 3.0;

/// Blocks whose order is printed; the rest follows the same rule.
const BLOCKS_SHOWN: u32 = 12;

/// Everything that the plan will do.
pub(crate) fn text(plan: &StudyPlan) -> String {
    let mut out = String::new();
    write(&mut out, plan).expect("writing to a String does not fail");
    out
}

fn write(out: &mut String, plan: &StudyPlan) -> std::fmt::Result {
    writeln!(out, "{}", plan.title)?;
    if !plan.question.is_empty() {
        writeln!(out, "{}", plan.question)?;
    }
    let place = plan.place();
    writeln!(out, "\nEnvironment  {}", plan.environment().sentence_on(place.as_deref()))?;
    if let Some(why) = &plan.environment_why {
        writeln!(out, "             {why}")?;
    }
    match &plan.kubevirt {
        None if plan.environment() == Environment::Simulated => {
            writeln!(out, "QEMU         none; checked for {}", plan.qemu.version)?;
        }
        None => writeln!(out, "QEMU         {} ({})", plan.qemu.version, plan.qemu.path)?,
        Some(cluster) => {
            writeln!(out, "KubeVirt     {} at {}", cluster.version, cluster.server)?;
            writeln!(out, "Namespace    {}", cluster.namespace)?;
            writeln!(out, "Nodes        {}", cluster.nodes.join(", "))?;
        }
    }
    if let Some(libvirt) = &plan.libvirt {
        writeln!(out, "libvirt      {} ({}) at {}", libvirt.version, libvirt.driver, libvirt.uri)?;
    }
    for (name, image) in &plan.images {
        writeln!(out, "Image        {name} ({})", image.identity)?;
    }
    for setting in describe(&plan.host_settings) {
        writeln!(out, "Host setting {setting}, restored at the end")?;
    }
    let ground = plan.ground.describe();
    if !ground.is_empty() {
        writeln!(out, "Ground       {}, before each trial", ground.join(", "))?;
    }
    writeln!(out, "Seed         {}", plan.seed)?;
    writeln!(out, "Time         {}", expected_time(plan))?;

    writeln!(out, "\nVariants")?;
    for (name, why) in &plan.variants_left_out {
        writeln!(out, "  {name}: left out: {why}")?;
    }
    for variant in &plan.variants {
        let role = if variant.name == plan.baseline { " (baseline)" } else { "" };
        writeln!(out, "  {}{role}: {}", variant.name, variant.summary)?;
        let (lines, losses) = match variant.on {
            RunsOn::Vm => command_line(plan, &variant.spec, &variant.image),
            RunsOn::Host => Default::default(),
        };
        for (index, line) in lines.iter().enumerate() {
            let indent = if index == 0 || plan.kubevirt.is_some() { "    " } else { "      " };
            let is_last =
                index + 1 == lines.len() || plan.libvirt.is_some() || plan.kubevirt.is_some();
            let end = if is_last { "" } else { " \\" };
            writeln!(out, "{indent}{line}{end}")?;
        }
        let where_to = match (&plan.libvirt, &plan.kubevirt) {
            (Some(_), _) => "in the domain",
            (None, Some(_)) => "in the instance",
            (None, None) => "on the command line",
        };
        for loss in losses {
            writeln!(out, "    not {where_to}: {loss}")?;
        }
        for vm in further_vms(plan, variant) {
            writeln!(out, "    measured together with {}, the same but for", vm.name)?;
            for line in vm.qemu_lines {
                writeln!(out, "      {line}")?;
            }
            for loss in vm.losses {
                writeln!(out, "      not {where_to}: {loss}")?;
            }
        }
        for setting in describe(&variant.host_settings) {
            writeln!(out, "    host setting {setting}, for its trials")?;
        }
        if let Some(network) = variant.network.as_ref().filter(|_| variant.on == RunsOn::Vm) {
            writeln!(out, "    to the other VM: {network}")?;
        }
    }
    if let Some(peer) = &plan.peer {
        let (vcpus, memory_mib) = (peer.spec.vcpus(), peer.spec.memory_mib);
        writeln!(
            out,
            "\nOther VM, for workloads with two roles: {vcpus} vCPU(s), {memory_mib} MiB, {}",
            peer.image
        )?;
    }
    writeln!(out, "\nHost loads")?;
    for load in &plan.loads {
        writeln!(out, "  {}: {}", load.name, load.describe())?;
    }
    writeln!(out, "\nWorkloads")?;
    for workload in &plan.workloads {
        writeln!(
            out,
            "  {}: {} x {} in each boot, about {:.0} s each, at most {:.0} s",
            workload.label,
            workload.invocations,
            workload_command(plan, workload),
            workload.typical_s,
            workload.limit_s
        )?;
        if workload.under_test.other().is_some() {
            writeln!(out, "    the VM under test is the {}", workload.under_test)?;
        }
        if workload.profile {
            writeln!(out, "    once more behind them, beside perf in the guest and on the host")?;
        }
        if let Some(background) = &workload.background {
            writeln!(out, "    beside it, again and again: {}", background.workload)?;
        }
    }
    for (label, reason) in &plan.later {
        writeln!(out, "  {label}: not run: {reason}")?;
        let values = plan.published.iter().filter(|row| row.workload == *label).count();
        let claims = plan.published_claims.iter().filter(|row| row.workload == *label).count();
        if values + claims > 0 {
            writeln!(out, "    published of it: {} (--json lists them)", values + claims)?;
        }
    }
    writeln!(
        out,
        "\nCells: {} variant(s) x {} load(s) x {} workload(s) = {}",
        plan.variants.len(),
        plan.loads.len(),
        plan.workloads.len(),
        plan.variants.len() * plan.loads.len() * plan.workloads.len()
    )?;
    order(out, plan)
}

fn workload_command(plan: &StudyPlan, workload: &runner::plan::PlanWorkload) -> String {
    let vcpus = plan.variants.first().map_or(1, |variant| variant.spec.vcpus());
    let facts = workload::GuestFacts::alone(vcpus, plan.environment().is_emulated_time());
    match workload.resolve() {
        Ok((entry, params)) => {
            format!("`{}`", workload::shell_line(&entry.command(&params, &facts)))
        }
        Err(error) => error.to_string(),
    }
}

fn order(out: &mut String, plan: &StudyPlan) -> std::fmt::Result {
    let total = plan.total_blocks();
    let shown = total.unwrap_or(BLOCKS_SHOWN).min(BLOCKS_SHOWN);
    writeln!(out, "\nOrder: one fresh boot a trial")?;
    for number in 0..shown {
        let block = plan.block(number);
        let mut parts = Vec::new();
        for (workload, variant) in &block.trials {
            let variant = &plan.variants[*variant].name;
            parts.push(if plan.workloads.len() == 1 {
                variant.clone()
            } else {
                format!("{}/{variant}", plan.workloads[*workload].label)
            });
        }
        let load = &plan.loads[block.load].name;
        writeln!(out, "  block {number:>3}  {load}: {}", parts.join(", "))?;
    }
    match total {
        Some(total) if total > shown => writeln!(out, "  ... {} more blocks", total - shown),
        Some(_) => Ok(()),
        None => writeln!(out, "  ... as many as fit into the budget"),
    }
}

/// Seconds that one block will probably take.
pub(crate) fn block_s(plan: &StudyPlan) -> f64 {
    let boot_s = |environment| match environment {
        Environment::Host | Environment::EmulatedHost => 0.0,
        Environment::Tcg | Environment::NestedKvm | Environment::InstructionCounted => {
            EMULATED_BOOT_S
        }
        Environment::Kvm | Environment::Simulated | Environment::Imported => BOOT_S,
    };
    let boots_s: f64 = plan.variants.iter().map(|variant| boot_s(variant.environment)).sum();
    let per_variant_s: f64 = plan
        .workloads
        .iter()
        .map(|workload| workload.typical_s * f64::from(workload.invocations))
        .sum();
    boots_s * plan.workloads.len() as f64 + per_variant_s * plan.variants.len() as f64
}

fn expected_time(plan: &StudyPlan) -> String {
    let block_s = block_s(plan);
    let early = match plan.budget.until {
        EndCondition::Decided if plan.comparisons().next().is_some() => {
            "; less if all is decided before"
        }
        EndCondition::Decided | EndCondition::Budget => "",
    };
    match (plan.total_blocks(), plan.budget.minutes) {
        (Some(blocks), minutes) => {
            let whole_s = f64::from(blocks) * block_s;
            let cut = match minutes {
                Some(minutes) if minutes * 60.0 < whole_s => {
                    format!(", cut off after {minutes} min")
                }
                _ => String::new(),
            };
            let trials = blocks.saturating_mul(plan.trials_per_block());
            let whole = duration(whole_s);
            format!("about {whole} for {blocks} block(s), {trials} boots{cut}{early}")
        }
        (None, Some(minutes)) => {
            format!("{minutes} min, about {} a block{early}", duration(block_s))
        }
        (None, None) => {
            format!("about {} a block, as many as it takes to decide all", duration(block_s))
        }
    }
}

/// Seconds for people: `42 s`, `3 min`, `2 h 10 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_are_short() {
        let check = |seconds, expected| assert_eq!(super::duration(seconds), expected);
        check(0.2, "0 s");
        check(99.0, "99 s");
        check(100.0, "2 min");
        check(7_800.0, "2 h 10 min");
        check(-1.0, "0 s");
    }
}

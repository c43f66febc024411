//! What a doubting reader asks next: failures, method, host, command lines,
//! raw numbers.

use record::Environment;

use crate::escape::escape;
use crate::html::table::{HtmlTable, Td};
use crate::quantity::{UnitScale, counted, duration, percent};
use crate::sentence::{as_sentence, under_load};
use crate::{BootPoint, FurtherVm, Report, ReportFact, ReportVariant, TrialFailure, VariantRole};
use crate::{host_beside, host_picture};

/// Samples of one boot that the page lists; `samples.csv` has all of them.
const LISTED_SAMPLES: usize = 100;

pub(crate) fn failures(report: &Report) -> String {
    if report.failures.is_empty() {
        return String::new();
    }
    let items: String = report.failures.iter().map(failure).collect();
    format!(
        "<section>\n<h2>Failures</h2>\n<p>{} failed. A failure is a result: it is never counted as a value.</p>\n{items}</section>\n",
        counted(report.failures.len(), "trial")
    )
}

fn failure(failure: &TrialFailure) -> String {
    let trial = &failure.trial;
    let mut lines = failure.failure.detail.lines();
    let first = lines.next().unwrap_or("");
    let rest: Vec<&str> = lines.collect();
    let mut body = String::new();
    if !rest.is_empty() {
        body.push_str(&format!("<pre tabindex=\"0\">{}</pre>\n", escape(&rest.join("\n"))));
    }
    match &failure.console_tail {
        Some(tail) if !tail.trim().is_empty() => body.push_str(&format!(
            "<details><summary>The console's last lines</summary><pre tabindex=\"0\">{}</pre></details>\n",
            escape(tail)
        )),
        _ => body.push_str("<p class=\"quiet\">The console is empty.</p>\n"),
    }
    if let Some(file) = &failure.console_file {
        body.push_str(&format!(
            "<p class=\"quiet\">Whole console: <code>{}</code></p>\n",
            escape(file)
        ));
    }
    if let Some(file) = &failure.state_file {
        body.push_str(&format!(
            "<p class=\"quiet\">The devices: <code>vmlab state show {}</code></p>\n",
            escape(file)
        ));
    }
    format!(
        "<h3>{}: {}</h3>\n<p class=\"quiet\">{}, host load {}, block {}, attempt {}, trial {} in the order</p>\n<p>{}</p>\n{body}",
        escape(&trial.variant),
        escape(&failure.failure.kind.to_string()),
        escape(&trial.workload),
        escape(&trial.load),
        trial.block,
        trial.attempt,
        trial.order,
        escape(first),
    )
}

/// What the host did beside the trials.
pub(crate) fn beside(report: &Report) -> String {
    if report.host_beside.is_empty() {
        return String::new();
    }
    let tables = report.host_beside.iter().map(|beside| {
        let caption = format!("{} {}", beside.workload, under_load(&beside.load));
        let [variant, numbers @ ..] = host_beside::HEADS;
        let table = HtmlTable::new("host-beside", caption).text(variant);
        let mut table = numbers.into_iter().fold(table, HtmlTable::number);
        for [variant, numbers @ ..] in host_beside::rows(beside) {
            let numbers = numbers.into_iter().map(Td::from);
            table.row(std::iter::once(Td::from(variant)).chain(numbers).collect());
        }
        table.finish()
    });
    format!(
        "<section>\n<h2>The host beside the trials</h2>\n<p>Mean and greatest share of the time of the VM's pCPUs. What all variants share widens intervals only; what differs between them is weighed against each interval.</p>\n{}</section>\n",
        tables.collect::<String>()
    )
}

pub(crate) fn method(report: &Report) -> String {
    let method = &report.method;
    let planned = match method.blocks_planned {
        Some(planned) => format!("{} of {planned} planned", method.blocks_done),
        None => method.blocks_done.to_string(),
    };
    let aa = report.variants.iter().find(|variant| variant.role == VariantRole::AaArm);
    let aa = match aa {
        Some(aa) => format!(
            "An A/A arm ran along: {} is the baseline under a second name, and a difference found there is a false alarm.",
            aa.name
        ),
        None => "No A/A arm ran along, so the rate of false alarms was not measured.".to_owned(),
    };
    let origin = match report.environment {
        Environment::Simulated | Environment::Imported => report.environment.sentence(),
        _ if report.variants.iter().any(|variant| variant.on_host) => {
            "Every value of a virtual machine comes from a fresh boot, every value of the host \
             itself from fresh processes on its one running kernel."
        }
        _ => "Every value comes from a fresh boot of a real virtual machine.",
    };
    let mut paragraphs = vec![
        format!(
            "{origin} A block boots every variant once for each workload, in random order (seed {}), inside one level of host load; {planned} blocks were completed for each load.",
            method.seed
        ),
        format!(
            "The samples of a boot become one number; variants are compared inside a block, where they met the same host. The test: {} All intervals are at {}.",
            as_sentence(&method.test),
            percent(method.level)
        ),
        aa,
    ];
    if let Some(ended) = &method.ended {
        paragraphs.push(as_sentence(&format!("The study ended: {ended}")));
    }
    if let Some(wall_s) = method.wall_s {
        paragraphs.push(format!("It took {}.", duration(wall_s)));
    }
    let paragraphs: String =
        paragraphs.iter().map(|paragraph| format!("<p>{}</p>\n", escape(paragraph))).collect();
    let loads: Vec<ReportFact> = report
        .loads
        .iter()
        .map(|load| ReportFact {
            name: format!("host load {}", load.name),
            value: load.summary.clone(),
        })
        .collect();
    let found = report.environment.participle();
    format!("<section>\n<h2>How it was {found}</h2>\n{paragraphs}{}</section>\n", facts(&loads))
}

pub(crate) fn environment(report: &Report) -> String {
    let mut text = String::from("<section>\n<h2>Environment</h2>\n");
    text.push_str(&format!(
        "<p>{}</p>\n",
        escape(&report.environment.sentence_on(report.place.as_deref()))
    ));
    text.push_str(&facts(&report.about));
    if let Some(host) = &report.host {
        text.push_str(&format!(
            "<h3>The host</h3>\n<figure class=\"host\">{}</figure>\n",
            host_picture::svg(host)
        ));
        let warnings: String =
            host.warnings.iter().map(|w| format!("<li>{}</li>", escape(w))).collect();
        if !warnings.is_empty() {
            text.push_str(&format!("<p>What could not be read of it:</p>\n<ul>{warnings}</ul>\n"));
        }
    }
    text.push_str("</section>\n");
    text
}

fn facts(facts: &[ReportFact]) -> String {
    if facts.is_empty() {
        return String::new();
    }
    let rows: String = facts
        .iter()
        .map(|fact| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&fact.name), escape(&fact.value)))
        .collect();
    format!("<dl>\n{rows}</dl>\n")
}

pub(crate) fn command_lines(report: &Report) -> String {
    if report.variants.iter().all(|variant| variant.qemu_lines.is_empty()) {
        return String::new();
    }
    let with_vm = || report.variants.iter().filter(|variant| !variant.on_host);
    // Where the baseline has no VM, the first one that has is what others show
    // their differences from.
    let first = report.baseline().filter(|variant| !variant.on_host).or_else(|| with_vm().next());
    let items: String = with_vm().map(|variant| command_line(variant, first)).collect();
    let of_libvirt = with_vm().flat_map(|variant| variant.qemu_lines.first());
    let of_libvirt = of_libvirt.clone().any(|line| line.starts_with("<domain"));
    let title = if of_libvirt { "libvirt domains" } else { "QEMU command lines" };
    format!("<section>\n<h2>{title}</h2>\n{items}</section>\n")
}

fn further_vm(vm: &FurtherVm) -> String {
    let lines: String = vm.qemu_lines.iter().map(|line| format!("  {}\n", escape(line))).collect();
    let losses: String =
        vm.losses.iter().map(|loss| format!("<li>{}</li>", escape(loss))).collect();
    format!(
        "<p>Measured together with {}, the same but for</p><pre class=\"lines\" tabindex=\"0\">{lines}</pre><ul>{losses}</ul>",
        escape(&vm.name)
    )
}

fn command_line(variant: &ReportVariant, baseline: Option<&ReportVariant>) -> String {
    let baseline = baseline.filter(|baseline| baseline.name != variant.name);
    let mut lines = String::new();
    let mut differences = 0;
    for line in &variant.qemu_lines {
        if baseline.is_some_and(|baseline| !baseline.qemu_lines.contains(line)) {
            differences += 1;
            lines.push_str(&format!("<span class=\"added\">+ {}</span>\n", escape(line)));
        } else {
            lines.push_str(&format!("  {}\n", escape(line)));
        }
    }
    let gone = baseline.iter().flat_map(|baseline| &baseline.qemu_lines);
    for line in gone.filter(|line| !variant.qemu_lines.contains(line)) {
        differences += 1;
        lines.push_str(&format!("<span class=\"gone\">- {}</span>\n", escape(line)));
    }
    let about = match (baseline, differences) {
        (None, _) if variant.role == VariantRole::Baseline => "baseline".to_owned(),
        (None, _) => "the first".to_owned(),
        (Some(first), 0) if first.role == VariantRole::Baseline => {
            "the same as the baseline".to_owned()
        }
        (Some(first), 0) => format!("the same as {}", first.name),
        (Some(baseline), n) => format!("{} differ from {}", counted(n, "line"), baseline.name),
    };
    let losses: String =
        variant.losses.iter().map(|loss| format!("<li>{}</li>", escape(loss))).collect();
    let losses = if losses.is_empty() {
        losses
    } else {
        format!("<p>Not said on the command line:</p><ul>{losses}</ul>")
    };
    let further: String = variant.further.iter().map(further_vm).collect();
    let fact =
        |fact: &ReportFact| format!("<li>{}: {}</li>", escape(&fact.name), escape(&fact.value));
    let found: String = variant.found.iter().map(fact).collect();
    let found =
        if found.is_empty() { found } else { format!("<p>Found once it ran:</p><ul>{found}</ul>") };
    format!(
        "<details><summary>{} <span class=\"quiet\">({})</span></summary><pre class=\"lines\" tabindex=\"0\">{lines}</pre>{losses}{further}{found}</details>\n",
        escape(&variant.name),
        escape(&about)
    )
}

pub(crate) fn samples(report: &Report) -> String {
    let mut tables = String::new();
    for group in &report.groups {
        let scale = UnitScale::of(group);
        let caption = format!(
            "{}, {}, host load {}: in {}, boots in the order of the run",
            group.workload,
            group.metric.name,
            group.load,
            scale.unit_name()
        );
        let mut table = HtmlTable::new("raw", caption)
            .text("variant")
            .number("trial")
            .number("block")
            .number("boot")
            .text("counted")
            .text("samples");
        let mut boots: Vec<(&str, &BootPoint)> = group
            .cells
            .iter()
            .flat_map(|cell| cell.boots.iter().map(|boot| (cell.variant.as_str(), boot)))
            .collect();
        boots.sort_by_key(|(_, boot)| boot.order);
        for (variant, boot) in boots {
            let mut samples: Vec<String> =
                boot.samples.iter().take(LISTED_SAMPLES).map(|s| scale.number(*s)).collect();
            if boot.samples.len() > LISTED_SAMPLES {
                let more = boot.samples.len() - LISTED_SAMPLES;
                samples.push(format!("and {more} more in the CSV file"));
            }
            table.row(vec![
                variant.into(),
                boot.order.to_string().into(),
                boot.block.to_string().into(),
                scale.number(boot.value).into(),
                if boot.counted { "yes" } else { "no" }.into(),
                Td::Of("samples", escape(&samples.join("  "))),
            ]);
        }
        tables.push_str(&table.finish());
    }
    if tables.is_empty() {
        return String::new();
    }
    format!(
        "<section>\n<h2>Raw numbers</h2>\n<details class=\"long\"><summary>Every boot and its samples</summary>\n{tables}</details>\n</section>\n"
    )
}

pub(crate) fn reproduce(report: &Report) -> String {
    let mut text = String::new();
    if !report.reproduce.is_empty() {
        text.push_str(&format!(
            "<section>\n<h2>Do it again</h2>\n<pre tabindex=\"0\">{}</pre>\n</section>\n",
            escape(&report.reproduce.join("\n"))
        ));
    }
    if !report.files.is_empty() {
        text.push_str(&format!("<section>\n<h2>Files</h2>\n{}</section>\n", facts(&report.files)));
    }
    text
}

pub(crate) fn footer(report: &Report) -> String {
    let version = report.about.iter().find(|fact| fact.name == "vmlab");
    let version = version.map(|fact| format!(" {}", escape(&fact.value))).unwrap_or_default();
    format!(
        "<footer>Made by vmlab{version}. This page is complete in itself: it loads nothing.</footer>\n"
    )
}

//! A processor model against the processor that the host has.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, xml};
use crate::rules::worlds::{AMD, TWO_SOCKETS};
use crate::vm::Vm;

const MODELS: &str = "https://www.qemu.org/docs/master/system/qemu-cpu-models.html";
const CPUS: &str = "https://gitlab.com/qemu-project/qemu/-/blob/master/target/i386/cpu.c";

pub(crate) const MODEL_OLD: Rule = Rule {
    id: "cpu-model-old",
    severity: Severity::Hint,
    summary: "the guest's processor model is much older than the host",
    why: "Programs choose their code by what the processor says it has: a guest on a model without \
          AVX2 or AVX-512 hashes, compresses and copies with the instructions of that year, whatever \
          the host can do. A named model is right for a pool of hosts, as new as the oldest of them.",
    mend: "Use the newest model that all hosts of the pool have; host-model or host-passthrough where \
           there is one host, or all are alike",
    sources: &[MODELS, CPUS],
    affected: &[],
    check: Check::Vm(model_old),
    fires: &[
        xml(
            TWO_SOCKETS,
            "<vcpu>2</vcpu>\n<cpu mode='custom' match='exact'><model>Nehalem</model></cpu>\n",
        )
        .mended(&[("Nehalem", "Skylake-Server")]),
        qemu(TWO_SOCKETS, "kvm -cpu Westmere -smp 2 -m 4G"),
    ],
    quiet: &[qemu(TWO_SOCKETS, "kvm -cpu Cascadelake-Server-v4 -smp 2 -m 4G")],
};

pub(crate) const MODEL_FOREIGN: Rule = Rule {
    id: "cpu-model-foreign",
    severity: Severity::Warning,
    summary: "the guest's processor model is of another maker than the host's processor",
    why: "The guest's kernel works around the faults of a processor that is not there and not \
          around those of the one that is, its counters do not fit, and what only one maker has \
          (SYSENTER and SYSCALL of 32-bit programs) is emulated. libvirt refuses the model where it \
          checks it, QEMU warns of features that are missing and starts.",
    mend: "Use a model of the host's maker, host-model or host-passthrough",
    sources: &[MODELS, CPUS],
    affected: &[],
    check: Check::Vm(model_foreign),
    fires: &[
        xml(
            TWO_SOCKETS,
            "<vcpu>2</vcpu>\n<cpu mode='custom' match='exact'><model>EPYC-Rome</model></cpu>\n",
        )
        .mended(&[("EPYC-Rome", "Skylake-Server")]),
        qemu(TWO_SOCKETS, "kvm -cpu EPYC-Milan -smp 2 -m 4G"),
        qemu(AMD, "kvm -cpu Skylake-Server -smp 2 -m 4G"),
    ],
    quiet: &[
        qemu(AMD, "kvm -cpu EPYC -smp 2 -m 4G"),
        qemu(AMD, "kvm -cpu qemu64 -smp 2 -m 4G"),
        qemu(TWO_SOCKETS, "qemu-system-x86_64 -accel tcg -cpu EPYC -smp 2 -m 4G"),
    ],
};

/// Beginnings of the names of QEMU's models of AMD's processors and those like them.
const OF_AMD: [&str; 5] = ["athlon", "phenom", "Opteron", "Dhyana", "EPYC"];

fn model_foreign(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(cpu), Some(machine)) = (&vm.cpu, &context.machine) else { return };
    let Some(host) = machine.host.cpu_model.as_deref() else { return };
    let model = cpu.value.model.as_str();
    let known = MODEL_YEARS.iter().any(|(name, ..)| model.starts_with(name));
    // Zhaoxin's own.
    let other = model.starts_with("YongFeng");
    if !known || other || vm.accel.value != "kvm" || vm.live.is_some() {
        return;
    }
    let of_amd = OF_AMD.iter().any(|start| model.starts_with(start));
    let intel = host.contains("Intel") || host.contains("INTEL");
    if of_amd && intel || !of_amd && machine.is_amd() {
        let maker = if of_amd { "AMD" } else { "Intel" };
        out.at(cpu.span, format!("{model} is a model of {maker}'s, and the host has {host}"));
    }
}

/// Vector instructions for which programs have code of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vector {
    Sse4,
    Avx,
    Avx2,
    Avx512,
    Vaes,
    Amx,
}

use Vector::{Amx, Avx, Avx2, Avx512, Sse4, Vaes};

impl Vector {
    fn name(self) -> &'static str {
        match self {
            Sse4 => "SSE4",
            Avx => "AVX",
            Avx2 => "AVX2",
            Avx512 => "AVX-512",
            Vaes => "VAES",
            Amx => "AMX",
        }
    }

    /// The year from which processors of a family have it; `None` where not all do.
    fn since(self, family: Family) -> Option<u32> {
        Some(match (self, family) {
            (Sse4, Family::Amd) | (Avx, _) => 2011,
            (Sse4, _) => 2008,
            (Avx2, Family::Amd) | (Avx512, Family::Xeon) => 2017,
            (Avx2, _) => 2014,
            (Avx512, Family::Amd) => 2022,
            (Vaes, _) => 2021,
            (Amx, Family::Xeon) => 2023,
            (Avx512 | Amx, _) => return None,
        })
    }
}

/// Whose processor, as far as it decides what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Xeon,
    Core,
    Amd,
}

/// QEMU's models by the beginnings of their names, the longer before the shorter: the
/// year in which their processors came, and what they lack.
///
/// Source: `qemu-system-x86_64 -cpu help` of QEMU 7.2 to 10.0, `target/i386/cpu.c`;
/// the makers' lists of products.
const MODEL_YEARS: &[(&str, u32, &[Vector])] = &[
    ("Conroe", 2006, &[Sse4, Avx, Avx2]),
    ("Penryn", 2008, &[Avx, Avx2]),
    ("core2duo", 2006, &[Sse4, Avx, Avx2]),
    ("coreduo", 2006, &[Sse4, Avx, Avx2]),
    ("pentium", 1999, &[Sse4, Avx, Avx2]),
    ("n270", 2008, &[Sse4, Avx, Avx2]),
    ("Nehalem", 2008, &[Avx, Avx2]),
    ("Westmere", 2010, &[Avx, Avx2]),
    ("SandyBridge", 2011, &[Avx2, Avx512]),
    ("IvyBridge", 2012, &[Avx2, Avx512]),
    ("Haswell", 2013, &[Avx512, Vaes]),
    ("Broadwell", 2014, &[Avx512, Vaes]),
    ("Skylake-Client", 2015, &[Avx512, Vaes]),
    ("Skylake-Server", 2017, &[Vaes, Amx]),
    ("Denverton", 2017, &[Avx, Avx2]),
    ("KnightsMill", 2017, &[Vaes, Amx]),
    ("Cascadelake-Server", 2019, &[Vaes, Amx]),
    ("Cooperlake", 2020, &[Vaes, Amx]),
    ("Snowridge", 2020, &[Avx, Avx2]),
    ("Icelake-Client", 2019, &[Amx]),
    ("Icelake-Server", 2021, &[Amx]),
    ("YongFeng", 2022, &[Avx512, Vaes]),
    ("SapphireRapids", 2023, &[]),
    ("SierraForest", 2024, &[Avx512, Amx]),
    ("ClearwaterForest", 2026, &[Avx512, Amx]),
    ("GraniteRapids", 2024, &[]),
    ("DiamondRapids", 2026, &[]),
    ("athlon", 1999, &[Sse4, Avx, Avx2]),
    ("phenom", 2007, &[Sse4, Avx, Avx2]),
    ("Opteron_G1", 2003, &[Sse4, Avx, Avx2]),
    ("Opteron_G2", 2006, &[Sse4, Avx, Avx2]),
    ("Opteron_G3", 2007, &[Sse4, Avx, Avx2]),
    ("Opteron_G4", 2011, &[Avx2, Avx512]),
    ("Opteron_G5", 2012, &[Avx2, Avx512]),
    ("Dhyana", 2018, &[Avx512, Vaes]),
    ("EPYC-Rome", 2019, &[Avx512, Vaes]),
    ("EPYC-Milan", 2021, &[Avx512]),
    ("EPYC-Genoa", 2022, &[]),
    ("EPYC-Turin", 2024, &[]),
    ("EPYC", 2017, &[Avx512, Vaes]),
];

/// The year and the family of a host's processor by its name; `None` of names that do
/// not tell.
fn year_of(name: &str) -> Option<(u32, Family)> {
    let name = name.to_ascii_lowercase().replace("(r)", "").replace("(tm)", "");
    let words: Vec<&str> = name.split_whitespace().collect();
    let behind = |word: &str| {
        let place = words.iter().position(|one| *one == word)?;
        words.get(place + 1).copied()
    };
    if let Some(number) = ["platinum", "gold", "silver", "bronze"].into_iter().find_map(behind) {
        // The second digit is the generation.
        return Some((
            match number.as_bytes().get(1)? {
                b'1' => 2017,
                b'2' => 2019,
                b'3' => 2021,
                b'4' | b'5' => 2023,
                _ => return None,
            },
            Family::Xeon,
        ));
    }
    if let Some(number) = behind("epyc") {
        // The last digit of the number is the generation.
        let number = number.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        return Some((
            match (number.len(), number.as_bytes().last()?) {
                (4, b'1') => 2017,
                (4, b'2') => 2019,
                (4, b'3') => 2021,
                (4, b'4') => 2022,
                (4, b'5') => 2024,
                _ => return None,
            },
            Family::Amd,
        ));
    }
    if words.contains(&"xeon") {
        return Some((year_of_xeon(&words)?, Family::Xeon));
    }
    let core = words.iter().find_map(|word| {
        let (kind, number) = word.split_once('-')?;
        ["i3", "i5", "i7", "i9"].contains(&kind).then_some(number)
    });
    if let Some(number) = core {
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        let generation: u32 = number[..digits.checked_sub(3)?].parse().ok()?;
        let years = [2011, 2012, 2013, 2015, 2015, 2017, 2017, 2018, 2020, 2021, 2021, 2022, 2023];
        let place = usize::try_from(generation.checked_sub(2)?).ok()?;
        return years.get(place).map(|year| (*year, Family::Core));
    }
    None
}

/// Xeons before the metals, and after them.
fn year_of_xeon(words: &[&str]) -> Option<u32> {
    let revision = words.iter().find_map(|word| match *word {
        "v2" => Some(1),
        "v3" => Some(2),
        "v4" => Some(3),
        "v5" => Some(4),
        "v6" => Some(5),
        _ => None,
    });
    let family = |start: &str| words.iter().any(|word| word.starts_with(start));
    let years: &[u32] = if family("e3-") {
        &[2011, 2012, 2013, 2015, 2015, 2017]
    } else if family("e5-") {
        &[2012, 2013, 2014, 2016]
    } else if family("e7-") {
        &[2011, 2014, 2015, 2016]
    } else {
        // Four digits and what kind of cores: 6980P, 6780E.
        let is_six =
            |word: &&&str| word.len() == 5 && word.starts_with('6') && word.ends_with(['p', 'e']);
        return words.iter().find(is_six).map(|_| 2024);
    };
    years.get(revision.unwrap_or(0)).copied()
}

/// Years between a model and the host that are worth a word: three generations.
const OLD_YEARS: u32 = 5;

fn model_old(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(cpu), Some(machine)) = (&vm.cpu, &context.machine) else { return };
    let Some(host) = machine.host.cpu_model.as_deref() else { return };
    let model = cpu.value.model.as_str();
    let known = MODEL_YEARS.iter().find(|(name, ..)| model.starts_with(name));
    let (Some((name, year, lacks)), Some((now, family))) = (known, year_of(host)) else { return };
    let has = |vector: &&Vector| vector.since(family).is_some_and(|since| now >= since);
    let names: Vec<&str> = lacks.iter().filter(has).map(|vector| vector.name()).collect();
    let added = |name: &&str| {
        cpu.value.features.iter().any(|(one, on)| {
            *on && one.replace(['-', '_', '.'], "").eq_ignore_ascii_case(&name.replace('-', ""))
        })
    };
    if now < year + OLD_YEARS || names.is_empty() || names.iter().any(added) {
        return;
    }
    let names = names.join(" and ");
    out.at(cpu.span, format!("{name} is of {year} and has no {names}, the host's is of {now}"))
        .note(format!("the host has {host}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_years() {
        let check = |name: &str, expected: Option<u32>| {
            assert_eq!(year_of(name).map(|(year, _)| year), expected, "{name}");
        };
        check("Intel(R) Xeon(R) Silver 4208 CPU @ 2.10GHz", Some(2019));
        check("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", Some(2021));
        check("INTEL(R) XEON(R) PLATINUM 8592+", Some(2023));
        check("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", Some(2016));
        check("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", Some(2012));
        check("Intel(R) Xeon(R) CPU E3-1270 v6 @ 3.80GHz", Some(2017));
        check("Intel(R) Xeon(R) CPU E7-8890 v4 @ 2.20GHz", Some(2016));
        check("Intel(R) Xeon(R) 6980P", Some(2024));
        check("Intel(R) Core(TM) i7-6700K CPU @ 4.00GHz", Some(2015));
        check("12th Gen Intel(R) Core(TM) i9-12900K", Some(2021));
        check("AMD EPYC 7302 16-Core Processor", Some(2019));
        check("AMD EPYC 9654 96-Core Processor", Some(2022));
        check("AMD EPYC 7B13 64-Core Processor", Some(2021));
        check("Intel(R) Xeon(R) Processor", None);
        check("Intel(R) Core(TM) i7-", None);
        check("Gold", None);
    }

    #[test]
    fn a_model_is_found_by_the_longest_name() {
        for (place, (name, ..)) in MODEL_YEARS.iter().enumerate() {
            let found = MODEL_YEARS.iter().position(|(start, ..)| name.starts_with(start));
            assert_eq!(found, Some(place), "{name}");
        }
    }

    /// Every model of an installed QEMU is known, but for those that are no processor.
    #[test]
    fn all_models_of_qemu_are_known() {
        let Ok(help) =
            std::process::Command::new("qemu-system-x86_64").args(["-cpu", "help"]).output()
        else {
            suite::skip("no QEMU is installed");
            return;
        };
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let listed = help.lines().skip_while(|line| !line.contains("CPUs:")).skip(1);
        let models = listed.take_while(|line| !line.trim().is_empty());
        let made = ["486", "base", "host", "kvm", "max", "qemu"];
        let unknown: Vec<&str> = models
            .filter_map(|line| line.trim_start_matches("x86 ").split_whitespace().next())
            .filter(|name| !made.iter().any(|start| name.starts_with(start)))
            .filter(|name| !MODEL_YEARS.iter().any(|(start, ..)| name.starts_with(start)))
            .collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }
}

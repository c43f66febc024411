//! Rates of error and machine time of rules that turn numbers into verdicts,
//! over simulated laboratories whose truth is known. Prints tables in Markdown;
//! with a file's name, writes them between the marks in that file too.
//!
//! Usage: `verdicts [CASES [FILE]]`, where CASES is for each noise and truth.

mod laboratory;
mod rules;
mod tally;

use std::fmt::Write as _;

use laboratory::{Laboratory, Noise, TRUTHS};
use rules::{Rule, answer, names_the_host, takes_from_b};
use stats::AdaptiveClaim;
use tally::Tally;

const BEGIN: &str = "<!-- tables: begin -->\n";
const END: &str = "<!-- tables: end -->";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let cases: u64 = arguments.next().map_or(Ok(100), |cases| cases.parse())?;
    let tables = tables(cases);
    print!("{tables}");
    let Some(file) = arguments.next() else { return Ok(()) };
    let text = std::fs::read_to_string(&file)?;
    let marked = text.split_once(BEGIN).and_then(|(before, rest)| {
        rest.split_once(END).map(|(_, after)| format!("{before}{BEGIN}\n{tables}\n{END}{after}"))
    });
    std::fs::write(&file, marked.ok_or(format!("{file} has no marks for the tables"))?)?;
    Ok(())
}

fn tables(cases: u64) -> String {
    let measured: Vec<(Rule, Vec<Tally>)> = Rule::ALL
        .into_iter()
        .map(|rule| (rule, Noise::ALL.map(|noise| tally(rule, noise, cases)).into()))
        .collect();
    let mut text = format!(
        "{} cases for each of {} noises and {} truths.\n\nAll noises together:\n\n",
        cases,
        Noise::ALL.len(),
        TRUTHS.len()
    );
    text += &Tally::head("rule");
    for (rule, tallies) in &measured {
        text += &tallies.iter().copied().sum::<Tally>().row(rule.name());
    }
    for (rule, tallies) in &measured {
        // The others' errors are told by noise, the engine's whole.
        if *rule == Rule::Engine {
            text += "\nThe engine, by noise:\n\n";
            text += &Tally::head("noise");
            for (noise, tally) in Noise::ALL.iter().zip(tallies) {
                text += &tally.row(&format!("{noise:?}"));
            }
        }
    }
    text += "\nFalse claims by noise (%):\n\n| noise |";
    for (rule, _) in &measured {
        let _ = write!(text, " {} |", rule.name());
    }
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(measured.len()));
    for (place, noise) in Noise::ALL.iter().enumerate() {
        let _ = write!(text, "| {noise:?} |");
        for (_, tallies) in &measured {
            let _ = write!(text, " {:.1} |", tallies[place].false_claims_percent());
        }
        text += "\n";
    }
    text += "\nThe engine where warm-ups have other shapes:\n\n";
    text += &Tally::head("warm-up");
    for noise in Noise::WARM_UPS {
        text += &tally(Rule::Engine, noise, cases).row(&format!("{noise:?}"));
    }
    for (noise, when) in [(Noise::Constant, "always"), (Noise::Bursty, "half of the time")] {
        text += &beside_b(noise, when, cases);
    }
    text
}

/// What the engine says where others take their share beside B alone.
fn beside_b(noise: Noise, when: &str, cases: u64) -> String {
    let (mut all, mut ended, mut without, mut wrong) = (0, 0, 0, 0);
    let (mut claims, mut taken, mut named) = (0, 0, 0);
    for (number, truth) in TRUTHS.iter().enumerate() {
        for case in 0..cases {
            let seed = 9 << 56 | (number as u64) << 32 | case;
            let mut laboratory = Laboratory::new(noise, truth.ln(), seed);
            laboratory.with_b = true;
            // Less is lost in any interval.
            laboratory.share = laboratory.share.max(0.05);
            let answer = answer(&mut laboratory, seed);
            all += 1;
            without += u32::from(*truth == 1.0);
            let differs = matches!(answer.claim, AdaptiveClaim::BBetter | AdaptiveClaim::BWorse);
            wrong += u32::from(*truth == 1.0 && differs);
            match answer.claim {
                AdaptiveClaim::Inconclusive => ended += u32::from(names_the_host(&answer)),
                _ => {
                    claims += 1;
                    taken += u32::from(takes_from_b(&laboratory));
                    named += u32::from(names_the_host(&answer));
                }
            }
        }
    }
    format!(
        "\nNeighbours beside B alone, {when}, up to 60 % of the CPUs: {all} cases, {ended} end without a claim because of it; {claims} claims; of {taken} of them others took 0.1 % of B's time or more, {named} name it; {wrong} of {without} without a difference claim one.\n"
    )
}

fn tally(rule: Rule, noise: Noise, cases: u64) -> Tally {
    let mut tally = Tally::default();
    for (number, truth) in TRUTHS.iter().enumerate() {
        for case in 0..cases {
            let seed = (noise as u64) << 48 | (number as u64) << 32 | case;
            let (verdict, spent_s) = rule.judge(noise, truth.ln(), seed);
            tally.count(truth.ln(), &verdict, spent_s);
        }
    }
    tally
}

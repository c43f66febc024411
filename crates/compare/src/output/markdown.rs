//! The comparison as Markdown, for issues and pull requests.

use report::percent;

use super::words::{PrefixScale, against, change, headline, overall, steadiness, title, words};
use crate::analyse::ComparedData;

/// The comparison as Markdown.
#[must_use]
pub fn markdown(comparison: &ComparedData) -> String {
    let mut out = format!("# {}\n\n{}\n", plain(&against(comparison)), headline(comparison));
    for line in &comparison.method {
        out.push_str(&format!("\n{}\n", plain(line)));
    }
    if !comparison.common.is_empty() {
        let labels: Vec<String> =
            comparison.common.iter().map(|(key, value)| format!("{key}={value}")).collect();
        out.push_str(&format!("\nEverywhere: {}\n", plain(&labels.join(", "))));
    }
    for warning in &comparison.warnings {
        out.push_str(&format!("\n> **Note:** {}\n", plain(&warning.text)));
    }
    for (metric, info) in comparison.metrics.iter().enumerate() {
        let mut rows = comparison.rows.iter().filter(|row| row.metric == metric as u32).peekable();
        if rows.peek().is_none() {
            continue;
        }
        out.push_str(&format!("\n## {}\n\n", plain(&title(info))));
        out.push_str("|   |");
        for (variant, name) in comparison.variants.iter().enumerate() {
            out.push_str(&format!(" {} |", plain(name)));
            if variant > 0 {
                out.push_str(" change | verdict |");
            }
        }
        out.push_str("\n|---|");
        for variant in 0..comparison.variants.len() {
            out.push_str(if variant > 0 { "---:|---:|---|" } else { "---:|" });
        }
        out.push('\n');
        for row in rows {
            let scale = PrefixScale::of(row, info);
            out.push_str(&format!("| {} |", plain(&row.name)));
            for (variant, cell) in row.cells.iter().enumerate() {
                out.push_str(&format!(
                    " {} |",
                    cell.as_ref().map_or("-".to_owned(), |cell| scale.show(cell))
                ));
                if variant == 0 {
                    continue;
                }
                match &row.judged[variant - 1] {
                    Some(judged) => {
                        let words = words(judged, info);
                        out.push_str(&format!(
                            " {} | {} {} |",
                            change(judged),
                            words.sign,
                            plain(&words.sentence())
                        ));
                    }
                    None => out.push_str(" | not compared |"),
                }
            }
            out.push('\n');
        }
        for suite in comparison.suites.iter().filter(|suite| suite.metric == metric as u32) {
            let variant = plain(&comparison.variants[suite.variant as usize]);
            out.push_str(&format!("\n{}\n", overall(suite, &variant)));
        }
    }
    for (place, line) in steadiness(comparison).iter().enumerate() {
        out.push_str(if place == 0 { "\n" } else { "- " });
        out.push_str(&plain(line));
        out.push_str(if place == 0 { "\n\n" } else { "\n" });
    }
    if !comparison.gate.passed {
        out.push_str(&format!("\nWorse by more than {} %:\n\n", percent(comparison.margin)));
        for failure in &comparison.gate.failures {
            out.push_str(&format!("- {}\n", plain(failure)));
        }
    }
    out
}

/// Foreign text that can't end a cell or begin markup.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' | '#' => {
                plain.push('\\');
                plain.push(character);
            }
            character if character.is_control() => plain.push(' '),
            character => plain.push(character),
        }
    }
    plain
}

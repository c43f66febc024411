//! The colours of all that vmlab draws: pages, and pictures that are files of their own.
//!
//! A style sheet names a colour, `var(--ink)`, and never says one. Pages carry the names
//! with their colours (`variables()`). Viewers of pictures outside browsers know no
//! variables, so a picture carries the colours in their places ([`picture_style`]).

/// One colour, and what takes its place where the ground is another.
struct Colour {
    name: &'static str,
    /// On a light screen, and on paper unless [`ON_PAPER`] says otherwise.
    light: &'static str,
    dark: &'static str,
}

const fn colour(name: &'static str, light: &'static str, dark: &'static str) -> Colour {
    Colour { name, light, dark }
}

/// Text has at least 4.5 times the luminance of its ground or the ground of the text, marks
/// 3 times (WCAG 2.2, 1.4.3 and 1.4.11); `scripts/check-pages` holds them to it.
const COLOURS: &[Colour] = &[
    colour("paper", "#ffffff", "#12161b"),
    colour("panel", "#f6f7f9", "#1a2027"),
    colour("ink", "#1b2027", "#e6eaee"),
    colour("quiet", "#4d5766", "#a9b3c1"),
    colour("rule", "#d9dee4", "#333c46"),
    colour("grid", "#e4e8ec", "#28303a"),
    colour("outline", "#76818f", "#76818f"),
    colour("link", "#0b5fa5", "#7cc0f2"),
    colour("alarm", "#b00020", "#ff6b6b"),
    colour("warn-ink", "#5f3a00", "#ffe1a3"),
    colour("warn-paper", "#fff3d6", "#33270d"),
    colour("warn-rule", "#d99a1c", "#d99a1c"),
    // Verdicts.
    colour("better", "#0a5f9e", "#7cc4f5"),
    colour("better-paper", "#e2f0fa", "#10293c"),
    colour("worse", "#a34100", "#ffa066"),
    colour("worse-paper", "#fdebdd", "#3a2110"),
    colour("undecided", "#525c67", "#b4bdc7"),
    colour("undecided-paper", "#edf0f2", "#262e37"),
    colour("equal", "#3f6212", "#b5d67c"),
    colour("equal-paper", "#eef5e2", "#202b12"),
    colour("invalid", "#8c1d4c", "#f59abf"),
    colour("invalid-paper", "#fae6ee", "#3a1728"),
    colour("margin", "#eef1e4", "#23291d"),
    // What is compared: variants, price lists.
    colour("c0", "#515b67", "#aeb7c2"),
    colour("c1", "#0072b2", "#56b4e9"),
    colour("c2", "#d55e00", "#ff8f45"),
    colour("c3", "#00876a", "#35cfa3"),
    colour("c4", "#a0418f", "#df8ed0"),
    colour("c5", "#a87600", "#edc343"),
    colour("c6", "#0093a8", "#5cdcec"),
    colour("c7", "#7a4b1e", "#cfa880"),
    // The levels of a host's topology.
    colour("socket-rule", "#a9b3c1", "#4c586a"),
    colour("node", "#e6effa", "#1a2a40"),
    colour("node-rule", "#8fadd6", "#466a9d"),
    colour("die", "#f6f0fa", "#2a2133"),
    colour("die-rule", "#b79fcb", "#705886"),
    colour("cache", "#fcf4e0", "#2d2717"),
    colour("cache-rule", "#d3b46a", "#86713a"),
    colour("cluster", "#eef3ea", "#1f2a1c"),
    colour("cluster-rule", "#a3bd92", "#56734a"),
    colour("thread", "#d6e4f6", "#2a4668"),
    colour("small-thread", "#cfead8", "#235240"),
    colour("isolated", "#b3431a", "#f2a477"),
    // Who is on a pCPU. Dark text is read on them, on any ground. The VMs' stay apart for
    // most eyes, also with colour blindness (Okabe and Ito, "Color Universal Design", 2008,
    // lightened).
    colour("vm0", "#8ecae6", "#8ecae6"),
    colour("vm1", "#f6c667", "#f6c667"),
    colour("vm2", "#7fd1ae", "#7fd1ae"),
    colour("vm3", "#f2a6c4", "#f2a6c4"),
    colour("vm4", "#c3b1e1", "#c3b1e1"),
    colour("vm5", "#e8e27a", "#e8e27a"),
    colour("vm6", "#f4a582", "#f4a582"),
    colour("floating", "#e3d9f3", "#e3d9f3"),
    colour("host-tasks", "#c9cfd8", "#c9cfd8"),
    // Tasks of the host's among VMs by their hues.
    colour("others", "#8a8a8a", "#8a8a8a"),
];

/// Colours of what is compared, from `c0` on, which is the baseline's.
pub const COMPARED: usize = 8;
/// Colours of VMs on a map of pins, from `vm0` on.
pub const MAPPED_VMS: usize = 7;

/// What is darker on paper than on a screen.
const ON_PAPER: [(&str, &str); 4] =
    [("ink", "#000000"), ("quiet", "#444c55"), ("rule", "#c8ced4"), ("grid", "#dde1e5")];

/// The colours as variables of a page, for light and dark screens and for paper.
#[must_use]
pub(crate) fn variables() -> String {
    let all = |of: fn(&Colour) -> &'static str| -> String {
        COLOURS.iter().map(|colour| format!("--{}:{};", colour.name, of(colour))).collect()
    };
    let on_paper: String =
        ON_PAPER.iter().map(|(name, value)| format!("--{name}:{value};")).collect();
    format!(
        ":root{{color-scheme:light dark;{}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root{{{}}}}}\n\
         @media print{{:root{{{on_paper}}}}}\n",
        all(|colour| colour.light),
        all(|colour| colour.dark),
    )
}

/// The style sheet of a picture that follows the screen: `rules`, which name colours as a
/// page's do, once for light grounds and, as far as they name any, once for dark screens.
/// Rules stand side by side, not within each other.
#[must_use]
pub fn picture_style(rules: &str) -> String {
    let mut dark = String::new();
    for (selector, declarations) in rules.split('}').filter_map(|rule| rule.split_once('{')) {
        let coloured: Vec<&str> =
            declarations.split(';').filter(|one| one.contains("var(--")).collect();
        if !coloured.is_empty() {
            dark.push_str(&format!("{selector}{{{}}}", coloured.join(";")));
        }
    }
    format!(
        "{}@media screen and (prefers-color-scheme:dark){{{}}}",
        light_style(rules),
        in_place(&dark, |colour| colour.dark)
    )
}

/// The style sheet of a picture that is light everywhere: `rules` with their colours.
#[must_use]
pub fn light_style(rules: &str) -> String {
    in_place(rules, |colour| colour.light)
}

fn in_place(rules: &str, of: fn(&Colour) -> &'static str) -> String {
    let text = COLOURS.iter().fold(rules.to_owned(), |text, colour| {
        text.replace(&format!("var(--{})", colour.name), of(colour))
    });
    debug_assert!(!text.contains("var("), "a colour that the palette has not: {text}");
    text
}

/// Hue and saturation of the VM `number`, as `hsl()` takes them, where there may be any
/// number of VMs: the golden angle keeps neighbours apart. The lightness is the caller's.
#[must_use]
pub fn hue(number: usize) -> String {
    format!("{} 65%", (number * 137) % 360)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_carries_colours_and_its_dark_rules_alone_again() {
        let style = picture_style(".a{fill:var(--ink);font-size:13px}.b{stroke-width:2}");
        assert_eq!(
            style,
            ".a{fill:#1b2027;font-size:13px}.b{stroke-width:2}\
             @media screen and (prefers-color-scheme:dark){.a{fill:#e6eaee}}"
        );
    }

    #[test]
    fn names_are_single_and_there_for_every_number() {
        let names: Vec<&str> = COLOURS.iter().map(|colour| colour.name).collect();
        let single: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(single.len(), names.len());
        let compared = (0..COMPARED).map(|number| format!("c{number}"));
        let mapped = (0..MAPPED_VMS).map(|number| format!("vm{number}"));
        for name in compared.chain(mapped) {
            assert!(single.contains(name.as_str()), "{name}");
        }
        assert!(ON_PAPER.iter().all(|(name, _)| single.contains(name)));
    }
}

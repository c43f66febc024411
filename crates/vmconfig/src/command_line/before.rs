//! Programs that start QEMU on chosen pCPUs and nodes: `taskset`, `numactl`.
//!
//! Source: `taskset(1)`, `numactl(8)`.

use topology::PcpuSet;

use super::shell::ShellWord;
use crate::libvirt::list;
use crate::source::LocatedValue;

/// What stands before QEMU means.
#[derive(Debug, Clone, Default)]
pub struct Wrappers {
    /// pCPUs on which all of QEMU's threads may run.
    pub affinity: Option<LocatedValue<PcpuSet>>,
    /// Nodes from which all of its memory comes.
    pub memory_nodes: Option<LocatedValue<PcpuSet>>,
    /// The words that say nothing of pCPUs.
    pub rest: Vec<ShellWord>,
}

/// A program that starts another.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Taskset,
    Numactl,
    /// Its options mean something else.
    Other,
}

/// What an option is followed by.
#[derive(Clone, Copy, PartialEq)]
enum OptionOperand {
    Pcpus,
    Nodes,
}

impl Wrappers {
    /// Reads the words that stand before the program.
    #[must_use]
    pub fn read(words: &[ShellWord]) -> Self {
        let mut before = Self::default();
        let mut words = words.iter().peekable();
        let mut program = Program::Other;
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            if text.starts_with(|letter: char| letter.is_alphabetic() || letter == '/') {
                program = match file_name(text) {
                    "taskset" => Program::Taskset,
                    "numactl" => Program::Numactl,
                    _ => Program::Other,
                };
            }
            let (option, same) = match text.split_once('=') {
                Some((option, _)) => (option, true),
                None => (text, false),
            };
            let says = match (program, option) {
                (Program::Taskset, "-c" | "--cpu-list" | "-ac") => OptionOperand::Pcpus,
                (Program::Numactl, "-C" | "--physcpubind") => OptionOperand::Pcpus,
                (Program::Numactl, "-m" | "--membind") => OptionOperand::Nodes,
                _ => {
                    before.rest.push(word.clone());
                    continue;
                }
            };
            let mut used = vec![word];
            let list = if same {
                let from = option.len() + 1;
                list::parse(&text[from..])
                    .map(|set| LocatedValue::new(set, word.part(from, text.len())))
            } else {
                // `taskset --cpu-list --all-tasks 0-3`: its list is not an option's value.
                while program == Program::Taskset
                    && let Some(flag) = words.next_if(|next| next.text.starts_with('-'))
                {
                    used.push(flag);
                }
                let value = words.peek().copied();
                let list = value.and_then(|value| {
                    Some(LocatedValue::new(list::parse(&value.text)?, value.span()))
                });
                if list.is_some() {
                    used.extend(words.next());
                }
                list
            };
            match (list, says) {
                (Some(list), OptionOperand::Pcpus) => {
                    before.affinity = Some(list);
                    // It has nothing else to say.
                    before.rest.pop_if(|last| file_name(&last.text) == "taskset");
                }
                (Some(list), OptionOperand::Nodes) => {
                    before.memory_nodes = Some(list);
                    before.rest.extend(used.into_iter().cloned());
                }
                (None, _) => before.rest.extend(used.into_iter().cloned()),
            }
        }
        let is_bare =
            |rest: &[ShellWord]| matches!(rest, [one] if file_name(&one.text) == "numactl");
        if before.affinity.is_some() && is_bare(&before.rest) {
            before.rest.clear();
        }
        before
    }
}

/// A program's name, without its folder.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, affinity: Option<&str>, nodes: Option<&str>, rest: &str) {
        let words: Vec<ShellWord> = text.split(' ').map(ShellWord::of_argument).collect();
        let read = Wrappers::read(&words);
        let set = |at: Option<LocatedValue<PcpuSet>>| at.map(|at| at.value.to_string());
        assert_eq!(set(read.affinity).as_deref(), affinity, "{text}");
        assert_eq!(set(read.memory_nodes).as_deref(), nodes, "{text}");
        let left: Vec<&str> = read.rest.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(left.join(" "), rest, "{text}");
    }

    #[test]
    fn programs_choose_pcpus_and_nodes() {
        check("taskset -c 0-3", Some("0-3"), None, "");
        check("/usr/bin/taskset --cpu-list --all-tasks 4,6", Some("4,6"), None, "");
        check("taskset -a -c 0-3", Some("0-3"), None, "taskset -a");
        check("sudo taskset -c 2", Some("2"), None, "sudo");
        check("numactl -C 0-3", Some("0-3"), None, "");
        check("numactl -C 0-3 -m 0", Some("0-3"), Some("0"), "numactl -m 0");
        check(
            "numactl --physcpubind=0-3 --membind=1",
            Some("0-3"),
            Some("1"),
            "numactl --membind=1",
        );
        check("taskset 0xf", None, None, "taskset 0xf");
        check("taskset -c", None, None, "taskset -c");
        check("bash -c 1", None, None, "bash -c 1");
        check("ionice -c 2 -n 0", None, None, "ionice -c 2 -n 0");
        check("taskset -c 1 ionice -c 2", Some("1"), None, "ionice -c 2");
    }
}

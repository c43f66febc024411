//! What a node's kernel is told at its boot of pCPUs and huge pages.
//!
//! Source: Linux 6.12, `Documentation/admin-guide/kernel-parameters.txt`;
//! `kernel/sched/isolation.c` (`housekeeping_isolcpus_setup`), `mm/hugetlb.c`,
//! `lib/bitmap-str.c` (`all`, `N`).

use std::collections::BTreeMap;

use topology::{PcpuSet, bytes};

/// Pages of `hugepages=` where nobody says their size: those of x86-64, and of arm64 with
/// pages of 4 KiB.
const DEFAULT_HUGE_PAGE: u64 = 2 << 20;

/// The parameters of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootParameters {
    /// All, in their order.
    pub words: Vec<String>,
    /// pCPUs among which the scheduler balances nothing (`isolcpus=`, flag `domain`).
    pub isolated: PcpuSet,
    /// pCPUs without the scheduler's tick while one task runs (`nohz_full=`).
    pub nohz_full: PcpuSet,
    /// Huge pages that are set aside: bytes by size of a page.
    pub huge_page_bytes: BTreeMap<u64, u64>,
    /// What stands there and has no meaning, each with why.
    pub wrong: Vec<String>,
}

impl BootParameters {
    /// Of a kernel of so many pCPUs. An argument may hold several parameters.
    pub fn read<'a>(arguments: impl IntoIterator<Item = &'a str>, pcpus: u32) -> Self {
        let words = arguments.into_iter().flat_map(str::split_whitespace);
        let mut read = Self { words: words.map(str::to_owned).collect(), ..Self::default() };
        let words = read.words.clone();
        let pairs = || words.iter().filter_map(|word| word.split_once('='));
        let size = |text: &str| bytes::parse(text, 1).filter(|size| *size > 0);
        // The last one holds for all, wherever it stands.
        let default = pairs().rfind(|(name, _)| *name == "default_hugepagesz");
        let default = default.and_then(|(_, text)| size(text)).unwrap_or(DEFAULT_HUGE_PAGE);
        let mut page = Some(default);
        let mut isolated = None;
        for (name, value) in pairs() {
            let done = match name {
                "isolcpus" => read.isolate(value, pcpus, &mut isolated),
                "nohz_full" => pcpu_list(value, pcpus).map(|set| read.nohz_full = set),
                "default_hugepagesz" | "hugepagesz" => {
                    page = size(value);
                    page.map(drop).ok_or_else(|| "no size of a page".to_owned())
                }
                "hugepages" => read.set_aside(value, page),
                _ => Ok(()),
            };
            if let Err(why) = done {
                read.wrong.push(format!("{name}={value}: {why}"));
            }
        }
        read
    }

    /// `isolcpus=[FLAG,...]LIST`; without flags it means `domain`. A second one is not heeded
    /// if it names other pCPUs.
    fn isolate(
        &mut self,
        value: &str,
        pcpus: u32,
        first: &mut Option<PcpuSet>,
    ) -> Result<(), String> {
        let mut list = value;
        let mut flags = Vec::new();
        while let Some((flag, rest)) = list.split_once(',')
            && flag.starts_with(|letter: char| letter.is_ascii_lowercase())
            && flag != "all"
        {
            flags.push(flag);
            list = rest;
        }
        let set = pcpu_list(list, pcpus)?;
        if !flags.is_empty() && !flags.contains(&"domain") {
            return Ok(());
        }
        match first {
            Some(first) if *first != set => {
                Err(format!("the kernel stays with the {first} of an earlier one"))
            }
            _ => {
                self.isolated = set.clone();
                *first = Some(set);
                Ok(())
            }
        }
    }

    /// `hugepages=COUNT`, or `NODE:COUNT,...`, in pages of this size.
    fn set_aside(&mut self, value: &str, page: Option<u64>) -> Result<(), String> {
        let mut count: u64 = 0;
        for part in value.split(',') {
            let number = part.split_once(':').map_or(part, |(_, number)| number);
            let number: u64 = number.parse().map_err(|_| "no number of pages".to_owned())?;
            count = count.saturating_add(number);
        }
        let page = page.ok_or_else(|| "in pages of no known size".to_owned())?;
        self.huge_page_bytes.insert(page, count.saturating_mul(page));
        Ok(())
    }
}

/// A list of the kernel's, which knows `all` and `N`, the last pCPU, beside numbers.
fn pcpu_list(text: &str, pcpus: u32) -> Result<PcpuSet, String> {
    let last = pcpus.saturating_sub(1).to_string();
    let list = if text == "all" { format!("0-{last}") } else { text.replace('N', &last) };
    list.parse().map_err(|error: topology::ParsePcpuSetError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> PcpuSet {
        text.parse().expect("a set")
    }

    #[test]
    fn what_the_kernel_isolates() {
        for (words, isolated, wrong) in [
            (&["isolcpus=2-7"][..], "2-7", 0),
            (&["quiet isolcpus=domain,managed_irq,4-N", "nosmt"], "4-15", 0),
            // The domain's balancing goes on.
            (&["isolcpus=managed_irq,2-7"], "", 0),
            (&["isolcpus=all"], "0-15", 0),
            (&["isolcpus=2-7", "isolcpus=2-7"], "2-7", 0),
            (&["isolcpus=2-7", "isolcpus=8"], "2-7", 1),
            (&["isolcpus=x"], "", 1),
        ] {
            let read = BootParameters::read(words.iter().copied(), 16);
            assert_eq!(read.isolated, set(isolated), "{words:?}");
            assert_eq!(read.wrong.len(), wrong, "{words:?}: {:?}", read.wrong);
        }
        let read = BootParameters::read(["nohz_full=1-3,9-11"], 16);
        assert_eq!((read.nohz_full, read.isolated), (set("1-3,9-11"), set("")));
    }

    #[test]
    fn huge_pages_are_of_the_size_before_them() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        for (words, bytes) in [
            ("hugepages=10", &[(2 * MIB, 20 * MIB)][..]),
            ("default_hugepagesz=1G hugepagesz=2M hugepages=4", &[(2 * MIB, 8 * MIB)]),
            ("hugepages=3 default_hugepagesz=1G", &[(GIB, 3 * GIB)]),
            (
                "hugepagesz=1G hugepages=0:4,1:4 hugepagesz=2M hugepages=1",
                &[(GIB, 8 * GIB), (2 * MIB, 2 * MIB)],
            ),
        ] {
            let read = BootParameters::read([words], 4);
            assert_eq!(read.huge_page_bytes, bytes.iter().copied().collect(), "{words}");
            assert_eq!(read.wrong, Vec::<String>::new());
        }
        let read = BootParameters::read(["hugepagesz=big", "hugepages=1", "hugepages=a"], 4);
        assert_eq!(read.wrong.len(), 3, "{:?}", read.wrong);
    }
}

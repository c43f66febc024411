//! Who ran where, as a page with zoom: one file that loads nothing.

use std::fmt::Write as _;

use report::palette::hue;
use report::{PageWidth, escape};

use crate::engine::{PcpuUser, TraceSegment};
use crate::json::quoted;
use crate::map::{Map, Origin};

const SCRIPT: &str = include_str!("page.js");

/// More of them make a page that no browser shows.
pub const MOST_SEGMENTS: usize = 2_000_000;

/// A page of a map: a row a pCPU, a colour a VM, lighter by vCPU, host tasks grey;
/// pause exits and directed yields marked. It zooms by wheel, keys and buttons, and
/// says who is under the pointer. `None` if there are more than [`MOST_SEGMENTS`].
#[must_use]
pub fn html(map: &Map) -> Option<String> {
    if map.segments.len() > MOST_SEGMENTS {
        return None;
    }
    let title = if map.title.is_empty() { "Who ran where" } else { &map.title };
    let rows = map.pcpus.len();
    let height = (rows * 16).clamp(160, 1_400) + 22;
    let mut body = format!(
        "<main>\n<h1>{}</h1>\n<p>{} {rows} pCPUs, {} VMs, {:.3} ms. Wheel, + and - zoom; drag and \
         arrow keys move; 0 shows all.</p>\n<ul class=\"vms\" aria-label=\"VMs\">\n",
        escape(title),
        map.origin.word(),
        map.vms.len(),
        (map.to_ns - map.from_ns) as f64 / 1e6,
    );
    for (vm, named) in map.vms.iter().enumerate().take(64) {
        let _ = writeln!(
            body,
            "<li><span style=\"background: hsl({} 45%)\"></span>{}</li>",
            hue(vm),
            escape(&named.name)
        );
    }
    if !map.tasks.is_empty() {
        body.push_str("<li><span class=\"others\"></span>others</li>\n");
    }
    let _ = write!(
        body,
        "</ul>\n<p><button id=\"in\" type=\"button\" aria-label=\"Zoom in\">+</button> \
         <button id=\"out\" type=\"button\" aria-label=\"Zoom out\">&minus;</button> \
         <button id=\"all\" type=\"button\">All</button>\
         <label><input id=\"exits\" type=\"checkbox\" checked> pause exits (red, below)</label>\
         <label><input id=\"yields\" type=\"checkbox\" checked> directed yields \
         (above)</label></p>\n\
         <canvas id=\"map\" class=\"map\" tabindex=\"0\" role=\"img\" style=\"height: {height}px\" \
         aria-label=\"Which vCPU ran on which pCPU when\"></canvas>\n\
         <p id=\"said\" aria-live=\"polite\"></p>\n</main>\n\
         <script type=\"application/json\" id=\"data\">{}</script>\n\
         <script>\n{SCRIPT}</script>\n",
        data(map)
    );
    Some(report::page(title, PageWidth::Whole, &body))
}

/// The map's content for the page's script; times begin with the map.
fn data(map: &Map) -> String {
    let list = |of: &mut dyn Iterator<Item = String>| of.collect::<Vec<_>>().join(",");
    let vms = list(&mut map.vms.iter().enumerate().map(|(vm, named)| {
        let (name, vcpus) = (quoted(&named.name), named.vcpus);
        format!("{{\"name\":{name},\"vcpus\":{vcpus},\"hue\":\"{}\"}}", hue(vm))
    }));
    let pcpus = list(&mut map.pcpus.iter().map(u32::to_string));
    let tasks = list(&mut map.tasks.iter().map(|name| quoted(name)));
    // Everybody by number, so that each stretch is four of them.
    let mut known = std::collections::BTreeMap::new();
    let mut who = Vec::new();
    let (mut ran, mut exits, mut yields) = (String::new(), String::new(), String::new());
    let since = |ns: u64| ns.saturating_sub(map.from_ns);
    let add = |to: &mut String, numbers: &[u64]| {
        for number in numbers {
            let separator = if to.is_empty() { "" } else { "," };
            let _ = write!(to, "{separator}{number}");
        }
    };
    for segment in &map.segments {
        match *segment {
            TraceSegment::Ran { pcpu, whose, from_ns, to_ns } => {
                let pair = match whose {
                    PcpuUser::Vcpu { vm, vcpu } => (i64::from(vm), vcpu),
                    PcpuUser::Host(task) => (-1, task),
                };
                let number = *known.entry(pair).or_insert_with(|| {
                    who.push(format!("[{},{}]", pair.0, pair.1));
                    who.len() as u64 - 1
                });
                let from = from_ns.max(map.from_ns);
                let length = to_ns.saturating_sub(from);
                add(&mut ran, &[u64::from(pcpu), number, since(from), length]);
            }
            TraceSegment::PauseExit { pcpu, at_ns } => {
                add(&mut exits, &[u64::from(pcpu), since(at_ns)]);
            }
            TraceSegment::Yield { pcpu, at_ns } => {
                add(&mut yields, &[u64::from(pcpu), since(at_ns)])
            }
        }
    }
    let zero = if map.origin == Origin::Recorded { map.from_ns } else { 0 };
    format!(
        "{{\"from\":{},\"to\":{},\"zero\":{zero},\"pcpus\":[{pcpus}],\"vms\":[{vms}],\
         \"tasks\":[{tasks}],\"who\":[{}],\"ran\":[{ran}],\"exits\":[{exits}],\
         \"yields\":[{yields}]}}",
        map.from_ns,
        map.to_ns,
        who.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording;

    #[test]
    fn the_data_is_whole_and_can_not_leave_its_element() {
        let text = include_str!("../testdata/recordings/perf-6.1-pids.txt");
        let mut map = recording::read("a </script> & b", text).unwrap();
        map.vms[0].name = "</script><b>".to_owned();
        let page = html(&map).unwrap();
        assert_eq!(page.matches("</script>").count(), 2, "no name ends the script");
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = rest.split_once("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["vms"][0]["name"], "</script><b>");
        let ran = data["ran"].as_array().unwrap();
        assert_eq!(ran.len(), 4 * map.segments.len());
        let whole = map.to_ns - map.from_ns;
        for stretch in ran.chunks(4) {
            let [_, _, from, length] = [0, 1, 2, 3].map(|at| stretch[at].as_u64().unwrap());
            assert!(length > 0 && from + length <= whole, "{stretch:?}");
        }
    }
}

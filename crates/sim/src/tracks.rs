//! Who ran where, for viewers of traces.

use crate::engine::{PcpuUser, TraceSegment};
use crate::json::quoted;
use crate::map::Map;

/// A map for Perfetto and Chrome's about:tracing: JSON, one track a pCPU.
#[must_use]
pub fn trace(map: &Map) -> String {
    let mut events = Vec::new();
    for (pcpu, number) in map.pcpus.iter().enumerate() {
        events.push(format!(
            "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":{pcpu},\
             \"args\":{{\"name\":\"pCPU {number}\"}}}}"
        ));
    }
    let us = |ns: u64| format!("{}.{:03}", ns / 1_000, ns % 1_000);
    for segment in &map.segments {
        events.push(match *segment {
            TraceSegment::Ran { pcpu, whose, from_ns, to_ns } => {
                let name = match whose {
                    PcpuUser::Vcpu { vm, vcpu } => {
                        format!("{} vCPU {vcpu}", map.vms[vm as usize].name)
                    }
                    PcpuUser::Host(task) => map.tasks[task as usize].clone(),
                };
                format!(
                    "{{\"name\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":0,\"tid\":{pcpu}}}",
                    quoted(&name),
                    us(from_ns),
                    us(to_ns - from_ns)
                )
            }
            TraceSegment::PauseExit { pcpu, at_ns } => instant("pause exit", &us(at_ns), pcpu),
            TraceSegment::Yield { pcpu, at_ns } => instant("directed yield", &us(at_ns), pcpu),
        });
    }
    format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

fn instant(name: &str, us: &str, pcpu: u32) -> String {
    format!("{{\"name\":\"{name}\",\"ph\":\"i\",\"s\":\"t\",\"ts\":{us},\"pid\":0,\"tid\":{pcpu}}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{MapVm, Origin};

    #[test]
    fn every_segment_is_an_event() {
        let ran = |whose| TraceSegment::Ran { pcpu: 0, whose, from_ns: 1_500, to_ns: 4_000 };
        let map = Map {
            title: String::new(),
            origin: Origin::Simulated,
            from_ns: 0,
            to_ns: 5_000,
            pcpus: vec![3],
            vms: vec![MapVm { name: "<a & \"b\">".to_owned(), vcpus: 1 }],
            tasks: vec!["noise".to_owned()],
            segments: vec![
                ran(PcpuUser::Vcpu { vm: 0, vcpu: 0 }),
                ran(PcpuUser::Host(0)),
                TraceSegment::PauseExit { pcpu: 0, at_ns: 2_000 },
                TraceSegment::Yield { pcpu: 0, at_ns: 2_500 },
            ],
        };
        let trace: serde_json::Value = serde_json::from_str(&trace(&map)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
        let expected =
            ["thread_name", "<a & \"b\"> vCPU 0", "noise", "pause exit", "directed yield"];
        assert_eq!(names, expected);
        assert_eq!(events[0]["args"]["name"], "pCPU 3");
        assert_eq!((&events[1]["ts"], &events[1]["dur"]), (&1.5.into(), &2.5.into()));
    }
}

//! `vmlab run --metrics`: asked while a real study runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use suite::{Tier, needs};

use crate::lab::vmlab;
use crate::running::{RunningVmlab, Study};

const REST: &str = "[[variant]]\nname = \"one\"\n\n[[variant]]\nname = \"two\"\nvm.vcpus = 2\n\n\
                    [[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The names of the metrics that the dashboard asks for.
fn asked_by_dashboard() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/grafana/vmlab.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    expressions
        .flat_map(|expression| expression.split(word))
        .filter(|name| name.starts_with("vmlab_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_dashboard_asks_for_what_the_page_explains() {
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let asked = asked_by_dashboard();
    assert!(asked.len() > 8, "{asked:?}");
    for name in asked {
        let plain = name.replace("_ratio_high", "_ratio");
        assert!(page.contains(&format!("`{plain}`")), "docs/metrics.md does not explain {name}");
    }
}

/// The answer's head and body; none while nobody listens.
fn get(address: SocketAddr, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// The names of the samples in an exposition.
fn names(body: &str) -> BTreeSet<String> {
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

#[test]
fn a_running_study_can_be_asked() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(3, REST);
    let file = study.folder().join("study.toml");
    let mut command = vmlab(["run", "--metrics", "127.0.0.1:0", "--out"]);
    command.arg(study.dir()).arg(file);
    let mut running = RunningVmlab::spawn(&mut command, &study.dir());
    let at = running.until("an address", |running| {
        let said = running.told();
        said.split_once("metrics at http://")?.1.split_once("/metrics")?.0.parse().ok()
    });
    let (head, first) = running.until("an answer", |_| get(at, "/metrics"));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(first.contains("emulated_time=\"true\""), "{first}");
    assert!(first.ends_with("# EOF\n"), "{first}");
    assert!(get(at, "/").unwrap().0.starts_with("HTTP/1.1 404"));

    // Two blocks make an interval: then everything has been said once.
    let full = |body: &String| names(body).is_superset(&asked_by_dashboard());
    let body =
        running.until("all metrics", |_| get(at, "/metrics").map(|(_, body)| body).filter(full));
    assert!(body.contains("vmlab_trials_total{outcome=\"completed\"} "), "{body}");
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

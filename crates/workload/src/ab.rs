//! ab: a static page from a web server (nginx).
//!
//! Source: ab's manual page, nginx' documentation of its core and HTTP modules.

use record::{BetterDirection, MetricKind};

use crate::entry::{
    CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param, bytes, count, rate,
};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, line_of, one_log, pick, take};
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, ServerRole, UnderTest};

const PORT: u16 = 80;

/// Where the server keeps the page: in the guest's memory.
const ROOT: &str = "/tmp/vmlab-www";

/// The part of the requests that may fail, as overloaded servers let some.
const MOST_FAILED: f64 = 0.01;

/// Times of one request.
const fn time(name: &'static str, kind: MetricKind, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", BetterDirection::Lower, kind, help)
}

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "ab",
    summary: "A static page from a web server: requests a second (ApacheBench, nginx)",
    about: "ab asks for one page again and again, so many requests at a time. The page lies in \
            the server's page cache: what is measured is the network, the wake-ups, and nginx' \
            system calls. Every request opens a connection of its own unless `keepalive`.",
    measures: "Short connections between two VMs: notifications, interrupts, vhost.",
    needs: &["ab"],
    beside: RoleCommands {
        server: Some(ServerRole { needs: &["nginx"], setup, under_test: UnderTest::Server }),
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::int("requests", (1, 100_000_000), 10_000, "Requests of a run"),
        Param::int("concurrency", (1, 20_000), 100, "Requests at a time"),
        Param::int("page_bytes", (1, 1 << 30), 41_288, "Size of the page").unit("B"),
        Param::bool("keepalive", false, "Many requests over one connection"),
        Param::per_vcpu("workers", 1024, "nginx' worker processes"),
    ],
    metrics: &[
        rate("requests-per-s", "Requests that were answered a second").primary(),
        bytes("transfer-rate", "Bytes received a second, headers included"),
        time("request-mean", MetricKind::Time, "Mean time of a request, connecting included"),
        time("request-sd", MetricKind::Time, "Standard deviation of the requests' times"),
        time("request-min", MetricKind::Quantile, "Time of the shortest request"),
        time("request-p50", MetricKind::Quantile, "Time in which half of the requests ended"),
        time("request-p66", MetricKind::Quantile, "Time in which 66 % of the requests ended"),
        time("request-p75", MetricKind::Quantile, "Time in which 75 % of the requests ended"),
        time("request-p80", MetricKind::Quantile, "Time in which 80 % of the requests ended"),
        time("request-p90", MetricKind::Quantile, "Time in which 90 % of the requests ended"),
        time("request-p95", MetricKind::Quantile, "Time in which 95 % of the requests ended"),
        time("request-p98", MetricKind::Quantile, "Time in which 98 % of the requests ended"),
        time("request-p99", MetricKind::Quantile, "Time in which 99 % of the requests ended"),
        time("request-max", MetricKind::Quantile, "Time of the longest request"),
        time("connect-min", MetricKind::Quantile, "Shortest time of opening a connection"),
        time("connect-mean", MetricKind::Time, "Mean time of opening a connection"),
        time("connect-sd", MetricKind::Time, "Standard deviation of opening a connection"),
        time("connect-median", MetricKind::Quantile, "Median time of opening a connection"),
        time("connect-max", MetricKind::Quantile, "Longest time of opening a connection"),
        time("processing-min", MetricKind::Quantile, "Shortest time from connection to end"),
        time("processing-mean", MetricKind::Time, "Mean time from connection to end"),
        time("processing-sd", MetricKind::Time, "Standard deviation from connection to end"),
        time("processing-median", MetricKind::Quantile, "Median time from connection to end"),
        time("processing-max", MetricKind::Quantile, "Longest time from connection to end"),
        time("waiting-min", MetricKind::Quantile, "Shortest time to the first byte"),
        time("waiting-mean", MetricKind::Time, "Mean time to the first byte"),
        time("waiting-sd", MetricKind::Time, "Standard deviation of the time to the first byte"),
        time("waiting-median", MetricKind::Quantile, "Median time to the first byte"),
        time("waiting-max", MetricKind::Quantile, "Longest time to the first byte"),
        count("failed", "Requests that were not answered whole"),
    ],
    repeats: "One run makes `requests` and brings one sample of every metric. A run in \
              which more than one request of a hundred failed is refused.",
    example: &[("concurrency", DefaultValue::Int(1)), ("requests", DefaultValue::Int(1000))],
    command,
    parse,
    // Some ten thousand requests a second of a vCPU.
    duration_s: |params, facts| facts.computing_s(0.2 + params.int("requests") as f64 * 1e-4),
};

fn setup(params: &Params, facts: &GuestFacts) -> Vec<GuestStep> {
    let config = format!(
        "user root;\nworker_processes {workers};\ndaemon off;\npid /tmp/vmlab-nginx.pid;\n\
         error_log stderr;\nevents {{ worker_connections 20480; }}\n\
         worker_rlimit_nofile 65536;\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000;\n  \
         client_body_temp_path /tmp/vmlab-nginx-body;\n  proxy_temp_path /tmp/vmlab-nginx-proxy;\n  \
         fastcgi_temp_path /tmp/vmlab-nginx-fastcgi;\n  uwsgi_temp_path /tmp/vmlab-nginx-uwsgi;\n  \
         scgi_temp_path /tmp/vmlab-nginx-scgi;\n  server {{\n    listen {PORT} backlog=4096;\n    \
         root {ROOT};\n  }}\n}}\n",
        workers = params.int_or_vcpus("workers", facts),
    );
    let (path, bytes) = ("/tmp/vmlab-nginx.conf", params.int("page_bytes"));
    vec![
        GuestStep::Write { path: path.to_owned(), text: config },
        GuestStep::shell(&format!(
            "mkdir -p {ROOT} /var/log/nginx; yes vmlab | head -c {bytes} >{ROOT}/index.html"
        )),
        GuestStep::Start(Daemon {
            argv: ["nginx", "-e", "stderr", "-c", path].map(str::to_owned).into(),
            ready: Readiness::Tcp(PORT),
        }),
    ]
}

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let mut argv = vec!["ab".to_owned(), "-q".to_owned()];
    if params.bool("keepalive") {
        argv.push("-k".to_owned());
    }
    let concurrency = params.int("concurrency").min(params.int("requests"));
    for (option, value) in [("-n", params.int("requests")), ("-c", concurrency)] {
        argv.extend([option.to_owned(), value.to_string()]);
    }
    argv.push(format!("http://{}:{PORT}/index.html", facts.peer));
    argv
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const PICKS: &[Pick] = &[
        pick("requests-per-s", "requests-per-s"),
        pick("transfer-rate", "transfer-rate"),
        pick("request-mean", "total-mean"),
        pick("request-sd", "total-stddev"),
        pick("request-min", "total-min"),
        pick("request-p50", "request-time").with("percentile", "50"),
        pick("request-p66", "request-time").with("percentile", "66"),
        pick("request-p75", "request-time").with("percentile", "75"),
        pick("request-p80", "request-time").with("percentile", "80"),
        pick("request-p90", "request-time").with("percentile", "90"),
        pick("request-p95", "request-time").with("percentile", "95"),
        pick("request-p98", "request-time").with("percentile", "98"),
        pick("request-p99", "request-time").with("percentile", "99"),
        pick("request-max", "request-time").with("percentile", "100"),
        pick("connect-min", "connect-min"),
        pick("connect-mean", "connect-mean"),
        pick("connect-sd", "connect-stddev"),
        pick("connect-median", "connect-median"),
        pick("connect-max", "connect-max"),
        pick("processing-min", "processing-min"),
        pick("processing-mean", "processing-mean"),
        pick("processing-sd", "processing-stddev"),
        pick("processing-median", "processing-median"),
        pick("processing-max", "processing-max"),
        pick("waiting-min", "waiting-min"),
        pick("waiting-mean", "waiting-mean"),
        pick("waiting-sd", "waiting-stddev"),
        pick("waiting-median", "waiting-median"),
        pick("waiting-max", "waiting-max"),
        pick("failed", "failed-requests"),
    ];
    let log = one_log(output, "ab")?;
    let requests = params.int("requests") as f64;
    for (what, least, most) in [
        ("failed-requests", 0.0, requests * MOST_FAILED),
        ("non-2xx-responses", 0.0, 0.0),
        ("requests", requests, requests),
    ] {
        let found = log.values.iter().find(|value| value.metric == what);
        if let Some(value) = found.filter(|value| !(least..=most).contains(&value.value)) {
            return Err(line_of(output, value)
                .expected(format!("at least {least} and at most {most} {what}")));
        }
    }
    // The last line; what stands before it may be cut off without a trace.
    if !output.stdout.contains("(longest request)\n") {
        return Err(output.ended("ab's last line"));
    }
    take(output, &log, PICKS)
}

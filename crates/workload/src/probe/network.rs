//! Probes of the network between two guests.

use super::{PROGRAM, REPEATED, REPEATS, TIME, argv, read, timed_s};
use crate::entry::{CatalogueEntry, DefaultValue, Param, bytes, count, quantile, rate};
use crate::params::Params;
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, ServerRole, UnderTest};

const PORT: u16 = 5301;

const SERVER: ServerRole =
    ServerRole { needs: &[PROGRAM], setup: |_, _| vec![server(1)], under_test: UnderTest::Server };

/// The same, with as many threads for datagrams as the workload says.
const REFLECTOR: ServerRole =
    ServerRole { setup: |params, _| vec![server(params.int("receivers"))], ..SERVER };

fn server(receivers: i64) -> GuestStep {
    let mut argv: Vec<String> =
        [PROGRAM, "net-server", "--port", &PORT.to_string()].map(str::to_owned).into();
    if receivers > 1 {
        argv.extend(["--receivers".to_owned(), receivers.to_string()]);
    }
    GuestStep::Start(Daemon { argv, ready: Readiness::Tcp(PORT) })
}

/// The tests that send one way.
const STREAMS: &[&str] = &["tcp_stream", "tcp_maerts", "udp_stream"];

/// Those that wait for an answer.
const REQUESTS: &[&str] = &["tcp_rr", "tcp_crr", "udp_rr"];

/// Those whose packets may be lost.
const DATAGRAMS: &[&str] = &["udp_stream", "udp_rr"];

pub(crate) static NET: CatalogueEntry = CatalogueEntry {
    name: "probe-net",
    summary: "TCP streams, requests and connections, UDP (netperf's tests, vmlab-probe)",
    about: "`tcp_stream` sends to the server, `tcp_maerts` back; `tcp_rr` waits for the answer to \
            each request, `tcp_crr` opens a connection for each; `udp_stream` and `udp_rr` are \
            the same with datagrams. Both sides count, and the server's count is what is said to \
            be received.",
    measures: "The virtual network: bulk transfer, or the round trip with its wake-ups.",
    needs: &[PROGRAM],
    beside: RoleCommands { server: Some(SERVER), ..RoleCommands::NOTHING },
    params: &[
        TIME,
        REPEATS,
        Param::choice(
            "test",
            &["tcp_stream", "tcp_maerts", "tcp_rr", "tcp_crr", "udp_stream", "udp_rr"],
            "tcp_stream",
            "What is sent",
        ),
        Param::int("streams", (1, 256), 1, "Connections at once"),
        Param::int("size", (1, 1 << 20), 16_384, "Bytes of a TCP write").unit("B"),
        Param::int("datagram", (28, 65_507), 1472, "Bytes of a datagram of udp_stream").unit("B"),
        Param::int("request", (1, 1 << 20), 1, "Bytes of a request").unit("B"),
        Param::int("response", (1, 1 << 20), 1, "Bytes of its answer").unit("B"),
    ],
    metrics: &[
        bytes("received", "Bytes a second that arrived").primary().only_with("test", STREAMS),
        bytes("sent", "Bytes a second that were sent").only_with("test", STREAMS),
        rate("exchanges-per-s", "Requests that were answered a second")
            .primary()
            .only_with("test", REQUESTS),
        quantile("exchange-p50", "Time that half of the requests keep")
            .optional()
            .only_with("test", REQUESTS),
        quantile("exchange-p99", "Time that 99 % keep").optional().only_with("test", REQUESTS),
        quantile("exchange-max", "The longest request").optional().only_with("test", REQUESTS),
        rate("datagrams-received", "Datagrams a second that arrived")
            .only_with("test", &["udp_stream"]),
        count("datagrams-lost", "Datagrams that did not arrive")
            .optional()
            .only_with("test", DATAGRAMS),
    ],
    repeats: REPEATED,
    example: &[("test", DefaultValue::Text("tcp_rr")), ("time_ms", DefaultValue::Int(5000))],
    command: |params, facts| {
        let mut options = peer(facts.peer.to_string());
        for name in ["streams", "size", "datagram", "request", "response"] {
            options.push((name, params.int(name).to_string()));
        }
        options.push(("test", params.text("test").to_owned()));
        argv("net", params, &options)
    },
    parse: |output, params, _| read(output, params, &NET),
    duration_s,
};

pub(crate) static UDP: CatalogueEntry = CatalogueEntry {
    name: "probe-udp",
    summary: "Datagrams a second one way, or there and back (vmlab-probe)",
    about: "The client sends datagrams as fast as it can or at a rate; the server counts them, and \
            with `two-way` sends them back, with one thread or with several `receivers`. Packets of 50 bytes are what published comparisons of \
            virtual switches took.",
    measures: "Packets a second through the virtual network, with what is lost on the way.",
    needs: &[PROGRAM],
    beside: RoleCommands { server: Some(REFLECTOR), ..RoleCommands::NOTHING },
    params: &[
        TIME,
        REPEATS,
        Param::choice("mode", &["two-way", "one-way"], "two-way", "Whether they come back"),
        Param::int("size", (28, 65_507), 50, "Bytes of a datagram").unit("B"),
        Param::int("rate", (0, 1 << 40), 0, "Datagrams a second to send; 0 for all that go"),
        Param::int("threads", (1, 1024), 1, "Threads that send"),
        Param::int(
            "receivers",
            (1, 256),
            1,
            "Threads of the server, which have the senders' ports \
                                              dealt out among them",
        ),
    ],
    metrics: &[
        rate("arrived", "Datagrams a second that the server got").primary(),
        rate("sent", "Datagrams a second that were sent"),
        rate("returned", "Datagrams a second that came back").only_with("mode", &["two-way"]),
        count("lost-there", "Datagrams that did not arrive").optional(),
        count("lost-back", "Datagrams that did not come back")
            .optional()
            .only_with("mode", &["two-way"]),
        quantile("latency-p50", "Round trip that half of them keep")
            .optional()
            .only_with("mode", &["two-way"]),
        quantile("latency-p99", "Round trip that 99 % keep")
            .optional()
            .only_with("mode", &["two-way"]),
    ],
    repeats: REPEATED,
    example: &[("mode", DefaultValue::Text("one-way")), ("size", DefaultValue::Int(200))],
    command: |params, facts| {
        let mut options = peer(facts.peer.to_string());
        for name in ["size", "rate", "threads"] {
            options.push((name, params.int(name).to_string()));
        }
        options.push(("mode", params.text("mode").to_owned()));
        argv("udp", params, &options)
    },
    parse: |output, params, _| read(output, params, &UDP),
    duration_s,
};

fn peer(host: String) -> Vec<(&'static str, String)> {
    vec![("host", host), ("port", PORT.to_string())]
}

fn duration_s(params: &Params, facts: &crate::GuestFacts) -> f64 {
    timed_s(params, facts, 1.2)
}

//! iperf3: how fast bytes get from one guest to another.
//!
//! Source: iperf3's manual page and `src/iperf_api.c` (the JSON of `-J`).

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, Param, bytes, count, time};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, line_of, one_log, pick, take};
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, ServerRole, UnderTest};

const PORT: u16 = 5201;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "iperf3",
    summary: "Network throughput between two guests: TCP or UDP streams (iperf3)",
    about: "One or more streams from the client to the server, or back (`reverse`). Throughput is \
            what the receiver got. With UDP the sender keeps to `udp_mbit_s` whatever arrives, so \
            losses and jitter show too.",
    measures: "Bulk throughput of the virtual network: virtio, vhost, offloads, and the switch \
               between the VMs.",
    needs: &["iperf3"],
    beside: RoleCommands {
        server: Some(ServerRole {
            needs: &["iperf3"],
            setup: |_, _| {
                let argv = ["iperf3", "--server", "--port", &PORT.to_string()];
                let argv = argv.map(str::to_owned).into();
                vec![GuestStep::Start(Daemon { argv, ready: Readiness::Tcp(PORT) })]
            },
            under_test: UnderTest::Server,
        }),
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::choice("protocol", &["tcp", "udp"], "tcp", "What carries the bytes"),
        Param::int("streams", (1, 128), 1, "Streams at once"),
        Param::bool("reverse", false, "The server sends and the client receives"),
        Param::int("time_s", (1, 86_400), 10, "How long").unit("s"),
        Param::int("udp_mbit_s", (1, 1_000_000), 1000, "What each UDP stream sends, 10^6 bits/s"),
    ],
    metrics: &[
        bytes("throughput", "What all streams together brought to the receiver").primary(),
        count("retransmits", "TCP segments sent again; absent where the sender can't count them")
            .optional()
            .only_with("protocol", &["tcp"]),
        time("jitter", "Mean deviation of the datagrams' transit times (RFC 1889)")
            .only_with("protocol", &["udp"]),
        count("lost", "Datagrams that did not arrive").only_with("protocol", &["udp"]),
    ],
    repeats: "One run lasts `time_s` and brings one sample of every metric.",
    example: &[("streams", DefaultValue::Int(4)), ("reverse", DefaultValue::Bool(true))],
    command,
    parse,
    duration_s: |params, _| params.int("time_s") as f64 + 1.0,
};

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let mut argv: Vec<String> = ["iperf3", "--json", "--client"].map(str::to_owned).into();
    argv.push(facts.peer.to_string());
    for (option, value) in [
        ("--port", i64::from(PORT)),
        ("--time", params.int("time_s")),
        ("--parallel", params.int("streams")),
    ] {
        argv.extend([option.to_owned(), value.to_string()]);
    }
    if params.bool("reverse") {
        argv.push("--reverse".to_owned());
    }
    if params.text("protocol") == "udp" {
        let bitrate = format!("{}M", params.int("udp_mbit_s"));
        argv.extend(["--udp".to_owned(), "--bitrate".to_owned(), bitrate]);
    }
    argv
}

/// Of one stream, and of the other direction.
const PARTS: &[&str] = &["stream", "direction"];

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const THROUGHPUT: Pick =
        pick("throughput", "throughput").with("end", "receiver").without(PARTS);
    // Only the sending side counts them, and only on Linux.
    const RETRANSMITS: Pick =
        pick("retransmits", "retransmits").with("end", "sender").without(PARTS);
    // What both sides together know of datagrams is of neither end.
    const JITTER: Pick = pick("jitter", "jitter").without(&["end", "stream", "direction"]);
    const LOST: Pick = pick("lost", "lost-datagrams").without(&["end", "stream", "direction"]);
    let log = one_log(output, "iperf3")?;
    let nothing = |value: &&record::LogValue| THROUGHPUT.fits(value) && value.value <= 0.0;
    if let Some(value) = log.values.iter().find(nothing) {
        return Err(line_of(output, value).expected("a byte that arrived"));
    }
    if params.text("protocol") != "tcp" {
        return take(output, &log, &[THROUGHPUT, JITTER, LOST]);
    }
    let counts = log.values.iter().any(|value| RETRANSMITS.fits(value));
    take(output, &log, if counts { &[THROUGHPUT, RETRANSMITS] } else { &[THROUGHPUT] })
}

//! pgbench: transactions of a small bank on PostgreSQL.
//!
//! Source: pgbench's manual page (PostgreSQL 15).

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, Param, rate, time};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{Pick, above_zero, line_of, one_log, pick, take};
use crate::roles::{Daemon, GuestStep, Readiness, RoleCommands, SCRATCH, ServerRole, UnderTest};

/// Where Debian keeps PostgreSQL's programs.
const BIN: &str = "/usr/lib/postgresql/15/bin";

const PORT: u16 = 5432;

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "pgbench",
    summary: "Transactions on PostgreSQL: the TPC-B-like bank of pgbench",
    about: "The database lies on a scratch disk and is filled before the first run; every \
            transaction that changes something waits for the disk. `select` only reads, so with \
            enough memory no disk takes part. Needs in the guest memory for `scale` times 16 MiB.",
    measures: "Many small transactions: commits to the virtual disk, wake-ups, locks.",
    needs: &[PGBENCH],
    beside: RoleCommands {
        scratch_mib: |params, _| 1024 + params.int("scale") as u64 * 20,
        server: Some(ServerRole {
            needs: &["su", POSTGRES],
            setup: serve,
            under_test: UnderTest::Both,
        }),
        full_image: true,
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::int("scale", (1, 100_000), 10, "Size of the bank: 100000 accounts each"),
        Param::int("clients", (1, 10_000), 8, "Connections"),
        Param::int("time_s", (1, 86_400), 30, "How long").unit("s"),
        Param::choice(
            "script",
            &["tpcb-like", "simple-update", "select-only"],
            "tpcb-like",
            "The transaction",
        ),
        Param::bool("fsync", true, "A transaction ends when the disk has it"),
    ],
    metrics: &[
        rate("transactions-per-s", "Transactions a second, without the time to connect").primary(),
        time("latency-avg", "Mean time of a transaction"),
        time("latency-stddev", "Standard deviation of that time"),
    ],
    repeats: "One run lasts `time_s` and brings one sample of every metric.",
    example: &[("clients", DefaultValue::Int(4)), ("time_s", DefaultValue::Int(10))],
    command,
    parse,
    duration_s: |params, facts| params.int("time_s") as f64 + facts.computing_s(0.5),
};

const PGBENCH: &str = "/usr/lib/postgresql/15/bin/pgbench";
const POSTGRES: &str = "/usr/lib/postgresql/15/bin/postgres";

/// A command of the shell as PostgreSQL's user: it refuses to run as root.
fn as_postgres(command: &str) -> Vec<String> {
    ["su", "-s", "/bin/sh", "postgres", "-c", command].map(str::to_owned).into()
}

fn serve(params: &Params, _: &GuestFacts) -> Vec<GuestStep> {
    let data = format!("{SCRATCH}/postgres");
    let folders = format!("mkdir -p {data}; chown postgres:postgres {data}; chmod 700 {data}");
    let init = format!(
        "cd / && {BIN}/initdb --pgdata={data} --auth=trust --locale=C --encoding=UTF8 --no-sync \
         >/dev/null && echo host all all all trust >>{data}/pg_hba.conf"
    );
    let fsync = if params.bool("fsync") { "on" } else { "off" };
    // By TCP alone: on a host the socket's usual folder can't be written.
    let serve = format!(
        "cd / && exec {POSTGRES} -D {data} -c listen_addresses='*' -c unix_socket_directories= \
         -c max_connections=11000 -c fsync={fsync}"
    );
    let fill = format!(
        "cd /; {BIN}/pgbench --host=127.0.0.1 --username=postgres --initialize --quiet \
         --scale={} postgres 2>&1 | tail -n 3\n\
         {BIN}/psql --host=127.0.0.1 --username=postgres --quiet --command=CHECKPOINT postgres",
        params.int("scale")
    );
    vec![
        GuestStep::shell(&folders),
        GuestStep::Run(as_postgres(&init)),
        GuestStep::Start(Daemon {
            argv: as_postgres(&serve),
            ready: Readiness::Succeeds(
                "/usr/lib/postgresql/15/bin/pg_isready --quiet --host=127.0.0.1",
            ),
        }),
        GuestStep::shell(&fill),
    ]
}

fn command(params: &Params, facts: &GuestFacts) -> Vec<String> {
    let clients = params.int("clients");
    vec![
        PGBENCH.to_owned(),
        format!("--host={}", facts.peer),
        format!("--port={PORT}"),
        "--username=postgres".to_owned(),
        format!("--client={clients}"),
        format!("--jobs={}", clients.min(i64::from(facts.vcpus)).max(1)),
        format!("--time={}", params.int("time_s")),
        format!("--builtin={}", params.text("script")),
        // Gives the deviation too.
        "--progress=1000000".to_owned(),
        "--no-vacuum".to_owned(),
        "postgres".to_owned(),
    ]
}

fn parse(
    output: CommandOutput<'_>,
    params: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    const PICKS: &[Pick] = &[
        pick("transactions-per-s", "transactions-per-s"),
        pick("latency-avg", "latency-avg"),
        pick("latency-stddev", "latency-stddev"),
    ];
    let log = one_log(output, "pgbench")?;
    above_zero(output, &log, "transactions-per-s")?;
    let failed =
        |value: &&record::LogValue| value.metric == "failed-transactions" && value.value > 0.0;
    if let Some(value) = log.values.iter().find(failed) {
        return Err(line_of(output, value).expected("0 failed transactions"));
    }
    let clients = params.int("clients").to_string();
    let others = |value: &&record::LogValue| {
        value.labels.get("clients").is_some_and(|found| *found != clients)
    };
    if let Some(value) = log.values.iter().find(others) {
        return Err(line_of(output, value).expected(format!("{clients} clients")));
    }
    take(output, &log, PICKS)
}

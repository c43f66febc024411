//! The guest agent of an instance, by libvirt in its virt-launcher.
//!
//! One `exec` into the pod's compute container carries all requests of a trial: a loop of
//! the shell there gives each to `virsh qemu-agent-command` and sends back what that
//! says. Requests have numbers and the loop keeps its last answer, so a connection that
//! breaks is made anew and the request sent again, without the guest seeing it twice.

use std::time::{Duration, Instant};

use guest::{AgentLine, AgentLink, Cancel, GuestFailure};
use serde_json::{Value, json};

use crate::api::RequestFailure;
use crate::exec::{ExecLoop, LoopAnswer, MOST_PRINTED_BYTES, PodExec};
use crate::session::{PATIENCE, Session, tokio_sleep};

/// The container of virt-launcher in which libvirt runs.
const CONTAINER: &str = "compute";

/// How long the agent may take for one answer.
const AGENT_LIMIT: Duration = Duration::from_secs(60);

/// How long an answer that did not come is waited for over a new connection.
const SILENCE: Duration = Duration::from_secs(10);

/// Linux takes no longer argument of a program than 128 KiB (`MAX_ARG_STRLEN`).
const MOST_REQUEST_BYTES: usize = 100 << 10;

/// Finds libvirt's socket, which newer KubeVirts have for QEMU alone; `$V` is virsh.
const FIND_LIBVIRT: &str = "LC_ALL=C; export LC_ALL\n\
    for s in virtqemud libvirt; do [ -S /var/run/libvirt/$s-sock ] && break; done\n\
    k=session; [ \"$(id -u)\" != 0 ] || k=system\n\
    V=\"virsh -q -c qemu+unix:///$k?socket=/var/run/libvirt/$s-sock\"\n";

/// Answers requests `NUMBER JSON` of stdin with a line `NUMBER STATUS BYTES` and so many
/// bytes; `$1` is the domain, `$2` how long the agent may take, s.
const SERVE: &str = "d=/tmp/vmlab-agent; mkdir -p $d; before=\n\
    while IFS=' ' read -r n request; do\n\
    a=$d/$n\n\
    if mkdir $a 2>/dev/null; then\n\
    $V qemu-agent-command --timeout \"$2\" \"$1\" \"$request\" >$a/new 2>$a/said\n\
    echo $? >$a/status\n\
    [ -s $a/new ] || cat $a/said >$a/new\n\
    mv $a/new $a/out\n\
    else\n\
    until [ -e $a/out ]; do sleep 0.1; done\n\
    fi\n\
    echo \"$n $(cat $a/status) $(wc -c <$a/out)\"\n\
    cat $a/out\n\
    [ -z \"$before\" ] || [ \"$before\" = $n ] || rm -rf $d/$before\n\
    before=$n\n\
    done\n";

/// The way to the agent.
pub(crate) struct PodAgent {
    pod: PodExec,
    domain: String,
    number: u64,
    line_bytes: usize,
    answer_by: Instant,
    open: Option<ExecLoop>,
}

impl PodAgent {
    pub(crate) fn new(namespace: &str, pod: &str, vmi: &str) -> Self {
        Self {
            pod: PodExec {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
                container: CONTAINER,
            },
            domain: domain(namespace, vmi),
            number: 0,
            line_bytes: MOST_PRINTED_BYTES,
            answer_by: Instant::now() + AGENT_LIMIT,
            open: None,
        }
    }

    /// What a script in the compute container prints, which knows `$V` as virsh and
    /// `$1` as the domain.
    pub(crate) async fn print(
        &self,
        session: &Session,
        script: &str,
    ) -> Result<String, RequestFailure> {
        let script = format!("{FIND_LIBVIRT}{script}");
        let command = ["sh", "-c", &script, "sh", &self.domain];
        self.pod.print(session, &command).await
    }

    async fn open(&self, session: &Session) -> Result<ExecLoop, RequestFailure> {
        let script = format!("{FIND_LIBVIRT}{SERVE}");
        let limit = AGENT_LIMIT.as_secs().to_string();
        self.pod.answer(session, &["sh", "-c", &script, "sh", &self.domain, &limit]).await
    }

    /// One request over the connection that there is, or a new one.
    async fn request(
        &mut self,
        session: &Session,
        request: &Value,
    ) -> Result<LoopAnswer, RequestFailure> {
        if self.open.is_none() {
            self.open = Some(self.open(session).await?);
        }
        let (number, most) = (self.number, self.line_bytes);
        let open = self.open.as_mut().ok_or(RequestFailure::Absent)?;
        let answer = open.ask(number, &request.to_string(), most).await;
        if answer.is_err() {
            self.open = None;
        }
        answer
    }

    /// One request to the agent, sent again when the way to it breaks.
    pub(crate) fn ask(
        &mut self,
        session: &Session,
        command: &str,
        arguments: Option<Value>,
        cancel: &Cancel,
    ) -> Result<AgentLine, GuestFailure> {
        let mut request = json!({ "execute": command });
        if let Some(arguments) = arguments {
            request["arguments"] = arguments;
        }
        self.number += 1;
        let asked = Instant::now();
        let mut until = self.answer_by.min(asked + AGENT_LIMIT);
        let mut broken: Option<Instant> = None;
        let mut is_asked_again = false;
        let said = loop {
            let reason = match session.wait(until, cancel, self.request(session, &request))? {
                Some(Ok(said)) => break said,
                None if is_asked_again => {
                    self.open = None;
                    let limit = asked.elapsed();
                    return Err(GuestFailure::Hung { command: command.to_owned(), limit });
                }
                None if broken.is_none() => {
                    // The guest is silent, or the way to it: a server that does not answer
                    // either is told as that.
                    self.open = None;
                    let version = || session.api.get("/version");
                    drop(session.ask("whether it is there", cancel, version)?);
                    is_asked_again = true;
                    until = Instant::now() + SILENCE;
                    continue;
                }
                None => "no answer".to_owned(),
                Some(Err(RequestFailure::Forbidden(said))) => return Err(forbidden_exec(&said)),
                Some(Err(RequestFailure::Absent)) => {
                    let detail = format!("its pod {} is gone", self.pod.pod);
                    return Err(GuestFailure::Died { detail });
                }
                Some(Err(
                    RequestFailure::Unreachable(said)
                    | RequestFailure::Other(said)
                    | RequestFailure::Unauthorized(said)
                    | RequestFailure::Exists(said),
                )) => said,
                Some(Err(RequestFailure::Gone(_))) => "gone".to_owned(),
            };
            let since = *broken.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                return Err(GuestFailure::Cluster {
                    detail: format!(
                        "the way to the guest through pod {} broke and could not be had again for \
                         {} s: {reason}",
                        self.pod.pod,
                        PATIENCE.as_secs()
                    ),
                });
            }
            // The time without a way is not the agent's.
            until = Instant::now() + PATIENCE;
            session.wait(until, cancel, tokio_sleep(Duration::from_secs(1)))?;
        };
        let Some(text) = said.text else { return Ok(AgentLine::TooLong) };
        if said.status == 0 {
            let text = String::from_utf8_lossy(&text);
            return Ok(AgentLine::Text(text.trim().as_bytes().to_vec()));
        }
        let detail = String::from_utf8_lossy(&text).trim().replace('\n', "; ");
        let detail = detail.trim_start_matches("error: ").to_owned();
        let lower = detail.to_lowercase();
        Err(match lower {
            _ if lower.contains("failed to get domain") || lower.contains("domain not found") => {
                GuestFailure::Died { detail: "libvirt in its pod has no such domain".to_owned() }
            }
            _ if lower.contains("not running") || lower.contains("connect to the hypervisor") => {
                GuestFailure::Died { detail }
            }
            _ if ["not responding", "not connected", "timed out", "disappeared"]
                .iter()
                .any(|word| lower.contains(word)) =>
            {
                GuestFailure::Hung { command: command.to_owned(), limit: asked.elapsed() }
            }
            _ => GuestFailure::Agent { command: command.to_owned(), detail },
        })
    }
}

/// As KubeVirt names the domain of an instance.
fn domain(namespace: &str, vmi: &str) -> String {
    format!("{namespace}_{vmi}")
}

/// The rights to reach a guest are missing.
fn forbidden_exec(said: &str) -> GuestFailure {
    GuestFailure::Cluster {
        detail: format!(
            "May not create pods/exec, by which guests are reached: `vmlab k8s rbac --run` prints \
             the role that allows it ({said})"
        ),
    }
}

/// The agent behind its session, as commands are run over it.
pub(crate) struct SessionAgent<'a> {
    pub(crate) session: &'a Session,
    pub(crate) agent: &'a mut PodAgent,
}

impl AgentLink for SessionAgent<'_> {
    fn begin(&mut self, line_bytes: usize, _total_bytes: u64, answer_by: Instant) {
        self.agent.line_bytes = line_bytes;
        self.agent.answer_by = answer_by;
    }

    fn ask(
        &mut self,
        command: &str,
        arguments: Option<Value>,
        cancel: &Cancel,
    ) -> Result<AgentLine, GuestFailure> {
        self.agent.ask(self.session, command, arguments, cancel)
    }

    fn wait_told(&mut self, until: Instant, cancel: &Cancel) -> Result<bool, GuestFailure> {
        let left = until.saturating_duration_since(Instant::now());
        // The connection is served meanwhile.
        self.session.wait(until, cancel, tokio_sleep(left))?;
        Ok(false)
    }

    fn most_request_bytes(&self) -> usize {
        MOST_REQUEST_BYTES
    }
}

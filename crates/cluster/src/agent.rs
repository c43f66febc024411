//! The guest agent of an instance, by libvirt in its virt-launcher.
//!
//! One `exec` into the pod's compute container carries all requests of a trial: a loop of
//! the shell there gives each to `virsh qemu-agent-command` and sends back what that
//! says. Requests have numbers and the loop keeps its last answer, so a connection that
//! breaks is made anew and the request sent again, without the guest seeing it twice.

use std::time::{Duration, Instant};

use guest::{AgentLine, AgentLink, Cancel, GuestFailure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api as KubeApi;
use kube::api::{AttachParams, AttachedProcess};
use kube::client::UpgradeConnectionError;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::api::{Failure, chain};
use crate::session::{PATIENCE, Session, tokio_sleep};

/// The container of virt-launcher in which libvirt runs.
const CONTAINER: &str = "compute";

/// How long the agent may take for one answer.
const AGENT_LIMIT: Duration = Duration::from_secs(60);

/// How long an answer that did not come is waited for over a new connection.
const SILENCE: Duration = Duration::from_secs(10);

/// Linux takes no longer argument of a program than 128 KiB (`MAX_ARG_STRLEN`).
const MOST_REQUEST_BYTES: usize = 100 << 10;

/// Most that is kept of what a program in the pod prints, bytes.
const MOST_PRINTED_BYTES: usize = 4 << 20;

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
    pod: String,
    namespace: String,
    domain: String,
    number: u64,
    line_bytes: usize,
    answer_by: Instant,
    open: Option<Open>,
}

/// A connection to the loop.
struct Open {
    process: AttachedProcess,
    stdin: Box<dyn tokio::io::AsyncWrite + Send + Unpin>,
    stdout: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
    received: Vec<u8>,
}

/// An answer of the loop.
struct Said {
    status: u32,
    /// `None`: it was longer than what is kept.
    text: Option<Vec<u8>>,
}

impl PodAgent {
    pub(crate) fn new(namespace: &str, pod: &str, vmi: &str) -> Self {
        Self {
            pod: pod.to_owned(),
            namespace: namespace.to_owned(),
            domain: domain(namespace, vmi),
            number: 0,
            line_bytes: MOST_PRINTED_BYTES,
            answer_by: Instant::now() + AGENT_LIMIT,
            open: None,
        }
    }

    /// What a script in the compute container prints, which knows `$V` as virsh and
    /// `$1` as the domain.
    pub(crate) async fn print(&self, session: &Session, script: &str) -> Result<String, Failure> {
        let script = format!("{FIND_LIBVIRT}{script}");
        let command = ["sh", "-c", &script, "sh", &self.domain];
        let params = AttachParams::default().container(CONTAINER).stderr(false);
        let mut process = self.exec(session, &command, params).await?;
        let mut printed = Vec::new();
        if let Some(stdout) = process.stdout() {
            let mut stdout = stdout.take(MOST_PRINTED_BYTES as u64);
            let read = stdout.read_to_end(&mut printed).await;
            read.map_err(|error| Failure::Unreachable(chain(&error)))?;
        }
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    async fn exec(
        &self,
        session: &Session,
        command: &[&str],
        params: AttachParams,
    ) -> Result<AttachedProcess, Failure> {
        let pods: KubeApi<Pod> = KubeApi::namespaced(session.api.client.clone(), &self.namespace);
        let command = command.iter().map(ToString::to_string);
        pods.exec(&self.pod, command, &params).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 403 => {
                Failure::Forbidden(status.message.clone())
            }
            kube::Error::Api(status) if status.code == 404 => Failure::Absent,
            // What a server refuses instead of changing protocols has its status alone.
            kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
                match code.as_u16() {
                    403 => Failure::Forbidden(chain(&error)),
                    // No such pod, or one that has come to its end.
                    400 | 404 => Failure::Absent,
                    _ => Failure::Unreachable(chain(&error)),
                }
            }
            _ => Failure::Unreachable(chain(&error)),
        })
    }

    async fn open(&self, session: &Session) -> Result<Open, Failure> {
        let script = format!("{FIND_LIBVIRT}{SERVE}");
        let limit = AGENT_LIMIT.as_secs().to_string();
        let command = ["sh", "-c", &script, "sh", &self.domain, &limit];
        let params = AttachParams::default()
            .container(CONTAINER)
            .stdin(true)
            .stderr(false)
            .max_stdin_buf_size(64 << 10)
            .max_stdout_buf_size(256 << 10);
        let mut process = self.exec(session, &command, params).await?;
        let (Some(stdin), Some(stdout)) = (process.stdin(), process.stdout()) else {
            return Err(Failure::Other("the exec has no stdin".to_owned()));
        };
        let (stdin, stdout) = (Box::new(stdin), Box::new(stdout));
        Ok(Open { process, stdin, stdout, received: Vec::new() })
    }

    /// One request over the connection that there is, or a new one.
    async fn request(&mut self, session: &Session, request: &Value) -> Result<Said, Failure> {
        if self.open.is_none() {
            self.open = Some(self.open(session).await?);
        }
        let (number, most) = (self.number, self.line_bytes);
        let open = self.open.as_mut().ok_or(Failure::Absent)?;
        let answer = open.ask(number, request, most).await;
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
                Some(Err(Failure::Forbidden(said))) => return Err(forbidden_exec(&said)),
                Some(Err(Failure::Absent)) => {
                    let detail = format!("its pod {} is gone", self.pod);
                    return Err(GuestFailure::Died { detail });
                }
                Some(Err(
                    Failure::Unreachable(said)
                    | Failure::Other(said)
                    | Failure::Unauthorized(said)
                    | Failure::Exists(said),
                )) => said,
                Some(Err(Failure::Gone(_))) => "gone".to_owned(),
            };
            let since = *broken.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                return Err(GuestFailure::Cluster {
                    detail: format!(
                        "the way to the guest through pod {} broke and could not be had again for \
                         {} s: {reason}",
                        self.pod,
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

impl Open {
    async fn ask(&mut self, number: u64, request: &Value, most: usize) -> Result<Said, Failure> {
        let broken = |error: std::io::Error| Failure::Unreachable(chain(&error));
        let line = format!("{number} {request}\n");
        self.stdin.write_all(line.as_bytes()).await.map_err(broken)?;
        self.stdin.flush().await.map_err(broken)?;
        // An answer to a request that was given up may come first.
        loop {
            let head = self.line().await?;
            let mut words = head.split(' ').map(str::parse::<u64>);
            let (Some(Ok(of)), Some(Ok(status)), Some(Ok(bytes))) =
                (words.next(), words.next(), words.next())
            else {
                return Err(Failure::Unreachable(format!("{head:?} is no answer")));
            };
            let text = self.take(bytes, most).await?;
            if of == number {
                return Ok(Said { status: u32::try_from(status).unwrap_or(u32::MAX), text });
            }
        }
    }

    async fn line(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.received.len() > 4096 {
                return Err(Failure::Unreachable("an answer's head has no end".to_owned()));
            }
            self.fill().await?;
        }
    }

    /// So many bytes; `None` if those are more than are kept.
    async fn take(&mut self, bytes: u64, most: usize) -> Result<Option<Vec<u8>>, Failure> {
        let whole = usize::try_from(bytes).unwrap_or(usize::MAX);
        let keeps = whole <= most.saturating_add(1);
        let mut left = whole;
        let mut text = Vec::new();
        while left > 0 {
            if self.received.is_empty() {
                self.fill().await?;
            }
            let piece = self.received.len().min(left);
            let taken = self.received.drain(..piece);
            if keeps {
                text.extend(taken);
            }
            left -= piece;
        }
        Ok(keeps.then_some(text))
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        let mut buffer = vec![0; 64 << 10];
        let read = self.stdout.read(&mut buffer).await;
        match read.map_err(|error| Failure::Unreachable(chain(&error)))? {
            0 => {
                self.process.abort();
                Err(Failure::Unreachable("the connection to its pod ended".to_owned()))
            }
            length => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }
}

/// The agent behind its session, as commands are run over it.
pub(crate) struct AgentOver<'a> {
    pub(crate) session: &'a Session,
    pub(crate) agent: &'a mut PodAgent,
}

impl AgentLink for AgentOver<'_> {
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

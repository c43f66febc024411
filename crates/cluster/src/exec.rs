//! Programs in a pod's container, by the API's `exec`.
//!
//! A loop of the shell there answers numbered requests, one connection for many; who asks
//! makes it anew when it breaks, and asks again.

use std::pin::Pin;

use futures_util::future::{Either, select};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api as KubeApi;
use kube::api::{AttachParams, AttachedProcess};
use kube::client::UpgradeConnectionError;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::api::{RequestFailure, chain};
use crate::session::Session;

/// Most that is kept of what a program in the pod prints, bytes.
pub(crate) const MOST_PRINTED_BYTES: usize = 4 << 20;

/// Where programs run.
pub(crate) struct PodExec {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: &'static str,
}

impl PodExec {
    /// Starts a command with these streams.
    pub(crate) async fn start(
        &self,
        session: &Session,
        command: &[&str],
        params: AttachParams,
    ) -> Result<AttachedProcess, RequestFailure> {
        let pods: KubeApi<Pod> = KubeApi::namespaced(session.api.client.clone(), &self.namespace);
        let command = command.iter().map(ToString::to_string);
        let params = params.container(self.container);
        pods.exec(&self.pod, command, &params).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 403 => {
                RequestFailure::Forbidden(status.message.clone())
            }
            kube::Error::Api(status) if status.code == 404 => RequestFailure::Absent,
            // What a server refuses instead of changing protocols has its status alone.
            kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
                match code.as_u16() {
                    403 => RequestFailure::Forbidden(chain(&error)),
                    // No such pod, or one that has come to its end.
                    400 | 404 => RequestFailure::Absent,
                    _ => RequestFailure::Unreachable(chain(&error)),
                }
            }
            _ => RequestFailure::Unreachable(chain(&error)),
        })
    }

    /// What a command prints.
    pub(crate) async fn print(
        &self,
        session: &Session,
        command: &[&str],
    ) -> Result<String, RequestFailure> {
        let params = AttachParams::default().stderr(false);
        Streams::of(self.start(session, command, params).await?)?.printed().await
    }

    /// Gives `size` bytes of `from` to a command, which reads no more, and what it prints.
    pub(crate) async fn give(
        &self,
        session: &Session,
        command: &[&str],
        from: &mut impl std::io::Read,
        size: u64,
    ) -> Result<String, RequestFailure> {
        let params =
            AttachParams::default().stdin(true).stderr(false).max_stdin_buf_size(256 << 10);
        let mut streams = Streams::of(self.start(session, command, params).await?)?;
        let mut left = size;
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            let piece = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = from.read(&mut buffer[..piece]);
            let read = read.map_err(|error| RequestFailure::Other(error.to_string()))?;
            if read == 0 {
                return Err(RequestFailure::Other("the file became shorter".to_owned()));
            }
            streams.write(&buffer[..read]).await?;
            left -= read as u64;
        }
        streams.printed().await
    }

    /// Starts a loop that answers requests.
    pub(crate) async fn answer(
        &self,
        session: &Session,
        command: &[&str],
    ) -> Result<ExecLoop, RequestFailure> {
        let params = AttachParams::default()
            .stdin(true)
            .stderr(false)
            .max_stdin_buf_size(64 << 10)
            .max_stdout_buf_size(256 << 10);
        let streams = Streams::of(self.start(session, command, params).await?)?;
        Ok(ExecLoop { streams, received: Vec::new() })
    }
}

/// What a connection's end is told by; nothing where it broke.
type End = Pin<Box<dyn Future<Output = Option<Status>> + Send>>;

/// The streams of a command.
struct Streams {
    process: AttachedProcess,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// `None`: it has ended in order.
    end: Option<End>,
}

impl Streams {
    fn of(mut process: AttachedProcess) -> Result<Self, RequestFailure> {
        let stdin = process.stdin().map(|stdin| Box::new(stdin) as _);
        let none = || RequestFailure::Other("the exec has no stdout".to_owned());
        let stdout = Box::new(process.stdout().ok_or_else(none)?);
        let end = process.take_status().map(|end| Box::pin(end) as _);
        Ok(Self { process, stdin, stdout, end })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), RequestFailure> {
        let none = || RequestFailure::Other("the exec has no stdin".to_owned());
        let stdin = self.stdin.as_mut().ok_or_else(none)?;
        unless_broken(&mut self.end, async {
            stdin.write_all(bytes).await?;
            stdin.flush().await
        })
        .await
    }

    /// Bytes that were printed; 0 at the end.
    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, RequestFailure> {
        unless_broken(&mut self.end, self.stdout.read(buffer)).await
    }

    /// All that it prints, as far as that is kept.
    async fn printed(mut self) -> Result<String, RequestFailure> {
        let mut printed = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        while printed.len() < MOST_PRINTED_BYTES {
            match self.read(&mut buffer).await? {
                0 => break,
                length => printed.extend_from_slice(&buffer[..length]),
            }
        }
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }
}

/// What comes of `work`. The client ends none of the streams of a connection that breaks,
/// and whoever reads or writes one would wait for ever.
async fn unless_broken<T>(
    end: &mut Option<End>,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, RequestFailure> {
    let broken = |error: std::io::Error| RequestFailure::Unreachable(chain(&error));
    let mut work = std::pin::pin!(work);
    if let Some(told) = end {
        // What has come is taken first.
        match select(work.as_mut(), told).await {
            Either::Left((done, _)) => return done.map_err(broken),
            Either::Right((Some(_), _)) => *end = None,
            Either::Right((None, _)) => {
                let said = "the connection to its pod broke".to_owned();
                return Err(RequestFailure::Unreachable(said));
            }
        }
    }
    work.await.map_err(broken)
}

/// A connection to a loop in the pod that reads requests `NUMBER TEXT`, a line each, and
/// answers each with a line `NUMBER STATUS BYTES` and so many bytes.
pub(crate) struct ExecLoop {
    streams: Streams,
    received: Vec<u8>,
}

/// An answer of the loop.
pub(crate) struct LoopAnswer {
    pub(crate) status: u32,
    /// `None`: it was longer than what is kept.
    pub(crate) text: Option<Vec<u8>>,
}

impl ExecLoop {
    /// The answer to one request, of at most so many bytes.
    pub(crate) async fn ask(
        &mut self,
        number: u64,
        request: &str,
        most: usize,
    ) -> Result<LoopAnswer, RequestFailure> {
        let line = format!("{number} {request}\n");
        self.streams.write(line.as_bytes()).await?;
        // An answer to a request that was given up may come first.
        loop {
            let head = self.line().await?;
            let mut words = head.split(' ').map(str::parse::<u64>);
            let (Some(Ok(of)), Some(Ok(status)), Some(Ok(bytes))) =
                (words.next(), words.next(), words.next())
            else {
                return Err(RequestFailure::Unreachable(format!("{head:?} is no answer")));
            };
            let text = self.take(bytes, most).await?;
            if of == number {
                return Ok(LoopAnswer { status: u32::try_from(status).unwrap_or(u32::MAX), text });
            }
        }
    }

    async fn line(&mut self) -> Result<String, RequestFailure> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.received.len() > 4096 {
                return Err(RequestFailure::Unreachable("an answer's head has no end".to_owned()));
            }
            self.fill().await?;
        }
    }

    /// So many bytes; `None` if those are more than are kept.
    async fn take(&mut self, bytes: u64, most: usize) -> Result<Option<Vec<u8>>, RequestFailure> {
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

    async fn fill(&mut self) -> Result<(), RequestFailure> {
        let mut buffer = vec![0; 64 << 10];
        match self.streams.read(&mut buffer).await? {
            0 => {
                self.streams.process.abort();
                Err(RequestFailure::Unreachable("the connection to its pod ended".to_owned()))
            }
            length => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }
}

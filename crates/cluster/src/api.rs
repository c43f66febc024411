//! Requests to an API server, each with an end in time and bytes.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use topology::bounded::MAX_BYTES;

use crate::error::{ClusterError, UnreadResource};
use crate::resource::ResourceKind;

/// Objects of a page, as kubectl asks for.
const PAGE: usize = 500;
/// No page is larger: 500 objects of the greatest size that etcd takes would be.
const MAX_BODY_BYTES: usize = 512 << 20;
/// An answer that takes longer is none.
const ANSWER: Duration = Duration::from_secs(60);
/// How often a server that is busy, or a connection that breaks, is tried again.
const TRIES: u32 = 4;
/// A wait that a server asks for is not longer.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How often a list that the server has forgotten is begun again.
const MAX_RESTARTS: u32 = 3;

/// Which cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterTarget {
    /// The kubeconfig; `None`: as kubectl finds it, or the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; `None`: the current one.
    pub context: Option<String>,
    /// Namespace of the VMs; `None`: all.
    pub namespace: Option<String>,
}

/// A connection.
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) server: String,
    /// The namespace of the kubeconfig's context.
    pub(crate) namespace: String,
}

/// Why a request has no good answer.
pub(crate) enum RequestFailure {
    /// Nobody serves this.
    Absent,
    /// The role does not allow it.
    Forbidden(String),
    /// The server does not know who asks.
    Unauthorized(String),
    /// No answer came.
    Unreachable(String),
    /// The page is no longer there; the server may say how to go on.
    Gone(Option<String>),
    /// There is one of that name already.
    Exists(String),
    /// All else.
    Other(String),
}

/// What is asked of a server.
pub(crate) struct Call<'a> {
    method: Method,
    path: &'a str,
    /// Media type and bytes.
    body: Option<(&'static str, &'a [u8])>,
}

impl<'a> Call<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: None }
    }

    pub(crate) fn create(path: &'a str, media_type: &'static str, body: &'a [u8]) -> Self {
        Self { method: Method::POST, path, body: Some((media_type, body)) }
    }

    pub(crate) fn delete(path: &'a str, options: &'a [u8]) -> Self {
        Self { method: Method::DELETE, path, body: Some(("application/json", options)) }
    }
}

/// The server's word on a request that failed.
#[derive(Deserialize, Default)]
struct ApiStatus {
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    metadata: ListMetadata,
}

#[derive(Deserialize, Default)]
struct ListMetadata {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct ListPage<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl Api {
    pub(crate) async fn connect(target: &ClusterTarget) -> Result<Self, ClusterError> {
        let mut config = config(target).await?;
        config.connect_timeout = Some(Duration::from_secs(10));
        config.read_timeout = Some(ANSWER);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config.default_namespace.clone();
        let client =
            Client::try_from(config).map_err(|error| ClusterError::Client(chain(&error)))?;
        Ok(Self { client, server, namespace })
    }

    /// The body of a good answer.
    pub(crate) async fn get(&self, path: &str) -> Result<Vec<u8>, RequestFailure> {
        self.call(&Call::get(path)).await
    }

    /// The body of a good answer to a call, which may have been made more than once.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Vec<u8>, RequestFailure> {
        let mut tried = 0;
        loop {
            tried += 1;
            let again = match tokio::time::timeout(ANSWER, self.once(call)).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err((failure, wait))) => (failure, wait),
                Err(_) => {
                    let said = format!("no whole answer within {} s", ANSWER.as_secs());
                    return Err(RequestFailure::Unreachable(said));
                }
            };
            match again {
                (_, Some(wait)) if tried < TRIES => {
                    tokio::time::sleep(wait.max(Duration::from_millis(100 << tried))).await;
                }
                (failure, _) => return Err(failure),
            }
        }
    }

    /// One try; with a failure, how long to wait before another one, if that may help.
    async fn once(&self, call: &Call<'_>) -> Result<Vec<u8>, (RequestFailure, Option<Duration>)> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(http::header::ACCEPT, "application/json");
        let mut body = Body::empty();
        if let Some((media_type, bytes)) = call.body {
            request = request.header(http::header::CONTENT_TYPE, media_type);
            body = Body::from(bytes.to_vec());
        }
        let request =
            request.body(body).map_err(|error| (RequestFailure::Other(error.to_string()), None))?;
        let unreachable = |error: &dyn std::error::Error| {
            (RequestFailure::Unreachable(chain(error)), Some(Duration::ZERO))
        };
        let answer = self.client.send(request).await.map_err(|error| unreachable(&error))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(|error| {
            // What is beyond the limit does not get smaller.
            let again = (!error.is::<LengthLimitError>()).then_some(Duration::ZERO);
            (RequestFailure::Unreachable(chain(&*error)), again)
        })?;
        let body = Vec::from(body.to_bytes());
        if head.status.is_success() {
            return Ok(body);
        }
        let status: ApiStatus = serde_json::from_slice(&body).unwrap_or_default();
        let said = match status.message.is_empty() {
            true => head.status.to_string(),
            false => status.message,
        };
        let wait = || {
            let seconds = head.headers.get(http::header::RETRY_AFTER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
            Some(Duration::from_secs(seconds).min(MAX_WAIT))
        };
        Err(match head.status {
            StatusCode::NOT_FOUND => (RequestFailure::Absent, None),
            StatusCode::UNAUTHORIZED => (RequestFailure::Unauthorized(said), None),
            StatusCode::FORBIDDEN => (RequestFailure::Forbidden(said), None),
            StatusCode::CONFLICT if status.reason == "AlreadyExists" => {
                (RequestFailure::Exists(said), None)
            }
            StatusCode::GONE => (RequestFailure::Gone(status.metadata.next), None),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => (RequestFailure::Other(said), wait()),
            _ => (RequestFailure::Other(said), None),
        })
    }

    /// Lines that a watch sends until `each` makes something of one; `None` when it ends.
    pub(crate) async fn watch<T>(
        &self,
        path: &str,
        mut each: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, RequestFailure> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| RequestFailure::Other(error.to_string()))?;
        let unreachable = |error: &dyn std::error::Error| RequestFailure::Unreachable(chain(error));
        let answer = self.client.send(request).await.map_err(|error| unreachable(&error))?;
        if !answer.status().is_success() {
            return Err(RequestFailure::Other(answer.status().to_string()));
        }
        let mut body = answer.into_body();
        let mut line = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(&error))?;
            for byte in frame.data_ref().into_iter().flat_map(|bytes| bytes.iter()) {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                if let Some(found) = each(&line) {
                    return Ok(Some(found));
                }
                line.clear();
            }
            if line.len() > MAX_BODY_BYTES {
                return Err(RequestFailure::Other("a line of a watch has no end".to_owned()));
            }
        }
        Ok(None)
    }

    /// Every object of a list, page by page, and what `each` makes of it. `None`: nobody
    /// serves the resource.
    pub(crate) async fn list<T>(
        &self,
        what: &ResourceKind,
        namespace: Option<&str>,
        each: impl FnMut(&RawValue) -> Result<Option<T>, serde_json::Error>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<Vec<T>>, ListError> {
        self.list_labelled(what, namespace, None, each, progress).await
    }

    /// The same of those whose labels `selector` selects.
    pub(crate) async fn list_labelled<T>(
        &self,
        what: &ResourceKind,
        namespace: Option<&str>,
        selector: Option<&str>,
        mut each: impl FnMut(&RawValue) -> Result<Option<T>, serde_json::Error>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<Vec<T>>, ListError> {
        let path = what.path(namespace);
        let unread = |is_forbidden, reason: String| {
            let (resource, verb) = (what.name(), what.verb);
            ListError::Unread(UnreadResource { resource, verb, name: None, is_forbidden, reason })
        };
        let (mut found, mut seen, mut restarts) = (Vec::new(), 0, 0);
        let mut next: Option<String> = None;
        loop {
            let mut query = format!("{path}?limit={PAGE}");
            if let Some(selector) = selector {
                query += &format!("&labelSelector={}", escaped(selector));
            }
            if let Some(token) = &next {
                query += &format!("&continue={}", escaped(token));
            }
            let body = match self.get(&query).await {
                Ok(body) => body,
                Err(RequestFailure::Absent) => return Ok(None),
                // The rest of a list that has changed meanwhile, or all of it anew.
                Err(RequestFailure::Gone(token)) if restarts < MAX_RESTARTS => {
                    restarts += 1;
                    if token.as_ref().is_none_or(String::is_empty) {
                        found.clear();
                        seen = 0;
                    }
                    next = token.filter(|token| !token.is_empty());
                    continue;
                }
                Err(RequestFailure::Gone(_)) => {
                    let said = "the list changes faster than it can be read";
                    return Err(unread(false, said.to_owned()));
                }
                Err(RequestFailure::Forbidden(said)) => return Err(unread(true, said)),
                Err(RequestFailure::Unauthorized(reason)) => {
                    let server = self.server.clone();
                    return Err(ListError::Whole(ClusterError::Unauthorized { server, reason }));
                }
                Err(RequestFailure::Unreachable(reason)) => {
                    let server = self.server.clone();
                    return Err(ListError::Whole(ClusterError::Unreachable { server, reason }));
                }
                Err(RequestFailure::Other(said) | RequestFailure::Exists(said)) => {
                    return Err(unread(false, said));
                }
            };
            let wrong = |error: serde_json::Error| {
                unread(false, format!("the server's answer is no list: {error}"))
            };
            let page: ListPage = serde_json::from_slice(&body).map_err(wrong)?;
            for item in page.items.unwrap_or_default() {
                seen += 1;
                found.extend(each(item).map_err(wrong)?);
            }
            progress(seen);
            let before = next;
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(Some(found));
            }
            if next == before {
                return Err(unread(false, "the server gives the same page again".to_owned()));
            }
        }
    }
}

/// Why a list could not be read.
pub(crate) enum ListError {
    /// This one.
    Unread(UnreadResource),
    /// Nothing can be read.
    Whole(ClusterError),
}

/// An error with what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    // Readers of YAML draw the place below their first line.
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    let mut said = first(error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = first(error.to_string());
        if !said.contains(&text) {
            said += ": ";
            said += &text;
        }
        cause = error.source();
    }
    said
}

/// A token in a query: everything but letters, digits and `-._~` as `%XX`.
pub(crate) fn escaped(token: &str) -> String {
    let mut out = String::with_capacity(token.len());
    for byte in token.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// Whether a kubeconfig has an end: it is read whole.
fn readable(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Err("it is no file".to_owned());
    }
    match metadata.len() > MAX_BYTES as u64 {
        true => Err(format!("it has more than {} MiB", MAX_BYTES >> 20)),
        false => Ok(()),
    }
}

async fn config(target: &ClusterTarget) -> Result<Config, ClusterError> {
    let kubeconfig = match &target.kubeconfig {
        Some(path) => {
            let wrong = |reason| {
                let file = path.display().to_string();
                ClusterError::Kubeconfig { file, reason }
            };
            readable(path).map_err(wrong)?;
            Kubeconfig::read_from(path).map_err(|error| wrong(chain(&error)))?
        }
        None => match Kubeconfig::read() {
            Ok(kubeconfig) => kubeconfig,
            Err(error) if target.context.is_none() => {
                return Config::incluster().map_err(|_| ClusterError::NoConfig(chain(&error)));
            }
            Err(error) => return Err(ClusterError::NoConfig(chain(&error))),
        },
    };
    let names: Vec<String> = kubeconfig.contexts.iter().map(|one| one.name.clone()).collect();
    if let Some(wanted) = target.context.as_ref().filter(|wanted| !names.contains(wanted)) {
        return Err(ClusterError::NoContext { wanted: wanted.clone(), found: names });
    }
    let options = KubeConfigOptions { context: target.context.clone(), ..Default::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| ClusterError::Client(chain(&error)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn tokens_are_escaped() {
        assert_eq!(super::escaped("a+b/c=~é"), "a%2Bb%2Fc%3D~%C3%A9");
    }
}

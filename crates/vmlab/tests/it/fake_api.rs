//! A Kubernetes API server, as far as vmlab asks one: lists in pages, single documents,
//! refusals, answers to what is posted; Jobs and their pods by `fake_pods.rs`. It answers from
//! memory, on loopback, without TLS. The full tier asks a real one for the lists and compares
//! what is made of them, and runs Jobs and instances on a real cluster; refusals, pages and
//! what this one says of Jobs and instances are compared with nothing real.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::fake_pods::FakePods;

/// What is answered to a request.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: &'static str,
    pub(crate) body: String,
    /// Bytes of the body that are sent before the connection ends; all of them if absent.
    pub(crate) cut_at: Option<usize>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: String) -> Self {
        Self { status, headers: "", body, cut_at: None }
    }

    /// A document.
    pub(crate) fn of(value: &Value) -> Self {
        Self::new(200, value.to_string())
    }

    /// As the real one refuses.
    pub(crate) fn refusal(status: u16, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
            "code": status, "metadata": {},
        });
        Self::new(status, body.to_string())
    }
}

/// A node of 8 CPUs that is ready.
pub(crate) fn node(name: &str, label: (&str, &str), spec: Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/arch": "amd64", label.0: label.1 } },
        "spec": spec,
        "status": {
            "conditions": [{
                "type": "Ready", "status": "True", "lastHeartbeatTime": null,
                "lastTransitionTime": null,
            }],
            "capacity": { "cpu": "8", "memory": "32Gi" },
            "allocatable": { "cpu": "7", "memory": "30Gi" },
        },
    })
}

#[derive(Default)]
pub(crate) struct Content {
    /// Lists by path; what is not here is served by nobody.
    pub(crate) lists: BTreeMap<String, Vec<Value>>,
    /// What is answered to a path whatever else is there; to other methods than GET by
    /// method and path: `POST /api/v1/pods`.
    pub(crate) fixed: BTreeMap<String, Answer>,
    /// What is answered first to requests whose target holds this text, once each.
    pub(crate) first: Vec<(String, VecDeque<Answer>)>,
    /// Targets of requests, behind their methods where those are not GET.
    pub(crate) asked: Vec<String>,
    /// Jobs, if it runs any.
    pub(crate) pods: Option<Arc<FakePods>>,
}

pub(crate) struct FakeApi {
    pub(crate) content: Arc<Mutex<Content>>,
    /// What `--kubeconfig` is to name.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) url: String,
}

impl FakeApi {
    /// Serves until the test ends; the kubeconfig is put into `folder`.
    pub(crate) fn start(folder: &Path, content: Content) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let content = Arc::new(Mutex::new(content));
        let served = Arc::clone(&content);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let content = Arc::clone(&served);
                thread::spawn(move || serve(stream, &content));
            }
        });
        let kubeconfig = folder.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{ "name": "fake", "cluster": { "server": url } }],
            "users": [{ "name": "fake", "user": { "token": "fake" } }],
            "contexts": [{ "name": "fake", "context": { "cluster": "fake", "user": "fake" } }],
        });
        fs::write(&kubeconfig, config.to_string()).expect("a file");
        Self { content, kubeconfig, url }
    }

    /// What a run leaves if it is killed with its test stays here: with the server gone, no
    /// `vmlab clean` could ask it what is left.
    pub(crate) fn keep_left_of(&self, command: &mut Command) {
        command.env("XDG_RUNTIME_DIR", self.kubeconfig.parent().expect("a folder"));
    }
}

/// Answers what comes on one connection, one after the other.
fn serve(stream: TcpStream, content: &Mutex<Content>) {
    let mut lines = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    loop {
        let mut request = String::new();
        if lines.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        let mut header = String::from("-");
        let (mut bytes, mut key) = (0, None);
        while !header.trim_end().is_empty() {
            header.clear();
            if lines.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            let lower = header.to_lowercase();
            if let Some(length) = lower.strip_prefix("content-length:") {
                bytes = length.trim().parse().expect("a length");
            }
            if lower.starts_with("sec-websocket-key:") {
                key = header.split_once(':').map(|(_, key)| key.trim().to_owned());
            }
        }
        let mut body = vec![0; bytes];
        if lines.read_exact(&mut body).is_err() {
            return;
        }
        let mut words = request.split(' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let asked = if method == "GET" { target.to_owned() } else { format!("{method} {target}") };
        let pods = content.lock().expect("no panic").pods.clone();
        if let (Some(pods), Some(key)) = (&pods, key) {
            content.lock().expect("no panic").asked.push(asked);
            return pods.exec(target, &key, stream);
        }
        let of_pods = || pods.as_ref()?.answer(method, target, &body);
        let answer = content.lock().expect("no panic").answer(&asked, of_pods);
        let Answer { status, headers, body, cut_at } = answer;
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: \
             {}\r\n\r\n",
            body.len()
        );
        let sent = &body[..cut_at.unwrap_or(body.len())];
        let written =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent.as_bytes()));
        if written.is_err() || cut_at.is_some() {
            return;
        }
    }
}

impl Content {
    fn answer(&mut self, target: &str, of_pods: impl FnOnce() -> Option<Answer>) -> Answer {
        self.asked.push(target.to_owned());
        for (text, answers) in &mut self.first {
            if target.contains(text.as_str())
                && let Some(answer) = answers.pop_front()
            {
                return answer;
            }
        }
        if let Some(answer) = of_pods() {
            return answer;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if let Some(answer) = self.fixed.get(path) {
            return answer.clone();
        }
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse::<usize>().ok())
        };
        let Some(items) = self.list(path) else {
            return Answer::refusal(404, "the server could not find the requested resource");
        };
        let begin = value("continue").unwrap_or(0);
        let end = value("limit").map_or(items.len(), |limit| (begin + limit).min(items.len()));
        let mut metadata = json!({ "resourceVersion": "1" });
        if end < items.len() {
            metadata["continue"] = end.to_string().into();
        }
        let list = json!({ "metadata": metadata, "items": &items[begin..end] });
        Answer::new(200, list.to_string())
    }

    /// The objects of a path, which may be that of one namespace.
    fn list(&self, path: &str) -> Option<Vec<Value>> {
        if let Some(items) = self.lists.get(path) {
            return Some(items.clone());
        }
        let (before, behind) = path.split_once("/namespaces/")?;
        let (namespace, resource) = behind.split_once('/')?;
        let items = self.lists.get(&format!("{before}/{resource}"))?;
        let is_there = |item: &&Value| item["metadata"]["namespace"] == namespace;
        Some(items.iter().filter(is_there).cloned().collect())
    }
}

//! Jobs and their pods for [`crate::fake_api`]: a pod is a process of this machine in a
//! folder of its own, and what is run in it by `exec` is one more, over the WebSocket that
//! a real server speaks (`v5.channel.k8s.io`).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::fake_api::Answer;

/// Where a pod has its volume; here it is another folder.
const WORK: &str = "/work";

/// What becomes of the pods of a node.
#[derive(Clone)]
pub(crate) enum Fate {
    /// This is said to be its status, whatever it runs.
    Status(Value),
    /// Its first connections break after so many bytes of standard output each.
    Breaks(Vec<usize>),
}

/// All Jobs.
pub(crate) struct FakePods {
    folder: PathBuf,
    /// Where `vmlab` and whatever else it runs is found first.
    path: PathBuf,
    jobs: Mutex<BTreeMap<String, FakeJob>>,
    pub(crate) fates: Mutex<BTreeMap<String, Fate>>,
    /// All that were created, by name.
    pub(crate) created: Mutex<Vec<Value>>,
}

struct FakeJob {
    object: Value,
    node: String,
    process: Child,
    work: PathBuf,
}

impl Drop for FakeJob {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.process);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.process.wait();
    }
}

impl FakePods {
    /// Pods below `folder`, whose programs are first looked for in `path`.
    pub(crate) fn new(folder: &Path, path: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            path: path.to_owned(),
            jobs: Mutex::default(),
            fates: Mutex::default(),
            created: Mutex::default(),
        }
    }

    /// The Jobs that are there.
    pub(crate) fn names(&self) -> Vec<String> {
        self.jobs.lock().expect("no panic").keys().cloned().collect()
    }

    fn command(&self, words: &[String], work: &Path) -> Command {
        let here = |word: &String| match word.as_str() {
            WORK => work.display().to_string(),
            word => word.to_owned(),
        };
        let mut words = words.iter().map(here);
        let mut command = Command::new(words.next().expect("a command"));
        let path = std::env::var("PATH").expect("a PATH");
        command.args(words).current_dir(work).stderr(Stdio::null()).process_group(0);
        command.env("PATH", format!("{}:{path}", self.path.display()));
        command
    }

    /// The answer to a request about Jobs and pods of the namespace `lab`; none to others.
    pub(crate) fn answer(&self, method: &str, target: &str, body: &[u8]) -> Option<Answer> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let ok = |value: &Value| Some(Answer::new(200, value.to_string()));
        let is_watch = query.contains("watch=1");
        if path == "/api/v1/namespaces/lab/pods" {
            let wanted = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
            let name = wanted.and_then(|text| text.rsplit_once("%3D")).map(|(_, name)| name);
            return match is_watch {
                true => Some(Answer::new(200, String::new())),
                false => ok(&json!({ "metadata": {}, "items": self.pods(name) })),
            };
        }
        let jobs = "/apis/batch/v1/namespaces/lab/jobs";
        let name = path.strip_prefix(jobs)?.trim_start_matches('/');
        match (method, name) {
            ("POST", "") => Some(self.create(body)),
            ("GET", "") if is_watch => Some(Answer::new(200, String::new())),
            ("GET", "") => {
                let all = self.jobs.lock().expect("no panic");
                let items: Vec<&Value> = all.values().map(|job| &job.object).collect();
                ok(&json!({ "metadata": {}, "items": items }))
            }
            ("GET", name) => match self.jobs.lock().expect("no panic").get(name) {
                Some(job) => ok(&job.object),
                None => Some(Answer::refusal(404, "not found")),
            },
            ("DELETE", name) => {
                drop(self.jobs.lock().expect("no panic").remove(name));
                ok(&json!({ "kind": "Status", "status": "Success" }))
            }
            _ => None,
        }
    }

    fn create(&self, body: &[u8]) -> Answer {
        let mut object: Value = serde_json::from_slice(body).expect("JSON");
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        let pod = &object["spec"]["template"]["spec"];
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                     /nodeSelectorTerms/0/matchFields/0/values/0";
        let node = pod.pointer(terms).and_then(Value::as_str).expect("a node").to_owned();
        let words = pod["containers"][0]["command"].as_array().expect("a command").iter();
        let words: Vec<String> =
            words.map(|word| word.as_str().expect("a text").to_owned()).collect();
        let work = self.folder.join(&name);
        std::fs::create_dir_all(&work).expect("a folder");
        let mut command = self.command(&words, &work);
        for name in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
            command.env(name, work.join(name));
            std::fs::create_dir_all(work.join(name)).expect("a folder");
        }
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("sh");
        object["metadata"]["uid"] = json!(format!("uid-{name}"));
        object["metadata"]["namespace"] = json!("lab");
        self.created.lock().expect("no panic").push(object.clone());
        let answer = Answer::new(201, object.to_string());
        let job = FakeJob { object, node, process, work };
        self.jobs.lock().expect("no panic").insert(name, job);
        answer
    }

    /// The pods, of one Job if it is named.
    fn pods(&self, name: Option<&str>) -> Vec<Value> {
        let fates = self.fates.lock().expect("no panic");
        let mut jobs = self.jobs.lock().expect("no panic");
        let wanted = jobs.iter_mut().filter(|(job, _)| name.is_none_or(|name| *name == **job));
        let pods = wanted.map(|(name, job)| {
            let status = match (fates.get(&job.node), job.process.try_wait().expect("a child")) {
                (Some(Fate::Status(status)), _) => status.clone(),
                (_, None) => json!({ "phase": "Running", "containerStatuses": [{
                    "state": { "running": {} },
                }] }),
                (_, Some(ended)) => json!({
                    "phase": if ended.success() { "Succeeded" } else { "Failed" },
                    "containerStatuses": [{ "state": { "terminated": {
                        "exitCode": ended.code().unwrap_or(137),
                    } } }],
                }),
            };
            json!({ "metadata": { "name": format!("{name}-pod") }, "status": status })
        });
        pods.collect()
    }

    /// Runs what an upgrade asks for; the WebSocket's key is `key`.
    pub(crate) fn exec(&self, target: &str, key: &str, mut stream: TcpStream) {
        let (path, query) = target.split_once('?').expect("a query");
        let pod = path.rsplit('/').nth(1).expect("a pod");
        let name = pod.trim_end_matches("-pod");
        let (work, breaks) = {
            let jobs = self.jobs.lock().expect("no panic");
            let Some(job) = jobs.get(name) else {
                let _ = stream.write_all(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n");
                return;
            };
            let mut fates = self.fates.lock().expect("no panic");
            let breaks = match fates.get_mut(&job.node) {
                Some(Fate::Breaks(after)) => after.pop(),
                _ => None,
            };
            (job.work.clone(), breaks)
        };
        let words = query.split('&').filter_map(|pair| pair.strip_prefix("command="));
        let words: Vec<String> = words.map(unescaped).collect();
        let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-accept: {accept}\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n\r\n"
        );
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        let mut command = self.command(&words, &work);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
        let mut stdin = process.stdin.take();
        let mut stdout = process.stdout.take().expect("a pipe");
        let from = stream.try_clone().expect("a second handle");
        thread::spawn(move || {
            let mut from = WebSocket::from_raw_socket(from, Role::Server, None);
            while let Ok(message) = from.read() {
                let Message::Binary(bytes) = message else { continue };
                match &bytes[..] {
                    [0, text @ ..] => {
                        if let Some(stdin) = &mut stdin {
                            let _ = stdin.write_all(text).and_then(|()| stdin.flush());
                        }
                    }
                    [255, ..] => stdin = None,
                    _ => {}
                }
            }
        });
        let mut to = WebSocket::from_raw_socket(&stream, Role::Server, None);
        let mut left = breaks.unwrap_or(usize::MAX);
        let mut buffer = vec![0; 32 << 10];
        while let Ok(length) = stdout.read(&mut buffer) {
            if length == 0 || left < length {
                break;
            }
            left -= length;
            let message = [&[1], &buffer[..length]].concat();
            if to.send(Message::Binary(message.into())).is_err() {
                break;
            }
        }
        if breaks.is_none() {
            let status = br#"{"metadata":{},"status":"Success"}"#;
            let _ = to.send(Message::Binary([&[3], &status[..]].concat().into()));
            let _ = to.close(None);
            let _ = to.flush();
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
        let _ = kill_process_group(Pid::from_child(&process), Signal::KILL);
        let _ = process.wait();
    }
}

/// A value of a query.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = text.as_bytes();
    while let [first, rest @ ..] = left {
        left = rest;
        match (first, rest) {
            (b'%', [high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
                left = behind;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

//! What a running switch is asked and told, and what it answers: one line of JSON
//! each, over its control socket. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counters::{PortCounts, ThreadCounts};

/// Version of the questions and answers.
pub(crate) const VERSION: u32 = 1;

/// A command to a running switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// Ports, threads and their counters.
    Status,
    /// The MAC table.
    Stations,
    /// One more port, as `--port` describes it.
    Add {
        /// `PATH[,name=value]...`
        port: String,
    },
    /// One port less.
    Remove {
        /// Its name.
        port: String,
    },
    /// A station that neither ages nor moves, in each VLAN of its port.
    Pin {
        /// Its address.
        mac: String,
        /// Name of the port.
        port: String,
    },
    /// Lets a pinned station be learned again.
    Unpin {
        /// Its address.
        mac: String,
    },
    /// Forget what was learned, behind one port or all.
    Forget {
        /// Name of the port.
        port: Option<String>,
    },
    /// End the switch.
    End,
}

/// A question with its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlRequest {
    /// Version of questions and answers.
    pub version: u32,
    /// The question.
    #[serde(flatten)]
    pub question: Question,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// It is done.
    Done,
    /// It could not be done.
    Error(String),
    /// The state of the switch.
    Status(Box<SwitchStatus>),
    /// The MAC table.
    Stations(Vec<StationStatus>),
}

/// A switch at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchStatus {
    /// Version of questions and answers.
    pub version: u32,
    /// Process.
    pub pid: u32,
    /// Seconds since it began.
    pub up_s: u64,
    /// Its ports, in the order of their numbers.
    pub ports: Vec<PortStatus>,
    /// Its polling threads.
    pub threads: Vec<ThreadStatus>,
    /// How often a queue went to another polling thread, for their loads.
    #[serde(default)]
    pub moves: u64,
    /// Addresses that come from two ports at once.
    #[serde(default)]
    pub same_addresses: Vec<SameAddress>,
    /// The mirrors that are written.
    #[serde(default)]
    pub mirrors: Vec<MirrorStatus>,
}

/// An address that moves to and fro between two ports: VMs at both send from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SameAddress {
    /// The first such address of these two ports.
    pub mac: String,
    /// VLAN; 0 without one.
    pub vlan: u16,
    /// Names of the two ports.
    pub ports: [String; 2],
    /// How many addresses these two share.
    pub addresses: u32,
}

/// A mirror at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MirrorStatus {
    /// Its file.
    pub target: String,
    /// Frames that were written.
    pub written: u64,
    /// Frames that were not: the file is full, or its reader slow.
    pub dropped: u64,
}

/// The state of a port's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// No frontend is there.
    Waiting,
    /// One is connected, and its driver runs no ring.
    Connected,
    /// Rings run.
    Running,
}

impl LinkState {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connected => "connected",
            Self::Running => "running",
        }
    }
}

/// A port at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// Its socket, or `tap:` and its interface.
    pub socket: String,
    /// Its connection.
    pub state: LinkState,
    /// Queues that it offers.
    pub queues: u16,
    /// Rings that run.
    pub rings: u16,
    /// What driver and switch agreed on, in words.
    pub features: Vec<String>,
    /// Its counters.
    pub counts: PortCounts,
    /// Rings that were stopped, and why.
    pub stopped: BTreeMap<u16, String>,
    /// Why the last connection ended, if it ended with an error.
    pub last_error: Option<String>,
    /// Why the frontend that is to listen can't be connected to, if it can't.
    #[serde(default)]
    pub unreachable: Option<String>,
    /// How often a frontend came.
    pub connections: u64,
}

/// A polling thread at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadStatus {
    /// The pCPU that it is pinned to.
    pub pcpu: Option<u32>,
    /// Its counters.
    pub counts: ThreadCounts,
}

/// An entry of the MAC table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StationStatus {
    /// Address.
    pub mac: String,
    /// VLAN; 0 without one.
    pub vlan: u16,
    /// Name of the port.
    pub port: String,
    /// Seconds since it was heard; none if it was set by hand.
    pub age_s: Option<u32>,
}

/// Error type for [`ControlRequest::read`].
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// Not a question.
    #[error("Not a question to a switch")]
    Json(#[source] serde_json::Error),
    /// Of another version.
    #[error("The question has version {0}, this switch answers those of version {VERSION}")]
    Version(u64),
}

impl ControlRequest {
    /// From a line.
    ///
    /// # Errors
    /// [`QuestionError`].
    pub fn read(line: &[u8]) -> Result<Question, QuestionError> {
        let value: serde_json::Value = serde_json::from_slice(line).map_err(QuestionError::Json)?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version != u64::from(VERSION) => Err(QuestionError::Version(version)),
            _ => {
                let mut value = value;
                if let Some(fields) = value.as_object_mut() {
                    fields.remove("version");
                }
                serde_json::from_value(value).map_err(QuestionError::Json)
            }
        }
    }

    /// The line of a question.
    #[must_use]
    pub fn line(question: Question) -> String {
        let asked = Self { version: VERSION, question };
        serde_json::to_string(&asked).expect("questions are JSON") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_come_back_as_they_were_asked() {
        for question in [
            Question::Status,
            Question::Stations,
            Question::Add { port: "a.sock,queues=2".to_owned() },
            Question::Remove { port: "a".to_owned() },
            Question::Pin { mac: "02:00:00:00:00:01".to_owned(), port: "a".to_owned() },
            Question::Unpin { mac: "02:00:00:00:00:01".to_owned() },
            Question::Forget { port: None },
            Question::Forget { port: Some("a".to_owned()) },
            Question::End,
        ] {
            let line = ControlRequest::line(question.clone());
            assert_eq!(ControlRequest::read(line.as_bytes()).unwrap(), question, "{line}");
        }
        // By hand, the version may be left out.
        assert_eq!(ControlRequest::read(br#"{"do":"status"}"#).unwrap(), Question::Status);
    }

    #[test]
    fn other_versions_and_other_words_are_refused() {
        let error = |line: &str| ControlRequest::read(line.as_bytes()).unwrap_err().to_string();
        assert!(error(r#"{"version":2,"do":"status"}"#).contains("version 2"));
        assert!(error(r#"{"version":1,"do":"dance"}"#).contains("Not a question"));
        assert!(error("ports").contains("Not a question"));
    }
}

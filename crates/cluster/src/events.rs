//! What the cluster says that happened with an object.

use serde::{Deserialize, Serialize};

/// An event of Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubeEvent {
    /// When it happened last, as the server writes it; sorts by time.
    pub at: String,
    /// Kind and name of what it happened to.
    pub object: String,
    /// Whether it is a warning.
    pub is_warning: bool,
    /// Why, in a word.
    pub reason: String,
    /// What, in a sentence.
    pub message: String,
    /// How often.
    pub count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    count: Option<u64>,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    involved_object: InvolvedObject,
}

#[derive(Deserialize)]
struct InvolvedObject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct EventList {
    #[serde(default)]
    items: Vec<Event>,
}

/// The events in a list; none where it is none.
pub(crate) fn read_events(text: &[u8]) -> Vec<KubeEvent> {
    let list: EventList = serde_json::from_slice(text).unwrap_or(EventList { items: Vec::new() });
    let events = list.items.into_iter().map(|event| KubeEvent {
        at: event.last_timestamp.or(event.event_time).unwrap_or_default(),
        object: format!("{} {}", event.involved_object.kind, event.involved_object.name),
        is_warning: event.kind == "Warning",
        reason: event.reason,
        message: event.message.trim().to_owned(),
        count: event.count.unwrap_or(1),
    });
    events.collect()
}

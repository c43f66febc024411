//! An object of vmlab's own in a cluster, from its creation until nothing of it is left.

use std::fmt;
use std::time::{Duration, Instant};

use guest::{Cancel, GuestFailure};
use serde_json::Value;

use crate::api::{Call, RequestFailure, escaped};
use crate::events::{KubeEvent, read_events};
use crate::kind::{MadeKind, PodLookup};
use crate::refusal::{ClusterFailure, refused};
use crate::resource::PODS;
use crate::session::{Session, tokio_sleep};

/// How long the end of an object is waited for.
const END_LIMIT: Duration = Duration::from_secs(120);

/// A watch is begun anew after so long, should the server have forgotten it.
const WATCH_LIMIT: Duration = Duration::from_secs(30);

/// An object. What is left of it is deleted when it is dropped.
pub(crate) struct OwnedObject {
    pub(crate) session: Session,
    pub(crate) kind: &'static MadeKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    uid: String,
    pub(crate) created: Instant,
    is_deleted: bool,
}

impl fmt::Debug for OwnedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.read.kind, self.namespace, self.name)
    }
}

impl OwnedObject {
    /// Creates the object of `manifest` (YAML or JSON, by its media type), whose name is
    /// `name`.
    ///
    /// # Errors
    /// What the cluster refuses, with what to do about it.
    pub(crate) fn create(
        session: Session,
        kind: &'static MadeKind,
        namespace: &str,
        name: &str,
        (media_type, manifest): (&'static str, &str),
        cancel: &Cancel,
    ) -> Result<Self, ClusterFailure> {
        let path = kind.read.path(Some(namespace));
        // Unknown fields would be dropped without a word.
        let path = format!("{path}?fieldValidation=Strict");
        let call = Call::create(&path, media_type, manifest.as_bytes());
        let mut made = Self::adopt(session, kind, namespace, name, "");
        let what = format!("to create a {}", kind.what);
        let answer = made.session.ask(&what, cancel, || made.session.api.call(&call))?;
        let text = match answer {
            Ok(text) => text,
            // The answer to an earlier try was lost: its name is nobody else's.
            Err(RequestFailure::Exists(_)) => {
                let path = made.path();
                let what = format!("for a {}", kind.what);
                let answer = made.session.ask(&what, cancel, || made.session.api.get(&path))?;
                answer.map_err(|failure| refused(kind, "get", failure, namespace))?
            }
            Err(failure) => {
                made.is_deleted = true;
                return Err(refused(kind, "create", failure, namespace).into());
            }
        };
        let object: Value = serde_json::from_slice(&text).unwrap_or_default();
        text_at(&object, "/metadata/uid").clone_into(&mut made.uid);
        Ok(made)
    }

    /// An object that another process created.
    pub(crate) fn adopt(
        session: Session,
        kind: &'static MadeKind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Self {
        Self {
            session,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            created: Instant::now(),
            is_deleted: false,
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.kind.read.path(Some(&self.namespace)), self.name)
    }

    /// The object as the server has it; `None`: it is gone.
    ///
    /// # Errors
    /// The server does not tell.
    pub(crate) fn read(&self, cancel: &Cancel) -> Result<Option<Value>, ClusterFailure> {
        let path = self.path();
        let what = format!("for a {}", self.kind.what);
        match self.session.ask(&what, cancel, || self.session.api.get(&path))? {
            Ok(text) => Ok(Some(understood(&text)?)),
            Err(RequestFailure::Absent) => Ok(None),
            Err(failure) => Err(self.refused("get", failure)),
        }
    }

    pub(crate) fn refused(&self, verb: &str, failure: RequestFailure) -> ClusterFailure {
        refused(self.kind, verb, failure, &self.namespace).into()
    }

    /// Watches the object until `look` makes something of it; `None` after `until`.
    ///
    /// # Errors
    /// The server does not tell.
    pub(crate) fn watch<T>(
        &self,
        until: Instant,
        cancel: &Cancel,
        look: impl Fn(Option<&Value>) -> Option<T>,
    ) -> Result<Option<T>, ClusterFailure> {
        loop {
            let object = self.read(cancel)?;
            if let Some(found) = look(object.as_ref()) {
                return Ok(Some(found));
            }
            let version = object.as_ref().map_or("", |it| text_at(it, "/metadata/resourceVersion"));
            let path = format!(
                "{}?watch=1&fieldSelector=metadata.name%3D{}&resourceVersion={version}",
                self.kind.read.path(Some(&self.namespace)),
                self.name
            );
            let mut each = |line: &[u8]| {
                let event: Value = serde_json::from_slice(line).unwrap_or_default();
                match event["type"].as_str() {
                    Some("DELETED") => look(None).map(Some),
                    Some("ADDED" | "MODIFIED") => look(Some(&event["object"])).map(Some),
                    Some("BOOKMARK") => None,
                    // It is too old: look again.
                    _ => Some(None),
                }
            };
            if let Some(Some(found)) = self.watch_once(&path, until, cancel, &mut each)? {
                return Ok(Some(found));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// What `each` makes of a watch's lines, until it ends or breaks.
    fn watch_once<T>(
        &self,
        path: &str,
        until: Instant,
        cancel: &Cancel,
        each: &mut impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, GuestFailure> {
        let next = until.min(Instant::now() + WATCH_LIMIT);
        let api = &self.session.api;
        match self.session.wait(next, cancel, api.watch(path, each))? {
            Some(Ok(Some(found))) => return Ok(Some(found)),
            // One that breaks is not begun again in the same moment.
            Some(Err(_) | Ok(None)) => {
                self.session.wait(next, cancel, tokio_sleep(Duration::from_millis(200)))?;
            }
            None => {}
        }
        Ok(None)
    }

    fn pods_selector(&self) -> String {
        escaped(&match self.kind.pods {
            PodLookup::Uid(label) => format!("{label}={}", self.uid),
            PodLookup::Name(label) => format!("{label}={}", self.name),
        })
    }

    /// Its pods as the server has them.
    ///
    /// # Errors
    /// The server does not tell.
    pub(crate) fn pods(&self, cancel: &Cancel) -> Result<Vec<Value>, ClusterFailure> {
        Ok(self.pods_at(cancel)?.0)
    }

    fn pods_at(&self, cancel: &Cancel) -> Result<(Vec<Value>, String), ClusterFailure> {
        let path =
            format!("{}?labelSelector={}", PODS.path(Some(&self.namespace)), self.pods_selector());
        match self.session.ask("for a pod", cancel, || self.session.api.get(&path))? {
            Ok(text) => {
                let mut list = understood(&text)?;
                let version = text_at(&list, "/metadata/resourceVersion").to_owned();
                let pods = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                Ok((pods, version))
            }
            Err(failure) => Err(self.refused("list", failure)),
        }
    }

    /// Watches its pods until `look` makes something of them; `None` after `until`.
    ///
    /// # Errors
    /// The server does not tell.
    pub(crate) fn watch_pods<T>(
        &self,
        until: Instant,
        cancel: &Cancel,
        look: impl Fn(&[Value]) -> Option<T>,
    ) -> Result<Option<T>, ClusterFailure> {
        loop {
            let (pods, version) = self.pods_at(cancel)?;
            if let Some(found) = look(&pods) {
                return Ok(Some(found));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            let path = format!(
                "{}?watch=1&labelSelector={}&resourceVersion={version}",
                PODS.path(Some(&self.namespace)),
                self.pods_selector()
            );
            // Whatever it is, the list tells it.
            self.watch_once(&path, until, cancel, &mut |_| Some(()))?;
        }
    }

    /// What happened with the object and with those that are named, as far as it may be
    /// read.
    pub(crate) fn events(&self, others: &[&str], cancel: &Cancel) -> Vec<KubeEvent> {
        let mut found = Vec::new();
        for name in others.iter().chain([&self.name.as_str()]) {
            let path = format!(
                "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name%3D{name}",
                self.namespace
            );
            let asked = self.session.ask("for events", cancel, || self.session.api.get(&path));
            if let Ok(Ok(text)) = asked {
                found.extend(read_events(&text));
            }
        }
        found.sort_by(|one, other| one.at.cmp(&other.at));
        found
    }

    /// Deletes the object, at once; that it is gone already is as good.
    fn tell_to_end(&self, cancel: &Cancel) -> Result<(), ClusterFailure> {
        let path = self.path();
        // Another one may have come by its name.
        let uid = match self.uid.as_str() {
            "" => String::new(),
            uid => format!(r#","preconditions":{{"uid":"{uid}"}}"#),
        };
        let options =
            format!(r#"{{"gracePeriodSeconds":0,"propagationPolicy":"Background"{uid}}}"#);
        let call = Call::delete(&path, options.as_bytes());
        let what = format!("to delete a {}", self.kind.what);
        match self.session.ask(&what, cancel, || self.session.api.call(&call))? {
            Ok(_) | Err(RequestFailure::Absent) => Ok(()),
            Err(failure) => Err(self.refused("delete", failure)),
        }
    }

    /// Deletes the object and waits until it and its pods are gone.
    ///
    /// # Errors
    /// Why something of it may be left.
    pub(crate) fn delete(&mut self) -> Result<(), String> {
        if self.is_deleted {
            return Ok(());
        }
        // Also of one that was interrupted.
        let cancel = Cancel::new();
        let left = |error: &dyn fmt::Display| {
            format!("{self:?} may be left in the cluster ({error}); `vmlab clean` deletes it")
        };
        self.tell_to_end(&cancel).map_err(|error| left(&error))?;
        let until = Instant::now() + END_LIMIT;
        let gone = |object: Option<&Value>| {
            let other = |it: &Value| text_at(it, "/metadata/uid") != self.uid;
            object.is_none_or(other).then_some(())
        };
        match self.watch(until, &cancel, gone) {
            Ok(Some(())) => {}
            Ok(None) => return Err(left(&format!("not gone after {} s", END_LIMIT.as_secs()))),
            Err(failure) => return Err(left(&failure)),
        }
        // Its pCPUs are free when the pod is gone.
        match self.watch_pods(until, &cancel, |pods| pods.is_empty().then_some(())) {
            Ok(Some(())) => {}
            Ok(None) => {
                return Err(left(&format!("its pod is there after {} s", END_LIMIT.as_secs())));
            }
            Err(failure) => return Err(left(&failure)),
        }
        self.is_deleted = true;
        Ok(())
    }
}

impl Drop for OwnedObject {
    fn drop(&mut self) {
        // Told by whoever deletes it in order.
        drop(self.delete());
    }
}

/// An answer that is cut off or of something else is none: what it does not hold is not
/// gone.
fn understood(text: &[u8]) -> Result<Value, ClusterFailure> {
    serde_json::from_slice(text)
        .map_err(|error| ClusterFailure::NoAnswer(format!("The API's answer is no JSON: {error}")))
}

/// The text at a place of an object; empty if there is none.
pub(crate) fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

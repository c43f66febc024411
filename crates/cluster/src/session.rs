//! A connection that is kept, and waits that end.

use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, Instant};

use guest::{Cancel, GuestFailure};
use tokio::runtime::{Builder, Runtime};

use crate::api::{Api, ClusterTarget, RequestFailure};
use crate::error::ClusterError;

/// How long a wait lasts before it looks whether it is cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// How long a server that does not answer is asked again in the middle of a trial.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long one that has been gone for that long.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// Between two such questions.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection with the runtime that it lives in.
pub(crate) struct Session {
    runtime: Runtime,
    /// It did not answer for as long as it was asked: it is not waited for that long again.
    is_gone: Cell<bool>,
    pub(crate) api: Api,
}

impl Session {
    pub(crate) fn connect(target: &ClusterTarget) -> Result<Self, ClusterError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(ClusterError::Runtime)?;
        let api = runtime.block_on(Api::connect(target))?;
        Ok(Self { runtime, is_gone: Cell::new(false), api })
    }

    /// What comes of `future`, unless it is cancelled before; `None` after `until`.
    pub(crate) fn wait<T>(
        &self,
        until: Instant,
        cancel: &Cancel,
        future: impl Future<Output = T>,
    ) -> Result<Option<T>, GuestFailure> {
        self.runtime.block_on(async {
            let mut future = std::pin::pin!(future);
            loop {
                cancel.check()?;
                let left = until.saturating_duration_since(Instant::now());
                if let Ok(value) =
                    tokio::time::timeout(left.min(CANCEL_CHECK), future.as_mut()).await
                {
                    return Ok(Some(value));
                }
                if left.is_zero() {
                    return Ok(None);
                }
            }
        })
    }

    /// What the server answers. One that is gone, or busy beyond what its client waits
    /// for, is asked again for a while.
    pub(crate) fn ask<T, F: Future<Output = Result<T, RequestFailure>>>(
        &self,
        what: &str,
        cancel: &Cancel,
        mut future: impl FnMut() -> F,
    ) -> Result<Result<T, RequestFailure>, GuestFailure> {
        let patience = if self.is_gone.get() { SHORT_PATIENCE } else { PATIENCE };
        let until = Instant::now() + patience;
        loop {
            let reason = match self.wait(until, cancel, future())? {
                Some(Err(RequestFailure::Unreachable(reason))) => reason,
                Some(answer) => {
                    self.is_gone.set(false);
                    return Ok(answer);
                }
                None => format!("no answer within {} s", patience.as_secs()),
            };
            if Instant::now() + PAUSE >= until {
                self.is_gone.set(true);
                return Err(self.gone(what, patience, &reason));
            }
            self.wait(until, cancel, tokio_sleep(PAUSE))?;
        }
    }

    /// The server does not answer any more.
    fn gone(&self, what: &str, patience: Duration, reason: &str) -> GuestFailure {
        GuestFailure::Cluster {
            detail: format!(
                "the API server {} was asked {what} for {} s and did not answer: {reason}",
                self.api.server,
                patience.as_secs()
            ),
        }
    }
}

/// Begins when it is polled, inside of the runtime.
pub(crate) async fn tokio_sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

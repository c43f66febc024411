//! A study that runs elsewhere, told by the lines of its journal as they come.

use record::journal::JournalEvent;

use crate::agenda::Agenda;
use crate::execute::{ExecutionEvent, remaining_s};
use crate::plan::StudyPlan;
use crate::state::JournalState;

/// Turns the events of a journal into what [`crate::execute::execute`] tells
/// while it writes them; boots and runs are not in a journal and missing.
#[derive(Debug)]
pub struct Follower<'a> {
    plan: &'a StudyPlan,
    events: Vec<JournalEvent>,
    earlier: usize,
    agenda: Agenda,
}

impl<'a> Follower<'a> {
    /// Follows the study of `plan`, of which `earlier` is known.
    #[must_use]
    pub fn new(plan: &'a StudyPlan, earlier: &[JournalEvent]) -> Self {
        Self { plan, events: earlier.to_vec(), earlier: earlier.len(), agenda: Agenda::default() }
    }

    /// True once something was followed.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.events.len() > self.earlier
    }

    /// Takes the next event and tells `observe` what it means.
    pub fn follow(&mut self, event: &JournalEvent, observe: &mut dyn FnMut(ExecutionEvent<'_>)) {
        self.events.push(event.clone());
        match event {
            JournalEvent::BlockStarted { block, attempt, load, .. } => {
                let state = JournalState::from_events(&self.events);
                let block = self.agenda.block(self.plan, &state, *block);
                if let Some(load) = self.plan.loads.iter().find(|known| known.name == *load) {
                    observe(ExecutionEvent::BlockStarted {
                        block: &block,
                        load,
                        attempt: *attempt,
                    });
                }
            }
            JournalEvent::TrialStarted { trial, .. } => {
                observe(ExecutionEvent::TrialStarted(trial))
            }
            JournalEvent::TrialEnded(result) => observe(ExecutionEvent::TrialEnded(result)),
            JournalEvent::BlockRejected { reasons, not_restored, .. } => {
                tell_not_restored(not_restored, observe);
                observe(ExecutionEvent::BlockRejected(reasons));
                self.stand(observe);
            }
            JournalEvent::BlockEnded { not_restored, .. } => {
                tell_not_restored(not_restored, observe);
                self.stand(observe);
            }
            JournalEvent::SessionStarted { .. } => self.stand(observe),
            JournalEvent::Extended { .. } | JournalEvent::StudyEnded { .. } => {}
        }
    }

    /// Tells what is still open.
    fn stand(&mut self, observe: &mut dyn FnMut(ExecutionEvent<'_>)) {
        let state = JournalState::from_events(&self.events);
        self.agenda = Agenda::of(self.plan, &state, &self.events);
        observe(ExecutionEvent::Progress {
            done: u32::try_from(state.complete.len()).unwrap_or(u32::MAX),
            remaining_s: remaining_s(self.plan, &state, &self.agenda),
            agenda: &self.agenda,
        });
    }
}

fn tell_not_restored(not_restored: &[String], observe: &mut dyn FnMut(ExecutionEvent<'_>)) {
    if !not_restored.is_empty() {
        observe(ExecutionEvent::NotRestored(not_restored));
    }
}

#[cfg(test)]
mod tests {
    use guest::Cancel;

    use super::*;
    use crate::execute::execute;
    use crate::store::{self, Store};
    use crate::testing::{FakeLab, STUDY, host, plan_of};

    /// What is told, without the time left, which depends on the clock.
    fn said(progress: &ExecutionEvent<'_>) -> String {
        match progress {
            ExecutionEvent::Progress { done, agenda, .. } => {
                format!("{done} done, open: {:?}", agenda.open().collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn whoever_follows_hears_what_whoever_runs_it_hears() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("results");
        // What is usual is known after three rounds of two loads.
        let plan = plan_of(&STUDY.replace("blocks = 3", "blocks = 5"));
        let mut lab = FakeLab::new();
        lab.broken = vec!["c"];
        lab.disturbed = vec![(6, 0), (7, 0)];
        lab.stuck = vec![1, 4];
        let mut store = Store::create(&dir, &plan, &host()).unwrap();
        let mut told = Vec::new();
        execute(&plan, &[], &mut store, &mut lab, &Cancel::new(), &mut |progress| {
            told.push(said(&progress));
        })
        .unwrap();

        let mut follower = Follower::new(&plan, &[]);
        let mut followed = Vec::new();
        for event in &store::read(&dir).unwrap().events {
            follower.follow(event, &mut |progress| followed.push(said(&progress)));
        }
        // Whoever runs it sees by itself that nothing is open any more.
        assert!(followed.pop().is_some_and(|last| last.contains("done, open")));
        assert!(told.iter().any(|said| said.starts_with("BlockRejected")));
        assert_eq!(told.iter().filter(|said| said.starts_with("NotRestored")).count(), 2);
        assert_eq!(followed, told);
    }
}

//! Sleep mode: pauses requests, and ends, completes or freezes those in flight.
//!
//! A request is in flight from [`SleepMode::enter`] until its [`Admission`] is dropped. Requests that arrive while the engine
//! sleeps wait, as in vLLM: they neither fail nor count as waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What a sleeping engine does with its memory (`level` of `/sleep`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SleepLevel {
    /// 0: pauses only.
    Pause,
    /// 1: offloads the weights to host memory and discards the KV cache.
    OffloadWeights,
    /// 2: discards weights and KV cache.
    DiscardAll,
}

/// What happens to the requests in flight when the engine falls asleep (`mode` of `/sleep`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InFlightPolicy {
    /// They finish immediately with the reason `abort`.
    Abort,
    /// The engine falls asleep when they have completed.
    Wait,
    /// They continue after the engine wakes up.
    Keep,
}

/// A part of the device memory of an engine (`tags` of `/wake_up`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryPart {
    /// The weights of the model.
    Weights,
    /// The KV cache.
    KvCache,
}

/// Sleep state of one engine.
pub(crate) struct SleepMode {
    schedule: watch::Sender<Schedule>,
    in_flight: watch::Sender<usize>,
    sleep: Mutex<Option<Sleep>>,
    /// Serializes falling asleep and waking up.
    transition: tokio::sync::Mutex<()>,
}

/// A sleep in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sleep {
    level: SleepLevel,
    /// Parts of the memory that the engine does not have.
    released: Vec<MemoryPart>,
}

/// Which requests run.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    phase: Phase,
    /// Number of times that all requests in flight were aborted.
    aborts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Requests in flight run, new ones wait.
    Draining,
    /// No request runs.
    Paused,
}

/// The right of a request to run.
pub(crate) struct Admission {
    engine: Arc<SleepMode>,
    schedule: watch::Receiver<Schedule>,
    aborts: u64,
}

/// The request was aborted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Aborted;

// === impl SleepLevel ===

impl SleepLevel {
    /// Returns the level with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Pause, Self::OffloadWeights, Self::DiscardAll].into_iter().find(|level| level.number() == number)
    }

    /// Returns the number of the level in requests and responses.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Pause => 0,
            Self::OffloadWeights => 1,
            Self::DiscardAll => 2,
        }
    }

    /// Returns the parts of the device memory that the engine releases.
    fn released(self) -> Vec<MemoryPart> {
        match self {
            Self::Pause => Vec::new(),
            Self::OffloadWeights | Self::DiscardAll => vec![MemoryPart::Weights, MemoryPart::KvCache],
        }
    }
}

// === impl MemoryPart ===

impl MemoryPart {
    /// Returns the part with this tag.
    pub(crate) fn from_tag(tag: &str) -> Option<Self> {
        match tag {
            "weights" => Some(Self::Weights),
            "kv_cache" => Some(Self::KvCache),
            _ => None,
        }
    }
}

// === impl SleepMode ===

impl SleepMode {
    /// Returns the state of an engine that is awake.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            schedule: watch::Sender::new(Schedule { phase: Phase::Running, aborts: 0 }),
            in_flight: watch::Sender::new(0),
            sleep: Mutex::default(),
            transition: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the level at which the engine sleeps, `None` if it is awake.
    pub(crate) fn level(&self) -> Option<SleepLevel> {
        self.current().as_ref().map(|sleep| sleep.level)
    }

    /// Waits until the engine is awake and admits a request.
    pub(crate) async fn enter(self: &Arc<Self>) -> Admission {
        let mut schedule = self.schedule.subscribe();
        loop {
            // The request is in flight before it reads the phase, so that a drain either counts it or stops it here.
            self.in_flight.send_modify(|count| *count += 1);
            let current = *schedule.borrow_and_update();
            let admission = Admission { engine: Arc::clone(self), schedule: schedule.clone(), aborts: current.aborts };
            if current.phase == Phase::Running {
                return admission;
            }
            drop(admission);
            // It fails only without a sender, but `self` is one.
            let _ = schedule.wait_for(|schedule| schedule.phase == Phase::Running).await;
        }
    }

    /// Puts the engine to sleep: once its requests have stopped, calls `release`. A later call with another policy applies to
    /// the requests that an earlier one waits for.
    ///
    /// # Errors
    /// Those of `release`.
    pub(crate) async fn fall_asleep<E>(
        &self,
        level: SleepLevel,
        policy: InFlightPolicy,
        release: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.schedule.send_modify(|schedule| schedule.stop(policy));
        if policy != InFlightPolicy::Keep {
            let _ = self.in_flight.subscribe().wait_for(|count| *count == 0).await;
        }
        let _transition = self.transition.lock().await;
        self.schedule.send_modify(|schedule| schedule.phase = Phase::Paused);
        release()?;
        let mut sleep = self.current();
        let mut released = sleep.take().map(|sleep| sleep.released).unwrap_or_default();
        released.extend(level.released());
        *sleep = Some(Sleep { level, released });
        Ok(())
    }

    /// Wakes the engine up: calls `restore` with those of `parts`, or of all parts, that were released. The engine is awake as
    /// soon as it has all.
    ///
    /// # Errors
    /// Those of `restore`.
    pub(crate) async fn wake_up<E>(
        &self,
        parts: Option<&[MemoryPart]>,
        restore: impl AsyncFnOnce(&[MemoryPart]) -> Result<(), E>,
    ) -> Result<(), E> {
        let _transition = self.transition.lock().await;
        let released = self.current().as_ref().map(|sleep| sleep.released.clone()).unwrap_or_default();
        let (restored, remaining): (Vec<_>, Vec<_>) =
            released.into_iter().partition(|part| parts.is_none_or(|parts| parts.contains(part)));
        restore(&restored).await?;
        let mut current = self.current();
        match current.as_mut().filter(|_| !remaining.is_empty()) {
            Some(sleep) => sleep.released = remaining,
            None => {
                *current = None;
                self.schedule.send_modify(|schedule| schedule.phase = Phase::Running);
            }
        }
        Ok(())
    }

    fn current(&self) -> MutexGuard<'_, Option<Sleep>> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Schedule ===

impl Schedule {
    /// Stops new requests, and those in flight according to `policy`.
    fn stop(&mut self, policy: InFlightPolicy) {
        match policy {
            InFlightPolicy::Keep => self.phase = Phase::Paused,
            InFlightPolicy::Wait => self.phase = Phase::Draining,
            InFlightPolicy::Abort => {
                self.phase = Phase::Draining;
                self.aborts += 1;
            }
        }
    }
}

// === impl Admission ===

impl Admission {
    /// Waits until the request is aborted.
    pub(crate) async fn aborted(&mut self) -> Aborted {
        let aborts = self.aborts;
        // It fails only without a sender, but the engine is one.
        let _ = self.schedule.wait_for(|schedule| schedule.aborts != aborts).await;
        Aborted
    }

    /// Waits until requests in flight run.
    ///
    /// # Errors
    /// The request was aborted.
    pub(crate) async fn runs(&mut self) -> Result<(), Aborted> {
        let aborts = self.aborts;
        let is_decided = |schedule: &Schedule| schedule.phase != Phase::Paused || schedule.aborts != aborts;
        match self.schedule.wait_for(is_decided).await {
            Ok(schedule) if schedule.aborts != aborts => Err(Aborted),
            _ => Ok(()),
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.engine.in_flight.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};
    use rstest::rstest;

    use super::*;

    async fn fall_asleep(engine: &SleepMode, level: SleepLevel, policy: InFlightPolicy) {
        engine.fall_asleep(level, policy, || Ok::<_, ()>(())).await.unwrap();
    }

    async fn wake_up(engine: &SleepMode, part: MemoryPart) {
        let restore = async |parts: &[MemoryPart]| if parts == [part] { Ok(()) } else { Err(parts.to_vec()) };
        engine.wake_up(Some(&[part]), restore).await.unwrap();
    }

    #[tokio::test]
    async fn new_requests_wait_while_the_engine_sleeps() {
        let engine = SleepMode::new();
        fall_asleep(&engine, SleepLevel::OffloadWeights, InFlightPolicy::Abort).await;
        let mut request = Box::pin(engine.enter());
        assert!(poll!(&mut request).is_pending());
        assert_eq!(engine.level(), Some(SleepLevel::OffloadWeights));
        wake_up(&engine, MemoryPart::Weights).await;
        assert!(poll!(&mut request).is_pending());
        wake_up(&engine, MemoryPart::KvCache).await;
        assert!(poll!(&mut request).is_ready());
        assert_eq!(engine.level(), None);
    }

    #[rstest]
    #[case::abort(InFlightPolicy::Abort, Some(Err(Aborted)), false)]
    #[case::wait(InFlightPolicy::Wait, Some(Ok(())), false)]
    #[case::keep(InFlightPolicy::Keep, None, true)]
    #[tokio::test]
    async fn policy_applies_to_requests_in_flight(
        #[case] policy: InFlightPolicy,
        #[case] runs: Option<Result<(), Aborted>>,
        #[case] sleeps: bool,
    ) {
        let engine = SleepMode::new();
        let mut request = engine.enter().await;
        let mut sleep = Box::pin(fall_asleep(&engine, SleepLevel::Pause, policy));
        assert_eq!(poll!(&mut sleep).is_ready(), sleeps);
        assert_eq!(request.runs().now_or_never(), runs);
        drop(request);
        if !sleeps {
            assert!(poll!(&mut sleep).is_ready());
        }
        assert_eq!(engine.level(), Some(SleepLevel::Pause));
    }

    #[tokio::test]
    async fn abort_ends_an_earlier_wait() {
        let engine = SleepMode::new();
        let mut request = engine.enter().await;
        let mut wait = Box::pin(fall_asleep(&engine, SleepLevel::OffloadWeights, InFlightPolicy::Wait));
        assert!(poll!(&mut wait).is_pending());
        let mut abort = Box::pin(fall_asleep(&engine, SleepLevel::OffloadWeights, InFlightPolicy::Abort));
        assert!(poll!(&mut abort).is_pending());
        assert_eq!(request.aborted().now_or_never(), Some(Aborted));
        drop(request);
        assert!(poll!(&mut wait).is_ready() && poll!(&mut abort).is_ready());
    }
}

//! Models of the requester and the engine: how they answer calls.

use std::collections::{BTreeMap, BTreeSet};

use actuation::{Answer, CallError, CallErrorKind, InstanceRecord, ObservedInstance, Request};

/// A requester.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequesterModel {
    /// Accelerators that it reports.
    pub(crate) accelerators: BTreeSet<String>,
    /// Readiness that was last relayed to it.
    pub(crate) is_ready: bool,
    /// Whether it was released.
    pub(crate) is_released: bool,
    /// Requests that fail.
    pub(crate) failing: Option<CallErrorKind>,
    /// Whether it does not answer requests.
    pub(crate) hangs: bool,
    /// Memory usage in MiB, if it can be read.
    pub(crate) memory: Option<BTreeMap<String, u64>>,
}

/// What an engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineActivity {
    Loading,
    Awake,
    Asleep,
    Dead,
}

/// An engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineModel {
    pub(crate) activity: EngineActivity,
    /// Whether it has the routes of sleep mode.
    pub(crate) has_sleep_mode: bool,
    /// Requests that it processes; each poll of the metrics finishes one.
    pub(crate) running_requests: u32,
    /// Requests with this purpose fail.
    pub(crate) failing: Option<(&'static str, CallErrorKind)>,
    /// Whether it accepts sleep requests without sleeping.
    pub(crate) ignores_sleep: bool,
    /// Whether it ends when it is put to sleep.
    pub(crate) ends_at_sleep: bool,
    /// Completion of one token.
    pub(crate) completion: String,
    /// Requests that were aborted.
    pub(crate) aborted: bool,
    /// Whether its health check fails while it runs.
    pub(crate) is_unhealthy: bool,
}

/// A launcher.
#[derive(Clone, Debug, Default)]
pub(crate) struct LauncherModel {
    pub(crate) revision: u64,
    /// Instances by id.
    pub(crate) instances: BTreeMap<String, InstanceModel>,
}

/// An instance of a launcher.
#[derive(Clone, Debug)]
pub(crate) struct InstanceModel {
    /// Its command, arguments, variables and accelerators.
    pub(crate) config: serde_json::Value,
    pub(crate) is_running: bool,
}

// === impl LauncherModel ===

impl LauncherModel {
    pub(crate) fn list(&self) -> Answer {
        let observed = |instance: &InstanceModel| ObservedInstance {
            is_running: instance.is_running,
            record: InstanceRecord {
                accelerators: serde_json::from_value(instance.config["gpu_uuids"].clone()).unwrap(),
                port: instance.port().parse().unwrap(),
                ..InstanceRecord::default()
            },
        };
        let instances = self.instances.iter().map(|(id, instance)| (id.clone(), observed(instance))).collect();
        Answer::Instances { revision: self.revision, instances }
    }

    pub(crate) fn create(&mut self, id: &str, config: &serde_json::Value) -> Result<Answer, CallError> {
        if self.instances.contains_key(id) {
            return Ok(Answer::InstanceExists);
        }
        let new = InstanceModel { config: config.clone(), is_running: true };
        for instance in self.instances.values().filter(|instance| instance.is_running) {
            assert_ne!(instance.port(), new.port(), "two instances of a launcher have the same port");
        }
        self.revision += 1;
        self.instances.insert(id.to_owned(), new);
        Ok(Answer::InstanceCreated { revision: self.revision })
    }

    pub(crate) fn delete(&mut self, id: &str) -> Result<Answer, CallError> {
        let revision = match self.instances.remove(id) {
            Some(_) => {
                self.revision += 1;
                self.revision
            }
            None => 0,
        };
        Ok(Answer::InstanceDeleted { revision })
    }
}

// === impl InstanceModel ===

impl InstanceModel {
    /// Returns the model that it serves.
    pub(crate) fn model(&self) -> String {
        self.config["command"][2].as_str().unwrap().to_owned()
    }

    fn port(&self) -> &str {
        self.config["annotations"]["inference-port"].as_str().unwrap()
    }
}

// === impl RequesterModel ===

impl RequesterModel {
    pub(crate) fn answer(&mut self, request: &Request) -> Result<Answer, CallError> {
        if let Some(kind) = self.failing {
            return Err(CallError { kind, message: "connection refused".to_owned() });
        }
        match request {
            Request::Accelerators => Ok(Answer::Accelerators(self.accelerators.iter().cloned().collect())),
            Request::MemoryUsage => match &self.memory {
                Some(memory) => Ok(Answer::MemoryUsage(memory.clone())),
                None => Err(CallError { kind: CallErrorKind::Rejected, message: "no nvidia-smi".to_owned() }),
            },
            Request::Ready(is_ready) => {
                assert_ne!(self.is_ready, *is_ready, "the same readiness is relayed twice");
                self.is_ready = *is_ready;
                Ok(Answer::Accepted)
            }
            Request::Release => {
                self.is_released = true;
                Ok(Answer::Accepted)
            }
            other => panic!("a requester does not serve {other:?}"),
        }
    }
}

// === impl EngineModel ===

impl EngineModel {
    pub(crate) fn new() -> EngineModel {
        EngineModel {
            activity: EngineActivity::Loading,
            has_sleep_mode: true,
            running_requests: 0,
            failing: None,
            ignores_sleep: false,
            ends_at_sleep: false,
            completion: "a".to_owned(),
            aborted: false,
            is_unhealthy: false,
        }
    }

    pub(crate) fn answer(&mut self, request: &Request) -> Result<Answer, CallError> {
        if *request == Request::AwaitHealth {
            let is_running = matches!(self.activity, EngineActivity::Awake | EngineActivity::Asleep);
            return Ok(Answer::Healthy(is_running && !self.is_unhealthy));
        }
        let refused = |message: &str| Err(CallError { kind: CallErrorKind::NotDelivered, message: message.to_owned() });
        if matches!(self.activity, EngineActivity::Loading | EngineActivity::Dead) {
            return refused("connection refused");
        }
        if let Some((_, kind)) = self.failing.filter(|(purpose, _)| *purpose == request.purpose()) {
            return Err(CallError { kind, message: "failed".to_owned() });
        }
        match request {
            Request::IsSleeping | Request::WakeUp | Request::Sleep(_) if !self.has_sleep_mode => {
                Ok(Answer::SleepUnsupported)
            }
            Request::IsSleeping => Ok(Answer::Sleeping(self.activity == EngineActivity::Asleep)),
            Request::WakeUp => {
                self.activity = EngineActivity::Awake;
                Ok(Answer::Accepted)
            }
            Request::Drain { .. } => {
                self.running_requests = self.running_requests.saturating_sub(1);
                Ok(Answer::Idle(self.running_requests == 0))
            }
            Request::Sleep(_) if self.ends_at_sleep => {
                self.activity = EngineActivity::Dead;
                Err(CallError { kind: CallErrorKind::NoResponse, message: "connection reset".to_owned() })
            }
            Request::Sleep(mode) => {
                self.aborted |= *mode == actuation::SleepMode::Abort && self.running_requests > 0;
                if !self.ignores_sleep {
                    self.activity = EngineActivity::Asleep;
                }
                Ok(Answer::Accepted)
            }
            Request::Verify { completion } => Ok(Answer::Completion(completion.then(|| self.completion.clone()))),
            other => panic!("an engine does not serve {other:?}"),
        }
    }

    /// Whether it uses the memory of an awake engine.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.activity, EngineActivity::Loading | EngineActivity::Awake)
    }
}

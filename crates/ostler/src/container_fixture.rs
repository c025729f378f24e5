//! The container of unit tests.

use std::collections::BTreeMap;

use embedded::ports::{ContainerConfig, ContainerPurpose, LogSink};

/// Returns an engine container with this command.
pub(crate) fn container(args: &[&str]) -> ContainerConfig {
    ContainerConfig {
        node: "host".to_owned(),
        namespace: "n".to_owned(),
        pod: "p".to_owned(),
        pod_uid: "u".to_owned(),
        name: "c".to_owned(),
        attempt: 0,
        image: "vllm/vllm-openai".to_owned(),
        purpose: ContainerPurpose::Service,
        command: args.iter().map(|arg| (*arg).to_owned()).collect(),
        args: Vec::new(),
        env: Vec::new(),
        pod_ip: [127, 20, 0, 1].into(),
        ports: Vec::new(),
        working_dir: None,
        labels: BTreeMap::new(),
        devices: BTreeMap::new(),
        log: LogSink::default(),
        default_working_dir: None,
        mounts: Vec::new(),
    }
}

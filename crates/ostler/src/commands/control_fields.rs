//! The flag with which gateway and picker trust the proxy in front of them.

use picker::ControlFields;

#[derive(clap::Args)]
pub(super) struct ControlFieldArgs {
    /// Forward request fields that name engines to connect to
    ///
    /// These are `kv_transfer_params` and similar fields, with which a proxy connects prefill and decode engines. By default
    /// such requests are rejected with 400, because an engine connects to all addresses in them. Set this only if clients
    /// cannot send requests without that proxy.
    #[arg(long)]
    forward_control_fields: bool,
}

impl ControlFieldArgs {
    pub(super) fn control_fields(&self) -> ControlFields {
        if self.forward_control_fields { ControlFields::Forward } else { ControlFields::Reject }
    }
}

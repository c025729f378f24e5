//! `ostler engine`: runs a simulated OpenAI-compatible engine.

use std::net::SocketAddr;

use anyhow::Result;

use crate::exit::Exit;
use crate::listener;
use crate::shutdown::shutdown_token;

#[derive(clap::Args)]
pub(crate) struct EngineArgs {
    /// Name of the model
    model: String,
    /// Serve the model under these names [default: MODEL]
    #[arg(long, num_args = 1.., value_name = "NAME")]
    served_model_name: Vec<String>,
    /// Listen on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
}

pub(super) async fn run(args: EngineArgs) -> Result<Exit> {
    let listener = listener::bind(args.listen, "--listen").await?;
    tracing::info!(model = args.model, address = %listener.local_addr()?, "simulated engine is listening");
    let config = engine::Config { served_model_names: args.served_model_name, ..engine::Config::new(args.model) };
    engine::serve(listener, config, engine::RequestMemory::default(), shutdown_token()?).await?;
    Ok(Exit::Success)
}

//! `ostler engine`: one simulated OpenAI engine, stand-alone.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use tokio::net::TcpListener;

use super::{bind_error, interrupted};

#[derive(clap::Args)]
pub(crate) struct EngineArgs {
    /// Model that the engine claims to serve
    model: String,
    /// Names that clients may use; the model's own name if none is given
    #[arg(long, num_args = 1..)]
    served_model_name: Vec<String>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
}

pub(super) async fn run(args: EngineArgs) -> Result<ExitCode> {
    let listener = TcpListener::bind(args.listen).await.map_err(|error| bind_error(args.listen, "--listen", &error))?;
    crate::output::tell(&format!("simulated engine for {} on http://{}", args.model, listener.local_addr()?));
    let config = engine::Config { served_names: args.served_model_name, ..engine::Config::new(args.model) };
    engine::serve(listener, config, interrupted()?).await?;
    Ok(ExitCode::SUCCESS)
}

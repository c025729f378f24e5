//! `ostler launcher`: runs in a Pod that starts several engines.

use std::path::Path;

use actuation::LauncherDaemon;
use anyhow::Result;

use crate::exit::Exit;
use crate::launcher_args::LauncherArgs;
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;

/// Name of the program in the directory of `--install`.
const PROGRAM: &str = "ostler";

/// Copies this program into a directory. The copy replaces another one at once, which may run.
fn install(directory: &Path) -> Result<Exit> {
    let (target, temporary) = (directory.join(PROGRAM), directory.join(format!(".{PROGRAM}")));
    let copy = || -> std::io::Result<()> {
        std::fs::copy(std::env::current_exe()?, &temporary)?;
        std::fs::rename(&temporary, &target)
    };
    copy().map_err(|error| {
        let hint = "choose a directory that exists and is writable, with space for the program".to_owned();
        error_with_hint(format!("cannot copy the program to {}: {error}", target.display()), hint)
    })?;
    Ok(Exit::Success)
}

pub(super) async fn run(args: LauncherArgs) -> Result<Exit> {
    if let Some(directory) = &args.install {
        return install(directory);
    }
    let options = args.options();
    let directory = &options.instances.log_directory;
    std::fs::create_dir_all(directory).map_err(|error| {
        error_with_hint(
            format!("cannot create {}: {error}", directory.display()),
            "choose another directory with --log-dir".to_owned(),
        )
    })?;
    let hint = "choose another port with --port, or another address with --address";
    let daemon = LauncherDaemon::bind(options).await;
    let daemon = daemon.map_err(|error| error_with_hint(error.to_string(), hint.to_owned()))?;
    tracing::info!(address = %daemon.address()?, "launcher is listening");
    daemon.run(shutdown_token()?).await?;
    Ok(Exit::Success)
}

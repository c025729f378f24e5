//! `ostler gateway trace`: explains where a running gateway would send a request.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use picker::RequestTrace;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::files;
use crate::gateway_debug::GatewayDebugArgs;
use crate::output::{self, OutputFormat};
use crate::report::errors::error_with_hint;
use crate::report::request_trace;

/// Show to which endpoint the gateway would send a request, and the cost of each
///
/// The gateway sends nothing and changes nothing: the next request gets the drawn target and the endpoint that are shown, unless the
/// load changes before.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// Request this model
    #[arg(long, value_name = "NAME", required_unless_present = "request_file")]
    model: Option<String>,
    /// Send the text of this file as the message of the user; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "request_file")]
    prompt_file: Option<PathBuf>,
    /// Use this JSON body of a request instead of --prompt-file; --model replaces its model
    ///
    /// Cached prefixes are compared byte by byte: only the body of a client has exactly its encoding.
    #[arg(long, value_name = "FILE")]
    request_file: Option<PathBuf>,
    /// Generate at most this many tokens
    #[arg(long, value_name = "NUMBER", conflicts_with = "request_file")]
    max_tokens: Option<u32>,
    /// Send the request to this path of the gateway
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    path: String,
    /// Address this pool, instead of searching all of them
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pool: Option<String>,
    /// Apply the HTTPRoutes for this host
    #[arg(long, value_name = "NAME", conflicts_with = "pool")]
    host: Option<String>,
    /// Use this value of the session header
    #[arg(long, value_name = "VALUE")]
    session: Option<String>,
    /// Print the trace in this format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    debug: GatewayDebugArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

const EXAMPLES: &str = "\
Examples:
  ostler gateway trace --model chat --prompt-file question.txt    Show the candidates with their costs
  ostler gateway trace --request-file request.json -o json        Trace the exact body of a client";

pub(super) async fn run(args: TraceArgs) -> Result<Exit> {
    let (path, body) = (request_path(&args)?, body(&args)?);
    let gateway = args.debug.gateway(&args.connect)?;
    let trace: RequestTrace = gateway.post(&path, body).await?;
    output::print_line(&match args.output {
        OutputFormat::Text => request_trace::render(&trace),
        OutputFormat::Json => serde_json::to_string_pretty(&trace)?,
    })?;
    Ok(Exit::Success)
}

/// Returns path and query of the debug page.
fn request_path(args: &TraceArgs) -> Result<String> {
    let pool = match &args.pool {
        None => String::new(),
        Some(pool)
            if pool.split('/').filter(|part| !part.is_empty()).count() == 2 && pool.matches('/').count() == 1 =>
        {
            format!("/{pool}")
        }
        Some(pool) => {
            return Err(error_with_hint(
                format!("--pool: `{pool}` is not NAMESPACE/NAME"),
                "for example `default/chat`",
            ));
        }
    };
    if !args.path.starts_with('/') || args.path.contains(['?', '#', ' ']) {
        let hint = "for example `/v1/completions`";
        return Err(error_with_hint(format!("--path: `{}` is not the path of a URL", args.path), hint));
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(args.host.iter().map(|host| ("host", host)));
    query.extend_pairs(args.session.iter().map(|session| ("session", session)));
    Ok(format!("/debug/trace{pool}{}?{}", args.path, query.finish()))
}

/// Returns the body of the request to trace.
fn body(args: &TraceArgs) -> Result<String> {
    if let Some(file) = &args.request_file {
        let text = read(file)?;
        let Some(model) = &args.model else { return Ok(text) };
        // The last of duplicate keys takes precedence, so that the other bytes remain.
        let Some(start) = text.trim_end().strip_suffix('}') else { return Ok(text) };
        let separator = if start.trim_end().ends_with('{') { "" } else { "," };
        return Ok(format!("{start}{separator}\"model\":{}}}", Value::from(model.as_str())));
    }
    let prompt = args.prompt_file.as_deref().map(read).transpose()?.unwrap_or_default();
    let mut body = match args.path.ends_with("/chat/completions") || args.path.ends_with("/messages") {
        true => json!({"model": args.model, "messages": [{"role": "user", "content": prompt}]}),
        false if args.path.ends_with("/completions") => json!({"model": args.model, "prompt": prompt}),
        false => json!({"model": args.model, "input": prompt}),
    };
    if let Some(max_tokens) = args.max_tokens {
        body["max_tokens"] = max_tokens.into();
    }
    Ok(body.to_string())
}

fn read(file: &Path) -> Result<String> {
    match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).context("standard input"),
        false => files::read_text(file),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: TraceArgs,
    }

    fn parse(arguments: &[&str]) -> TraceArgs {
        Cli::parse_from(["trace", "--model", "m"].iter().chain(arguments)).args
    }

    #[rstest]
    #[case::default(&[], "/debug/trace/v1/chat/completions?")]
    #[case::pool(&["--pool", "a/b", "--path", "/v1/completions"], "/debug/trace/a/b/v1/completions?")]
    #[case::route(&["--host", "x.example", "--session", "a&b"], "/debug/trace/v1/chat/completions?host=x.example&session=a%26b")]
    fn path_contains_pool_host_and_session(#[case] arguments: &[&str], #[case] expect: &str) {
        assert_eq!(request_path(&parse(arguments)).unwrap(), expect);
    }

    #[rstest]
    #[case(&["--pool", "a"], "--pool: `a` is not NAMESPACE/NAME")]
    #[case(&["--pool", "a/b/c"], "--pool: `a/b/c` is not NAMESPACE/NAME")]
    #[case(&["--path", "v1"], "--path: `v1` is not the path of a URL")]
    fn invalid_arguments_are_named(#[case] arguments: &[&str], #[case] expect: &str) {
        assert_eq!(request_path(&parse(arguments)).unwrap_err().to_string(), expect);
    }

    #[rstest]
    #[case::chat("/v1/chat/completions", r#"{"messages":[{"content":"","role":"user"}],"model":"m"}"#)]
    #[case::completion("/v1/completions", r#"{"model":"m","prompt":""}"#)]
    #[case::embedding("/v1/embeddings", r#"{"input":"","model":"m"}"#)]
    fn body_has_the_format_of_the_path(#[case] path: &str, #[case] expect: &str) {
        let value: Value = serde_json::from_str(&body(&parse(&["--path", path])).unwrap()).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(expect).unwrap());
    }
}

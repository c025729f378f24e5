//! Engines that respond as soon as they have received a request. One process serves every address of a host.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use crate::{metrics_page::metrics_page, result::Result};

/// Model that the engines serve.
pub(crate) const MODEL: &str = "base";

/// Buckets of the metrics page, which then has the 26 KB of an engine with one model.
const METRIC_BUCKETS: u16 = 270;

/// Size of the receive buffer of a connection in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Complete responses.
struct Responses {
    completion: Vec<u8>,
    metrics: Vec<u8>,
    models: Vec<u8>,
    health: Vec<u8>,
}

/// Serves engines on `address` until the process is terminated.
pub(crate) fn serve(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    let responses = Arc::new(Responses::new());
    for stream in listener.incoming() {
        let (stream, responses) = (stream?, Arc::clone(&responses));
        // A connection that fails concerns its client only.
        thread::spawn(move || serve_connection(&stream, &responses).ok());
    }
    Ok(())
}

fn serve_connection(stream: &TcpStream, responses: &Responses) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, stream);
    let (mut line, mut sink) = (String::new(), vec![0; BUFFER_BYTES]);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let response = responses.of(line.split(' ').nth(1).unwrap_or_default());
        let (mut length, mut is_chunked) = (0, false);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            line.make_ascii_lowercase();
            match line.trim_end().split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse()?,
                Some(("transfer-encoding", value)) => is_chunked = value.trim() == "chunked",
                Some(_) => {}
                None => break,
            }
        }
        if is_chunked {
            skip_chunks(&mut reader, &mut line, &mut sink)?;
        } else {
            skip(&mut reader, length, &mut sink)?;
        }
        (&*stream).write_all(response)?;
    }
}

fn skip_chunks(reader: &mut BufReader<&TcpStream>, line: &mut String, sink: &mut [u8]) -> Result<()> {
    loop {
        line.clear();
        reader.read_line(line)?;
        let length = usize::from_str_radix(line.trim_end(), 16)?;
        // Without trailers, the last chunk is empty as well.
        skip(reader, length + 2, sink)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn skip(reader: &mut impl Read, mut length: usize, sink: &mut [u8]) -> Result<()> {
    while length > 0 {
        let part = length.min(sink.len());
        reader.read_exact(&mut sink[..part])?;
        length -= part;
    }
    Ok(())
}

// === impl Responses ===

impl Responses {
    fn new() -> Self {
        let completion = format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1767225600,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"The answer is forty-two."}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":40,"completion_tokens":7,"total_tokens":47}}}}"#
        );
        let models = format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","root":"{MODEL}"}}]}}"#);
        Self {
            completion: response("application/json", &completion),
            metrics: response("text/plain; version=0.0.4", &metrics_page(MODEL, METRIC_BUCKETS)),
            models: response("application/json", &models),
            health: response("application/json", "{}"),
        }
    }

    fn of(&self, path: &str) -> &[u8] {
        match path {
            "/v1/chat/completions" => &self.completion,
            "/metrics" => &self.metrics,
            "/v1/models" => &self.models,
            _ => &self.health,
        }
    }
}

fn response(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

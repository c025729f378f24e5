//! Lists: everything at once, and page by page.

use std::time::Instant;

use memchr::{memchr, memmem};

use crate::connection::{Connection, Request};
use crate::figures::Figures;
use crate::target::Target;
use crate::{Result, Sizes};

const TOKEN: &[u8] = b"\"continue\":\"";
const PATH: &str = "/api/v1/configmaps";

pub(crate) async fn run(target: &Target, sizes: &Sizes) -> Result<Figures> {
    let (rounds, page) = (sizes.get("rounds", 5), sizes.get("page", 500));
    let mut connection = target.connect().await?;
    let mut whole = Vec::new();
    let mut bytes = 0;
    for _ in 0..rounds {
        let began = Instant::now();
        bytes = connection.measure(&Request::get(PATH)).await?;
        whole.push(began.elapsed());
    }
    let mut pages = Vec::new();
    for _ in 0..rounds.div_ceil(2) {
        let began = Instant::now();
        paged(&mut connection, page).await?;
        pages.push(began.elapsed());
    }
    let mut figures = Figures::default();
    figures.add("list_mib", bytes as f64 / 1024.0 / 1024.0);
    for (name, mut times) in [("list_ms", whole), ("list_paged_ms", pages)] {
        times.sort();
        figures.add(name, times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0));
    }
    Ok(figures)
}

async fn paged(connection: &mut Connection, page: usize) -> Result<()> {
    let mut path = format!("{PATH}?limit={page}");
    loop {
        let answer = connection.done(&Request::get(path)).await?;
        let Some(token) = token(&answer) else { return Ok(()) };
        path = format!("{PATH}?limit={page}&continue={token}");
    }
}

/// Tokens are in the URL-safe alphabet.
fn token(answer: &[u8]) -> Option<&str> {
    let rest = &answer[memmem::find(answer, TOKEN)? + TOKEN.len()..];
    std::str::from_utf8(&rest[..memchr(b'"', rest)?]).ok().filter(|token| !token.is_empty())
}

//! Everything at once: writers, watches that read and watches that do not. What each reading watch saw is compared with
//! what was acknowledged: nothing lost, nothing twice, nothing out of order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{Body, Request};
use crate::figures::Figures;
use crate::reader::{Lines, revision};
use crate::target::Target;
use crate::writes::{Acknowledged, creation, patching, run_name, send};
use crate::{Result, Sizes};

/// Namespaces that objects and watches are spread over.
const NAMESPACES: usize = 50;
/// After the last write, how long a watch may take to show it.
const CATCH_UP: Duration = Duration::from_secs(120);

/// The newest revision of each namespace, once the writers are done.
type Goal = watch::Receiver<Option<Vec<u64>>>;

struct Follower {
    home: usize,
    seen: Vec<u64>,
    problem: Option<String>,
}

pub(crate) async fn run(target: &Target, sizes: &Sizes) -> Result<Figures> {
    let (objects, writers) = (sizes.get("objects", 50_000), sizes.get("writers", 64));
    let (watches, slow) = (sizes.get("watches", 500), sizes.get("slow", 8));
    let homes = target.namespaces("soak", NAMESPACES).await?;
    let from = latest(target).await?;

    let (goal, reached) = watch::channel(None);
    let mut followers = JoinSet::new();
    for number in 0..watches {
        let home = number % NAMESPACES;
        let path = format!("/api/v1/namespaces/{}/configmaps?watch=true&resourceVersion={from}", homes[home]);
        let body = target.connect().await?.open(&path).await?;
        followers.spawn(follow(home, Lines::new(body), reached.clone()));
    }
    let mut sleepers = Vec::new();
    for _ in 0..slow {
        let path = format!("/api/v1/configmaps?watch=true&resourceVersion={from}");
        sleepers.push(target.connect().await?.open(&path).await?);
    }

    let began = Instant::now();
    let mut told = write(target, &homes, (objects, writers)).await?;
    let whole = began.elapsed();
    let mut figures = Figures::default();
    figures.add_timed("soak_writes", told.iter().map(|one| one.took).collect(), whole);
    let slowest = told.iter().map(|one| one.took).max().unwrap_or_default();
    figures.add("soak_write_worst_ms", slowest.as_secs_f64() * 1000.0);

    told.sort_by_key(|one| one.revision);
    let mut expected = vec![Vec::new(); NAMESPACES];
    told.iter().for_each(|one| expected[one.number % NAMESPACES].push(one.revision));
    let newest = expected.iter().map(|all| all.last().copied().unwrap_or_default()).collect();
    goal.send_replace(Some(newest));
    let (wrong, events) = compare(followers, &expected).await?;
    figures.add("soak_events_per_s", events as f64 / began.elapsed().as_secs_f64());
    figures.add("soak_watches_wrong", wrong as f64);
    let ends = slow_ends(sleepers).await?;
    for (name, count) in ends {
        figures.add(name, count as f64);
    }
    Ok(figures)
}

async fn latest(target: &Target) -> Result<u64> {
    let mut connection = target.connect().await?;
    let path = "/api/v1/namespaces/soak-0/configmaps?limit=1";
    let list = connection.done(&Request::get(path)).await?;
    // The list's own revision follows its items in one server and precedes them in the other; the largest is the list's.
    let mut newest = 0;
    let mut rest: &[u8] = &list;
    while let Some(at) = memmem::find(rest, b"\"resourceVersion\":\"") {
        newest = newest.max(revision(&rest[at..])?);
        rest = &rest[at + 1..];
    }
    Ok(newest)
}

/// Creates `objects`, then patches half of them.
async fn write(target: &Target, homes: &[String], (objects, writers): (usize, usize)) -> Result<Vec<Acknowledged>> {
    let place = {
        let (homes, run) = (homes.to_vec(), run_name());
        move |n: usize| (homes[n % NAMESPACES].clone(), format!("s{run}-{n}"))
    };
    let create = {
        let place = place.clone();
        move |n| {
            let (home, name) = place(n);
            creation(&home, &name)
        }
    };
    let patch = move |n| {
        let (home, name) = place(n);
        patching(&home, &name, "on")
    };
    let mut told = send(target.connections(writers).await?, objects, create).await?;
    told.extend(send(target.connections(writers).await?, objects / 2, patch).await?);
    Ok(told)
}

async fn follow(home: usize, mut lines: Lines, mut goal: Goal) -> Follower {
    let mut follower = Follower { home, seen: Vec::new(), problem: None };
    let mut deadline = None;
    loop {
        if let Some(newest) = goal.borrow().as_ref() {
            if follower.seen.last() >= newest.get(home) {
                return follower;
            }
            deadline.get_or_insert(tokio::time::Instant::now() + CATCH_UP);
        }
        let late = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            line = lines.next() => line,
            _ = goal.changed(), if deadline.is_none() => continue,
            () = late => Err("too late".into()),
        };
        let told = line.and_then(|line| revision(&line.ok_or("the watch ended")?));
        match told {
            Ok(revision) => follower.seen.push(revision),
            Err(problem) => {
                follower.problem = Some(problem.to_string());
                return follower;
            }
        }
    }
}

/// How many watches did not see exactly what was acknowledged, and how many events were seen.
async fn compare(mut followers: JoinSet<Follower>, expected: &[Vec<u64>]) -> Result<(usize, usize)> {
    let (mut wrong, mut events) = (0, 0);
    while let Some(follower) = followers.join_next().await {
        let follower = follower?;
        events += follower.seen.len();
        if follower.seen != expected[follower.home] {
            wrong += 1;
            let (seen, told) = (follower.seen.len(), expected[follower.home].len());
            eprintln!("a watch saw {seen} of {told} events; {}", follower.problem.unwrap_or_default());
        }
    }
    Ok((wrong, events))
}

/// What became of those that never read: told to list again, closed without a word, or still served.
async fn slow_ends(sleepers: Vec<Body>) -> Result<BTreeMap<&'static str, usize>> {
    let mut ends = BTreeMap::new();
    for body in sleepers {
        let mut lines = Lines::new(body);
        let end = loop {
            match tokio::time::timeout(Duration::from_secs(2), lines.next()).await {
                Ok(Ok(Some(line))) if memmem::find(&line, b"\"code\":410").is_some() => break "soak_slow_received_410",
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => break "soak_slow_closed",
                Err(_) => break "soak_slow_caught_up",
            }
        };
        *ends.entry(end).or_default() += 1;
    }
    Ok(ends)
}

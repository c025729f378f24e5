//! Whatever happens to the disk, what was promised is there afterwards, whole, and nothing goes back.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::faults::{Disk, Ending, Fault};
use super::recovery::FILE;
use super::{Failure, Key, OpenError, Rejected, Scope, Settings, Since, Store};
use crate::object;

/// The file is begun anew every few writes, and tried again at once.
fn settings() -> Settings {
    Settings { history: 1000, rewrite_after: 700, retry: Duration::from_millis(1) }
}

/// For what takes milliseconds, however busy the machine is.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// What comes soon or never: a store that forgets those who wait fails its test instead of keeping it.
fn soon<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, what).await }).expect("nobody was told")
}

/// What the store says of everything that was written since then.
fn told(store: &Store, since: Since) -> Result<(), Arc<Failure>> {
    soon(store.durable(since))
}

pub(super) fn open(disk: &Disk) -> Result<Store, OpenError> {
    Store::open(Arc::new(disk.clone()), settings())
}

fn key(name: &str) -> Key {
    Key { resource: "configmaps".into(), namespace: "default".into(), name: name.into() }
}

fn config_map(name: &str, value: usize) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"k": "x".repeat(value % 90)}, "n": value})
}

/// One client's step.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, usize),
    Delete(u8),
    /// Waits for what was written so far to be durable, and takes that as promised.
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..6_u8, any::<u16>()).prop_map(|(name, value)| Step::Put(name, usize::from(value))),
        1 => (0..6_u8).prop_map(Step::Delete),
        2 => Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..40)
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::Kill),
        (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(share, holes, names)| Ending::PowerLoss {
            share,
            holes,
            names
        }),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let bytes = 0..300_usize;
    prop_oneof![
        bytes.clone().prop_map(|bytes| Fault::Dies { bytes }),
        bytes.prop_map(|bytes| Fault::Fails { bytes, kind: io::ErrorKind::StorageFull }),
        Just(Fault::Fails { bytes: 0, kind: io::ErrorKind::Other }),
    ]
}

type World = BTreeMap<String, Value>;

/// What was written, by revision, and what of it was promised.
#[derive(Default)]
struct Model {
    /// Not known where something was undone at the same moment.
    worlds: BTreeMap<u64, Option<World>>,
    promised: u64,
}

fn world(store: &Store) -> World {
    let everywhere = Scope { resource: "configmaps".to_owned(), namespace: None };
    let objects = store.list(&everywhere).objects;
    objects.into_iter().map(|(place, object)| (place.1.clone(), Value::clone(&object.tree()))).collect()
}

fn play(store: &Store, steps: &[Step], model: &mut Model) {
    let mut since = store.since_now();
    for step in steps {
        let (before, mut expected) = (store.since_now(), world(store));
        let written = match step {
            Step::Put(name, value) => {
                let name = name.to_string();
                let old = store.get(&key(&name));
                store.commit(&key(&name), old.as_ref(), Some(config_map(&name, *value)))
            }
            Step::Delete(name) => {
                let old = store.get(&key(&name.to_string()));
                store.commit(&key(&name.to_string()), old.as_ref(), None)
            }
            Step::Wait => {
                let seen = store.revision();
                match told(store, since) {
                    Ok(()) => model.promised = model.promised.max(seen),
                    Err(_) => since = store.since_now(),
                }
                continue;
            }
        };
        if let Ok(object) = written {
            let revision: u64 = object::resource_version(&object).parse().unwrap();
            assert!(revision > model.promised, "revision {revision} was given before");
            let name = object::name(&object).to_owned();
            match step {
                Step::Delete(_) => expected.remove(&name),
                _ => expected.insert(name, Value::clone(&object)),
            };
            // Nobody else writes, so the world is the one before with this write.
            model.worlds.insert(revision, (store.since_now() == before).then_some(expected));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_leaves_what_was_promised_and_nothing_half(
        rounds in prop::collection::vec((steps(), 0..60_usize, fault(), ending()), 1..4),
    ) {
        let mut disk = Disk::default();
        let mut model = Model { worlds: BTreeMap::from([(0, Some(World::new()))]), promised: 0 };
        for (steps, after, fault, ending) in rounds {
            disk.inject(after, fault);
            if let Ok(store) = open(&disk) {
                play(&store, &steps, &mut model);
                disk.die();
            }
            disk = disk.after(ending);
            let store = open(&disk).expect("a disk that only crashed can be read");
            let revision = store.revision();
            prop_assert!(revision >= model.promised, "{revision} is older than {}", model.promised);
            if let Some(expected) = &model.worlds[&revision] {
                prop_assert_eq!(&world(&store), expected);
            }
            // What was not promised and is not there never was.
            model.worlds.retain(|known, _| *known <= revision);
            model.promised = revision;
            drop(store);
            disk = disk.after(Ending::Kill);
        }
    }

    #[test]
    fn a_flipped_bit_is_found_or_harmless(position in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let disk = Disk::default();
        let store = open(&disk).unwrap();
        let mut model = Model::default();
        let steps: Vec<Step> = (0..30).flat_map(|n| [Step::Put(n % 5, usize::from(n)), Step::Wait]).collect();
        play(&store, &steps, &mut model);
        let expected = world(&store);
        drop(store);
        let mut bytes = disk.bytes(FILE);
        let at = position.index(bytes.len());
        bytes[at] ^= 1 << bit;
        disk.set_bytes(FILE, bytes);
        // The last frame only says that the one before was promised.
        if let Ok(store) = open(&disk) {
            prop_assert_eq!(world(&store), expected);
        }
    }
}

#[test]
fn what_was_there_is_there_again_and_watches_go_on() {
    let disk = Disk::default();
    let settings = Settings { rewrite_after: 1 << 20, ..settings() };
    let store = Store::open(Arc::new(disk.clone()), settings).unwrap();
    let a = store.commit(&key("a"), None, Some(config_map("a", 1))).unwrap();
    store.commit(&key("b"), None, Some(config_map("b", 1))).unwrap();
    store.commit(&key("a"), Some(&a), None).unwrap();
    drop(store);

    let store = Store::open(Arc::new(disk), settings).unwrap();
    assert_eq!((store.revision(), world(&store).len()), (3, 1));
    assert!(store.by_uid("b").is_some() && store.by_uid("a").is_none());
    let records = store.after(1, None, usize::MAX).unwrap();
    let seen: Vec<_> = records.iter().map(|r| (r.revision, r.key.name.as_str(), r.new.is_some())).collect();
    assert_eq!(seen, [(2, "b", true), (3, "a", false)]);
    let removed = records[1].removed.as_ref().map(|removed| removed.tree());
    assert_eq!(removed.as_deref().map(object::resource_version), Some("3"));
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = Disk::default();
    let store = open(&disk).unwrap();
    let since = store.since_now();
    let first = store.commit(&key("a"), None, Some(config_map("a", 1))).unwrap();
    told(&store, since).unwrap();

    disk.set_full(true);
    store.commit(&key("a"), Some(&first), Some(config_map("a", 2))).unwrap();
    let failure = told(&store, since).unwrap_err();
    assert_eq!((failure.status().code, failure.status().reason), (507, "InsufficientStorage"));
    assert!(failure.to_string().starts_with("disk/objects.log: "), "{failure}");
    // Undone, and still there to read.
    assert_eq!((store.get(&key("a")), store.revision()), (Some(Arc::clone(&first)), 1));
    let refused = store.commit(&key("b"), None, Some(config_map("b", 1)));
    assert!(matches!(refused, Err(Rejected::Refused(_))), "{refused:?}");
    let now = store.since_now();
    told(&store, now).unwrap();
    assert!(store.after(1, Some(since), 1).is_err(), "who may have seen the undone write reads again");

    disk.set_full(false);
    let mut latest = store.latest();
    while store.since_now() == now {
        soon(latest.changed()).unwrap();
    }
    let second = store.commit(&key("a"), Some(&first), Some(config_map("a", 3))).unwrap();
    assert_eq!(object::resource_version(&second), "3", "2 was given to a write that was undone");
    told(&store, store.since_now()).unwrap();
    drop(store);
    assert_eq!(world(&open(&disk).unwrap())["a"]["n"], 3);
}

#[test]
fn writes_that_wait_together_cost_one_sync() {
    let disk = Disk::default();
    let store = Store::open(Arc::new(disk.clone()), Settings::default()).unwrap();
    let before = disk.syncs();
    disk.set_slow(true);
    let since = store.since_now();
    for n in 0..64 {
        let name = format!("c{n}");
        store.commit(&key(&name), None, Some(config_map(&name, n))).unwrap();
    }
    disk.set_slow(false);
    told(&store, since).unwrap();
    // The first group may be of one write; the second has all that came while it was written.
    assert!(disk.syncs() - before <= 2, "{}", disk.syncs() - before);
}

#[test]
fn the_file_stays_small_under_churn() {
    let disk = Disk::default();
    let store = open(&disk).unwrap();
    let mut lease = None;
    let mut renew = |n: usize| {
        let since = store.since_now();
        lease = Some(store.commit(&key("lease"), lease.as_ref(), Some(config_map("lease", n))).unwrap());
        told(&store, since).unwrap();
    };
    (0..2000).for_each(&mut renew);
    // A base, as much again in writes, and what came while it was begun anew: that is as long as the thread that does so
    // gets no turn.
    let (begun, mut more) = (std::time::Instant::now(), 2000..);
    while disk.bytes(FILE).len() > 100_000 {
        assert!(begun.elapsed() < PATIENCE, "{} bytes", disk.bytes(FILE).len());
        more.next().into_iter().for_each(&mut renew);
    }
}

#[rstest]
#[case::foreign(b"something else, and long enough to have a header".to_vec(), "not a file of stored objects")]
#[case::empty(Vec::new(), "not a file of stored objects")]
fn a_file_of_something_else_is_refused(#[case] bytes: Vec<u8>, #[case] what: &str) {
    let disk = Disk::default();
    drop(open(&disk).unwrap());
    disk.set_bytes(FILE, bytes);
    let error = open(&disk).err().unwrap().to_string();
    assert_eq!(error, format!("disk/objects.log: {what}"));
}

#[test]
fn damage_is_told_with_its_place() {
    let disk = Disk::default();
    let store = open(&disk).unwrap();
    store.commit(&key("a"), None, Some(config_map("a", 1))).unwrap();
    drop(store);
    let mut bytes = disk.bytes(FILE);
    let length = bytes.len();
    bytes[length - 40] ^= 1;
    disk.set_bytes(FILE, bytes);
    let error = open(&disk).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&format!("of {length}: the checksum does not match")), "{error}");
}

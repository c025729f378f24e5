//! Crash consistency: acknowledged writes survive every fault, and revisions never decrease.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use apimachinery::object;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::faults::{CrashKind, Fault, FaultyDisk};
use super::format::{self, FrameKind};
use super::recovery::JOURNAL_FILE;
use super::storage::{AppendFile, Storage};
use super::{CollectionKey, CommitError, Epoch, ObjectKey, StorageFailure, Store, StoreOpenError, StoreSettings};

/// Settings with a checkpoint every few writes and immediate retries.
fn settings() -> StoreSettings {
    StoreSettings {
        history_size: 1000,
        checkpoint_after: 700,
        retry_delay: Duration::from_millis(1),
        ..StoreSettings::default()
    }
}

/// Timeout for operations that take milliseconds, generous for a busy host.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Waits for a future with a timeout: if the store never sends a notification, the test fails instead of hanging.
fn block_on_with_timeout<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { timeout(TEST_TIMEOUT, future).await }).expect("the store did not notify")
}

/// Waits until all visible writes are durable. Fails if writes have been rolled back since `epoch`.
fn wait_durable(store: &Store, epoch: Epoch) -> Result<(), Arc<StorageFailure>> {
    block_on_with_timeout(store.wait_durable(epoch))
}

pub(super) fn open(disk: &FaultyDisk) -> Result<Store, StoreOpenError> {
    Store::open(Arc::new(disk.clone()), settings())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: "configmaps".into(), namespace: "default".into(), name: name.into() }
}

fn config_map(name: &str, value: usize) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"k": "x".repeat(value % 90)}, "n": value})
}

/// A step of a client.
#[derive(Debug, Clone)]
enum StoreOperation {
    Put(u8, usize),
    Delete(u8),
    /// Waits until all previous writes are durable; they count as acknowledged.
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<StoreOperation>> {
    let step = prop_oneof![
        4 => (0..6_u8, any::<u16>()).prop_map(|(name, value)| StoreOperation::Put(name, usize::from(value))),
        1 => (0..6_u8).prop_map(StoreOperation::Delete),
        2 => Just(StoreOperation::Wait),
    ];
    prop::collection::vec(step, 1..40)
}

fn crash_kind() -> impl Strategy<Value = CrashKind> {
    prop_oneof![
        Just(CrashKind::Kill),
        (any::<u8>(), any::<bool>(), any::<u8>()).prop_map(|(share, holes, names)| CrashKind::PowerLoss {
            share,
            holes,
            names
        }),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let bytes = 0..300_usize;
    prop_oneof![
        bytes.clone().prop_map(|bytes| Fault::Crash { bytes }),
        bytes.prop_map(|bytes| Fault::Error { bytes, kind: io::ErrorKind::StorageFull }),
        Just(Fault::Error { bytes: 0, kind: io::ErrorKind::Other }),
    ]
}

type Objects = BTreeMap<String, Value>;

/// The expected objects at each revision, and the highest acknowledged revision.
#[derive(Default)]
struct Model {
    /// `None` if a concurrent rollback makes the expected objects unknown.
    objects_by_revision: BTreeMap<u64, Option<Objects>>,
    acknowledged: u64,
}

fn objects(store: &Store) -> Objects {
    let all_namespaces = CollectionKey { resource: "configmaps".to_owned(), namespace: None };
    let listed = store.list(&all_namespaces).objects;
    listed.into_iter().map(|(key, object)| (key.1.clone(), Value::clone(&object.value()))).collect()
}

fn run_steps(store: &Store, steps: &[StoreOperation], model: &mut Model) {
    let mut epoch = store.epoch();
    for step in steps {
        let (epoch_before, mut expected) = (store.epoch(), objects(store));
        let written = match step {
            StoreOperation::Put(name, value) => {
                let name = name.to_string();
                let old = store.get(&key(&name));
                store.commit(&key(&name), old.as_ref(), Some(config_map(&name, *value)))
            }
            StoreOperation::Delete(name) => {
                let old = store.get(&key(&name.to_string()));
                store.commit(&key(&name.to_string()), old.as_ref(), None)
            }
            StoreOperation::Wait => {
                let revision = store.revision();
                match wait_durable(store, epoch) {
                    Ok(()) => model.acknowledged = model.acknowledged.max(revision),
                    Err(_) => epoch = store.epoch(),
                }
                continue;
            }
        };
        if let Ok(object) = written {
            let revision: u64 = object::resource_version(&object).parse().unwrap();
            assert!(revision > model.acknowledged, "revision {revision} was assigned before");
            let name = object::name(&object).to_owned();
            match step {
                StoreOperation::Delete(_) => expected.remove(&name),
                _ => expected.insert(name, Value::clone(&object)),
            };
            // There are no other writers, so this write is the only change since the previous revision.
            model.objects_by_revision.insert(revision, (store.epoch() == epoch_before).then_some(expected));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_writes_survive_crashes(
        rounds in prop::collection::vec((steps(), 0..60_usize, fault(), crash_kind()), 1..4),
    ) {
        let mut disk = FaultyDisk::default();
        let mut model = Model { objects_by_revision: BTreeMap::from([(0, Some(Objects::new()))]), acknowledged: 0 };
        for (steps, delay, fault, crash_kind) in rounds {
            disk.inject(delay, fault);
            if let Ok(store) = open(&disk) {
                run_steps(&store, &steps, &mut model);
                disk.crash();
            }
            disk = disk.after_crash(crash_kind);
            let store = open(&disk).expect("the store opens after a crash");
            let revision = store.revision();
            prop_assert!(revision >= model.acknowledged, "{revision} is older than {}", model.acknowledged);
            if let Some(expected) = &model.objects_by_revision[&revision] {
                prop_assert_eq!(&objects(&store), expected);
            }
            // Unacknowledged writes that were lost are removed from the model.
            model.objects_by_revision.retain(|revision_written, _| *revision_written <= revision);
            model.acknowledged = revision;
            drop(store);
            disk = disk.after_crash(CrashKind::Kill);
        }
    }

    #[test]
    fn detects_flipped_bits(position in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let disk = FaultyDisk::default();
        let store = open(&disk).unwrap();
        let mut model = Model::default();
        let steps: Vec<StoreOperation> = (0..30).flat_map(|n| [StoreOperation::Put(n % 5, usize::from(n)), StoreOperation::Wait]).collect();
        run_steps(&store, &steps, &mut model);
        let expected = objects(&store);
        drop(store);
        let mut bytes = disk.bytes(JOURNAL_FILE);
        let offset = position.index(bytes.len());
        bytes[offset] ^= 1 << bit;
        disk.set_bytes(JOURNAL_FILE, bytes);
        // If only the last frame is corrupt, the store opens without data loss, because that frame just acknowledges
        // the one before it.
        if let Ok(store) = open(&disk) {
            prop_assert_eq!(objects(&store), expected);
        }
    }
}

#[test]
fn reopened_store_has_objects_and_history() {
    let disk = FaultyDisk::default();
    let settings = StoreSettings { checkpoint_after: 1 << 20, ..settings() };
    let store = Store::open(Arc::new(disk.clone()), settings).unwrap();
    let a = store.commit(&key("a"), None, Some(config_map("a", 1))).unwrap();
    store.commit(&key("b"), None, Some(config_map("b", 1))).unwrap();
    store.commit(&key("a"), Some(&a), None).unwrap();
    drop(store);

    let store = Store::open(Arc::new(disk), settings).unwrap();
    assert_eq!((store.revision(), objects(&store).len()), (3, 1));
    assert!(store.find_by_uid("b").is_some() && store.find_by_uid("a").is_none());
    let events = store.events_after(1, None, usize::MAX).unwrap().events;
    let revisions: Vec<_> =
        events.iter().map(|event| (event.revision, event.key.name.as_str(), event.new.is_some())).collect();
    assert_eq!(revisions, [(2, "b", true), (3, "a", false)]);
    let deleted = events[1].deleted.as_ref().map(|deleted| deleted.value());
    assert_eq!(deleted.as_deref().map(object::resource_version), Some("3"));
}

#[test]
fn full_disk_rejects_writes_until_space_is_free() {
    let disk = FaultyDisk::default();
    let store = open(&disk).unwrap();
    let epoch = store.epoch();
    let first = store.commit(&key("a"), None, Some(config_map("a", 1))).unwrap();
    wait_durable(&store, epoch).unwrap();

    disk.set_full(true);
    store.commit(&key("a"), Some(&first), Some(config_map("a", 2))).unwrap();
    let failure = wait_durable(&store, epoch).unwrap_err();
    assert_eq!((failure.status().code, failure.status().reason), (507, "InsufficientStorage"));
    assert!(failure.to_string().starts_with("disk/objects.log: "), "{failure}");
    // The write was rolled back, and the previous version is still readable.
    assert_eq!((store.get(&key("a")), store.revision()), (Some(Arc::clone(&first)), 1));
    let rejected = store.commit(&key("b"), None, Some(config_map("b", 1)));
    assert!(matches!(rejected, Err(CommitError::Unavailable(_))), "{rejected:?}");
    let new_epoch = store.epoch();
    wait_durable(&store, new_epoch).unwrap();
    assert!(store.events_after(1, Some(epoch), 1).is_err(), "watchers of the rolled-back write relist");

    disk.set_full(false);
    let mut changes = store.durable_changes();
    while store.epoch() == new_epoch {
        block_on_with_timeout(changes.changed());
    }
    let second = store.commit(&key("a"), Some(&first), Some(config_map("a", 3))).unwrap();
    assert_eq!(object::resource_version(&second), "3", "2 was assigned to a write that was rolled back");
    wait_durable(&store, store.epoch()).unwrap();
    drop(store);
    assert_eq!(objects(&open(&disk).unwrap())["a"]["n"], 3);
}

#[test]
fn queued_writes_share_one_sync() {
    let disk = FaultyDisk::default();
    let store = Store::open(Arc::new(disk.clone()), StoreSettings::default()).unwrap();
    let syncs_before = disk.syncs();
    disk.set_slow(true);
    let epoch = store.epoch();
    for n in 0..64 {
        let name = format!("c{n}");
        store.commit(&key(&name), None, Some(config_map(&name, n))).unwrap();
    }
    disk.set_slow(false);
    wait_durable(&store, epoch).unwrap();
    // The first batch may contain a single write; the second contains all writes queued while the first was written.
    assert!(disk.syncs() - syncs_before <= 2, "{}", disk.syncs() - syncs_before);
}

fn large_config_map(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"k": "x".repeat(1 << 20)}})
}

#[test]
fn batches_are_limited_in_bytes() {
    let disk = FaultyDisk::default();
    let settings = StoreSettings { checkpoint_after: 1 << 30, ..settings() };
    let store = Store::open(Arc::new(disk.clone()), settings).unwrap();
    disk.set_slow(true);
    let epoch = store.epoch();
    for n in 0..20 {
        let name = format!("c{n}");
        store.commit(&key(&name), None, Some(large_config_map(&name))).unwrap();
    }
    disk.set_slow(false);
    wait_durable(&store, epoch).unwrap();
    let bytes = disk.bytes(JOURNAL_FILE);
    let frames = std::iter::successors(format::frame_at(&bytes, format::HEADER_LENGTH), |frame| {
        format::frame_at(&bytes, frame.end)
    });
    let commits: Vec<usize> =
        frames.filter(|frame| frame.kind == FrameKind::Commit).map(|frame| frame.payload.len() >> 20).collect();
    assert!(commits.iter().all(|mebibytes| *mebibytes <= 4), "{commits:?}");
    assert_eq!(commits.iter().sum::<usize>(), 20);
}

/// A disk on which checkpoints wait until [`Self::continue_checkpoints`].
#[derive(Clone, Default)]
struct SlowCheckpoints(FaultyDisk, Arc<(Mutex<bool>, Condvar)>);

impl SlowCheckpoints {
    fn continue_checkpoints(&self) {
        *self.1.0.lock().unwrap() = true;
        self.1.1.notify_all();
    }
}

impl Storage for SlowCheckpoints {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        // The first file is created by `Store::open`.
        let is_first = self.0.bytes(JOURNAL_FILE).is_empty();
        let (lock, changed) = &*self.1;
        drop(changed.wait_while(lock.lock().unwrap(), |may_continue| !*may_continue && !is_first).unwrap());
        self.0.create(name)
    }

    fn open(&self, name: &str, length: u64) -> io::Result<Box<dyn AppendFile>> {
        self.0.open(name, length)
    }

    fn replace(&self, name: &str, replacement: &str) -> io::Result<()> {
        self.0.replace(name, replacement)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }

    fn remove(&self, name: &str) {
        self.0.remove(name);
    }

    fn display_path(&self, name: &str) -> String {
        self.0.display_path(name)
    }
}

/// Writes during a checkpoint are held in memory, so the journal waits for the checkpoint when they become many.
#[test]
fn writes_during_a_checkpoint_are_limited_in_bytes() {
    const LIMIT: usize = 32 << 20;
    let disk = SlowCheckpoints::default();
    let store = Store::open(Arc::new(disk.clone()), settings()).unwrap();
    let epoch = store.epoch();
    for n in 0..48 {
        let name = format!("c{n}");
        store.commit(&key(&name), None, Some(large_config_map(&name))).unwrap();
    }
    let mut changes = store.durable_changes();
    while disk.0.bytes(JOURNAL_FILE).len() < LIMIT {
        block_on_with_timeout(changes.changed());
    }
    disk.continue_checkpoints();
    wait_durable(&store, epoch).unwrap();
    let expected = objects(&store);
    drop(store);
    assert_eq!(objects(&open(&disk.0).unwrap()), expected);
    assert_eq!(expected.len(), 48);
}

#[test]
fn checkpoints_bound_file_size() {
    let disk = FaultyDisk::default();
    let store = open(&disk).unwrap();
    let mut lease = None;
    let mut update_lease = |n: usize| {
        let epoch = store.epoch();
        lease = Some(store.commit(&key("lease"), lease.as_ref(), Some(config_map("lease", n))).unwrap());
        wait_durable(&store, epoch).unwrap();
    };
    (0..2000).for_each(&mut update_lease);
    // The file may contain a checkpoint, an equal amount of writes, and the writes made during the next checkpoint,
    // which takes longer on a busy host.
    let (started, mut further_updates) = (std::time::Instant::now(), 2000..);
    while disk.bytes(JOURNAL_FILE).len() > 100_000 {
        assert!(started.elapsed() < TEST_TIMEOUT, "{} bytes", disk.bytes(JOURNAL_FILE).len());
        further_updates.next().into_iter().for_each(&mut update_lease);
    }
}

#[rstest]
#[case::other_file(b"another file that is long enough to have a header".to_vec(), "not an object store journal")]
#[case::empty(Vec::new(), "not an object store journal")]
fn rejects_other_files(#[case] bytes: Vec<u8>, #[case] reason: &str) {
    let disk = FaultyDisk::default();
    drop(open(&disk).unwrap());
    disk.set_bytes(JOURNAL_FILE, bytes);
    let error = open(&disk).err().unwrap().to_string();
    assert_eq!(error, format!("disk/objects.log: {reason}"));
}

#[test]
fn reports_offset_of_corruption() {
    let disk = FaultyDisk::default();
    let store = open(&disk).unwrap();
    store.commit(&key("a"), None, Some(config_map("a", 1))).unwrap();
    drop(store);
    let mut bytes = disk.bytes(JOURNAL_FILE);
    let length = bytes.len();
    bytes[length - 40] ^= 1;
    disk.set_bytes(JOURNAL_FILE, bytes);
    let error = open(&disk).err().unwrap();
    assert!(matches!(error, StoreOpenError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(&format!("of {length}: the checksum does not match")), "{error}");
}

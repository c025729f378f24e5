use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;

use super::*;

const CONFIG: PrefixConfig = PrefixConfig { block_size: 4, max_blocks: 64, lru_capacity: 100 };

fn hashes(text: &str) -> Vec<u64> {
    CONFIG.block_hashes("m", [text.as_bytes()].into_iter())
}

fn matches<const N: usize>(index: &PrefixIndex, text: &str, caches: [&PrefixCache; N]) -> [u32; N] {
    index.matches(&hashes(text), caches.into_iter().map(Some)).as_slice().try_into().unwrap()
}

#[rstest]
#[case::same("aaaabbbbcccc", "aaaabbbbcccc", 3)]
#[case::longer("aaaabbbb", "aaaabbbbcccc", 2)]
#[case::shorter("aaaabbbbcccc", "aaaabbbb", 2)]
#[case::differs_in_the_middle("aaaaXbbbcccc", "aaaabbbbcccc", 1)]
#[case::differs_at_the_start("Xaaabbbbcccc", "aaaabbbbcccc", 0)]
#[case::less_than_a_block("aaa", "aaa", 0)]
#[case::partial_block_is_ignored("aaaabb", "aaaabb", 1)]
fn matches_common_prefixes(#[case] cached: &str, #[case] prompt: &str, #[case] blocks: u32) {
    let index = PrefixIndex::default();
    let [first, second] = [(); 2].map(|()| index.new_cache(&CONFIG));
    index.insert(&hashes(cached), &first);
    assert_eq!(matches(&index, prompt, [&second, &first]), [0, blocks]);
}

#[test]
fn each_endpoint_matches_its_own_part_of_a_prompt() {
    let index = PrefixIndex::default();
    let caches: Vec<_> = (0..60).map(|_| index.new_cache(&CONFIG)).collect();
    let text = "abcd".repeat(30);
    for (cache, blocks) in caches.iter().zip(1..) {
        index.insert(&hashes(&text)[..blocks / 2], cache);
    }
    let reversed = caches.iter().rev().map(|cache| Some(&**cache));
    let expect: Vec<u32> = (1..=60).rev().map(|blocks| blocks / 2).collect();
    assert_eq!(index.matches(&hashes(&text), reversed).as_slice(), expect);
}

/// Columns: blocks of the cached prompt, how many of them another prompt of 4,000 blocks shares, minimum of matched blocks.
#[rstest]
#[case::continued(1_999, 1_999, 1_999)]
#[case::different_ends(4_000, 2_001, 1_876)]
#[case::same(4_000, 4_000, 4_000)]
fn long_prompts_match(#[case] cached: u32, #[case] shared: u32, #[case] expect: u32) {
    let config = PrefixConfig { max_blocks: 10_000, lru_capacity: 1_000_000, ..CONFIG };
    let index = PrefixIndex::default();
    let cache = index.new_cache(&config);
    let hashes = |blocks: Vec<u32>| {
        let text: Vec<u8> = blocks.into_iter().flat_map(u32::to_le_bytes).collect();
        config.block_hashes("m", [&*text].into_iter())
    };
    index.insert(&hashes((0..cached).collect()), &cache);
    let prompt = hashes((0..shared).chain(10_000..14_000 - shared).collect());
    let matched = index.matches(&prompt, [Some(&*cache)].into_iter())[0];
    assert!((expect..=shared).contains(&matched), "{matched} blocks");
}

#[test]
fn least_recently_used_prompt_is_evicted_from_its_end() {
    let index = PrefixIndex::default();
    let cache = index.new_cache(&PrefixConfig { lru_capacity: 3, ..CONFIG });
    ["aaaabbbb", "ccccdddd", "aaaa"].into_iter().for_each(|text| index.insert(&hashes(text), &cache));
    assert_eq!(["aaaabbbb", "ccccdddd"].map(|text| matches(&index, text, [&cache])), [[1], [2]]);
}

#[test]
fn removed_endpoints_match_nothing_and_occupy_no_memory() {
    let index = PrefixIndex::default();
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        let cache = index.new_cache(&CONFIG);
        assert_eq!(matches(&index, "aaaa", [&cache]), [0]);
        index.insert(&hashes("aaaa"), &cache);
        assert_eq!(matches(&index, "aaaa", [&cache]), [1]);
        bytes.push(used_bytes(&index));
    }
    assert_eq!(bytes[2], bytes[999]);
}

/// Returns the used memory, and checks that it is within the limit.
fn used_bytes(index: &PrefixIndex) -> usize {
    index.shards.iter().map(|table| table.lock().unwrap().checked_bytes()).sum()
}

/// A cache of which the index is a fast representation: the time of each block by its hash.
#[derive(Default)]
struct Model {
    times: BTreeMap<u64, u32>,
    clock: u32,
}

impl Model {
    fn insert(&mut self, hashes: &[u64], capacity: u32) {
        for IndexedPrefix { blocks, distance } in indexed_prefixes(hashes.len()).rev() {
            let hash = &hashes[blocks - 1];
            if self.times.get(hash).is_none_or(|time| self.clock - time >= capacity / 4) {
                self.clock += distance as u32;
                self.times.insert(*hash, self.clock);
            }
        }
    }

    fn contains(&self, hash: u64, capacity: u32) -> bool {
        self.times.get(&hash).is_some_and(|time| self.clock - time < capacity)
    }

    /// Returns whether `blocks` is the length of a cached prefix, and neither the next one nor the one at the next checkpoint is
    /// cached.
    fn matches(&self, hashes: &[u64], capacity: u32, blocks: u32) -> bool {
        let is_cached = |blocks: usize| hashes.get(blocks - 1).is_some_and(|hash| self.contains(*hash, capacity));
        let blocks = blocks as usize;
        let next_checkpoint = blocks_at(checkpoints_within(blocks) + 1);
        (blocks == 0 || is_cached(blocks)) && !is_cached(blocks + 1) && !is_cached(next_checkpoint)
    }
}

const CAPACITIES: [u32; 4] = [0, 3, 40, 1_000];

/// Indexes of the caches and prompts of requests. Prompts are paths in a tree, so that many share a prefix.
fn requests() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    proptest::collection::vec((0..CAPACITIES.len(), proptest::collection::vec(0_u8..3, 0..40)), 1..200)
}

fn prompt(path: &[u8]) -> Vec<u64> {
    hashes(&path.iter().map(|step| format!("step{step}---")).collect::<String>())
}

proptest! {
    #[test]
    fn index_equals_a_model_of_each_cache(requests in requests()) {
        let index = PrefixIndex::default();
        let new_cache = |lru_capacity| index.new_cache(&PrefixConfig { lru_capacity, ..CONFIG });
        let caches = CAPACITIES.map(|capacity| new_cache(capacity as usize));
        let mut models: [Model; CAPACITIES.len()] = Default::default();
        for (cache, path) in requests {
            let hashes = prompt(&path);
            let matched = index.matches(&hashes, caches.iter().map(|cache| Some(&**cache)));
            for ((model, capacity), matched) in models.iter().zip(CAPACITIES).zip(&matched) {
                prop_assert!(model.matches(&hashes, capacity, *matched), "{matched}");
            }
            index.insert(&hashes, &caches[cache]);
            models[cache].insert(&hashes, CAPACITIES[cache]);
            for (model, capacity) in models.iter().zip(CAPACITIES) {
                prop_assert!(model.times.keys().filter(|hash| model.contains(**hash, capacity)).count() <= capacity as usize);
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_matches_are_never_invented(
        bytes in 0_usize..400_000,
        prompts in proptest::collection::vec((0_u64..400, 0_usize..40), 1..100),
    ) {
        let index = PrefixIndex::with_memory(bytes);
        let caches: Vec<_> = (0..40).map(|_| index.new_cache(&CONFIG)).collect();
        let mut inserted: Vec<Vec<u64>> = vec![Vec::new(); caches.len()];
        for (prompt, cache) in prompts {
            let hashes: Vec<u64> = hashes(&format!("shared prefix {prompt:>200}"));
            for (matched, inserted) in index.matches(&hashes, caches.iter().map(|cache| Some(&**cache))).iter().zip(&inserted) {
                prop_assert!(hashes[..*matched as usize].iter().all(|hash| inserted.contains(hash)));
            }
            index.insert(&hashes, &caches[cache]);
            inserted[cache].extend(hashes);
            prop_assert!(used_bytes(&index) <= bytes);
        }
    }
}

#[test]
fn full_index_retains_what_is_used() {
    let index = PrefixIndex::with_memory(SHARDS * 16_384);
    let cache = index.new_cache(&PrefixConfig { lru_capacity: 1_000_000, ..CONFIG });
    let system_prompt = "system prompt -- ";
    for number in 0..10_000 {
        index.insert(&hashes(&format!("{system_prompt}{number:<100}")), &cache);
    }
    used_bytes(&index);
    let matched = |number| matches(&index, &format!("{system_prompt}{number:<100}"), [&cache]);
    assert_eq!((matched(0), matched(9_999)), ([4], [29]));
}

/// Blocks that no endpoint caches anymore are replaced before the index grows. Half a million blocks are inserted.
#[test]
fn memory_is_proportional_to_the_caches() {
    let index = PrefixIndex::default();
    let cache = index.new_cache(&PrefixConfig { lru_capacity: 1_000, ..CONFIG });
    let prompt = |number: u32| format!("{number:<100}");
    for number in 0..20_000 {
        index.insert(&hashes(&prompt(number)), &cache);
    }
    let bytes = used_bytes(&index);
    assert!(bytes < 2 * 1024 * 1024, "{bytes} bytes");
    assert_eq!([0, 19_980, 19_999].map(|number| matches(&index, &prompt(number), [&cache])), [[0], [25], [25]]);
}

/// Two replicas send prompts to one endpoint each, and exchange what they insert.
#[test]
fn logged_prompts_match_in_the_index_of_another_replica() {
    let (index, other) = (PrefixIndex::default(), PrefixIndex::default());
    let (cache, other_cache) = (index.new_cache(&CONFIG), other.new_cache(&CONFIG));
    index.insert(&hashes("before"), &cache);
    assert!(index.insert_log.take().is_empty(), "the log is not enabled");
    index.insert_log.enable();
    let (long, short) = ("shared--".repeat(100), "shared--shared--end-");
    for prompt in [&long, short, &long] {
        index.insert(&hashes(prompt), &cache);
    }
    let logged = index.insert_log.take();
    assert_eq!(logged.iter().map(|insert| insert.hashes.len()).collect::<Vec<_>>(), [indexed_count(64), 1]);
    for LoggedInsert { cache, prompt_blocks, first_block, hashes } in logged {
        assert_eq!(cache, other_cache.id());
        other.insert_logged(prompt_blocks, first_block, &hashes, &other_cache);
    }
    for prompt in [&long, short, "shared--other"] {
        assert_eq!(matches(&other, prompt, [&other_cache]), matches(&index, prompt, [&cache]), "{prompt}");
    }
    assert!(index.insert_log.take().is_empty());
}

#[test]
fn log_is_bounded() {
    let index = PrefixIndex::default();
    let cache = index.new_cache(&CONFIG);
    index.insert_log.enable();
    for number in 0..10_000 {
        index.insert(&hashes(&format!("{number:<100}")), &cache);
    }
    let hashes: usize = index.insert_log.take().iter().map(|insert| insert.hashes.len()).sum();
    assert!((16_000..=16_384).contains(&hashes), "{hashes}");
}

//! Requests of a pool that wait until an engine can run them: strict priorities, deficit round robin in tokens between the flows of
//! one priority, then the order of arrival.

use std::collections::{BTreeMap, VecDeque};

use cluster::NamespacedName;

/// Tokens that a flow may use per round.
const QUANTUM: u64 = 1_024;

/// Maximum debt of a flow in tokens: what several engines compute in some seconds.
const MAX_DEBT: u64 = 256 * 1_024;

/// Maximum number of named flows per priority. Clients choose the names of models without a use case; those beyond share
/// [`OVERFLOW`].
const MAX_FLOWS: usize = 256;

/// Name of the flow that those beyond [`MAX_FLOWS`] share.
const OVERFLOW: &str = "";

/// Limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueSize {
    /// Maximum number of requests.
    pub(crate) max_requests: usize,
    /// Maximum size of the bodies of all requests.
    pub(crate) max_bytes: u64,
}

/// How a request is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuedRequest<'a> {
    /// Requests with a higher priority are dispatched first, those with the lowest are shed first.
    pub(crate) priority: i32,
    /// Flows of one priority have equal shares of the tokens.
    pub(crate) flow: &'a str,
    /// Estimated tokens that the engine computes.
    pub(crate) tokens: u64,
    /// Size of the body.
    pub(crate) bytes: u64,
}

/// Requests of one flow in the queue of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuedFlow {
    /// Namespace and name of the pool.
    pub(crate) pool: NamespacedName,
    /// Priority of the requests.
    pub(crate) priority: i32,
    /// Name of the flow; empty for those that share one.
    pub(crate) name: String,
    /// Number of requests.
    pub(crate) requests: usize,
    /// Size of their bodies.
    pub(crate) bytes: u64,
}

/// Identifies a request in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId(u64);

/// The queue does not accept a request: others with at least its priority fill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// A queue of requests, each with a value of type `T`.
#[derive(Debug)]
pub(crate) struct RequestQueue<T> {
    bands: BTreeMap<i32, Band<T>>,
    requests: usize,
    bytes: u64,
    next_id: u64,
}

/// Requests with the same priority. Flows have at least one request; the next round begins with the first one.
#[derive(Debug)]
struct Band<T>(VecDeque<Flow<T>>);

/// Requests with the same flow, in order of arrival.
#[derive(Debug)]
struct Flow<T> {
    name: String,
    /// Tokens that the flow may use now.
    deficit: u64,
    /// Tokens that other replicas have served of the flow, beyond those of the flow with the fewest. The next quanta pay for them.
    debt: u64,
    requests: VecDeque<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    id: RequestId,
    tokens: u64,
    bytes: u64,
    value: T,
}

/// Number of requests, and size of their bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Load {
    requests: usize,
    bytes: u64,
}

// === impl Load ===

impl Load {
    fn with(self, bytes: u64) -> Self {
        Self { requests: self.requests.saturating_add(1), bytes: self.bytes.saturating_add(bytes) }
    }

    fn without(self, bytes: u64) -> Self {
        Self { requests: self.requests.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes) }
    }

    /// Returns the part of the load beyond `size`.
    fn beyond(self, QueueSize { max_requests, max_bytes }: QueueSize) -> Self {
        Self { requests: self.requests.saturating_sub(max_requests), bytes: self.bytes.saturating_sub(max_bytes) }
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the part of the load of which there is too much: bytes, otherwise requests.
    fn part_of(self, excess: Self) -> u64 {
        if excess.bytes > 0 { self.bytes } else { self.requests as u64 }
    }
}

// === impl RequestQueue ===

impl<T> Default for RequestQueue<T> {
    fn default() -> Self {
        Self { bands: BTreeMap::new(), requests: 0, bytes: 0, next_id: 0 }
    }
}

impl<T> RequestQueue<T> {
    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        self.requests
    }

    /// Returns the size of all bodies.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the flows of this queue, that of `pool`, by ascending priority.
    pub(crate) fn flows(&self, pool: &NamespacedName) -> impl Iterator<Item = QueuedFlow> {
        let flows = self.bands.iter().flat_map(|(priority, band)| band.0.iter().map(move |flow| (*priority, flow)));
        flows.map(|(priority, flow)| {
            let Load { requests, bytes } = flow.load();
            QueuedFlow { pool: pool.clone(), priority, name: flow.name.clone(), requests, bytes }
        })
    }

    /// Adds a request. If the queue is full, it replaces others: those with the lowest priority, and of these the newest ones of the
    /// flow with the most requests, or with the most bytes if these exceed the size. Returns the values of the replaced requests.
    ///
    /// # Errors
    /// [`QueueFull`], and no request is replaced.
    pub(crate) fn push(
        &mut self,
        request: QueuedRequest<'_>,
        value: T,
        size: QueueSize,
    ) -> Result<(RequestId, Vec<T>), QueueFull> {
        let victims = self.victims(&request, size).ok_or(QueueFull)?;
        let replaced = victims.into_iter().filter_map(|id| self.remove(id)).collect();
        let id = RequestId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let entry = Entry { id, tokens: request.tokens, bytes: request.bytes, value };
        self.insert(request.priority, request.flow, entry);
        Ok((id, replaced))
    }

    /// Removes a request. Returns its value, `None` if it is not queued any more.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<T> {
        let taken = self.bands.iter_mut().find_map(|(priority, band)| Some((*priority, band.take(id)?)));
        let (priority, entry) = taken?;
        self.record_removal(&entry, priority);
        Some(entry.value)
    }

    /// Removes all requests and returns their values.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let bands = std::mem::take(self).bands.into_values();
        bands.flat_map(|band| band.0).flat_map(|flow| flow.requests).map(|entry| entry.value).collect()
    }

    /// Calls `attempt` with the first request of each flow, in the order in which they are due, until it returns a result. Removes this
    /// request and returns its value with the result. A request for which no engine is free does not delay other flows.
    pub(crate) fn dispatch<R>(&mut self, mut attempt: impl FnMut(&mut T) -> Option<R>) -> Option<(T, R)> {
        for (priority, band) in self.bands.iter_mut().rev() {
            for (index, quanta) in band.due_flows() {
                let Some(entry) = band.0.get_mut(index).and_then(|flow| flow.requests.front_mut()) else { continue };
                let Some(result) = attempt(&mut entry.value) else { continue };
                let entry = band.charge(index, quanta)?;
                let priority = *priority;
                self.record_removal(&entry, priority);
                return Some((entry.value, result));
            }
        }
        None
    }

    /// Records tokens of flows that another replica has served, so that the shares of all replicas together are equal. They count
    /// only relative to those of the other flows in the queue.
    pub(crate) fn record_served_elsewhere<'a>(&mut self, priority: i32, served: impl Iterator<Item = (&'a str, u64)>) {
        let Some(band) = self.bands.get_mut(&priority) else { return };
        for (name, tokens) in served {
            if let Some(flow) = band.0.iter_mut().find(|flow| flow.name == name) {
                flow.debt = flow.debt.saturating_add(tokens);
            }
        }
        let lowest = band.0.iter().map(|flow| flow.debt).min().unwrap_or(0);
        band.0.iter_mut().for_each(|flow| flow.debt = (flow.debt - lowest).min(MAX_DEBT));
    }

    /// Returns which requests are shed for `request`, `None` if those that may be shed leave too little room.
    fn victims(&self, request: &QueuedRequest<'_>, size: QueueSize) -> Option<Vec<RequestId>> {
        let mut excess = Load { requests: self.requests, bytes: self.bytes }.with(request.bytes).beyond(size);
        let mut victims = Vec::new();
        for (priority, band) in self.bands.range(..=request.priority) {
            if excess.is_empty() {
                break;
            }
            let mut flows: Vec<_> = band.0.iter().map(|flow| (flow.load(), flow.requests.iter().rev())).collect();
            // Requests of the same priority are shed as long as their flow has more than the one of this request.
            let own = (*priority == request.priority).then(|| band.load_of(request.flow).with(request.bytes));
            while !excess.is_empty() {
                let Some((load, newest)) = flows.iter_mut().max_by_key(|(load, _)| load.part_of(excess)) else { break };
                if own.is_some_and(|own| load.part_of(excess) <= own.part_of(excess)) {
                    break;
                }
                let Some(entry) = newest.next() else { break };
                victims.push(entry.id);
                *load = load.without(entry.bytes);
                excess = excess.without(entry.bytes);
            }
        }
        excess.is_empty().then_some(victims)
    }

    fn insert(&mut self, priority: i32, flow: &str, entry: Entry<T>) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.bands.entry(priority).or_insert_with(|| Band(VecDeque::new())).push(flow, entry);
    }

    /// Records that an entry was removed from the band of `priority`.
    fn record_removal(&mut self, entry: &Entry<T>, priority: i32) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        if self.bands.get(&priority).is_some_and(|band| band.0.is_empty()) {
            self.bands.remove(&priority);
        }
    }
}

// === impl Band ===

impl<T> Band<T> {
    /// Adds an entry that is newer than all others of its flow.
    fn push(&mut self, name: &str, entry: Entry<T>) {
        let name = self.flow_name(name);
        match self.0.iter_mut().find(|flow| flow.name == name) {
            Some(flow) => flow.requests.push_back(entry),
            None => self.0.push_back(Flow { name: name.to_owned(), deficit: 0, debt: 0, requests: [entry].into() }),
        }
    }

    /// Returns the name of the flow for requests that name `name`.
    fn flow_name<'a>(&self, name: &'a str) -> &'a str {
        let has_room = self.0.len() < MAX_FLOWS || self.0.iter().any(|flow| flow.name == name);
        if has_room { name } else { OVERFLOW }
    }

    /// Returns the load of the flow for requests that name `name`.
    fn load_of(&self, name: &str) -> Load {
        let name = self.flow_name(name);
        self.0.iter().find(|flow| flow.name == name).map_or(Load::default(), Flow::load)
    }

    /// Returns the positions of the flows in the order in which deficit round robin serves their first requests, and how many quanta
    /// each needs.
    fn due_flows(&self) -> Vec<(usize, u64)> {
        let mut due: Vec<(usize, u64)> =
            self.0.iter().enumerate().map(|(index, flow)| (index, flow.missing_quanta())).collect();
        due.sort_by_key(|(index, quanta)| (*quanta, *index));
        due
    }

    /// Removes the first request of the flow at `index`, which has received `quanta`. The next round begins with this flow if its next
    /// request needs no quantum, otherwise with the flow behind it.
    fn charge(&mut self, index: usize, quanta: u64) -> Option<Entry<T>> {
        for (position, flow) in self.0.iter_mut().enumerate() {
            // The flows behind it are visited later in each round.
            let received = if position <= index { quanta } else { quanta.saturating_sub(1) };
            flow.add_quanta(received);
        }
        self.0.rotate_left(index);
        let flow = self.0.front_mut()?;
        let entry = flow.requests.pop_front()?;
        flow.deficit = flow.deficit.saturating_sub(entry.tokens);
        if flow.requests.is_empty() {
            self.0.pop_front();
        } else if flow.missing_quanta() > 0 {
            self.0.rotate_left(1);
        }
        Some(entry)
    }

    /// Removes a request.
    fn take(&mut self, id: RequestId) -> Option<Entry<T>> {
        let position = |flow: &Flow<T>| flow.requests.binary_search_by_key(&id, |entry| entry.id).ok();
        let (index, position) = self.0.iter().enumerate().find_map(|(index, flow)| Some((index, position(flow)?)))?;
        let flow = self.0.get_mut(index)?;
        let entry = flow.requests.remove(position)?;
        if flow.requests.is_empty() {
            self.0.remove(index);
        }
        Some(entry)
    }
}

// === impl Flow ===

impl<T> Flow<T> {
    fn load(&self) -> Load {
        let bytes = self.requests.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add);
        Load { requests: self.requests.len(), bytes }
    }

    /// Returns the tokens of the first request.
    fn next_tokens(&self) -> u64 {
        self.requests.front().map_or(0, |entry| entry.tokens)
    }

    /// Returns how many quanta the flow needs for its first request.
    fn missing_quanta(&self) -> u64 {
        match self.next_tokens().saturating_sub(self.deficit) {
            0 => 0,
            tokens => tokens.saturating_add(self.debt).div_ceil(QUANTUM),
        }
    }

    /// Adds quanta. A flow that waits for an engine saves no more than its first request needs.
    fn add_quanta(&mut self, quanta: u64) {
        let limit = self.deficit.max(self.next_tokens().saturating_add(QUANTUM));
        let tokens = quanta.saturating_mul(QUANTUM);
        let paid = tokens.min(self.debt);
        self.debt -= paid;
        self.deficit = self.deficit.saturating_add(tokens - paid).min(limit);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SIZE: QueueSize = QueueSize { max_requests: 4, max_bytes: 100 };

    fn request(priority: i32, flow: &str, tokens: u64, bytes: u64) -> QueuedRequest<'_> {
        QueuedRequest { priority, flow, tokens, bytes }
    }

    /// Dispatches all requests for which `is_free` is true.
    fn dispatch_all(queue: &mut RequestQueue<&'static str>, is_free: impl Fn(&str) -> bool) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.dispatch(|value| is_free(value).then_some(())).map(|(value, ())| value)).collect()
    }

    // spec: GW-76
    #[test]
    fn priority_then_flow_then_arrival() {
        let mut queue = RequestQueue::default();
        let size = QueueSize { max_requests: 10, max_bytes: 10 };
        let requests =
            [(0, "x", "x1"), (0, "x", "x2"), (-10, "z", "z1"), (0, "y", "y1"), (100, "c", "c1"), (0, "x", "x3")];
        for (priority, flow, value) in requests {
            queue.push(request(priority, flow, QUANTUM, 1), value, size).unwrap();
        }
        assert_eq!((queue.len(), queue.bytes), (6, 6));
        assert_eq!(dispatch_all(&mut queue, |_| true), ["c1", "x1", "y1", "x2", "x3", "z1"]);
        assert_eq!((queue.len(), queue.bytes, queue.bands.len()), (0, 0, 0));
    }

    /// Each flow always has requests. They have equal shares of the tokens, whatever the sizes of their requests.
    // spec: GW-21
    // spec: GW-73
    #[rstest]
    #[case::equal(&[300, 300])]
    #[case::different(&[100, 3_000])]
    #[case::long_prompts(&[50, 100_000, 1_000])]
    fn flows_share_tokens(#[case] sizes: &[u64]) {
        let names = ["a", "b", "c"];
        let mut queue = RequestQueue::default();
        let size = QueueSize { max_requests: 10, max_bytes: 0 };
        let mut served = vec![0_u64; sizes.len()];
        let push = |queue: &mut RequestQueue<usize>, flow: usize| {
            queue.push(request(0, names[flow], sizes[flow], 0), flow, size).unwrap();
        };
        (0..2 * sizes.len()).for_each(|request| push(&mut queue, request % sizes.len()));
        while served.iter().sum::<u64>() < 3_000_000 {
            let (flow, ()) = queue.dispatch(|_| Some(())).unwrap();
            served[flow] += sizes[flow];
            push(&mut queue, flow);
        }
        let (min, max) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        assert!(max - min <= QUANTUM + sizes.iter().max().unwrap(), "{served:?}");
    }

    /// Another replica serves flow `a` only, at half the rate of this one, which serves a third less of it.
    // spec: GW-21
    #[test]
    fn flows_share_the_tokens_of_all_replicas() {
        let mut queue = RequestQueue::default();
        let size = QueueSize { max_requests: 10, max_bytes: 0 };
        let mut served = BTreeMap::from([("a", 0_u64), ("b", 0)]);
        for flow in ["a", "b", "a", "b"] {
            queue.push(request(0, flow, 600, 0), flow, size).unwrap();
        }
        for round in 0..1_000 {
            let (flow, ()) = queue.dispatch(|_| Some(())).unwrap();
            *served.get_mut(flow).unwrap() += 600;
            queue.push(request(0, flow, 600, 0), flow, size).unwrap();
            if round % 20 == 0 {
                queue.record_served_elsewhere(0, [("a", 6_000), ("unknown", 7_000)].into_iter());
            }
        }
        let (here, elsewhere) = (600 * 1_000, 6_000 * 50);
        assert_eq!(served.values().sum::<u64>(), here);
        assert!(served["b"].abs_diff((here + elsewhere) / 2) <= 6_000 + QUANTUM, "{served:?}");
    }

    /// Only differences between the flows in the queue count, up to a limit.
    #[test]
    fn debts_are_relative_and_bounded() {
        let mut queue = RequestQueue::default();
        for flow in ["a", "b"] {
            queue.push(request(0, flow, 1, 1), flow, SIZE).unwrap();
        }
        let mut debts = |tokens: [u64; 2]| {
            queue.record_served_elsewhere(0, ["a", "b"].into_iter().zip(tokens));
            queue.bands[&0].0.iter().map(|flow| flow.debt).collect::<Vec<_>>()
        };
        assert_eq!(debts([500, 300]), [200, 0]);
        assert_eq!(debts([0, 900]), [0, 700]);
        assert_eq!(debts([u64::MAX, 0]), [MAX_DEBT, 0]);
        queue.record_served_elsewhere(7, [("a", 1)].into_iter());
        assert_eq!(dispatch_all(&mut queue, |_| true), ["b", "a"]);
    }

    #[test]
    fn request_without_a_free_engine_does_not_delay_others() {
        let mut queue = RequestQueue::default();
        for (priority, flow, value) in [(100, "c", "busy"), (0, "x", "busy 2"), (0, "x", "behind it"), (0, "y", "free")]
        {
            queue.push(request(priority, flow, 1, 1), value, SIZE).unwrap();
        }
        assert_eq!(dispatch_all(&mut queue, |value| !value.starts_with("busy")), ["free"]);
        assert_eq!(dispatch_all(&mut queue, |_| true), ["busy", "busy 2", "behind it"]);
    }

    /// Columns: priority, flow and bytes of a request for which the queue is full, and the requests that it replaces.
    // spec: GW-36
    // spec: GW-78
    #[rstest]
    #[case::lowest_priority_first(100, "c", 1, Some(&["z1"][..]))]
    #[case::same_priority_as_the_lowest(-10, "z", 1, None)]
    #[case::bytes(100, "c", 50, Some(&["z1", "x2"][..]))]
    #[case::too_large_for_its_priority(0, "x", 60, None)]
    #[case::too_large(100, "c", 101, None)]
    #[case::lower_priority_than_others(0, "y", 25, Some(&["z1"][..]))]
    fn full_queue_sheds_the_lowest_priority(
        #[case] priority: i32,
        #[case] flow: &str,
        #[case] bytes: u64,
        #[case] expect: Option<&[&'static str]>,
    ) {
        let mut queue = RequestQueue::default();
        for (priority, flow, value) in [(0, "y", "y1"), (0, "x", "x1"), (-10, "z", "z1"), (0, "x", "x2")] {
            queue.push(request(priority, flow, 1, 25), value, SIZE).unwrap();
        }
        let result = queue.push(request(priority, flow, 1, bytes), "new", SIZE);
        assert_eq!(result.ok().map(|(_, shed)| shed), expect.map(<[_]>::to_vec));
        assert!(queue.len() <= SIZE.max_requests && queue.bytes <= SIZE.max_bytes);
        assert_eq!(queue.bands.contains_key(&-10), expect.is_none());
    }

    /// A flow that sends more than the others does not push them out of the queue.
    // spec: GW-21
    #[test]
    fn full_queue_sheds_the_longest_flow() {
        let mut queue = RequestQueue::default();
        for value in ["x1", "x2", "x3", "x4"] {
            queue.push(request(0, "x", 1, 1), value, SIZE).unwrap();
        }
        assert_eq!(queue.push(request(0, "x", 1, 1), "x5", SIZE), Err(QueueFull));
        assert_eq!(queue.push(request(0, "y", 1, 1), "y1", SIZE).unwrap().1, ["x4"]);
        assert_eq!(queue.push(request(0, "y", 1, 1), "y2", SIZE).unwrap().1, ["x3"]);
        assert_eq!(queue.push(request(0, "y", 1, 1), "y3", SIZE), Err(QueueFull), "the flows are equal");
        assert_eq!(dispatch_all(&mut queue, |_| true), ["x1", "x2", "y1", "y2"]);
    }

    /// Otherwise two flows would replace each other's requests, and none would be served.
    #[test]
    fn flows_that_differ_by_one_request_replace_nothing() {
        let mut queue = RequestQueue::default();
        let size = QueueSize { max_requests: 3, ..SIZE };
        for (flow, value) in [("x", "x1"), ("x", "x2"), ("y", "y1")] {
            queue.push(request(0, flow, 1, 1), value, size).unwrap();
        }
        assert_eq!(queue.push(request(0, "y", 1, 1), "y2", size), Err(QueueFull));
        assert_eq!(queue.push(request(0, "z", 1, 1), "z1", size).unwrap().1, ["x2"]);
    }

    /// One large request occupies more than many small ones.
    #[test]
    fn bytes_are_shed_from_the_flow_with_the_most_bytes() {
        let mut queue = RequestQueue::default();
        for (flow, bytes, value) in [("small", 5, "s1"), ("small", 5, "s2"), ("large", 85, "l1")] {
            queue.push(request(0, flow, 1, bytes), value, SIZE).unwrap();
        }
        assert_eq!(queue.push(request(0, "small", 1, 6), "s3", SIZE).unwrap().1, ["l1"]);
        assert_eq!(queue.push(request(0, "large", 1, 85), "l2", SIZE), Err(QueueFull));
        assert_eq!(queue.bytes(), 16);
    }

    #[test]
    fn requests_are_removed_by_id() {
        let mut queue = RequestQueue::default();
        let mut push = |value| queue.push(request(0, "x", 1, 1), value, SIZE).unwrap().0;
        let ids = ["x1", "x2", "x3"].map(&mut push);
        assert_eq!(queue.remove(ids[1]), Some("x2"));
        assert_eq!(queue.remove(ids[1]), None);
        assert_eq!(queue.clear(), ["x1", "x3"]);
        assert_eq!((queue.len(), queue.bytes), (0, 0));
        assert_eq!(queue.remove(ids[0]), None);
    }

    #[test]
    fn number_of_flows_is_limited() {
        let mut queue = RequestQueue::default();
        let size = QueueSize { max_requests: usize::MAX, max_bytes: 0 };
        for number in 0..2 * MAX_FLOWS {
            queue.push(request(-10, &number.to_string(), 1, 0), number, size).unwrap();
        }
        assert_eq!(queue.bands[&-10].0.len(), MAX_FLOWS + 1);
        let full = QueueSize { max_requests: 2 * MAX_FLOWS, max_bytes: 0 };
        let newest = vec![2 * MAX_FLOWS - 1];
        assert_eq!(queue.push(request(-10, "0", 1, 0), 0, full).map(|(_, shed)| shed), Ok(newest));
        assert_eq!(queue.push(request(-10, "further", 1, 0), 0, full), Err(QueueFull), "it shares the longest flow");
        let dispatched: Vec<usize> =
            std::iter::from_fn(|| queue.dispatch(|_| Some(()))).map(|(value, ())| value).collect();
        assert_eq!(dispatched.len(), 2 * MAX_FLOWS);
    }

    #[test]
    fn queue_without_places_accepts_nothing() {
        let size = QueueSize { max_requests: 0, max_bytes: 100 };
        assert_eq!(RequestQueue::default().push(request(0, "x", 1, 1), (), size), Err(QueueFull));
    }
}

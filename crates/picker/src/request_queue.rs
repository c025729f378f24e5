//! Requests of a pool that wait until an engine can run them: strict priorities, deficit round robin in tokens between the flows of
//! one priority, then the order of arrival.

use std::collections::{BTreeMap, VecDeque};

/// Tokens that a flow may use per round.
const QUANTUM: u64 = 1_024;

/// Maximum number of flows per priority. Clients choose the names of models without a use case; those beyond share the
/// last flow.
const MAX_FLOWS: usize = 256;

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
    requests: VecDeque<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    id: RequestId,
    tokens: u64,
    bytes: u64,
    value: T,
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

    /// Adds a request. If the queue is full, it replaces others: those with the lowest priority, and of these the newest ones of the
    /// flow with the most requests. Returns the values of the replaced requests.
    ///
    /// # Errors
    /// [`QueueFull`], and no request is replaced.
    pub(crate) fn push(
        &mut self,
        request: QueuedRequest<'_>,
        value: T,
        size: QueueSize,
    ) -> Result<(RequestId, Vec<T>), QueueFull> {
        let mut shed: Vec<(i32, String, Entry<T>)> = Vec::new();
        while !self.fits(request.bytes, size) {
            match self.victim(&request).and_then(|id| self.take(id)) {
                Some(victim) => shed.push(victim),
                None => {
                    shed.into_iter().rev().for_each(|(priority, flow, entry)| self.insert(priority, &flow, entry));
                    return Err(QueueFull);
                }
            }
        }
        let id = RequestId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let entry = Entry { id, tokens: request.tokens, bytes: request.bytes, value };
        self.insert(request.priority, request.flow, entry);
        Ok((id, shed.into_iter().map(|(.., entry)| entry.value).collect()))
    }

    /// Removes a request. Returns its value, `None` if it is not queued any more.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<T> {
        self.take(id).map(|(.., entry)| entry.value)
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

    fn fits(&self, bytes: u64, size: QueueSize) -> bool {
        self.requests < size.max_requests && self.bytes.saturating_add(bytes) <= size.max_bytes
    }

    /// Returns which request is shed for `request`.
    fn victim(&self, request: &QueuedRequest<'_>) -> Option<RequestId> {
        let (priority, band) = self.bands.first_key_value()?;
        let longest = band.0.iter().max_by_key(|flow| flow.requests.len())?;
        let is_shed = match priority.cmp(&request.priority) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => longest.requests.len() > band.length_of(request.flow),
            std::cmp::Ordering::Greater => false,
        };
        longest.requests.back().filter(|_| is_shed).map(|entry| entry.id)
    }

    fn insert(&mut self, priority: i32, flow: &str, entry: Entry<T>) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.bands.entry(priority).or_insert_with(|| Band(VecDeque::new())).push(flow, entry);
    }

    /// Removes a request. Returns its priority, its flow and itself.
    fn take(&mut self, id: RequestId) -> Option<(i32, String, Entry<T>)> {
        let taken = self.bands.iter_mut().find_map(|(priority, band)| Some((*priority, band.take(id)?)));
        let (priority, (flow, entry)) = taken?;
        self.record_removal(&entry, priority);
        Some((priority, flow, entry))
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
        let existing = self.0.iter().position(|flow| flow.name == name);
        let position = existing.or_else(|| (self.0.len() >= MAX_FLOWS).then(|| self.0.len().saturating_sub(1)));
        match position.and_then(|position| self.0.get_mut(position)) {
            Some(flow) => flow.requests.push_back(entry),
            None => self.0.push_back(Flow { name: name.to_owned(), deficit: 0, requests: [entry].into() }),
        }
    }

    /// Returns the number of requests of a flow.
    fn length_of(&self, name: &str) -> usize {
        self.0.iter().find(|flow| flow.name == name).map_or(0, |flow| flow.requests.len())
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

    /// Removes a request. Returns its flow and itself.
    fn take(&mut self, id: RequestId) -> Option<(String, Entry<T>)> {
        let position = |flow: &Flow<T>| flow.requests.binary_search_by_key(&id, |entry| entry.id).ok();
        let (index, position) = self.0.iter().enumerate().find_map(|(index, flow)| Some((index, position(flow)?)))?;
        let flow = self.0.get_mut(index)?;
        let (name, entry) = (flow.name.clone(), flow.requests.remove(position)?);
        if flow.requests.is_empty() {
            self.0.remove(index);
        }
        Some((name, entry))
    }
}

// === impl Flow ===

impl<T> Flow<T> {
    /// Returns the tokens of the first request.
    fn next_tokens(&self) -> u64 {
        self.requests.front().map_or(0, |entry| entry.tokens)
    }

    /// Returns how many quanta the flow needs for its first request.
    fn missing_quanta(&self) -> u64 {
        self.next_tokens().saturating_sub(self.deficit).div_ceil(QUANTUM)
    }

    /// Adds quanta. A flow that waits for an engine saves no more than its first request needs.
    fn add_quanta(&mut self, quanta: u64) {
        let limit = self.deficit.max(self.next_tokens().saturating_add(QUANTUM));
        self.deficit = self.deficit.saturating_add(quanta.saturating_mul(QUANTUM)).min(limit);
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
        assert_eq!(queue.bands[&-10].0.len(), MAX_FLOWS);
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

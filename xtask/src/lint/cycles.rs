//! Cycles in a directed graph: one per strongly connected component.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Directed graph: node to its successors.
pub(super) type Edges = BTreeMap<usize, BTreeSet<usize>>;

/// A strongly connected component with more than one node.
#[derive(Debug, PartialEq)]
pub(super) struct Cycle {
    /// The shortest cycle; the first node is not repeated at the end.
    pub(super) path: Vec<usize>,
    /// All nodes of the component, sorted.
    pub(super) members: BTreeSet<usize>,
}

/// Returns one shortest cycle of each strongly connected component, ordered by the lowest member.
pub(super) fn find(edges: &Edges) -> Vec<Cycle> {
    let mut remaining: BTreeSet<usize> = edges.keys().copied().collect();
    let mut cycles = Vec::new();
    while let Some(&node) = remaining.first() {
        let reachable = reachable(edges, node);
        let members: BTreeSet<usize> =
            reachable.iter().copied().filter(|other| self::reachable(edges, *other).contains(&node)).collect();
        remaining.remove(&node);
        if !members.contains(&node) {
            continue;
        }
        remaining.retain(|other| !members.contains(other));
        if members.len() > 1 {
            let path = members.iter().filter_map(|start| shortest_cycle(edges, *start)).min_by_key(Vec::len);
            cycles.push(Cycle { path: path.unwrap_or_default(), members });
        }
    }
    cycles
}

/// Returns the nodes that `start` reaches in one or more steps.
fn reachable(edges: &Edges, start: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![start];
    while let Some(node) = pending.pop() {
        pending.extend(successors(edges, node).filter(|next| seen.insert(*next)));
    }
    seen
}

fn shortest_cycle(edges: &Edges, start: usize) -> Option<Vec<usize>> {
    let mut previous = BTreeMap::new();
    let mut pending = VecDeque::from([start]);
    while let Some(node) = pending.pop_front() {
        for next in successors(edges, node) {
            if next == start {
                let mut path = vec![node];
                while let Some(node) = path.last().and_then(|node| previous.get(node)) {
                    path.push(*node);
                }
                path.reverse();
                return Some(path);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = previous.entry(next) {
                entry.insert(node);
                pending.push_back(next);
            }
        }
    }
    None
}

fn successors(edges: &Edges, node: usize) -> impl Iterator<Item = usize> + '_ {
    edges.get(&node).into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(usize, usize)]) -> Edges {
        let mut edges = Edges::new();
        for (from, to) in pairs {
            edges.entry(*from).or_default().insert(*to);
        }
        edges
    }

    #[test]
    fn finds_one_shortest_cycle_per_component() {
        assert_eq!(find(&edges(&[(1, 2), (2, 3), (1, 3)])), []);
        let two = edges(&[(1, 2), (2, 3), (3, 4), (4, 1), (3, 2), (4, 5), (6, 7), (7, 6)]);
        let expected = [
            Cycle { path: vec![2, 3], members: BTreeSet::from([1, 2, 3, 4]) },
            Cycle { path: vec![6, 7], members: BTreeSet::from([6, 7]) },
        ];
        assert_eq!(find(&two), expected);
    }
}

//! Circles in a graph of arrows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where arrows lead from each node.
pub(crate) type Arrows<T> = BTreeMap<T, BTreeSet<T>>;

/// The sets of nodes in which every node leads to every other, largest first. Nodes on no circle are in none.
pub(crate) fn circles<T: Ord + Clone>(arrows: &Arrows<T>) -> Vec<BTreeSet<T>> {
    let reached: BTreeMap<&T, BTreeSet<T>> = arrows
        .keys()
        .map(|node| (node, reachable(arrows, node)))
        .collect();
    let mut circles: Vec<BTreeSet<T>> = Vec::new();
    for (node, ahead) in &reached {
        if !ahead.contains(*node) || circles.iter().any(|circle| circle.contains(*node)) {
            continue;
        }
        let leads_back = |other: &&T| reached.get(other).is_some_and(|set| set.contains(*node));
        circles.push(ahead.iter().filter(leads_back).cloned().collect());
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// A walk along arrows through all nodes of `circle` and back to its first, by way of some more than once where no
/// single round leads through all.
pub(crate) fn round<T: Ord + Clone>(arrows: &Arrows<T>, circle: &BTreeSet<T>) -> Vec<T> {
    let Some(start) = circle.first() else {
        return Vec::new();
    };
    let mut walk = vec![start.clone()];
    let mut here = start.clone();
    let mut left: BTreeSet<T> = circle.clone();
    left.remove(start);
    loop {
        let wanted = |node: &T| match left.is_empty() {
            true => node == start,
            false => left.contains(node),
        };
        let Some(steps) = shortest(arrows, circle, &here, wanted) else {
            return walk;
        };
        for node in steps {
            left.remove(&node);
            here = node.clone();
            walk.push(node);
        }
        if left.is_empty() && here == *start {
            return walk;
        }
    }
}

fn reachable<T: Ord + Clone>(arrows: &Arrows<T>, from: &T) -> BTreeSet<T> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        let ahead = arrows.get(node).into_iter().flatten();
        open.extend(ahead.filter(|next| found.insert((*next).clone())));
    }
    found
}

/// The nodes behind `from` on the shortest way to a node that is `wanted`, without leaving `circle`.
fn shortest<T: Ord + Clone>(
    arrows: &Arrows<T>,
    circle: &BTreeSet<T>,
    from: &T,
    wanted: impl Fn(&T) -> bool,
) -> Option<Vec<T>> {
    let mut open = VecDeque::from([vec![from.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = open.pop_front() {
        for next in arrows.get(way.last()?).into_iter().flatten() {
            if !circle.contains(next) || !seen.insert(next) {
                continue;
            }
            let mut longer = way.clone();
            longer.push(next.clone());
            if wanted(next) {
                return Some(longer.split_off(1));
            }
            open.push_back(longer);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(pairs: &[(&'static str, &'static str)]) -> Arrows<&'static str> {
        let mut arrows = Arrows::new();
        for (from, to) in pairs {
            arrows
                .entry(*from)
                .or_insert_with(BTreeSet::new)
                .insert(*to);
        }
        arrows
    }

    #[test]
    fn a_tree_has_no_circle() {
        let tree = arrows(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]);
        assert!(circles(&tree).is_empty());
    }

    #[test]
    fn circles_that_share_a_node_are_one() {
        let graph = arrows(&[
            ("a", "b"),
            ("b", "a"),
            ("b", "c"),
            ("c", "b"),
            ("c", "d"),
            ("e", "a"),
        ]);
        assert_eq!(circles(&graph), [BTreeSet::from(["a", "b", "c"])]);
    }

    #[test]
    fn the_largest_comes_first() {
        let graph = arrows(&[
            ("a", "b"),
            ("b", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "c"),
            ("a", "c"),
        ]);
        let sizes: Vec<usize> = circles(&graph).iter().map(BTreeSet::len).collect();
        assert_eq!(sizes, [3, 2]);
    }

    #[test]
    fn a_round_follows_arrows_through_all_and_back() {
        let ring = arrows(&[("a", "c"), ("c", "b"), ("b", "a"), ("b", "x")]);
        let circle = circles(&ring).remove(0);
        assert_eq!(round(&ring, &circle), ["a", "c", "b", "a"]);
        let chain = arrows(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]);
        let circle = circles(&chain).remove(0);
        assert_eq!(round(&chain, &circle), ["a", "b", "c", "b", "a"]);
    }
}

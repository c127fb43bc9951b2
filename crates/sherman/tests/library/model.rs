//! Any sequence of operations, by any kind of caller, has the same outcomes as on a `BTreeMap`.

use proptest::prelude::*;
use sherman::{
    BulkOptions, Client, Cluster, Error, Exchange, Format, Handle, Session, ShortBytes, Tree, TreeOptions,
};
use std::collections::BTreeMap;
use std::ops::Bound;

type K = (u8, ShortBytes<3>);
type V = u32;

#[derive(Clone, Debug)]
enum Step {
    Get(K),
    ContainsKey(K),
    Insert(K, V),
    InsertIfAbsent(K, V),
    Remove(K),
    CompareExchange(K, Option<V>, Option<V>),
    /// Computes the new value from the old one, by [`changed`].
    Update(K),
    GetMany(Vec<K>),
    InsertMany(Vec<(K, V)>),
    RemoveMany(Vec<K>),
    Range {
        from: Bound<K>,
        to: Bound<K>,
        descending: bool,
        prefetch: Option<usize>,
        limit: Option<usize>,
    },
    First,
    Last,
    NextAfter(K),
    NextBefore(K),
    Len,
    IsEmpty,
    Clear,
    BulkLoad(Vec<(K, V)>),
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Value(Option<V>),
    Values(Vec<Option<V>>),
    Entry(Option<(K, V)>),
    Entries(Vec<(K, V)>),
    Exchange(Exchange<V>),
    Truth(bool),
    Count(u64),
    Refused(Error),
}

/// Absent becomes 1, multiples of 3 are removed, other values above 7 stay, and all other values grow by one.
fn changed(value: Option<V>) -> Option<V> {
    match value {
        None => Some(1),
        Some(value) if value % 3 == 0 => None,
        Some(value) if value > 7 => Some(value),
        Some(value) => Some(value + 1),
    }
}

type Map = BTreeMap<K, V>;

fn on_map(map: &mut Map, step: Step) -> Outcome {
    let entry = |entry: Option<(&K, &V)>| Outcome::Entry(entry.map(|(key, value)| (*key, *value)));
    match step {
        Step::Get(key) => Outcome::Value(map.get(&key).copied()),
        Step::ContainsKey(key) => Outcome::Truth(map.contains_key(&key)),
        Step::Insert(key, value) => Outcome::Value(map.insert(key, value)),
        Step::InsertIfAbsent(key, value) => {
            let there = map.get(&key).copied();
            map.entry(key).or_insert(value);
            Outcome::Value(there)
        }
        Step::Remove(key) => Outcome::Value(map.remove(&key)),
        Step::CompareExchange(key, expected, new) => {
            let there = map.get(&key).copied();
            Outcome::Exchange(match there {
                _ if there == expected => {
                    set(map, key, new);
                    Exchange::Done
                }
                Some(value) => Exchange::Found(value),
                None => Exchange::Absent,
            })
        }
        Step::Update(key) => {
            let there = map.get(&key).copied();
            set(map, key, changed(there));
            Outcome::Value(there)
        }
        Step::GetMany(keys) => Outcome::Values(keys.iter().map(|key| map.get(key).copied()).collect()),
        Step::InsertMany(entries) => {
            Outcome::Values(entries.into_iter().map(|(key, value)| map.insert(key, value)).collect())
        }
        Step::RemoveMany(keys) => Outcome::Values(keys.iter().map(|key| map.remove(key)).collect()),
        Step::Range { from, to, descending, limit, .. } => {
            let bad = match (from, to) {
                (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
                (
                    Bound::Included(from) | Bound::Excluded(from),
                    Bound::Included(to) | Bound::Excluded(to),
                ) => from > to,
                _ => false,
            };
            if bad {
                return Outcome::Refused(Error::BadRange);
            }
            let mut entries: Vec<_> = map.range((from, to)).map(|(key, value)| (*key, *value)).collect();
            if descending {
                entries.reverse();
            }
            entries.truncate(limit.unwrap_or(usize::MAX));
            Outcome::Entries(entries)
        }
        Step::First => entry(map.first_key_value()),
        Step::Last => entry(map.last_key_value()),
        Step::NextAfter(key) => entry(map.range((Bound::Excluded(key), Bound::Unbounded)).next()),
        Step::NextBefore(key) => entry(map.range(..key).next_back()),
        Step::Len => Outcome::Count(map.len() as u64),
        Step::IsEmpty => Outcome::Truth(map.is_empty()),
        Step::Clear => {
            let before = map.len() as u64;
            map.clear();
            Outcome::Count(before)
        }
        Step::BulkLoad(entries) => {
            if !map.is_empty() {
                return Outcome::Refused(Error::NotEmpty);
            }
            if let Some(at) = entries.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
                return Outcome::Refused(Error::Unsorted { at: at as u64 + 1 });
            }
            map.extend(entries);
            Outcome::Count(map.len() as u64)
        }
    }
}

fn set(map: &mut Map, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn bulk_load(tree: &Tree<K, V>, entries: Vec<(K, V)>) -> Result<Outcome, Error> {
    let threads = 1 + entries.len() % 3;
    tree.bulk_load(entries, &BulkOptions::new().fill(0.7).threads(threads)).map(Outcome::Count)
}

/// Runs a step on `$on`. `$wait` awaits, or is empty.
macro_rules! on {
    ($tree:ident, $on:ident, $step:ident, $range:ident => $collect:expr, $($wait:tt)*) => {
        match $step {
            Step::Get(key) => Outcome::Value($on.get(key)$($wait)*?),
            Step::ContainsKey(key) => Outcome::Truth($on.contains_key(key)$($wait)*?),
            Step::Insert(key, value) => Outcome::Value($on.insert(key, value)$($wait)*?),
            Step::InsertIfAbsent(key, value) => Outcome::Value($on.insert_if_absent(key, value)$($wait)*?),
            Step::Remove(key) => Outcome::Value($on.remove(key)$($wait)*?),
            Step::CompareExchange(key, expected, new) => {
                Outcome::Exchange($on.compare_exchange(key, expected, new)$($wait)*?)
            }
            Step::Update(key) => Outcome::Value($on.update(key, changed)$($wait)*?),
            Step::GetMany(keys) => Outcome::Values($on.get_many(&keys)$($wait)*?),
            Step::InsertMany(entries) => Outcome::Values($on.insert_many(&entries)$($wait)*?),
            Step::RemoveMany(keys) => Outcome::Values($on.remove_many(&keys)$($wait)*?),
            Step::Range { from, to, descending, prefetch, limit } => {
                let mut $range = $on.range((from, to));
                if descending {
                    $range = $range.descending();
                }
                if let Some(leaves) = prefetch {
                    $range = $range.prefetch(leaves);
                }
                if let Some(entries) = limit {
                    $range = $range.limit(entries);
                }
                Outcome::Entries($collect)
            }
            Step::First => Outcome::Entry($on.first()$($wait)*?),
            Step::Last => Outcome::Entry($on.last()$($wait)*?),
            Step::NextAfter(key) => Outcome::Entry($on.next_after(key)$($wait)*?),
            Step::NextBefore(key) => Outcome::Entry($on.next_before(key)$($wait)*?),
            Step::Len => Outcome::Count($on.len()$($wait)*?),
            Step::IsEmpty => Outcome::Truth($on.is_empty()$($wait)*?),
            Step::Clear => Outcome::Count($on.clear()$($wait)*?),
            Step::BulkLoad(entries) => bulk_load($tree, entries)?,
        }
    };
}

macro_rules! drained {
    ($range:ident) => {{
        let mut entries = Vec::new();
        while let Some(entry) = $range.next().await {
            entries.push(entry?);
        }
        entries
    }};
}

fn on_client(tree: &Tree<K, V>, client: &Client<K, V>, step: Step) -> Result<Outcome, Error> {
    Ok(on!(tree, client, step, range => range.collect::<Result<_, _>>()?, ))
}

async fn on_session(tree: &Tree<K, V>, session: &Session<K, V>, step: Step) -> Result<Outcome, Error> {
    Ok(on!(tree, session, step, range => drained!(range), .await))
}

async fn on_handle(tree: &Tree<K, V>, handle: &Handle<K, V>, step: Step) -> Result<Outcome, Error> {
    Ok(on!(tree, handle, step, range => drained!(range), .await))
}

fn key() -> impl Strategy<Value = K> {
    // Few distinct keys, so that steps meet the same keys, with the extremes among them.
    let word = prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), 0x60_u8..0x64], 0..=3);
    (prop_oneof![Just(0_u8), Just(0xff), 1_u8..4], word)
        .prop_map(|(first, word)| (first, ShortBytes::new(&word).expect("short enough")))
}

fn bound() -> impl Strategy<Value = Bound<K>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
}

fn sorted_entries() -> impl Strategy<Value = Vec<(K, V)>> {
    let sorted =
        prop::collection::btree_map(key(), 0..20_u32, 0..120).prop_map(|map| map.into_iter().collect());
    prop_oneof![9 => sorted, 1 => prop::collection::vec((key(), 0..20_u32), 0..4)]
}

fn step() -> impl Strategy<Value = Step> {
    let value = || 0..20_u32;
    let maybe = || prop::option::of(value());
    prop_oneof![
        4 => key().prop_map(Step::Get),
        1 => key().prop_map(Step::ContainsKey),
        12 => (key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (key(), value()).prop_map(|(key, value)| Step::InsertIfAbsent(key, value)),
        6 => key().prop_map(Step::Remove),
        3 => (key(), maybe(), maybe())
            .prop_map(|(key, expected, new)| Step::CompareExchange(key, expected, new)),
        3 => key().prop_map(Step::Update),
        1 => prop::collection::vec(key(), 0..100).prop_map(Step::GetMany),
        2 => prop::collection::vec((key(), value()), 0..100).prop_map(Step::InsertMany),
        1 => prop::collection::vec(key(), 0..100).prop_map(Step::RemoveMany),
        4 => (bound(), bound(), any::<bool>(), prop::option::of(0..40_usize), prop::option::of(0..30_usize))
            .prop_map(
            |(from, to, descending, prefetch, limit)| Step::Range { from, to, descending, prefetch, limit }
        ),
        1 => Just(Step::First),
        1 => Just(Step::Last),
        1 => key().prop_map(Step::NextAfter),
        1 => key().prop_map(Step::NextBefore),
        1 => Just(Step::Len),
        1 => Just(Step::IsEmpty),
        1 => Just(Step::Clear),
        1 => sorted_entries().prop_map(Step::BulkLoad),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_does_what_a_btreemap_does(
        steps in prop::collection::vec((0..3_u8, step()), 1..120),
        format in prop::sample::select(vec![Format::LineStamped, Format::Sorted, Format::SortedStamped]),
    ) {
        let cluster = Cluster::open("embedded:?servers=2&memory=64MiB").expect("a cluster");
        let options = TreeOptions::new().format(format).node_bytes(256);
        let tree = cluster.tree_with::<K, V>("model", &options).expect("a tree");
        let client = tree.client().expect("a client");
        let session = tree.session().expect("a session");
        let handle = tree.handle().expect("a handle");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut map = Map::new();
        for (at, (caller, step)) in steps.into_iter().enumerate() {
            let outcome = match caller {
                0 => on_client(&tree, &client, step.clone()),
                1 => session.run(on_session(&tree, &session, step.clone())),
                _ => runtime.block_on(on_handle(&tree, &handle, step.clone())),
            };
            let outcome = match outcome {
                Err(error @ (Error::BadRange | Error::NotEmpty | Error::Unsorted { .. })) => {
                    Outcome::Refused(error)
                }
                other => other.expect("a working cluster"),
            };
            let expected = on_map(&mut map, step.clone());
            prop_assert_eq!(outcome, expected, "step {} by caller {}: {:?}", at, caller, step);
        }
        let check = tree.check().expect("a readable tree");
        prop_assert!(check.is_clean(), "{:?}", check.broken);
        prop_assert_eq!(check.entries, map.len() as u64);
        let entries: Vec<(K, V)> = client.range(..).collect::<Result<_, _>>().expect("a readable tree");
        prop_assert_eq!(entries, map.into_iter().collect::<Vec<_>>());
    }
}

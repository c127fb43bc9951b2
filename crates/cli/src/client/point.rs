//! `sherman get`, `put` and `del`: commands on one key.

use super::Answer;
use super::open::{Opened, open, open_or_create, undo};
use super::point_args::{DelArgs, GetArgs, PutArgs};
use crate::failure::Failure;
use serde_json::{Value, json};
use sherman::Cluster;

/// Returns a value as text and as JSON. If the value does not fit the requested type, the command fails, not
/// the index.
fn shown(opened: &Opened, value: &[u8]) -> Result<(String, Value), Failure> {
    let as_asked = || Ok((opened.value.show(value)?, opened.value.json(value)?));
    as_asked().map_err(|reason: String| Failure::option("value-type", reason))
}

/// As `shown`, for the old value of a change. The change is done, so an old value that does not fit the type
/// is no longer a failure.
fn shown_if_it_fits(opened: &Opened, old: &[u8]) -> (String, Value) {
    shown(opened, old).unwrap_or_else(|_| ("a value of another type".into(), Value::Null))
}

/// Looks up the value under a key.
pub fn get(cluster: &Cluster, args: &GetArgs) -> Result<Answer, Failure> {
    let opened = open(cluster, &args.at)?;
    let key = opened.parse_key(&args.key)?;
    let value = opened.tree.client()?.get(&key)?;
    let found = value.is_some();
    let (text, value) = value.map_or(Ok((String::new(), Value::Null)), |value| shown(&opened, &value))?;
    let json = json!({ "key": key_json(&opened, &key)?, "found": found, "value": value });
    Ok(Answer { text, json, found })
}

/// Puts a value under a key.
pub fn put(cluster: &Cluster, args: &PutArgs) -> Result<Answer, Failure> {
    let opened = open_or_create(cluster, &args.at, &args.create)?;
    put_into(&opened, args).map_err(|failure| undo(cluster, &opened, failure))
}

fn put_into(opened: &Opened, args: &PutArgs) -> Result<Answer, Failure> {
    let (key, value) = (opened.parse_key(&args.key)?, opened.parse_value(&args.value)?);
    let client = opened.tree.client()?;
    let old = match args.if_absent {
        true => client.insert_if_absent(&key, &value)?,
        false => client.insert(&key, &value)?,
    };
    let old = old.map(|old| shown_if_it_fits(opened, &old));
    let there = old.is_some();
    let changed = !(there && args.if_absent);
    let text = match &old {
        None => "inserted".to_owned(),
        Some((old, _)) if changed => format!("replaced {old}"),
        Some((old, _)) => format!("kept {old}"),
    };
    let json = json!({
        "key": key_json(opened, &key)?,
        "put": changed,
        "found": there,
        "old": old.map(|(_, old)| old),
    });
    Ok(Answer { text, json, found: changed })
}

/// Removes a key.
pub fn del(cluster: &Cluster, args: &DelArgs) -> Result<Answer, Failure> {
    let opened = open(cluster, &args.at)?;
    let key = opened.parse_key(&args.key)?;
    let old = opened.tree.client()?.remove(&key)?.map(|old| shown_if_it_fits(&opened, &old));
    let found = old.is_some();
    let text = old.as_ref().map_or_else(String::new, |(old, _)| format!("removed {old}"));
    let json = json!({ "key": key_json(&opened, &key)?, "found": found, "old": old.map(|(_, old)| old) });
    Ok(Answer { text, json, found })
}

fn key_json(opened: &Opened, key: &[u8]) -> Result<Value, Failure> {
    opened.key.json(key).map_err(|reason| Failure::option("key-type", reason))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cluster, parsed};
    use super::*;

    fn tell(answer: Result<Answer, Failure>) -> (String, String, bool) {
        let Answer { text, json, found } = answer.expect("an answer");
        (text, json.to_string(), found)
    }

    #[test]
    fn what_is_put_is_got_until_it_is_deleted() {
        let cluster = cluster();
        let put = |line: &[&str]| tell(put(&cluster, &parsed(line)));
        let get = |line: &[&str]| tell(get(&cluster, &parsed(line)));
        let del = |line: &[&str]| tell(del(&cluster, &parsed(line)));
        let said = |text: &str, json: &str, found| (text.to_owned(), json.to_owned(), found);
        assert_eq!(
            put(&["7", "700", "--create", "--tree", "orders"]),
            said("inserted", r#"{"found":false,"key":7,"old":null,"put":true}"#, true)
        );
        assert_eq!(
            put(&["7", "701"]),
            said("replaced 700", r#"{"found":true,"key":7,"old":700,"put":true}"#, true)
        );
        assert_eq!(
            put(&["7", "702", "--if-absent"]),
            said("kept 701", r#"{"found":true,"key":7,"old":701,"put":false}"#, false)
        );
        assert_eq!(get(&["7"]), said("701", r#"{"found":true,"key":7,"value":701}"#, true));
        assert_eq!(get(&["8"]), said("", r#"{"found":false,"key":8,"value":null}"#, false));
        assert_eq!(del(&["7"]), said("removed 701", r#"{"found":true,"key":7,"old":701}"#, true));
        assert_eq!(del(&["7"]), said("", r#"{"found":false,"key":7,"old":null}"#, false));
        // The library reads what the command wrote.
        put(&["18446744073709551615", "1"]);
        let client = cluster.open_tree::<u64, u64>("orders").expect("a tree").client().expect("a client");
        assert_eq!(client.get(u64::MAX), Ok(Some(1)));
    }

    #[test]
    fn keys_of_every_type_are_the_librarys() {
        let cluster = cluster();
        let texts =
            ["--create", "--tree", "users", "--key-type", "text", "--key-size", "16", "--value-type", "i64"];
        put(&cluster, &parsed(&[&["ada", "-1815"], &texts[..]].concat())).expect("an insert");
        let users = cluster
            .open_tree::<sherman::ShortBytes<16>, i64>("users")
            .expect("a tree")
            .client()
            .expect("one");
        assert_eq!(users.get(sherman::ShortBytes::new(b"ada").expect("it fits")), Ok(Some(-1815)));
        let as_text = ["--tree", "users", "--key-type", "text", "--value-type", "i64"];
        assert_eq!(tell(get(&cluster, &parsed(&[&["ada"], &as_text[..]].concat()))).0, "-1815");
        assert!(!tell(del(&cluster, &parsed(&[&["bob"], &as_text[..]].concat()))).2);
    }

    #[test]
    fn what_is_no_key_of_the_tree_is_refused() {
        let cluster = cluster();
        cluster.tree::<u64, [u8; 3]>("t").expect("a tree");
        for (line, words) in [
            (&["x"][..], "KEY: \"x\" is not a valid u64"),
            (&["7", "--key-type", "text"], "KEY"),
            (&["7", "--key-type", "u32"], "--key-type: u32 has 4 bytes, but the tree stores 8"),
            (&["7", "--value-type", "u64"], "--value-type: u64 has 8 bytes, but the tree stores 3"),
            (&["7", "--tree", "s"], "there is no tree named \"s\""),
        ] {
            match get(&cluster, &parsed(line)) {
                Err(Failure::Usage(said) | Failure::No(said)) => {
                    assert!(said.contains(words), "{line:?}: {said}")
                }
                // The tree's 8-byte keys hold a text of at most seven bytes, so "7" is a valid key.
                Ok(answer) => assert!(!answer.found && line.contains(&"text")),
                Err(other) => panic!("{line:?}: {other}"),
            }
        }
        let Err(Failure::Usage(said)) = put(&cluster, &parsed(&["7", "abcd"])) else {
            panic!("two bytes for three")
        };
        assert!(said.contains("VALUE: \"abcd\" has 2 bytes, but the tree stores 3"), "{said}");
    }
}

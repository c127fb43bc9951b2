//! One JSON object per line: `{"key": 7, "value": 700}`. The two fields may be in any order; other fields are
//! refused. Every other shape is refused, for example the array `[7, 700]`.

use super::column::Column;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    key: Value,
    value: Value,
}

/// Returns the key and the value of a line, as bytes.
pub fn parse(line: &str, key: &Column, value: &Column) -> Result<(Vec<u8>, Vec<u8>), String> {
    if !line.trim_start().starts_with('{') {
        // A derived struct would also accept an array of its fields.
        return Err("this is not a JSON object; a line looks like {\"key\": 7, \"value\": 700}".to_owned());
    }
    let object: Object = serde_json::from_str(line).map_err(|error| {
        // The parser sees only one line, so its line number is removed.
        let said = error.to_string();
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        format!("column {}: {said}; a line looks like {{\"key\": 7, \"value\": 700}}", error.column())
    })?;
    let bytes_of_key = key.parse_json(&object.key).map_err(|reason| format!("key: {reason}"))?;
    let bytes_of_value = value.parse_json(&object.value).map_err(|reason| format!("value: {reason}"))?;
    Ok((bytes_of_key, bytes_of_value))
}

/// Formats an entry as a line, without the line end.
pub fn line(entry: (&[u8], &[u8]), key: &Column, value: &Column) -> Result<String, String> {
    Ok(json!({ "key": key.json(entry.0)?, "value": value.json(entry.1)? }).to_string())
}

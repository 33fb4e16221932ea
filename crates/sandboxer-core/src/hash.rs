//! Content hashes: the same text on every machine for the same value.

use sha2::{Digest, Sha256};

/// Lower-case hexadecimal SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of a value's JSON with its keys in order, so that field order never counts as drift.
pub fn of_value(value: &serde_json::Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    sha256_hex(text.as_bytes())
}

fn write_canonical(value: &serde_json::Value, out: &mut String) {
    match value {
        serde_json::Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (key, inner) in entries {
                out.push_str(&serde_json::Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(inner, out);
                out.push(',');
            }
            out.push('}');
        }
        serde_json::Value::Array(items) => {
            out.push('[');
            for inner in items {
                write_canonical(inner, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_count_and_values_do() {
        let a = json!({"a": 1, "b": [1, {"x": null, "y": "z"}]});
        let b = json!({"b": [1, {"y": "z", "x": null}], "a": 1});
        assert_eq!(of_value(&a), of_value(&b));
        assert_ne!(of_value(&a), of_value(&json!({"a": 2, "b": [1, {"x": null, "y": "z"}]})));
        assert_ne!(of_value(&json!(["a", "b"])), of_value(&json!(["b", "a"])));
    }
}

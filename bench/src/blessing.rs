//! Why kept results were changed: a list beside them in their file, under one key.

use serde_json::{Value, json};

/// The key of the list.
const KEY: &str = "blessed";

/// The reasons for which a file's results were changed, with what was changed; oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blessings(Vec<Value>);

impl Blessings {
    /// Takes the list out of a file's contents, which then are results alone.
    ///
    /// # Errors
    /// If what is under the key is no list.
    pub fn take_from(file: &mut Value) -> Result<Blessings, serde_json::Error> {
        let list = file.as_object_mut().and_then(|file| file.remove(KEY));
        Ok(Blessings(list.map(serde_json::from_value).transpose()?.unwrap_or_default()))
    }

    /// Puts the list into a file's contents, with one more reason.
    ///
    /// # Panics
    /// If the contents are no object.
    pub fn put_into(mut self, file: &mut Value, why: &str, changes: &[String]) {
        self.0.push(json!({ "why": why, "changes": changes }));
        file[KEY] = Value::Array(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_behind_those_of_before_and_is_no_result() {
        let results = json!({ "a": 1 });
        let mut file = results.clone();
        for (number, why) in ["first", "second"].iter().enumerate() {
            let reasons = Blessings::take_from(&mut file).unwrap();
            assert_eq!((reasons.0.len(), &file), (number, &results));
            reasons.put_into(&mut file, why, &[format!("a: {number}")]);
        }
        let reasons = Blessings::take_from(&mut file).unwrap();
        let [first, second] = &reasons.0[..] else { panic!("{reasons:?}") };
        assert_eq!(*first, json!({ "why": "first", "changes": ["a: 0"] }));
        assert_eq!(second["why"], "second");
        assert!(Blessings::take_from(&mut json!({ KEY: 1 })).is_err(), "no list");
        assert_eq!(Blessings::take_from(&mut Value::Null).unwrap(), Blessings::default());
    }
}

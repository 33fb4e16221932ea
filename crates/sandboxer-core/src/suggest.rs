//! "Did you mean": one rule for profiles, keys, flags and ids.

/// The candidate nearest to `word`, if it is near enough to be a slip of the hand.
pub fn nearest<'a, I>(word: &str, candidates: I) -> Option<&'a str>
where
    I: IntoIterator<Item = &'a str>,
{
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(word.len()) + 1)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`, ready to be a hint.
pub fn did_you_mean<'a, I>(word: &str, candidates: I) -> Option<String>
where
    I: IntoIterator<Item = &'a str>,
{
    nearest(word, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// `text` made safe to print in a message: control characters escaped, length bounded.
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut out: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_mended_and_a_stranger_is_not() {
        let known = ["profile.agent-dev", "profile.build", "profile.sandbox-canary"];
        assert_eq!(nearest("profile.agnet-dev", known), Some("profile.agent-dev"));
        assert_eq!(nearest("profile.biuld", known), Some("profile.build"));
        assert_eq!(nearest("kubernetes", known), None);
    }

    #[test]
    fn printing_is_bounded_and_inert() {
        assert_eq!(printable("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert!(printable(&"x".repeat(500)).chars().count() <= 81);
    }
}

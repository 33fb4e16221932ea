//! Vocabulary, lifecycle, capability, money, profile schema and the extension contract; pure

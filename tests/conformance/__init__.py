"""The rules of RSocket 1.0 as conversations, by number, where no other test tells one: see docs/conformance."""

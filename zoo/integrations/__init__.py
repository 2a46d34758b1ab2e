"""The zoo's models under other libraries' tools."""

"""Redis and Valkey as an Arrow store."""

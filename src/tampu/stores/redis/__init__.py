"""Redis and Valkey as a store for Spark."""

"""The Redis and Valkey engine: everything in short Lua scripts, one server, a Sentinel group or a cluster."""

from tampu.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine"]

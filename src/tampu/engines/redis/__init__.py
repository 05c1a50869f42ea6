"""The Redis and Valkey engine. Every change is one short Lua script. Works with one server, Sentinel or a cluster."""

from tampu.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine"]

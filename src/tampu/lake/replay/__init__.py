"""Replay from the lake: messages that have ended run again."""

from tampu.lake.replay.publish import Replay, replay

__all__ = ["Replay", "replay"]

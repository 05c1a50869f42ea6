"""Replay from the lake: messages that have ended run again."""

from tampu.lake.replay.publish import Replay

__all__ = ["Replay"]

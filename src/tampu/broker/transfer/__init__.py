"""Migrate all queues from one store to another: `Move`, which works with any two engines.

The source is closed and otherwise unchanged; the target is closed until everything has arrived. Both record the
progress, so a migration that was killed continues when it is started again. No message is lost, and none is stored
twice, because messages keep their ids.
"""

from tampu.broker.transfer.move import Move, TransferOptions, reopen
from tampu.broker.transfer.report import Report

__all__ = ["Move", "Report", "TransferOptions", "reopen"]

"""Moving a whole house from one store to another: `Move`, over the engine port alone.

The source is closed and stays as it was; the target is closed until everything has arrived. What has been done is
written down in both, so a move that was killed anywhere goes on when it is started again: no message is lost, and none
is there twice, for they keep their ids.
"""

from tampu.broker.transfer.move import Move, TransferOptions, reopen
from tampu.broker.transfer.report import Report

__all__ = ["Move", "Report", "TransferOptions", "reopen"]

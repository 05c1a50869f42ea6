"""What the tests inherit from whoever started them must not reach the processes that the tests start.

A shell starts a job in the background with Ctrl-C ignored, and `nohup` ignores the hangup. A process that ignores a
signal passes that on to all its children, which then wait for ever for the Ctrl-C of a test. A handler is not passed
on. So a handler that does nothing keeps the tests themselves as deaf as they were asked to be, and their children not.
"""

import signal

_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def let_children_be_interrupted() -> None:
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)

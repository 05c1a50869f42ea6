"""Where messages are stored. `port.py` is the interface of all engines; each engine has a folder of its own.

The other modules hold rules and encodings that several engines share. No policy: limits and delays come in the calls.
"""

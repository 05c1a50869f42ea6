"""Where messages are stored. `port.py` is the interface of all engines; each engine has a folder of its own.

The other modules hold rules and encodings that several engines share.

Not here: policy. Validation, settings and limits are the broker's, and reach an engine as values in its calls.
"""

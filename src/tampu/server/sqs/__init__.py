"""The wire protocol of Amazon SQS at ``/sqs``: any AWS SDK works with tampu's queues. Its messages are tampu messages.

This package only translates parameters, signatures, attributes and errors. What may happen to a message is the
broker's.
"""

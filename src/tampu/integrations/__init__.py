"""tampu under other libraries' interfaces. Each package here needs that library, and uses only the public `tampu.Store`.

Not here: the protocol of SQS, which is the server's (`tampu.server.sqs`), and Spark (`tampu.spark`).
"""

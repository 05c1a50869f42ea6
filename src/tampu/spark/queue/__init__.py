"""A queue as a Spark stream: deliveries, the delivery log, and settling."""

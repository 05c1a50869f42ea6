"""A queue as a Spark stream: deliveries, their log, and settling them."""

"""Publishing a DataFrame: rows to messages, staged by tasks, published by the job's commit."""

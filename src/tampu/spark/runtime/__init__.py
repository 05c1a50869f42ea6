"""What a Spark session needs on this machine: Java, Python, settings."""

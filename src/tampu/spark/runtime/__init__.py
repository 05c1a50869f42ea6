"""Spark sessions, and the Java and Python they need on this machine."""

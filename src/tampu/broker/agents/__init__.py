"""Agents: what users may know of maintenance tasks and followers, and how they run, pause and resume them.

The tasks themselves are in `tampu.maintenance`, in the leader. Here are the documents by which processes talk.
"""

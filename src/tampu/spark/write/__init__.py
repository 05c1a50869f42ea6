"""Publishes a DataFrame: tasks turn rows into messages and stage them, the commit of the job publishes them."""

"""Columns out of packed bodies, ids and journal records, many at a time."""

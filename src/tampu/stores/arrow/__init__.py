"""Arrow columns from packed bodies, ids and journal records, many at a time."""

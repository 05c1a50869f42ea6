"""Commands over the lake: sql, export, insights, pipeline, replay --from-lake."""

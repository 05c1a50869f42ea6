"""What the data source needs of a store, one file per engine."""

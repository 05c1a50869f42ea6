"""Commands of the panel Maintain: check, migrate and measure a store."""

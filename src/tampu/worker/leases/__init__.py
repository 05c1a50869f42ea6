"""Keeping the leases of running messages alive."""

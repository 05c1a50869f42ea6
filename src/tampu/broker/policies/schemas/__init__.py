"""Schemas: JSON Schema for payloads, by queue and type."""

"""Alerts: definitions of when to warn, and what is stored of those that fire. `tampu.maintenance.alerts` measures."""

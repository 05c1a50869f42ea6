"""Schedules: what is stored, when they fire, and the verbs over them. The leader's scheduler fires them."""
